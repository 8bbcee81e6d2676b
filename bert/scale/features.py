"""What an encoder makes of the texts of files of any size, written as they come (paper, 5.3)."""

import array
import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from absl import logging

import modeling
import tokenization
from bert.files.durable import replace_files
from bert.files.progress import Progress
from bert.files.rows import find_texts
from bert.files.texts import GivenText, Texts
from bert.files.vectors import Array, Features, text_array, write_jsonl, write_npy, write_npz
from bert.models import encoding
from bert.models.similarity import unit_length
from bert.scale.batches import Work
from bert.scale.settings import TEXT_LIMIT, ExtractedSettings
from bert.tasks.features import Extractor, Line, read_line
from bert.tasks.layers import parse_layers
from bert.weights.folder import ModelFolder


@dataclasses.dataclass(frozen=True)
class Lines:
    """Texts, tokenized anew each time they are iterated.

    Attributes:
      given: Reads them.
      files: Where they are from, for messages.
      has_ids: Whether they have ids.
      tokenizer: That of the model.
      max_seq_length: Tokens of each at most.
      start: How many of the files stand before the first of them.
    """

    given: Callable[[], Iterable[GivenText]]
    files: Sequence[str]
    has_ids: bool
    tokenizer: tokenization.FullTokenizer
    max_seq_length: int
    start: int = 0

    @classmethod
    def of(
        cls, texts: Texts, tokenizer: tokenization.FullTokenizer, max_seq_length: int
    ) -> "Lines":
        """Returns all the texts of files."""
        return cls(texts.__iter__, texts.files, texts.has_ids, tokenizer, max_seq_length)

    def only(self, span: range) -> "Lines":
        """Returns those at some places; the others are passed over."""
        return dataclasses.replace(
            self,
            given=lambda: itertools.islice(self.given(), span.start, span.stop),
            start=span.start,
        )

    def __iter__(self) -> Iterator[Line]:
        for given in self.given():
            yield read_line(given.texts, self.tokenizer, self.max_seq_length)


class Survey(NamedTuple):
    """What is known of lines before they are computed.

    Attributes:
      lengths: Tokens of each.
      num_cut: How many were too long.
      num_unknown: Tokens that are [UNK].
      num_empty: Lines with no token but [CLS] and [SEP].
    """

    lengths: array.array
    num_cut: int
    num_unknown: int
    num_empty: int


def measure(lines: Lines, config: modeling.BertConfig) -> Survey:
    """Reads all lines.

    Raises:
      ValueError: where there is a pair that the model cannot take.
    """
    lengths = array.array("I")
    num_cut = num_unknown = num_empty = 0
    for number, line in enumerate(lines, start=lines.start + 1):
        if line.segment_ids[-1] >= config.type_vocab_size:
            raise ValueError(
                "`type_vocab_size` in --bert_config_file must be at least 2 for pairs `A ||| B`. "
                f"Received {config.type_vocab_size}, and line {number} of {lines.files} is one."
            )
        lengths.append(len(line.tokens))
        num_cut += line.num_cut > 0
        num_unknown += line.tokens.count("[UNK]")
        num_empty += len(line.tokens) == 2
    return Survey(lengths, num_cut, num_unknown, num_empty)


def survey(lines: Lines, config: modeling.BertConfig) -> array.array:
    """Returns the number of tokens of every line, and warns of what looks wrong.

    Raises:
      ValueError: as `measure`.
    """
    lengths, num_cut, num_unknown, num_empty = measure(lines, config)
    num_tokens = sum(lengths)
    logging.info("Read %d lines, %d tokens with [CLS] and [SEP].", len(lengths), num_tokens)
    if num_cut:
        logging.warning("%d lines were cut to fit --max_seq_length.", num_cut)
    if num_empty:
        logging.warning("%d lines have no token but [CLS] and [SEP].", num_empty)
    if num_unknown > 0.02 * num_tokens:
        logging.warning(
            "%.1f %% of the tokens are [UNK]. Are --vocab_file and --do_lower_case the right ones "
            "for this text?",
            100 * num_unknown / num_tokens,
        )
    return lengths


def extract(
    extractor: Extractor,
    lines: Lines,
    settings: ExtractedSettings,
    tell: Callable[[int], None] = lambda num_tokens: None,
) -> Iterator[Features]:
    """Yields the tokens and features of each line, in order.

    Args:
      extractor: Computes them.
      lines: The texts.
      settings: How.
      tell: Is told now and then of how many tokens have been done.

    Raises:
      ArithmeticError: where features are not finite.
    """
    scaled = settings.normalize
    number, num_done = lines.start, 0
    chunks = encoding.extract(
        extractor,
        lines,
        batch_size=settings.batch_size,
        max_seq_length=settings.tokens_at_most(),
    )
    for chunk in chunks:
        for line, values in chunk:
            number += 1
            if not all(np.isfinite(each).all() for each in values):
                raise ArithmeticError(
                    f"Features must be finite. Those of line {number} of {lines.files} are "
                    f"not; look at the weights in {settings.init_checkpoint!r}."
                )
            yield line.tokens, [unit_length(each) for each in values] if scaled else values
            num_done += len(line.tokens)
        tell(num_done)


def _write_jsonl(
    file: BinaryIO,
    features: Iterator[Features],
    extractor: Extractor,
    lines: Lines,
    lengths: array.array,
) -> None:
    del lengths
    ids = (given.id or "" for given in lines.given()) if lines.has_ids else None
    write_jsonl(file, features, extractor.layers, extractor.pooling, ids, lines.start)


