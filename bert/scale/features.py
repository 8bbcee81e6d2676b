"""Features of the texts of files of any size, written as they are computed (paper, section 5.3)."""

import array
import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

import modeling
import tokenization
from bert.files import fingerprints
from bert.files.durable import replace_files
from bert.files.paths import is_file
from bert.files.progress import Progress
from bert.files.texts import GivenText, Texts, find_texts
from bert.files.vectors import Array, Features, text_array, write_jsonl, write_npy, write_npz
from bert.log import logger
from bert.models import vectors as text_vectors
from bert.models.vectors import unit_length
from bert.options import Message, MessageError, Option, OptionError, take
from bert.scale.batches import Work, describe_part, folder_of, key_of, made_files
from bert.scale.joining import join
from bert.scale.options import TEXT_LIMIT, BeamOptions, Extraction
from bert.scale.parts import Part, write_description
from bert.tasks.features import Extractor, Line, read_line
from bert.tasks.layers import check_encoder, parse_layers, width
from bert.weights.folder import ModelFolder
from bert.weights.options import ModelSource


@dataclasses.dataclass(frozen=True)
class Lines:
    """Texts, which are tokenized again each time they are iterated.

    Attributes:
      given: Reads the texts.
      files: The files of the texts, for messages.
      has_ids: Whether the texts have ids.
      tokenizer: The tokenizer of the model.
      max_seq_length: Tokens of each text at most.
      start: How many texts of the files precede the first one.
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
        """Returns the lines at some places."""
        return dataclasses.replace(
            self,
            given=lambda: itertools.islice(self.given(), span.start, span.stop),
            start=span.start,
        )

    def __iter__(self) -> Iterator[Line]:
        for given in self.given():
            yield read_line(given.texts, self.tokenizer, self.max_seq_length)


class Survey(NamedTuple):
    """Statistics of tokenized lines.

    Attributes:
      lengths: The number of tokens of each line.
      num_cut: How many lines were truncated.
      num_unknown: How many tokens are [UNK].
      num_empty: How many lines have no token but [CLS] and [SEP].
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
            raise MessageError(
                "`type_vocab_size` in %s must be at least 2 for pairs `A ||| B`. Received %s, and "
                "line %s of %s is one.",
                Option("bert_config_file"),
                config.type_vocab_size,
                number,
                lines.files,
            )
        lengths.append(len(line.tokens))
        num_cut += line.num_cut > 0
        num_unknown += line.tokens.count("[UNK]")
        num_empty += len(line.tokens) == 2
    return Survey(lengths, num_cut, num_unknown, num_empty)


def survey(lines: Lines, config: modeling.BertConfig) -> array.array:
    """Returns the number of tokens of every line, and warns of many unknown or cut ones.

    Raises:
      ValueError: as `measure`.
    """
    lengths, num_cut, num_unknown, num_empty = measure(lines, config)
    num_tokens = sum(lengths)
    logger.info("Read %d lines, %d tokens with [CLS] and [SEP].", len(lengths), num_tokens)
    if num_cut:
        logger.warning("%d lines were cut to fit %s.", num_cut, Option("max_seq_length"))
    if num_empty:
        logger.warning("%d lines have no token but [CLS] and [SEP].", num_empty)
    if num_unknown > 0.02 * num_tokens:
        logger.warning(
            "%.1f %% of the tokens are [UNK]. Are %s and %s the right ones for this text?",
            100 * num_unknown / num_tokens,
            Option("vocab_file"),
            Option("do_lower_case"),
        )
    return lengths


def extract(
    extractor: Extractor,
    lines: Lines,
    options: Extraction,
    report: Callable[[int], None] = lambda num_tokens: None,
) -> Iterator[Features]:
    """Yields the tokens and features of each line, in order.

    Args:
      extractor: Computes them.
      lines: The texts.
      options: Which values, and how they are scaled.
      report: Is called now and then with the number of tokens that are done.

    Raises:
      ArithmeticError: where features are not finite.
    """
    scaled = options.normalize
    number, num_done = lines.start, 0
    chunks = text_vectors.extract(
        extractor,
        lines,
        batch_size=options.batch_size,
        max_seq_length=options.tokens_at_most(),
    )
    for chunk in chunks:
        for line, values in chunk:
            number += 1
            if not all(np.isfinite(each).all() for each in values):
                raise ArithmeticError(
                    f"Features must be finite. Those of line {number} of {lines.files} are "
                    f"not; look at the weights in {options.init_checkpoint!r}."
                )
            yield line.tokens, [unit_length(each) for each in values] if scaled else values
            num_done += len(line.tokens)
        report(num_done)


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
        # Tokenized again, rather than held in memory for all lines.
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
    options: Extraction,
    *,
    shows: bool = False,
) -> None:
    """Writes the features of all lines.

    Args:
      file: Open for writing bytes.
      extractor: Computes them.
      lines: The texts.
      lengths: Tokens of each of them.
      options: The format, and how features are computed.
      shows: Whether to show progress.
    """
    progress = [Progress("Extracting features", sum(lengths))] * shows
    features = extract(extractor, lines, options, *progress)
    _FORMATS[options.written_format()](file, features, extractor, lines, lengths)


