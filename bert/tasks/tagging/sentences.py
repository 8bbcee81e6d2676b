"""Sentences in files of tagged words: one word per line, and a blank line after each sentence.

The columns are those of CoNLL-2003 (paper, section 5.3), in any order. Predictions are written as
one more column of the lines that were read.
"""

import bisect
import collections
import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from bert.files.display import counted
from bert.files.durable import replace_files
from bert.files.rows import text_lines
from bert.log import logger
from bert.options import Message, MessageError, Option, OptionError
from bert.tasks.split import DevSplit, find_file
from bert.tasks.tagging.options import ENDINGS, TaggingData
from bert.tasks.tagging.tags import (
    OUTSIDE,
    PLAIN,
    SCHEMES,
    character_spans,
    find_entities,
    find_fault,
    is_tag,
    to_tags,
)

_CONLL_2012_DOCUMENT = re.compile(r"#(?:begin|end) document\b")
_WHITESPACE = re.compile("[ \t]+")
_WORD_COLUMN, _TAG_COLUMN = Option("text_column"), Option("label_column")
_SEPARATORS = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ","}


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of words and tags.

    Attributes:
      word: The column of the words, from 0, or from the end with -1.
      tag: The column of the tags, from 0, or from the end with -1.
      separator: The text between columns, or "tab", "space" or "comma"; None for any number of
        spaces and tabs.
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
    """The words of a sentence, with their tags.

    Attributes:
      words: The words.
      tags: The tag of each word; None if they are not known.
      document: The number of the sentence's document.
      path: The file of the sentence, or another name of its origin.
      lines: The line of each word; empty for a sentence that is not from a file.
    """

    words: Sequence[str]
    tags: Sequence[str] | None = None
    document: int = 0
    path: str = "text"
    lines: Sequence[int] = ()

    def place(self, word: int) -> str:
        """Returns the file and line of a word, for messages."""
        if self.lines:
            return f"{self.path}:{self.lines[word]}"
        return f"{self.path}, word {word + 1}"


def has_tags(path: str, columns: Columns, scheme: str | None = None) -> bool:
    """Returns whether the column of tags exists and has a tag, not only `_` or parts of speech.

    Args:
      path: A path that `tf.io.gfile` reads.
      columns: The columns of words and tags.
      scheme: The scheme of the tags, if it is one of `tags.PLAIN`.
    """
    for row in _read_rows(path, columns, with_tags=False):
        if not row.is_word:
            continue
        size = len(row.cells)
        if not -size <= columns.tag < size or (columns.word - columns.tag) % size == 0:
            return False
        cell = row.cells[columns.tag]
        if is_tag(cell) or (scheme in PLAIN and cell != "_"):
            return True
    return False


