r"""Writes what the layers of BERT make of each line of a text (paper, section 5.3).

    python extract_features.py --input_file=text.txt --output_file=features.jsonl \
      --vocab_file=vocab.txt --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt

A line is a text `A` or a pair `A ||| B`. Files of any size go through in the same memory: they are
read, computed and written in chunks, within which lines of like lengths are computed together. Old
commands of the original's extract_features.py work unchanged.

    python extract_features.py --input_file=reviews.csv --text_column=review \
      --output_file=vectors.npy --init_checkpoint=my_bert

writes a vector for each row of a table, as one matrix.
"""

import array
import dataclasses
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from absl import logging

import tokenization
from bert.command_line import flags as common_flags
from bert.command_line.checks import Checks, start
from bert.command_line.console import Progress, run_script
from bert.command_line.flags import REQUIRED, changed_flags, flag
from bert.command_line.lines import show_lines
from bert.command_line.names import serve
from bert.command_line.settings import (
    ModelSettings,
    OutputSettings,
    TextSettings,
    VocabularySettings,
)
from bert.command_line.shards import Shard, ShardSettings
from bert.files.durable import replace_files
from bert.files.outputs import check_outputs
from bert.files.tables import describe_files, find_texts
from bert.files.texts import GivenText, Texts
from bert.files.vectors import (
    Array,
    Features,
    is_features,
    text_array,
    write_jsonl,
    write_npy,
    write_npz,
)
from bert.tasks.layers import COMBINATIONS, parse_layers, width
from bert.tasks.similarity import unit_length

if TYPE_CHECKING:
    import modeling
    from bert.tasks.features import Extractor, Line
    from bert.weights.folder import ModelFolder

# Characters of a text, or of an id, that an archive of vectors has room for.
_TEXT_LIMIT = 1000

# Of the original.
_LAYERS = "-1,-2,-3,-4"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(
    TextSettings,
    ModelSettings,
    VocabularySettings,
    OutputSettings,
    ShardSettings,
):
    """The flags of this script, by name."""

    input_file: str = flag(
        REQUIRED,
        "Text, plain or gzip, a text `A` or a pair `A ||| B` a line; or a table: a comma-separated "
        "list of paths or patterns.",
    )
    output_file: str = flag(
        REQUIRED, "Where to write the features; the ending tells the --format.", group="output"
    )
    init_checkpoint: str = flag(
        REQUIRED,
        "Checkpoint of the model: its prefix (.../bert_model.ckpt), its .index file or its folder, "
        "which may also be that of a Hugging Face model.",
        group="model",
    )
    layers: str | None = flag(
        None,
        "Layers to write, comma-separated: numbers from 0, or from the end with -1; or names: "
        f"{', '.join(COMBINATIONS)}. Absent, {_LAYERS}, or the last one for npy.",
        group="output",
    )
    pooling: str | None = flag(
        None,
        "What to write for each line: every token's values, the values of [CLS], or the mean or "
        "maximum over the line's tokens, [CLS] and [SEP] included. Absent, none, or mean for npy.",
        choices=("none", "cls", "mean", "max"),
        group="output",
    )
    normalize: bool = flag(
        False,
        "Scale the vector of each line to length 1: the dot product of two is then their cosine.",
        group="output",
    )
    format: str | None = flag(
        None,
        "jsonl: a JSON object a line, values rounded to 6 decimals. npz: NumPy arrays `values` "
        "[rows, layers, H], a row for each token, or with --pooling for each line; `lengths`, the "
        "number of tokens of each line; `input_ids`, of all tokens; `layers`, their names; `ids`, "
        "with --id_column; and with --pooling its name, and the first "
        f"{_TEXT_LIMIT} characters of the `texts`. npy: one matrix [lines, H]. Absent, by the "
        "ending of --output_file, or else jsonl.",
        choices=("jsonl", "npz", "npy"),
        group="output",
    )
    max_seq_length: int = flag(
        128, "Tokens per line at most, [CLS] and [SEP] included; longer lines are cut.", low=3
    )
    batch_size: int = flag(32, "Lines to compute at a time.", low=1, group="devices")
    # Who asks for a TPU is told that there is none.
    use_tpu: bool = flag(False, common_flags.WITHOUT_EFFECT)

    def written_format(self) -> str:
        """Returns the form of the output."""
        ending = self.output_file.rpartition(".")[2]
        return self.format or (ending if ending in ("npz", "npy") else "jsonl")

    def written_pooling(self) -> str:
        """Returns what is written for each line."""
        return self.pooling or ("mean" if self.written_format() == "npy" else "none")

    def written_layers(self) -> str:
        """Returns the layers to write, as the flag gives them."""
        return self.layers or ("-1" if self.written_format() == "npy" else _LAYERS)


def define_flags() -> None:
    """Defines the flags (original: extract_features.py)."""
    without_effect = ("use_one_hot_embeddings", "master", "num_tpu_cores")
    common_flags.define(Settings, without_effect=without_effect)