def make_extractor(options: Extraction, config: modeling.BertConfig) -> Extractor:
    """Returns the model that computes the layers; it has no weights yet."""
    layers = parse_layers(options.written_layers(), config, flag="layers")
    return Extractor(modeling.BertModel(config), layers, options.written_pooling())


def find_texts_of(options: Extraction) -> Texts:
    """Returns the texts, where the files and the columns exist.

    Raises:
      ValueError: where they do not, or the output has no room for ids.
    """
    if options.id_column and options.written_format() == "npy":
        raise OptionError(
            "id_column",
            "go with a form that has room for ids, npz or jsonl",
            Message(
                "%r for a matrix, %r, whose rows are those of the table in their order",
                options.id_column,
                options.output_file,
            ),
        )
    return Texts(find_texts(options.input_file), options)


def check_layers(options: Extraction, config: modeling.BertConfig) -> None:
    """Checks that the model has the layers, and the output room for them.

    Raises:
      OptionError: naming the option.
    """
    check_encoder(config)
    layers = parse_layers(options.written_layers(), config, flag="layers")
    limit = config.max_position_embeddings
    if not 3 <= options.tokens_at_most() <= limit:
        raise OptionError(
            "max_seq_length",
            Message(
                "be at least 3 and at most %s, the `max_position_embeddings` in %s",
                limit,
                Option("bert_config_file"),
            ),
            options.tokens_at_most(),
        )
    form = options.written_format()
    if form == "npz" and len({width(layer, config) for layer in layers}) > 1:
        raise OptionError(
            "layers",
            Message("all have the same number of values for %s", Option("format", "npz")),
            options.layers,
            "Write concat_last_four in a run of its own.",
        )
    if form == "npy" and len(layers) > 1:
        raise OptionError(
            "layers",
            Message("name a single one for a matrix, %s", Option("format", "npy")),
            options.layers,
            "npz has room for several, and concat_last_four is one.",
        )
    _check_pooling(options)


def _check_pooling(options: Extraction) -> None:
    if options.written_pooling() != "none":
        return
    if options.written_format() == "npy":
        raise OptionError(
            "pooling",
            Message(
                "be mean, max or cls for a matrix, %s, with a row for each line",
                Option("format", "npy"),
            ),
            "none",
            "npz has room for every token.",
        )
    if options.normalize:
        raise OptionError(
            "normalize",
            Message("go with %s, mean, max or cls", Option("pooling")),
            Message("a pooling of 'none', which has no vector for each line"),
        )


