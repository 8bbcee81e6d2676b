"""Which files of tagged words a task has, and what they must hold."""

import dataclasses
import os
from collections.abc import Sequence

from absl import logging

import conll
import entity_tags
from bert.files.paths import describe_folder, is_file, list_folder

# Of files in a folder, each also with .gz.
ENDINGS = (".txt", ".conll", ".bio", ".iob", ".iob2", ".iobes", ".tsv")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggedFiles:
    """The files of the splits "train", "dev" and "test".

    Attributes:
      data_dir: Folder with those that are not given one by one.
      train_file: As dev_file and test_file, a path, or None.
      columns: Where words and tags stand.
      scheme: That of the tags; None for the one that all of a file's tags are of.
      unit: What has a label, one of `word_spans.UNITS`.
    """

    data_dir: str | None
    train_file: str | None
    dev_file: str | None
    test_file: str | None
    columns: conll.Columns
    scheme: str | None
    unit: str

    def find(self, split: str) -> str:
        """Returns the path of a split.

        Raises:
          ValueError: where there is none, or more than one.
        """
        path = getattr(self, f"{split}_file")
        if path is None:
            return self._find_in_folder(split)
        if not is_file(path):
            raise ValueError(f"`--{split}_file` must name a file. Received {path!r}.")
        return path

    def _find_in_folder(self, split: str) -> str:
        folder = self.data_dir
        if folder is None:
            raise ValueError(f"`--data_dir` or `--{split}_file` must be given.")
        names = {split + ending + packed for ending in ENDINGS for packed in ("", ".gz")}
        found = [name for name in list_folder(folder) if name in names]
        if len(found) > 1:
            raise ValueError(
                f"`--data_dir` must hold one file for the {split} set. Received {found} in "
                f"{folder!r}. Name one with `--{split}_file`."
            )
        if not found:
            raise ValueError(
                f"`--data_dir` must hold {split!r} with one of the endings {list(ENDINGS)}, or "
                f"`--{split}_file` name the file. Received {describe_folder(folder)}."
            )
        return os.path.join(folder, found[0])

    def read(self, split: str) -> list[conll.Sentence]:
        """Returns the sentences of a split; only those of the test set may be without tags.

        Raises:
          ValueError: as `conll.read` and `conll.check_scheme`; and where the dev set has no entity.
        """
        path = self.find(split)
        is_tagged = split != "test" or conll.has_tags(path, self.columns)
        sentences = conll.read(path, self.columns, with_tags=is_tagged)
        scheme = self._check_tags(sentences) if is_tagged else None
        logging.info(
            "Read %d sentences of %d words, %s: %s.",
            len(sentences),
            sum(len(sentence.words) for sentence in sentences),
            f"tags in {scheme.upper()}" if scheme else "without tags",
            path,
        )
        if is_tagged and split != "train" and not has_entities(sentences):
            if split == "dev":
                raise ValueError(f"`--do_eval` needs entities. All tags in {path!r} are O.")
            logging.warning("All tags in %s are O: predictions are not scored.", path)
        if self.unit == "character":
            return [conll.split_characters(sentence) for sentence in sentences]
        return sentences

    def _check_tags(self, sentences: Sequence[conll.Sentence]) -> str:
        if self.scheme is None:
            return conll.detect_scheme(sentences)
        conll.check_scheme(sentences, self.scheme)
        return self.scheme


def has_entities(sentences: Sequence[conll.Sentence]) -> bool:
    """Returns whether any word has a tag other than O."""
    return any(set(sentence.tags or ()) - {entity_tags.OUTSIDE} for sentence in sentences)
