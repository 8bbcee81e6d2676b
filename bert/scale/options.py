"""Options for files of any size: models, inputs, outputs, parts and pipelines.

A hidden file beside the output of a part describes the part (`bert.scale.joining`).
"""

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert.files import fingerprints
from bert.files.durable import write_text
from bert.files.paths import PATTERNS, file_size, is_file, part_path
from bert.files.rows import FORMATS, SEPARATORS
from bert.files.texts import TextColumns
from bert.models.options import TEXT_LIMIT, EngineModel
from bert.options import REQUIRED, Message, Option, OptionError, OptionGroup, option
from bert.tasks.layers import COMBINATIONS
from bert.weights.options import CHECKPOINT_FORMS, ConfigSource, VocabularySource
from bert.weights.sentence_transformers import AS_IN_FOLDER, DEFAULT_LENGTH, TextVectors, follow

if TYPE_CHECKING:
    from typing_extensions import Self

RUNNERS = (
    *("DirectRunner", "FlinkRunner", "SparkRunner", "DataflowRunner"),
    *("PortableRunner", "PrismRunner"),
)
# The version of the format of descriptions.
DESCRIPTION_FORM = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamOptions(OptionGroup):
    """The runner of Apache Beam and its options."""

    GROUP = "devices"

    runner: str | None = option(
        None,
        "Run as an Apache Beam pipeline: on this machine with DirectRunner, or on a cluster whose "
        "machines read and write the same paths. The output is the same byte for byte.",
        choices=RUNNERS,
    )
    beam_options: str = option(
        "",
        "Options of Beam and of the runner, written as for Beam's own commands, such as "
        "'--direct_num_workers=2 --direct_running_mode=multi_processing' or "
        "'--flink_master=host:8081 --parallelism=8'.",
    )


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of some work.

    Attributes:
      number: The number of the part, from 1.
      count: The number of parts.
    """

    number: int
    count: int

    def of(self, num_items: int, size: int) -> range:
        """Returns the numbers of the items of this part, which consists of chunks of `size` items.

        The sizes of parts differ by one chunk at most; the last parts may be empty.
        """
        num_chunks = -(-num_items // size)
        start, stop = (
            min(size * -(-num_chunks * number // self.count), num_items)
            for number in (self.number - 1, self.number)
        )
        return range(start, stop)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclasses.dataclass(frozen=True)
class Description:
    """The description of the output of a part.

    Attributes:
      number: The number of the part, from 1.
      count: The number of parts.
      made_of: Options and digests of the input and the model, the same for all parts.
      size: The size of the file in bytes.
      digest: The digest of its content.
    """

    number: int
    count: int
    made_of: Mapping[str, Any]
    size: int
    digest: str


@contextlib.contextmanager
def described(
    path: str,
    part: Part | None,
    options: Mapping[str, Any],
    form: str,
    inputs: Sequence[str],
    model_files: Sequence[str],
) -> Iterator[None]:
    """Writes the description of a part after a block that writes its output.

    Args:
      path: The output.
      part: The part; None where the output is no part, and has no description.
      options: The options that change the output, by name.
      form: The format of the output, such as "csv".
      inputs: The files that are read.
      model_files: The files of the model.
    """
    if part is None:
        yield
        return
    made_of = {
        **{name: value for name, value in options.items() if name != "shard"},
        "form": form,
        "input": fingerprints.of_whole_files(inputs),
        "model": fingerprints.of_files([*filter(is_file, model_files)]),
    }
    yield
    digest = fingerprints.of_whole_files([path])
    found = Description(part.number, part.count, made_of, file_size(path), digest)
    values = {"form": DESCRIPTION_FORM, **dataclasses.asdict(found)}
    text = json.dumps(values, indent=1, sort_keys=True)
    write_text(part_path(path), f"{text}\n")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartOptions(OptionGroup):
    """The part of the work that a run does."""

    GROUP = "devices"

    shard: str = option(
        "",
        "Process only part k of n, given as k/n, from 1/n to n/n; run each part separately, with "
        "its own output. join_shards.py then joins the outputs, in order, into what a single run "
        "writes, byte for byte.",
    )

    @property
    def part(self) -> Part | None:
        """The part to do, None for all.

        Raises:
          OptionError: where the option is malformed.
        """
        if not self.shard:
            return None
        match = re.fullmatch("([0-9]+)/([0-9]+)", self.shard, re.ASCII)
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            must = "be k/n, the k-th of n parts, from 1/n to n/n"
            raise OptionError("shard", must, self.shard)
        return Part(int(match[1]), int(match[2]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answering(EngineModel):
    """The model and the file of inputs that it answers."""

    GROUP = "data"

    input_file: str = option("-", "File to read; - for texts behind the flags, or standard input.")
    input_format: str | None = option(
        None,
        "lines: one input per line, with a tab between its texts if it has several. tsv, csv: a "
        "table whose header names the columns. jsonl: one JSON object per line. parquet: a "
        "Parquet file. Default: by the file's extension, or else lines.",
        choices=FORMATS,
    )
    columns: str | None = option(
        None,
        "Columns or keys with the texts, comma-separated, in order; numbers from 0 if there is no "
        "header. Default: those of the training files or of the task (text_a and text_b for "
        "classifiers).",
    )
    separator: str | None = option(
        None,
        f"Column separator of a CSV file: {SEPARATORS}. Default: as in the training files, or "
        "else comma.",
    )
    min_probability: float = option(
        0.0,
        "Leave the answer empty where its probability is less: the label of a classifier, the "
        "ending of a chooser, or the answer to a question. Probabilities are written all the "
        "same. Numbers, tags and any number of labels have no such answer, nor have questions to "
        "a SavedModel.",
        low=0.0,
        high=1.0,
        group="output",
    )
    batch_size: int = option(32, "Sequences per batch.", low=1, group="devices")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerOutput(OptionGroup):
    """The file of the answers, and the handling of inputs that cannot be answered."""

    GROUP = "output"

    output_file: str = option(
        "-",
        "File to write, which appears only when it is complete, in the format of its extension: "
        ".csv, .tsv, .parquet, or JSON lines for .jsonl, .json, .txt or none; - for JSON lines on "
        "standard output. Keeps all columns of the input and adds the answers. Until the file is "
        "complete, the answers are in <output_file>.<digits>.unfinished, from which the same "
        "command resumes.",
    )
    on_error: str = option(
        "stop",
        "What to do with an input that cannot be answered. stop: end there and keep the answers "
        'so far. skip: write {"line": ..., "error": ...} instead of its answer, or a column '
        "error in a table, and continue.",
        choices=("stop", "skip"),
    )


# The default of the original.
_LAYERS = "-1,-2,-3,-4"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extraction(TextColumns, ConfigSource, VocabularySource):
    """The texts, the model, the layers to write, and the format."""

    GROUP = "data"

    input_file: str = option(
        REQUIRED,
        "Text files, plain or gzip, with one text `A` or pair `A ||| B` per line, or tables: "
        f"{PATTERNS}.",
    )
    output_file: str = option(
        REQUIRED,
        Message("File to write the features to; its extension sets the %s.", Option("format")),
        group="output",
    )
    init_checkpoint: str = option(
        REQUIRED,
        f"Checkpoint of the model: {CHECKPOINT_FORMS}.",
        group="model",
    )
    layers: str | None = option(
        None,
        "Layers to write, comma-separated: numbers from 0, or from the end with -1; or names: "
        f"{', '.join(COMBINATIONS)}. Default: {_LAYERS}, or the last layer for npy.",
        group="output",
    )
    pooling: str | None = option(
        None,
        "What to write for each line. none: the values of every token; cls: those of [CLS]; mean, "
        "max: the mean or maximum over the line's tokens, including [CLS] and [SEP]. Default: "
        f"none; for npy mean, or {AS_IN_FOLDER}.",
        choices=("none", "cls", "mean", "max"),
        group="output",
    )
    normalize: bool | None = option(
        None,
        "Scale the vector of each line to length 1, so that the dot product of two vectors is "
        f"their cosine. Default: no, or {AS_IN_FOLDER}.",
        group="output",
    )
    format: str | None = option(
        None,
        Message(
            "jsonl: one JSON object per line, with values rounded to 6 decimals. npz: NumPy arrays "
            "`values` [rows, layers, H], with one row per token, or per line with %s; `lengths`, "
            "the number of tokens of each line; `input_ids`, of all tokens; `layers`, their names; "
            "`ids`, with %s; and with %s, its name and the first %s characters of the `texts`. "
            "npy: a single matrix [lines, H]. Default: by the extension of %s, or else jsonl.",
            Option("pooling"),
            Option("id_column"),
            Option("pooling"),
            TEXT_LIMIT,
            Option("output_file"),
        ),
        choices=("jsonl", "npz", "npy"),
        group="output",
    )
    max_seq_length: int | None = option(
        None,
        "Maximum tokens per line, including [CLS] and [SEP]; longer lines are truncated. "
        f"Default: {DEFAULT_LENGTH}, or {AS_IN_FOLDER}.",
        low=3,
    )
    batch_size: int = option(32, "Lines per batch.", low=1, group="devices")

    def written_format(self) -> str:
        """Returns the format of the output."""
        ending = os.path.splitext(self.output_file)[1].lower()
        return self.format or {".npz": "npz", ".npy": "npy"}.get(ending, "jsonl")

    def written_pooling(self) -> str:
        """Returns the pooling, as given or by default."""
        return self.pooling or ("mean" if self.written_format() == "npy" else "none")

    def followed(self, vectors: TextVectors | None) -> "Self":
        """Returns these options, completed with the settings in the folder of the model.

        Raises:
          ValueError: as `TextVectors.fill`.
        """
        given: dict[str, Any] = {"max_seq_length": self.max_seq_length}
        if self.pooling is None and self.written_format() == "npy":
            given["pooling"] = None
        if self.written_pooling() != "none":
            given["normalize"] = self.normalize
        usual = {"max_seq_length": self.tokens_at_most(), "normalize": bool(self.normalize)}
        values = follow(vectors, given, usual, warns="normalize" in given)
        return dataclasses.replace(self, **values)

    def tokens_at_most(self) -> int:
        """Returns the maximum tokens of a line."""
        return self.max_seq_length or DEFAULT_LENGTH

    def written_layers(self) -> str:
        """Returns the layers to write, as given or by default."""
        return self.layers or ("-1" if self.written_format() == "npy" else _LAYERS)