@dataclasses.dataclass(frozen=True)
class FeatureFile:
    """Writes the features of the texts of files.

    Args:
      folder: The model.
      texts: The texts.
      options: Which features are written, completed with what the folder of the model says.
      made_with: All options that change the output, by name.
    """

    folder: ModelFolder
    texts: Texts
    options: Extraction
    made_with: Mapping[str, Any]

    def write(self, part: Part | None, beam: BeamOptions) -> None:
        """Writes the features, by machines or in this process.

        Args:
          part: The part of the lines to write, None for all.
          beam: What runs a pipeline, if one is requested.

        Raises:
          ValueError: where there is no line, or a pair that the model cannot take.
        """
        config = self.folder.config
        tokenizer = self.folder.load_tokenizer()
        lines = Lines.of(self.texts, tokenizer, self.options.tokens_at_most())
        extractor = make_extractor(self.options, config)
        if beam.runner:
            num_lines = self._write_by_machines(lines, extractor, beam)
        else:
            num_lines = self._write_here(lines, extractor, part)
        logger.info("Wrote features of %d lines to %s.", num_lines, self.options.output_file)

    def _write_here(self, lines: Lines, extractor: Extractor, part: Part | None) -> int:
        if part:
            lines = lines.only(self._find_span(lines, extractor, part))
        lengths = survey(lines, self.folder.config)
        if not lengths and not part:
            raise _no_text(lines)
        form, path = self.options.written_format(), self.options.output_file
        files = (self.texts.files, self.folder.files)
        described = describe_part(self.made_with, form, *files) if part else {}
        self.folder.stored.assign(extractor.model.weights)
        with replace_files([path]) as [file]:
            write(file, extractor, lines, lengths, self.options, shows=True)
        if part:
            write_description(path, part, described)
        return len(lengths)

    def _find_starts(self, lines: Lines, extractor: Extractor) -> list[int]:
        """Returns where chunks begin within which lines are computed together, and their end."""
        if extractor.pooling == "none":
            # With which line a chunk ends depends on the number of tokens in it.
            lengths = survey(lines, self.folder.config)
        else:
            lengths = array.array("I", [0]) * sum(1 for _ in lines.given())
        if not lengths:
            raise _no_text(lines)
        return text_vectors.chunk_starts(extractor, lengths)

    def _find_span(self, lines: Lines, extractor: Extractor, part: Part) -> range:
        """Returns the lines of a part: complete chunks, so that all are rounded alike."""
        starts = self._find_starts(lines, extractor)
        count = len(starts) - 1
        chunks = part.pick(count)
        text = "Part %s: %d of the %d chunks of %d lines."
        logger.info(text, part, len(chunks), count, starts[-1])
        return range(starts[chunks.start], starts[chunks.stop])

    def _write_by_machines(self, lines: Lines, extractor: Extractor, beam: BeamOptions) -> int:
        # By its complete content, for no line that is there is compared with its text again.
        model = [*filter(is_file, self.folder.files)]
        made_of = fingerprints.of_whole_files(lines.files), fingerprints.of_files(model)
        path = self.options.output_file
        parts = folder_of(path, key_of(self.made_with, *made_of))
        work = FeatureWork.plan(self.options, self._find_starts(lines, extractor), parts)
        with made_files(beam, work) as paths, replace_files([path]) as [file]:
            join(paths, self.options.written_format(), file)
        return work.num_lines


def _no_text(lines: Lines) -> OptionError:
    return OptionError("input_file", "hold text", [*lines.files])


@dataclasses.dataclass(frozen=True)
class FeatureWork(Work):
    """The features of a file of texts, computed by machines.

    Args:
      options: The model, the texts, and the values to write.
      bounds: The number of the first text of each file, and of all texts.
    """

    options: Extraction
    bounds: Sequence[int]

    @classmethod
    def plan(cls, options: Extraction, starts: Sequence[int], folder: str) -> "FeatureWork":
        """Returns the work on texts, from the starts of their chunks and their end."""
        step = cls.num_chunks(len(starts) - 1)
        bounds = [*starts[:-1:step], starts[-1]]
        return cls(folder, cls.with_whole_paths(options), bounds)

    @property
    def num_files(self) -> int:
        return len(self.bounds) - 1

    @property
    def num_lines(self) -> int:
        """How many texts there are."""
        return self.bounds[-1]

    def open(self) -> Any:
        return _open_once(self.options, self.folder)

    def read(self, _: Any, done: Collection[int]) -> Iterator[tuple[int, list[GivenText]]]:
        texts = iter(_open_texts(self.options))
        for number, (start, stop) in enumerate(itertools.pairwise(self.bounds)):
            given = list(itertools.islice(texts, stop - start))
            if number not in done:
                yield number, given

    def make(self, number: int, inputs: Sequence[GivenText]) -> None:
        extractor, lines, config = self.open()
        lines = dataclasses.replace(lines, given=lambda: inputs, start=self.bounds[number])
        lengths = measure(lines, config).lengths
        with replace_files([self.path(number)]) as [file]:
            write(file, extractor, lines, lengths, self.options)


def _open_texts(options: Extraction) -> Texts:
    return Texts(find_texts(options.input_file), options)


@functools.lru_cache(maxsize=1)
def _open_once(options: Extraction, key: str) -> tuple[Extractor, Lines, modeling.BertConfig]:
    """Returns the extractor, the lines of all texts, and the configuration; loads them once.

    Args:
      options: Name the model and the texts.
      key: Differs for every model that was or will be in the same folder.
    """
    del key
    folder = ModelFolder.of(take(ModelSource, options), options)
    extractor = make_extractor(options, folder.config)
    folder.stored.assign(extractor.model.weights)
    tokenizer = folder.load_tokenizer()
    lines = Lines.of(_open_texts(options), tokenizer, options.tokens_at_most())
    return extractor, lines, folder.config
