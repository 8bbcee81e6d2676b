"""Features of the texts of files of any size, written as they are computed (paper, section 5.3)."""

import array
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

import modeling
import tokenization
from bert.files import fingerprints
from bert.files.display import Progress, counted
from bert.files.durable import replace_files
from bert.files.paths import is_file
from bert.files.texts import GivenText, Texts, find_texts
from bert.files.vectors import Array, Features, text_array, write_jsonl, write_npy, write_npz
from bert.log import logger
from bert.models import vectors as text_vectors
from bert.models.options import TEXT_LIMIT
from bert.models.vectors import unit_length
from bert.network.blank import blank_variables
from bert.options import Message, MessageError, Option, OptionError, take
from bert.scale.batches import Work, computed_files, folder_of, key_of
from bert.scale.joining import join
from bert.scale.options import BeamOptions, Extraction, Part, described
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

    def texts(self) -> Iterator[str]:
        """Yields the texts themselves."""
        return (given.text for given in self.given())

    def ids(self) -> Iterator[str]:
        """Yields the id of each text, "" where it has none."""
        return (given.id or "" for given in self.given())

    def __iter__(self) -> Iterator[Line]:
        for given in self.given():
            yield read_line(given.texts, self.tokenizer, self.max_seq_length)


def survey(lines: Lines, config: modeling.BertConfig, *, is_quiet: bool = False) -> array.array:
    """Returns the number of tokens of every line; warns of many truncated or unknown ones.

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
    if is_quiet:
        return lengths
    num_tokens = sum(lengths)
    read = counted(len(lengths), "line"), counted(num_tokens, "token")
    logger.info("Read %s, %s with [CLS] and [SEP].", *read)
    if num_cut:
        logger.warning("%d lines were truncated to fit %s.", num_cut, Option("max_seq_length"))
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
    progress: Progress | None = None,
) -> Iterator[Features]:
    """Yields the tokens and features of each line, in order.

    Args:
      extractor: Computes the features.
      lines: The texts.
      options: Which values, and how they are scaled.
      progress: Shows how many tokens are done.

    Raises:
      ArithmeticError: where features are not finite.
    """
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
            if not all(np.isfinite(vector).all() for vector in values):
                raise ArithmeticError(
                    f"Features must be finite. Those of line {number} of {lines.files} are "
                    f"not; look at the weights in {options.init_checkpoint!r}."
                )
            yield line.tokens, [*map(unit_length, values)] if options.normalize else values
            num_done += len(line.tokens)
        if progress:
            progress(num_done)


def write(
    file: BinaryIO,
    extractor: Extractor,
    lines: Lines,
    lengths: array.array,
    options: Extraction,
    *,
    shows_progress: bool = False,
) -> None:
    """Writes the features of all lines to an open file; `lengths` are their numbers of tokens."""
    progress = Progress("Extracting features", sum(lengths)) if shows_progress else None
    features = extract(extractor, lines, options, progress)
    form = options.written_format()
    if form == "jsonl":
        ids = lines.ids() if lines.has_ids else None
        write_jsonl(file, features, extractor.layers, extractor.pooling, ids, lines.start)
    elif form == "npy":
        shape = (len(lengths), extractor.model.outputs[0].shape[-1])
        write_npy(file, "values", (shape, "<f4", (values for _, [values] in features)))
    else:
        write_npz(file, _archive(features, extractor, lines, lengths))


def _archive(
    features: Iterator[Features], extractor: Extractor, lines: Lines, lengths: array.array
) -> dict[str, Array]:
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
        arrays["texts"] = _text_array(lines.texts, lengths)
    if lines.has_ids:
        arrays["ids"] = _text_array(lines.ids, lengths)
    return arrays


def _text_array(read: Callable[[], Iterator[str]], lengths: array.array) -> Array:
    longest = max(map(len, read()), default=0)
    return text_array(read(), len(lengths), min(longest, TEXT_LIMIT))


def make_extractor(options: Extraction, config: modeling.BertConfig) -> Extractor:
    """Returns the model that computes the layers; it has no weights yet."""
    layers = parse_layers(options.written_layers(), config, flag="layers")
    # Of what a checkpoint may lack, the pooler, nothing is read.
    with blank_variables():
        return Extractor(modeling.BertModel(config), layers, options.written_pooling())


def find_texts_of(options: Extraction) -> Texts:
    """Returns the texts, where the files and the columns exist.

    Raises:
      ValueError: where they do not, or the output has no room for ids.
    """
    if options.id_column and options.written_format() == "npy":
        text = "%r for a matrix, %r, whose rows are those of the table in their order"
        received = Message(text, options.id_column, options.output_file)
        must = "go with a form that has room for ids, npz or jsonl"
        raise OptionError("id_column", must, received)
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
        text = "be at least 3 and at most %s, the `max_position_embeddings` in %s"
        must = Message(text, limit, Option("bert_config_file"))
        raise OptionError("max_seq_length", must, options.tokens_at_most())
    form = options.written_format()
    if form == "npz" and len({width(layer, config) for layer in layers}) > 1:
        must = Message("all have the same number of values for %s", Option("format", form))
        remedy = "Write concat_last_four in a run of its own."
        raise OptionError("layers", must, options.layers, remedy)
    if form == "npy" and len(layers) > 1:
        must = Message("name a single one for a matrix, %s", Option("format", form))
        remedy = "npz has room for several, and concat_last_four is one."
        raise OptionError("layers", must, options.layers, remedy)
    _check_pooling(options)


def _check_pooling(options: Extraction) -> None:
    if options.written_pooling() != "none":
        return
    if options.written_format() == "npy":
        text = "be mean, max or cls for a matrix, %s, with a row for each line"
        must = Message(text, Option("format", "npy"))
        raise OptionError("pooling", must, "none", "npz has room for every token.")
    if options.normalize:
        must = Message("go with %s, mean, max or cls", Option("pooling"))
        received = Message("a pooling of 'none', which has no vector for each line")
        raise OptionError("normalize", must, received)


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
        tokenizer = self.folder.load_tokenizer()
        lines = Lines.of(self.texts, tokenizer, self.options.tokens_at_most())
        extractor = make_extractor(self.options, self.folder.config)
        if beam.runner:
            num_lines = self._write_by_machines(lines, extractor, beam)
        else:
            num_lines = self._write_here(lines, extractor, part)
        written = counted(num_lines, "line")
        logger.info("Wrote features of %s to %s.", written, self.options.output_file)

    def _write_here(self, lines: Lines, extractor: Extractor, part: Part | None) -> int:
        if part:
            # Complete chunks, so that all lines are rounded alike.
            starts = self._find_starts(lines, extractor)
            chunks = part.of(len(starts) - 1, 1)
            text = "Part %s: %d of the %d chunks of %d lines."
            logger.info(text, part, len(chunks), len(starts) - 1, starts[-1])
            lines = lines.only(range(starts[chunks.start], starts[chunks.stop]))
        lengths = survey(lines, self.folder.config)
        if not lengths and not part:
            raise _no_text(lines)
        form, path = self.options.written_format(), self.options.output_file
        files = (self.texts.files, self.folder.files)
        with described(path, part, self.made_with, form, *files):
            self.folder.stored.assign(extractor.model.weights)
            with replace_files([path]) as [file]:
                write(file, extractor, lines, lengths, self.options, shows_progress=True)
        return len(lengths)

    def _find_starts(self, lines: Lines, extractor: Extractor) -> list[int]:
        """Returns the numbers of the first line of each chunk, and of all lines."""
        if extractor.pooling == "none":
            # The number of lines in a chunk depends on the number of their tokens.
            lengths = survey(lines, self.folder.config)
        else:
            lengths = array.array("I", [0]) * sum(1 for _ in lines.given())
        if not lengths:
            raise _no_text(lines)
        return text_vectors.chunk_starts(extractor, lengths)

    def _write_by_machines(self, lines: Lines, extractor: Extractor, beam: BeamOptions) -> int:
        # The complete content counts, since finished files are not compared with their texts.
        text = fingerprints.of_whole_files(lines.files)
        model = fingerprints.of_files([*filter(is_file, self.folder.files)])
        path = self.options.output_file
        parts = folder_of(path, key_of(self.made_with, text, model))
        *starts, num_lines = self._find_starts(lines, extractor)
        work = FeatureWork.plan(parts, self.options, starts, num_lines)
        with computed_files(beam, work) as paths, replace_files([path]) as [file]:
            join(paths, self.options.written_format(), file)
        return num_lines


def _no_text(lines: Lines) -> OptionError:
    return OptionError("input_file", "hold text", [*lines.files])


class FeatureWork(Work):
    """The features of a file of texts, computed by machines."""

    @staticmethod
    def load(options: Extraction) -> tuple[Extractor, Lines, modeling.BertConfig]:
        """Returns the extractor, the lines of all texts, and the configuration."""
        folder = ModelFolder.of(take(ModelSource, options), options)
        extractor = make_extractor(options, folder.config)
        folder.stored.assign(extractor.model.weights)
        tokenizer = folder.load_tokenizer()
        lines = Lines.of(find_texts_of(options), tokenizer, options.tokens_at_most())
        return extractor, lines, folder.config

    def inputs(self) -> Iterable[GivenText]:
        return find_texts_of(self.options)

    def write(self, file: BinaryIO, start: int, inputs: Sequence[GivenText]) -> None:
        extractor, lines, config = self.model()
        lines = dataclasses.replace(lines, given=lambda: inputs, start=start)
        lengths = survey(lines, config, is_quiet=True)
        write(file, extractor, lines, lengths, self.options)
