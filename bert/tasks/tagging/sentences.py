"""Files of tagged words in columns: a word a line, a blank line after each sentence.

Reads and checks the files of CoNLL-2003 and the like, and writes predictions line by line beside
what was read (paper, section 5.3).
"""

import bisect
import collections
import dataclasses
import functools
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from absl import logging

from bert.files.durable import replace_files
from bert.files.paths import is_file
from bert.files.rows import text_lines
from bert.options import Message, MessageError, Option, OptionError
from bert.tasks.split import DevSplit, find_in_folder
from bert.tasks.tagging import entities as tagging_entities
from bert.tasks.tagging import words as tagging_words
from bert.tasks.tagging.options import ENDINGS, TaggingData

_CONLL_2012_DOCUMENT = re.compile(r"#(?:begin|end) document\b")
_WHITESPACE = re.compile("[ \t]+")
_SEPARATORS = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ","}


@dataclasses.dataclass(frozen=True)
class Columns:
    """Where words and tags stand.

    Attributes:
      word: Column of the words, from 0, or from the end with -1.
      tag: Column of the tags, likewise.
      separator: What separates columns: any text, or "tab", "space" or "comma"; None for any
        number of spaces and tabs.
    """

    word: int = 0
    tag: int = -1
    separator: str | None = None

    def __post_init__(self) -> None:
        if self.separator == "":
            raise OptionError("separator", "not be empty", "")

    def split(self, line: str) -> list[str]:
        """Returns the cells of a line."""
        if self.separator is None:
            return _WHITESPACE.split(line.strip(" \t"))
        return line.split(_SEPARATORS.get(self.separator, self.separator))

    def append(self, line: str, cell: str) -> str:
        """Returns a line with one more cell."""
        if self.separator is not None:
            return line + _SEPARATORS.get(self.separator, self.separator) + cell
        return line.rstrip(" \t") + ("\t" if "\t" in line.strip() else " ") + cell


@dataclasses.dataclass(frozen=True, slots=True)
class Sentence:
    """Words with their tags.

    Attributes:
      words: At least one.
      tags: One per word; None where they are not known.
      document: The number of its document.
      path: The file, or another name of where it is from.
      lines: The line of each word; where there is none, words are counted in messages.
    """

    words: Sequence[str]
    tags: Sequence[str] | None = None
    document: int = 0
    path: str = "text"
    lines: Sequence[int] = ()

    def place(self, word: int) -> str:
        """Returns where a word stands, for messages."""
        if self.lines:
            return f"{self.path}:{self.lines[word]}"
        return f"{self.path}, word {word + 1}"


def has_tags(path: str, columns: Columns, scheme: str | None = None) -> bool:
    """Returns whether a file has the column of tags, and anything in it that is a tag.

    What is not, such as `_`, or parts of speech where the tags are entities, is then another column
    than that of tags.

    Args:
      path: As `read`.
      columns: As `read`.
      scheme: That of the tags, where it is one of `entities.PLAIN`.
    """
    for row in _read_rows(path, columns, with_tags=False):
        if not row.is_word:
            continue
        size = len(row.cells)
        if not -size <= columns.tag < size or (columns.word - columns.tag) % size == 0:
            return False
        cell = row.cells[columns.tag]
        is_plain = scheme in tagging_entities.PLAIN and cell != "_"
        if is_plain or tagging_entities.is_tag(cell):
            return True
    return False


def read(path: str, columns: Columns, *, with_tags: bool = True) -> list[Sentence]:
    """Returns the sentences of a file, plain or gzip.

    Args:
      path: A path that `tf.io.gfile` reads.
      columns: Where words and tags stand.
      with_tags: Whether to read tags; `detect_scheme` and `check_scheme` tell whether they make
        sense.

    Raises:
      ValueError: naming file and line, where columns are missing or lines differ in their number,
        or where there is no word at all.
    """
    sentences: list[Sentence] = []
    rows: list[_Row] = []
    empty: list[int] = []
    document = 0
    blank_before = False
    for row in _read_rows(path, columns, with_tags):
        if row.is_word:
            rows.append(row)
        else:
            if rows:
                sentences.append(_make_sentence(path, columns, rows, document, with_tags))
                rows = []
            if blank_before and not row.cells:
                empty.append(row.line)
            document += bool(row.cells)
        blank_before = not row.cells
    if rows:
        sentences.append(_make_sentence(path, columns, rows, document, with_tags))
    if not sentences:
        raise ValueError(f"{path!r} must hold words, one a line. There are none.")
    if empty:
        logging.warning(
            "%s: skipped %d empty sentences, blank lines after blank lines; the first is line %d.",
            path,
            len(empty),
            empty[0],
        )
    return sentences