class Lines:
    """The texts of some files, tokenized anew each time they are iterated.

    Attributes:
      texts: All of them.
      span: Which of them are there; the others are passed over.
    """

    def __init__(
        self, texts: Texts, tokenizer: tokenization.FullTokenizer, max_seq_length: int
    ) -> None:
        self.texts = texts
        self.span = range(sys.maxsize)
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length

    def __iter__(self) -> Iterator["Line"]:
        from bert.tasks.features import read_line

        for given in self.given():
            yield read_line(given.texts, self._tokenizer, self._max_seq_length)

    def given(self) -> Iterator[GivenText]:
        """Yields the texts as they are."""
        return itertools.islice(self.texts, self.span.start, self.span.stop)


def survey(lines: Lines, config: "modeling.BertConfig") -> array.array:
    """Returns the number of tokens of every line, and warns of what looks wrong.

    Raises:
      ValueError: where there is a pair that the model cannot take.
    """
    lengths = array.array("I")
    num_cut = num_unknown = num_empty = 0
    for number, line in enumerate(lines, start=lines.span.start + 1):
        if line.segment_ids[-1] >= config.type_vocab_size:
            raise ValueError(
                "`type_vocab_size` in --bert_config_file must be at least 2 for pairs `A ||| B`. "
                f"Received {config.type_vocab_size}, and line {number} of {lines.texts.files} is "
                "one."
            )
        lengths.append(len(line.tokens))
        num_cut += line.num_cut > 0
        num_unknown += line.tokens.count("[UNK]")
        num_empty += len(line.tokens) == 2
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


def find_span(
    lines: Lines, extractor: "Extractor", part: Shard, config: "modeling.BertConfig"
) -> range:
    """Returns which lines a part has: whole chunks, so that all are rounded alike.

    Raises:
      ValueError: where there is no line, or a pair that the model cannot take.
    """
    from bert.tasks import encoding

    if extractor.pooling == "none":
        # With which line a chunk ends depends on how many tokens those in it have.
        lengths = survey(lines, config)
    else:
        lengths = array.array("I", [0]) * sum(1 for _ in lines.given())
    if not lengths:
        raise _nothing_to_read(lines)
    starts = encoding.chunk_starts(extractor, lengths)
    chunks = part.pick(len(starts) - 1)
    logging.info(
        "Part %s: %d of the %d chunks of %d lines.",
        part,
        len(chunks),
        len(starts) - 1,
        len(lengths),
    )
    return range(starts[chunks.start], starts[chunks.stop])


def _nothing_to_read(lines: Lines) -> ValueError:
    return ValueError(f"`--input_file` must hold text. Received {lines.texts.files}.")


def run(settings: Settings) -> None:
    """Writes the features of all lines.

    Raises:
      ValueError: before the expensive part, where the settings, the text and the model do not fit.
    """
    from bert.command_line import quiet_import  # noqa: F401
    from bert.tasks.features import Extractor
    from bert.training.devices import tell_gpus
    from bert.weights.folder import ModelFolder
    from modeling import BertModel

    show_lines()
    logging.info("Flags: %s; the others are as by default.", " ".join(changed_flags(settings)))
    folder = ModelFolder.of(settings)
    config = folder.config
    layers = _find_layers(settings, config)
    _check_weights(folder, config)
    texts = _find_texts(settings)
    _check_output(settings, texts.files, folder)
    lines = Lines(texts, folder.load_tokenizer(), settings.max_seq_length)
    tell_gpus()
    extractor = Extractor(BertModel(config), layers, settings.written_pooling())
    if settings.part:
        lines.span = find_span(lines, extractor, settings.part, config)
    lengths = survey(lines, config)
    if not lengths and not settings.part:
        raise _nothing_to_read(lines)
    folder.stored.assign(extractor.model.weights)
    features = extract(extractor, lines, settings, sum(lengths))
    with replace_files([settings.output_file]) as [file]:
        _FORMATS[settings.written_format()](file, features, extractor, lines, lengths)
    logging.info("Wrote features of %d lines to %s.", len(lengths), settings.output_file)


def check(settings: Settings, checks: Checks) -> None:
    """Checks what `run` needs."""
    from bert.weights.checks import check_model, check_vocabulary

    folder, config = check_model(checks, settings)
    check_vocabulary(checks, settings, folder, config)
    told = settings.written_layers()
    checks("layers", _find_layers, settings, config, tells=lambda _: told)
    fits = "of the shape that the configuration asks for"
    checks("weights", _check_weights, folder, config, tells=lambda _: fits)
    texts = checks("text", _find_texts, settings, tells=lambda found: describe_files(found.files))
    output = repr(settings.output_file)
    checks("output file", _check_kept, settings, texts, folder, tells=lambda _: output)


def _find_texts(settings: Settings) -> Texts:
    """Returns the texts, where the files and the columns are there."""
    if settings.id_column and settings.written_format() == "npy":
        raise ValueError(
            "`--id_column` must go with a form that has room for ids, npz or jsonl. Received "
            f"{settings.id_column!r} for a matrix, {settings.output_file!r}, whose rows are those "
            "of the table in their order."
        )
    files = find_texts(settings.input_file)
    return Texts.of(settings, files)


