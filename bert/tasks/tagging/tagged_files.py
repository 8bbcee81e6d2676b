"""The files of tagged sentences of a data set, each found, read and checked."""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Collection, Iterable, Sequence

from bert.log import logger
from bert.options import MessageError, Option
from bert.tasks.split import DevSplit, find_file
from bert.tasks.tagging.entities import OUTSIDE, PLAIN
from bert.tasks.tagging.options import ENDINGS, TaggingData
from bert.tasks.tagging.sentences import (
    Columns,
    Sentence,
    all_tags,
    check_scheme,
    detect_scheme,
    has_labels,
    has_tags,
    read,
    split_characters,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggedFiles:
    """The files of the splits "train", "dev" and "test".

    Attributes:
      data: The files, given one by one or in a folder, and their columns.
      scheme: The scheme of the tags; None to detect the scheme of each file.
      unit: The unit of text that has a tag, one of `words.UNITS`.
      dev_split: The part of the training file that is the dev set; None if it has a file.
      document_context: Whether windows have neighbouring sentences, so that the dev set must have
        complete documents.
      found: The scheme of each split that was read and has tags.
    """

    data: TaggingData
    scheme: str | None
    unit: str
    dev_split: DevSplit | None = None
    document_context: bool = False

    found: dict[str, str] = dataclasses.field(default_factory=dict, compare=False)

    @functools.cached_property
    def columns(self) -> Columns:
        """The columns of words and tags."""
        return Columns(self.data.text_column, self.data.label_column, self.data.separator)

    def read_all(self, splits: Collection[str]) -> dict[str, list[Sentence]]:
        """Returns the sentences of splits; all files are found before one is read."""
        is_split = self.dev_split is not None and "dev" in splits
        needed = ["train", *(s for s in splits if s == "test")] if is_split else splits
        for split in needed:
            self.find(split)
        read = {split: self.read(split) for split in needed}
        if is_split:
            read["train"], read["dev"] = self._divide(read["train"])
        return {split: read[split] for split in splits}

    def _divide(self, sentences: list[Sentence]) -> tuple[list[Sentence], list[Sentence]]:
        assert self.dev_split is not None
        path = self.find("train")
        if not self.document_context:
            keys = [[" ".join(sentence.words)] for sentence in sentences]
            strata = _strata(sentences)
        elif len({sentence.document for sentence in sentences}) > 1:
            keys = [[str(sentence.document)] for sentence in sentences]
            strata = [""] * len(sentences)
        else:
            raise MessageError(
                "%s must be given with %s, since the training file has a single document, which "
                "cannot be divided. Received %r.",
                *(Option("dev_file"), Option("document_context"), path),
            )
        train, dev = self.dev_split.divide(path, sentences, keys, strata)
        if not has_labels(dev, self.scheme):
            raise MessageError(
                "%s needs entities. The %d sentences that are split off %r have none: give a %s, "
                "or a larger %s.",
                *(Option("do_eval"), len(dev), path, Option("dev_file"), Option("dev_fraction")),
            )
        return train, dev

    def find(self, split: str) -> str:
        """Returns the path of a split.

        Raises:
          ValueError: if there is no file, or more than one.
        """
        endings = [ending + packed for ending in ENDINGS for packed in ("", ".gz")]
        return find_file(self.data, split, endings, ENDINGS)

    def read(self, split: str) -> list[Sentence]:
        """Returns the sentences of a split; only the test set may have no tags.

        Raises:
          ValueError: for a malformed file or tag, or a dev set without entities.
        """
        path = self.find(split)
        is_tagged = split != "test" or has_tags(path, self.columns, self.scheme)
        sentences = read(path, self.columns, with_tags=is_tagged)
        scheme = None
        if is_tagged:
            scheme = self.found[split] = self.scheme or detect_scheme(sentences)
            if self.scheme and scheme not in PLAIN:
                check_scheme(sentences, scheme)
        logger.info(
            "Read %d sentences of %d words, %s: %s.",
            len(sentences),
            sum(len(sentence.words) for sentence in sentences),
            _describe_tags(sentences, scheme),
            path,
        )
        if is_tagged and split != "train" and not has_labels(sentences, scheme):
            if split == "dev":
                message = "%s needs entities. All tags in %r are O."
                raise MessageError(message, Option("do_eval"), path)
            logger.warning("All tags in %s are O: predictions are not scored.", path)
        if self.unit == "character":
            return [split_characters(sentence, scheme) for sentence in sentences]
        return sentences


def _strata(sentences: Sequence[Sentence]) -> list[str]:
    """Returns the rarest type of entity in each sentence, "" for a sentence without entities."""
    types = [
        {tag.partition("-")[2] or tag for tag in sentence.tags or ()} - {OUTSIDE}
        for sentence in sentences
    ]
    counts = collections.Counter(itertools.chain.from_iterable(types))
    return [min(names, key=lambda name: (counts[name], name), default="") for names in types]


def _describe_tags(sentences: Iterable[Sentence], scheme: str | None) -> str:
    if scheme is None:
        return "without tags"
    if scheme in PLAIN:
        return f"{len({*all_tags(sentences)})} tags, each of which is a class"
    return f"tags in {scheme.upper()}"