class _Row(NamedTuple):
    line: int
    cells: list[str]
    is_word: bool


def _read_rows(path: str, columns: Columns, with_tags: bool) -> Iterator[_Row]:
    """Yields the lines: those of words, those between documents, and blank ones without cells."""
    first: _Row | None = None
    for number, line in text_lines(path):
        cells = columns.split(line) if line.strip() else []
        row = _Row(number, cells, bool(cells) and not _is_document(cells))
        if row.is_word:
            first = first or row
            if len(cells) != len(first.cells):
                hint = ""
                if first.cells[0].startswith("#"):
                    hint = f" If line {first.line} is a comment, remove such lines."
                raise ValueError(
                    f"{path}:{number}: has {len(cells)} columns, but line {first.line} has "
                    f"{len(first.cells)}. Received {line!r}.{hint}"
                )
            _check_cells(f"{path}:{number}", columns, cells, with_tags)
        yield row


def _is_document(cells: Sequence[str]) -> bool:
    return "-DOCSTART-" in cells or _CONLL_2012_DOCUMENT.match(" ".join(cells)) is not None


def _check_cells(place: str, columns: Columns, cells: Sequence[str], with_tags: bool) -> None:
    wanted = {"word": ("text", columns.word), "tag": ("label", columns.tag)}
    for name, (flag, column) in wanted.items():
        if name == "tag" and not with_tags:
            continue
        if not -len(cells) <= column < len(cells):
            raise ValueError(
                f"{place}: must have a column {column}, as `--{flag}_column` says. It has "
                f"{len(cells)}: {list(cells)}."
            )
        if not cells[column].strip():
            raise ValueError(
                f"{place}: must have a {name} in column {column}. Received {cells[column]!r}."
            )
    if with_tags and (columns.word - columns.tag) % len(cells) == 0:
        raise MessageError(
            "%s: must have a word and a tag in different columns. %s and %s name the same of its "
            "%d: %s.",
            *(place, Option("text_column"), Option("label_column"), len(cells), list(cells)),
        )


def _make_sentence(
    path: str, columns: Columns, rows: Sequence[_Row], document: int, with_tags: bool
) -> Sentence:
    return Sentence(
        words=[row.cells[columns.word] for row in rows],
        tags=[row.cells[columns.tag] for row in rows] if with_tags else None,
        document=document,
        path=path,
        lines=[row.line for row in rows],
    )


def check_scheme(sentences: Iterable[Sentence], scheme: str) -> None:
    """Checks that all tags are of one scheme.

    Raises:
      ValueError: naming file, line and tag of the first that is not.
    """
    if fault := _find_fault(sentences, scheme):
        raise ValueError(f"{fault[1]}.")


def _find_fault(sentences: Iterable[Sentence], scheme: str) -> tuple[int, str] | None:
    """Returns the number of the first sentence with a fault, and what to say of it."""
    for number, sentence in enumerate(sentences):
        if fault := tagging_entities.find_fault(sentence.tags or (), scheme):
            return number, f"{sentence.place(fault.word)}: {fault.message}"
    return None