def _check_kept(settings: Settings, texts: Texts, folder: "ModelFolder") -> None:
    _check_output(settings, texts.files, folder)


def _check_weights(folder: "ModelFolder", config: "modeling.BertConfig") -> None:
    folder.stored.check_fit(config)


def _check_output(settings: Settings, files: Sequence[str], folder: "ModelFolder") -> None:
    # Faithful: features of an earlier run are replaced.
    check_outputs(
        [settings.output_file],
        [*files, *folder.files],
        "output_file",
        lambda path: settings.overwrite or is_features(path),
    )


def _find_layers(settings: Settings, config: "modeling.BertConfig") -> list[int | str]:
    """Returns the layers to write, the settings checked against the model."""
    layers = parse_layers(settings.written_layers(), config, flag="layers")
    limit = config.max_position_embeddings
    if not 3 <= settings.max_seq_length <= limit:
        raise ValueError(
            f"`--max_seq_length` must be at least 3 and at most {limit}, the "
            "`max_position_embeddings` in --bert_config_file. Received "
            f"{settings.max_seq_length}."
        )
    form = settings.written_format()
    widths = {width(layer, config) for layer in layers}
    if form == "npz" and len(widths) > 1:
        raise ValueError(
            "`--layers` must all have the same number of values for `--format=npz`. Received "
            f"{settings.layers!r}; ask for concat_last_four in a run of its own."
        )
    if form == "npy" and len(layers) > 1:
        raise ValueError(
            "`--layers` must name a single one for a matrix, `--format=npy`. Received "
            f"{settings.layers!r}; npz has room for several, and concat_last_four is one."
        )
    _check_pooling(settings)
    if settings.use_tpu:
        logging.warning("--use_tpu has no effect: features are computed on a GPU or the CPU.")
    return layers


def _check_pooling(settings: Settings) -> None:
    if settings.written_pooling() != "none":
        return
    if settings.written_format() == "npy":
        raise ValueError(
            "`--pooling` must be mean, max or cls for a matrix, `--format=npy`, with a row for "
            "each line. Received 'none'; npz has room for every token."
        )
    if settings.normalize:
        raise ValueError(
            "`--normalize` must go with `--pooling`, mean, max or cls. Received a pooling of "
            "'none', which has no vector for each line."
        )


def extract(
    extractor: "Extractor", lines: Lines, settings: Settings, num_tokens: int
) -> Iterator[Features]:
    """Yields the tokens and features of each line, in order.

    Raises:
      ArithmeticError: where features are not finite.
    """
    from bert.tasks import encoding

    progress = Progress("Extracting features", num_tokens)
    scaled = settings.normalize
    number, num_done = lines.span.start, 0
    sizes = {"batch_size": settings.batch_size, "max_seq_length": settings.max_seq_length}
    for chunk in encoding.extract(extractor, lines, **sizes):
        for line, values in chunk:
            number += 1
            if not all(np.isfinite(each).all() for each in values):
                raise ArithmeticError(
                    f"Features must be finite. Those of line {number} of {lines.texts.files} are "
                    f"not; look at the weights in {settings.init_checkpoint!r}."
                )
            yield line.tokens, [unit_length(each) for each in values] if scaled else values
            num_done += len(line.tokens)
        progress(num_done)


def _write_jsonl(
    file: BinaryIO,
    features: Iterator[Features],
    extractor: "Extractor",
    lines: Lines,
    lengths: array.array,
) -> None:
    del lengths
    ids = (given.id or "" for given in lines.given()) if lines.texts.has_ids else None
    write_jsonl(file, features, extractor.layers, extractor.pooling, ids, lines.span.start)


def _write_npy(
    file: BinaryIO,
    features: Iterator[Features],
    extractor: "Extractor",
    lines: Lines,
    lengths: array.array,
) -> None:
    del lines
    shape = (len(lengths), extractor.model.outputs[0].shape[-1])
    write_npy(file, "values", (shape, "<f4", (values for _, [values] in features)))


def _write_npz(
    file: BinaryIO,
    features: Iterator[Features],
    extractor: "Extractor",
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
    if lines.texts.has_ids:
        arrays["ids"] = _text_array(lambda: (given.id or "" for given in lines.given()), lengths)
    write_npz(file, arrays)


def _text_array(read: Callable[[], Iterator[str]], lengths: array.array) -> Array:
    longest = max(map(len, read()), default=0)
    return text_array(read(), len(lengths), min(longest, _TEXT_LIMIT))


_FORMATS: Mapping[str, Callable[..., None]] = {
    "jsonl": _write_jsonl,
    "npz": _write_npz,
    "npy": _write_npy,
}


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


# What people import from the original's extract_features.py.
if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = serve(
        globals(),
        {
            "modeling": (),
            "bert.original.extraction": (
                "InputExample",
                "InputFeatures",
                "read_examples",
                "convert_examples_to_features",
                "input_fn_builder",
                "model_fn_builder",
            ),
            "bert.original.processors": ("truncate_seq_pair as _truncate_seq_pair",),
        },
    )

if __name__ == "__main__":
    define_flags()
    run_script(main)