def _write_npy(
    file: BinaryIO,
    features: Iterator[Features],
    extractor: Extractor,
    lines: Lines,
    lengths: array.array,
) -> None:
    del lines
    shape = (len(lengths), extractor.model.outputs[0].shape[-1])
    write_npy(file, "values", (shape, "<f4", (values for _, [values] in features)))


def _write_npz(
    file: BinaryIO,
    features: Iterator[Features],
    extractor: Extractor,
    lines: Lines,
    lengths: array.array,
) -> None:
    layers = extractor.layers
    num_rows = sum(map(extractor.num_rows, lengths))
    shape = (num_rows, len(layers), extractor.model.outputs[0].shape[-1])
    names = np.array([str(layer) for layer in layers])
    arrays: dict[str, Array] = {
        "values": (shape, "<f4", (np.stack(values, axis=1) for _, values in features)),
        "lengths": ((len(lengths),), "<i4", [np.array(lengths)]),
        # Tokenized once more, rather than kept for the whole file.
        "input_ids": ((sum(lengths),), "<i4", (np.array(line.input_ids) for line in lines)),
        "layers": (names.shape, names.dtype.str, [names]),
    }
    if extractor.pooling != "none":
        arrays["pooling"] = text_array([extractor.pooling], 1, len(extractor.pooling))
        arrays["texts"] = _text_array(lambda: (given.text for given in lines.given()), lengths)
    if lines.has_ids:
        arrays["ids"] = _text_array(lambda: (given.id or "" for given in lines.given()), lengths)
    write_npz(file, arrays)


def _text_array(read: Callable[[], Iterator[str]], lengths: array.array) -> Array:
    longest = max(map(len, read()), default=0)
    return text_array(read(), len(lengths), min(longest, TEXT_LIMIT))


_FORMATS: Mapping[str, Callable[..., None]] = {
    "jsonl": _write_jsonl,
    "npz": _write_npz,
    "npy": _write_npy,
}


def write(
    file: BinaryIO,
    extractor: Extractor,
    lines: Lines,
    lengths: array.array,
    settings: ExtractedSettings,
    *,
    shows: bool = False,
) -> None:
    """Writes the features of all lines.

    Args:
      file: Open for writing bytes.
      extractor: Computes them.
      lines: The texts.
      lengths: Tokens of each of them.
      settings: In which form, and how they are made.
      shows: Whether to tell how far it is.
    """
    tell = [Progress("Extracting features", sum(lengths))] * shows
    features = extract(extractor, lines, settings, *tell)
    _FORMATS[settings.written_format()](file, features, extractor, lines, lengths)


def make_extractor(settings: ExtractedSettings, config: modeling.BertConfig) -> Extractor:
    """Returns what computes the layers; it has no weights yet."""
    layers = parse_layers(settings.written_layers(), config, flag="layers")
    return Extractor(modeling.BertModel(config), layers, settings.written_pooling())


@dataclasses.dataclass(frozen=True)
class FeatureWork(Work):
    """The features of a file of texts, shared by machines.

    Args:
      settings: The model, the texts, and what is made of them.
      bounds: Before which texts files begin, and behind which the last one ends.
    """

    settings: ExtractedSettings
    bounds: Sequence[int]

    @classmethod
    def plan(cls, settings: ExtractedSettings, starts: Sequence[int], folder: str) -> "FeatureWork":
        """Returns the work on texts whose chunks start there, as `encoding.chunk_starts` tells."""
        step = cls.num_chunks(len(starts) - 1)
        bounds = [*starts[:-1:step], starts[-1]]
        return cls(folder, cls.with_whole_paths(settings), bounds)

    @property
    def num_files(self) -> int:
        return len(self.bounds) - 1

    @property
    def num_lines(self) -> int:
        """How many texts there are."""
        return self.bounds[-1]

    def open(self) -> Any:
        return _open_once(self.settings, self.folder)

    def read(self, _: Any, done: Collection[int]) -> Iterator[tuple[int, list[GivenText]]]:
        texts = iter(_open_texts(self.settings))
        for number, (start, stop) in enumerate(itertools.pairwise(self.bounds)):
            given = list(itertools.islice(texts, stop - start))
            if number not in done:
                yield number, given

    def make(self, number: int, inputs: Sequence[GivenText]) -> None:
        extractor, lines, config = self.open()
        lines = dataclasses.replace(lines, given=lambda: inputs, start=self.bounds[number])
        lengths = measure(lines, config).lengths
        with replace_files([self.path(number)]) as [file]:
            write(file, extractor, lines, lengths, self.settings)


def _open_texts(settings: ExtractedSettings) -> Texts:
    return Texts.of(settings, find_texts(settings.input_file))


@functools.lru_cache(maxsize=1)
def _open_once(
    settings: ExtractedSettings, made_of: str
) -> tuple[Extractor, Lines, modeling.BertConfig]:
    """Returns what computes, the lines of all texts, and the model's shape, once loaded.

    Args:
      settings: Those that name the model.
      made_of: What tells it from others that were or will be in the same folder.
    """
    del made_of
    folder = ModelFolder.of(settings)
    extractor = make_extractor(settings, folder.config)
    folder.stored.assign(extractor.model.weights)
    tokenizer = folder.load_tokenizer()
    lines = Lines.of(_open_texts(settings), tokenizer, settings.tokens_at_most())
    return extractor, lines, folder.config