def detect_scheme(sentences: Sequence[Sentence]) -> str:
    """Returns the one scheme that all tags are of; that is IOB2 where there is no entity.

    Raises:
      ValueError: where there is none, naming file, line and tag at which each one fails.
    """
    faults = []
    for scheme in tagging_entities.SCHEMES:
        fault = _find_fault(sentences, scheme)
        if fault is None:
            return scheme
        faults.append(fault)
    # The one that goes furthest is likely to be meant.
    faults.sort(key=lambda fault: -fault[0])
    said = "; ".join(dict.fromkeys(message.rstrip(".") for _, message in faults))
    remedy = Message(" Correct these tags: in IOB2, the first word of an entity has B-.")
    if any(tag.startswith(("U-", "L-")) for tag in _all_tags(sentences)):
        remedy = Message(" These look like BILOU: write S- for U- and E- for L-, which is IOBES.")
    elif not all(map(tagging_entities.is_tag, _all_tags(sentences))):
        remedy = Message(
            " For tags that are no entities, such as parts of speech, give %s.",
            Option("scheme", "none"),
        )
    message = "Tags must all be of one scheme, IOB2, IOB1, IOBES or BMES. %s.%s"
    raise MessageError(message, said, remedy)


def _all_tags(sentences: Iterable[Sentence]) -> Iterator[str]:
    for sentence in sentences:
        yield from sentence.tags or ()


def split_characters(sentence: Sentence, scheme: str | None = None) -> Sentence:
    """Returns a sentence whose words are the characters of the given one, on the same lines.

    Its tags are of IOB2; where the given ones are of `entities.PLAIN`, as `scheme` says then, each
    character has that of its word.
    """
    parts = [
        [word[start:end] for start, end in tagging_words.character_spans(word)]
        for word in sentence.words
    ]
    starts = list(itertools.accumulate(map(len, parts), initial=0))
    tags = None
    if sentence.tags is not None and scheme in tagging_entities.PLAIN:
        tags = [tag for tag, part in zip(sentence.tags, parts, strict=True) for _ in part]
    elif sentence.tags is not None:
        entities = [
            entity._replace(start=starts[entity.start], end=starts[entity.end])
            for entity in tagging_entities.find_entities(sentence.tags)
        ]
        # A word of no character, such as a wide space, leaves nothing.
        entities = [entity for entity in entities if entity.start < entity.end]
        tags = tagging_entities.to_tags(entities, starts[-1], "iob2")
    lines = [line for line, part in zip(sentence.lines, parts, strict=True) for _ in part]
    words = list(itertools.chain.from_iterable(parts))
    return dataclasses.replace(sentence, words=words, tags=tags, lines=lines)


def write_predictions(
    path: str,
    input_path: str,
    columns: Columns,
    predictions: Iterable[tuple[Sentence, Sequence[str]]],
    scheme: str,
    *,
    is_part: bool = False,
) -> None:
    """Writes a file's lines again, each with the predicted tag as one more column.

    Args:
      path: The file to write; it appears when it is whole.
      input_path: The file that the sentences were read from.
      columns: As for `read`.
      predictions: The sentences with a tag for each word, of any scheme.
      scheme: That of the tags to write.
      is_part: Whether the file has other sentences, too, whose lines are left out.
    """
    tags: dict[int, str] = {}
    for sentence, predicted in predictions:
        tags.update(_tags_of_lines(sentence, predicted, scheme))
    with replace_files([path]) as [file]:
        is_kept = False
        for number, line in text_lines(input_path):
            was_kept, is_kept = is_kept, number in tags or not is_part
            if not is_kept:
                # What follows a sentence stands for the blank line after it.
                file.write(b"\n" * was_kept)
                continue
            # Lines between documents get a tag, too, so that conlleval finds all columns.
            tag = tags.get(number, tagging_entities.OUTSIDE)
            file.write(f"{columns.append(line, tag) if line.strip() else line}\n".encode())


