"""The flags of scripts that put inputs of files through a model: answers, and features."""

import dataclasses
from typing import Any, Self, TypeVar

from bert.commands.flags import WITHOUT_EFFECT
from bert.commands.settings import (
    AS_IN_FOLDER,
    DEFAULT_LENGTH,
    PATTERNS,
    ModelSettings,
    TextSettings,
    VocabularySettings,
)
from bert.files.rows import FORMATS
from bert.files.sentence_transformers import TextVectors, follow
from bert.options import REQUIRED, option
from bert.tasks.layers import COMBINATIONS
from bert.tasks.options import SEPARATORS
from bert.weights.options import CHECKPOINT_FORMS
from bert.weights.told import AskedSettings

_Settings = TypeVar("_Settings")


def only(kind: type[_Settings], settings: Any) -> _Settings:
    """Returns what of a script's settings is of a kind that other processes can be given."""
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    return kind(**{field.name: getattr(settings, field.name) for field in fields})


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnsweredSettings(AskedSettings):
    """Which model answers what."""

    GROUP = "data"

    input_file: str = option("-", "File to read; - for standard input.")
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
    batch_size: int = option(32, "Sequences per batch.", low=1, group="devices")


# Characters of a text, or of an id, that an archive of vectors has room for.
TEXT_LIMIT = 1000

# Of the original.
_LAYERS = "-1,-2,-3,-4"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractedSettings(TextSettings, ModelSettings, VocabularySettings):
    """Which layers of which model are written of which texts, and how."""

    GROUP = "data"

    input_file: str = option(
        REQUIRED,
        "Text files, plain or gzip, with one text `A` or pair `A ||| B` per line, or tables: "
        f"{PATTERNS}.",
    )
    output_file: str = option(
        REQUIRED, "File to write the features to; its extension sets the --format.", group="output"
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
        "jsonl: one JSON object per line, with values rounded to 6 decimals. npz: NumPy arrays "
        "`values` [rows, layers, H], with one row per token, or per line with --pooling; "
        "`lengths`, the number of tokens of each line; `input_ids`, of all tokens; `layers`, "
        "their names; `ids`, with --id_column; and with --pooling, its name and the first "
        f"{TEXT_LIMIT} characters of the `texts`. npy: a single matrix [lines, H]. Default: by "
        "the extension of --output_file, or else jsonl.",
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
    # Who asks for a TPU is told that there is none.
    use_tpu: bool = option(False, WITHOUT_EFFECT)

    def written_format(self) -> str:
        """Returns the form of the output."""
        ending = self.output_file.rpartition(".")[2]
        return self.format or (ending if ending in ("npz", "npy") else "jsonl")

    def written_pooling(self) -> str:
        """Returns what is written for each line."""
        return self.pooling or ("mean" if self.written_format() == "npy" else "none")

    def followed(self, vectors: TextVectors | None) -> Self:
        """Returns these settings with what the folder of the model says where no flag does.

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
        """Returns how long a line may be."""
        return self.max_seq_length or DEFAULT_LENGTH

    def written_layers(self) -> str:
        """Returns the layers to write, as the flag gives them."""
        return self.layers or ("-1" if self.written_format() == "npy" else _LAYERS)