def read(path: str, columns: Columns, *, with_tags: bool = True) -> list[Sentence]:
    """Returns the sentences of a file, plain or gzip.

    Args:
      path: A path that `tf.io.gfile` reads.
      columns: The columns of words and tags.
      with_tags: Whether to read tags, which `detect_scheme` and `check_scheme` validate.

    Raises:
      ValueError: if a column is missing or lines differ in the number of columns, naming file and
        line; or if there is no word.
    """
    sentences: list[Sentence] = []
    empty: list[int] = []
    document = 0
    for is_word, group in itertools.groupby(
        _read_rows(path, columns, with_tags), lambda row: row.is_word
    ):
        rows = list(group)
        if is_word:
            words = [row.cells[columns.word] for row in rows]
            tags = [row.cells[columns.tag] for row in rows] if with_tags else None
            lines = [row.line for row in rows]
            sentences.append(Sentence(words, tags, document, path, lines))
            continue
        document += sum(bool(row.cells) for row in rows)
        empty += [
            row.line
            for before, row in itertools.pairwise(rows)
            if not before.cells and not row.cells
        ]
    if not sentences:
        raise ValueError(f"{path!r} must hold words, one a line. There are none.")
    if empty:
        logger.warning(
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
    """Yields the lines: of words, between documents, and blank ones, which have no cells."""
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
                found = counted(len(cells), "column")
                raise ValueError(
                    f"{path}:{number}: has {found}, but line {first.line} has {len(first.cells)}. "
                    f"Received {line!r}.{hint}"
                )
            _check_cells(f"{path}:{number}", columns, cells, with_tags)
        yield row


def _is_document(cells: Sequence[str]) -> bool:
    return "-DOCSTART-" in cells or _CONLL_2012_DOCUMENT.match(" ".join(cells)) is not None


def _check_cells(place: str, columns: Columns, cells: Sequence[str], with_tags: bool) -> None:
    wanted = [("word", columns.word, _WORD_COLUMN), ("tag", columns.tag, _TAG_COLUMN)]
    for noun, column, option in wanted[: 1 + with_tags]:
        if not -len(cells) <= column < len(cells):
            raise MessageError(
                "%s: must have a column %d, as %s says. It has %d: %s.",
                place,
                column,
                option,
                len(cells),
                list(cells),
            )
        if not cells[column].strip():
            raise ValueError(
                f"{place}: must have a {noun} in column {column}. Received {cells[column]!r}."
            )
    if with_tags and (columns.word - columns.tag) % len(cells) == 0:
        raise MessageError(
            "%s: must have a word and a tag in different columns. %s and %s name the same of its "
            "%d: %s.",
            place,
            _WORD_COLUMN,
            _TAG_COLUMN,
            len(cells),
            list(cells),
        )


def check_scheme(sentences: Iterable[Sentence], scheme: str) -> None:
    """Checks that all tags are of one scheme.

    Raises:
      ValueError: for the first tag that is not, naming its file and line.
    """
    if fault := _find_fault(sentences, scheme):
        raise ValueError(f"{fault[1]}.")


def _find_fault(sentences: Iterable[Sentence], scheme: str) -> tuple[int, str] | None:
    """Returns the index of the first sentence that violates a scheme, and a message."""
    for number, sentence in enumerate(sentences):
        if fault := find_fault(sentence.tags or (), scheme):
            return number, f"{sentence.place(fault.word)}: {fault.message}"
    return None


def detect_scheme(sentences: Sequence[Sentence]) -> str:
    """Returns the scheme of all tags, the first of `SCHEMES` that allows them.

    Tags that IOBES and BMES allow are of BMES where none is O: they split a text into words.

    Raises:
      ValueError: if no scheme allows all tags, naming file, line and tag of each scheme's fault.
    """
    faults = []
    for scheme in SCHEMES:
        fault = _find_fault(sentences, scheme)
        if fault is None:
            if scheme == "iobes" and not any(tag[0] in "IO" for tag in all_tags(sentences)):
                return "bmes"
            return scheme
        faults.append(fault)
    # The scheme with the latest fault is most likely the intended one.
    faults.sort(key=lambda fault: -fault[0])
    messages = "; ".join(dict.fromkeys(message.rstrip(".") for _, message in faults))
    remedy = Message(" Correct these tags: in IOB2, the first word of an entity has B-.")
    if any(tag.startswith(("U-", "L-")) for tag in all_tags(sentences)):
        remedy = Message(" These look like BILOU: write S- for U- and E- for L-, which is IOBES.")
    elif not all(map(is_tag, all_tags(sentences))):
        remedy = Message(
            " For tags that are not entities, such as parts of speech, give %s.",
            Option("scheme", "none"),
        )
    message = "Tags must all be of one scheme, IOB2, IOB1, IOBES or BMES. %s.%s"
    raise MessageError(message, messages, remedy)


def all_tags(sentences: Iterable[Sentence]) -> Iterator[str]:
    """Yields the tags of the words of sentences."""
    for sentence in sentences:
        yield from sentence.tags or ()


def split_characters(sentence: Sentence, scheme: str | None = None) -> Sentence:
    """Returns a sentence of the characters of another one, which have the lines of their words.

    Args:
      sentence: The sentence of words.
      scheme: One of `tags.PLAIN` to give each character the tag of its word; otherwise the
        tags are entities, and become tags of IOB2.
    """
    parts = [[word[start:end] for start, end in character_spans(word)] for word in sentence.words]
    starts = list(itertools.accumulate(map(len, parts), initial=0))
    tags = None
    if sentence.tags is not None and scheme in PLAIN:
        tags = [tag for tag, part in zip(sentence.tags, parts, strict=True) for _ in part]
    elif sentence.tags is not None:
        tags = _moved_tags(sentence.tags, starts.__getitem__, starts[-1], "iob2")
    lines = [line for line, part in zip(sentence.lines, parts, strict=True) for _ in part]
    words = list(itertools.chain.from_iterable(parts))
    return dataclasses.replace(sentence, words=words, tags=tags, lines=lines)


def _moved_tags(
    tags: Sequence[str], move: Callable[[int], int], length: int, scheme: str
) -> list[str]:
    """Returns the tags of `length` units, to which entities are moved; empty entities are lost."""
    entities = [
        entity._replace(start=move(entity.start), end=move(entity.end))
        for entity in find_entities(tags)
    ]
    return to_tags([entity for entity in entities if entity.start < entity.end], length, scheme)


def write_predictions(
    path: str,
    input_path: str,
    columns: Columns,
    predictions: Iterable[tuple[Sentence, Sequence[str]]],
    scheme: str,
    *,
    is_part: bool = False,
) -> None:
    """Writes the lines of a file with the predicted tag as one more column.

    Args:
      path: The file to write, which appears once complete.
      input_path: The file of the sentences.
      columns: The columns of the file.
      predictions: The sentences with a tag for each word, of any scheme.
      scheme: The scheme of the tags to write.
      is_part: Whether the file also has other sentences, whose lines are not written.
    """
    tags: dict[int, str] = {}
    for sentence, predicted in predictions:
        tags.update(_tags_of_lines(sentence, predicted, scheme))
    with replace_files([path]) as [file]:
        is_written = False
        for number, line in text_lines(input_path):
            was_written, is_written = is_written, number in tags or not is_part
            if not is_written:
                # A blank line replaces the first line after a sentence.
                file.write(b"\n" * was_written)
                continue
            # conlleval requires all columns in lines between documents, too.
            tag = tags.get(number, OUTSIDE)
            file.write(f"{columns.append(line, tag) if line.strip() else line}\n".encode())


def _tags_of_lines(
    sentence: Sentence, predicted: Sequence[str], scheme: str
) -> Iterator[tuple[int, str]]:
    """Returns lines with their tags; the first character of a line determines its tag."""
    # A file without blank lines is a single, possibly very long, sentence.
    indices = {line: index for index, line in reversed([*enumerate(sentence.lines)])}
    lines = sorted(indices)
    firsts = [indices[line] for line in lines]
    if scheme in PLAIN:
        return zip(lines, [predicted[first] for first in firsts], strict=True)
    move = functools.partial(bisect.bisect_left, firsts)
    return zip(lines, _moved_tags(predicted, move, len(lines), scheme), strict=True)


def has_labels(sentences: Sequence[Sentence], scheme: str | None = None) -> bool:
    """Returns whether sentences have an entity or, in a scheme of `tags.PLAIN`, a tag."""
    if scheme in PLAIN:
        return any(sentence.tags for sentence in sentences)
    return any(set(sentence.tags or ()) - {OUTSIDE} for sentence in sentences)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggedFiles:
    """The files of the splits "train", "dev" and "test".

    Attributes:
      data: The files, given one by one or in a folder, and their columns.
      scheme: The scheme of the tags; None to detect the scheme of each file.
      unit: The unit of text that has a tag, one of `tags.UNITS`.
      dev_split: The part of the training file that is the dev set; None if it has a file.
      whole_documents: Whether the dev set must have complete documents, since the model is trained
        on windows with neighbouring sentences.
      found: The scheme of each split that was read and has tags.
    """

    data: TaggingData
    scheme: str | None
    unit: str
    dev_split: DevSplit | None = None
    whole_documents: bool = False

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
        found = {split: self.read(split) for split in needed}
        if is_split:
            found["train"], found["dev"] = self._divide(found["train"])
        return {split: found[split] for split in splits}

    def _divide(self, sentences: list[Sentence]) -> tuple[list[Sentence], list[Sentence]]:
        assert self.dev_split is not None
        path = self.find("train")
        if not self.whole_documents:
            keys = [[" ".join(sentence.words)] for sentence in sentences]
            strata = _strata(sentences)
        elif len({sentence.document for sentence in sentences}) > 1:
            keys = [[str(sentence.document)] for sentence in sentences]
            strata = [""] * len(sentences)
        else:
            raise MessageError(
                "%s must be given with %s, since the training file has a single document, which "
                "cannot be divided. Received %r.",
                Option("dev_file"),
                Option("document_context"),
                path,
            )
        noun = "documents" if self.whole_documents else "texts"
        train, dev = self.dev_split.divide(path, sentences, keys, strata, noun)
        if not has_labels(dev, self.scheme):
            raise MessageError(
                "%s needs entities. The %d sentences that are split off %r have none: give a %s, "
                "or a larger %s.",
                Option("do_eval"),
                len(dev),
                path,
                Option("dev_file"),
                Option("dev_fraction"),
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
            "Read %s of %s, %s: %s.",
            counted(len(sentences), "sentence"),
            counted(sum(len(sentence.words) for sentence in sentences), "word"),
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