def _tags_of_lines(
    sentence: Sentence, predicted: Sequence[str], scheme: str
) -> Iterator[tuple[int, str]]:
    """Returns lines with their tags; of a line's characters, the first decides."""
    # A file without blank lines is one sentence, which may be very long.
    places = {line: place for place, line in reversed([*enumerate(sentence.lines)])}
    lines = sorted(places)
    firsts = [places[line] for line in lines]
    if scheme in tagging_entities.PLAIN:
        return zip(lines, [predicted[first] for first in firsts], strict=True)
    entities = [
        entity._replace(
            start=bisect.bisect_left(firsts, entity.start),
            end=bisect.bisect_left(firsts, entity.end),
        )
        for entity in tagging_entities.find_entities(predicted)
    ]
    entities = [entity for entity in entities if entity.start < entity.end]
    return zip(lines, tagging_entities.to_tags(entities, len(lines), scheme), strict=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggedFiles:
    """The files of the splits "train", "dev" and "test".

    Attributes:
      data: The files, given one by one or in a folder, and their columns.
      scheme: That of the tags; None for the one that all of a file's tags are of.
      unit: What has a label, one of `words.UNITS`.
      dev_split: How the dev set is split off the training file; None where it has a file.
      document_context: Whether sentences are read with their neighbours: then documents stay whole.
      found: The scheme of each split that was read, where it has tags.
    """

    data: TaggingData
    scheme: str | None
    unit: str
    dev_split: DevSplit | None = None
    document_context: bool = False

    found: dict[str, str] = dataclasses.field(default_factory=dict, compare=False)

    @functools.cached_property
    def columns(self) -> Columns:
        """Where words and tags are."""
        return Columns(self.data.text_column, self.data.label_column, self.data.separator)

    def read_all(self, splits: Collection[str]) -> dict[str, list[Sentence]]:
        """Returns the sentences of some splits; no file is read before all are found."""
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
                "%s must be given with %s, for the training file has one document alone, which "
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
          ValueError: where there is none, or more than one.
        """
        option = Option(f"{split}_file")
        path: str | None = getattr(self.data, option.name)
        if path is None:
            endings = [ending + packed for ending in ENDINGS for packed in ("", ".gz")]
            return find_in_folder(self.data.data_dir, split, endings, ENDINGS)
        if not is_file(path):
            raise OptionError(option.name, "name a file", path)
        return path

    def read(self, split: str) -> list[Sentence]:
        """Returns the sentences of a split; only those of the test set may be without tags.

        Raises:
          ValueError: as `read` and `check_scheme`; and where the dev set has no entity.
        """
        path = self.find(split)
        is_tagged = split != "test" or has_tags(path, self.columns, self.scheme)
        sentences = read(path, self.columns, with_tags=is_tagged)
        scheme = self._check_tags(sentences) if is_tagged else None
        if scheme:
            self.found[split] = scheme
        logging.info(
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
            logging.warning("All tags in %s are O: predictions are not scored.", path)
        if self.unit == "character":
            return [split_characters(sentence, scheme) for sentence in sentences]
        return sentences

    def _check_tags(self, sentences: Sequence[Sentence]) -> str:
        if self.scheme is None:
            return detect_scheme(sentences)
        if self.scheme in tagging_entities.PLAIN:
            return self.scheme
        check_scheme(sentences, self.scheme)
        return self.scheme


def _strata(sentences: Sequence[Sentence]) -> list[str]:
    """Returns of each sentence the rarest type of entity in it, "" where there is none."""
    types = [
        {tag.partition("-")[2] or tag for tag in sentence.tags or ()} - {tagging_entities.OUTSIDE}
        for sentence in sentences
    ]
    counts = collections.Counter(itertools.chain.from_iterable(types))
    return [min(each, key=lambda name: (counts[name], name), default="") for each in types]


def _describe_tags(sentences: Iterable[Sentence], scheme: str | None) -> str:
    if scheme is None:
        return "without tags"
    if scheme in tagging_entities.PLAIN:
        return f"{len({*_all_tags(sentences)})} tags, each a class of its own"
    return f"tags in {scheme.upper()}"


def has_labels(sentences: Sequence[Sentence], scheme: str | None = None) -> bool:
    """Returns whether there is something to find: an entity, or of `entities.PLAIN` any tag."""
    if scheme in tagging_entities.PLAIN:
        return any(sentence.tags for sentence in sentences)
    return any(set(sentence.tags or ()) - {tagging_entities.OUTSIDE} for sentence in sentences)
