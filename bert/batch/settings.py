"""The flags of scripts that put inputs of files through a model: answers, and features."""

import dataclasses

from bert.command_line.flags import REQUIRED, WITHOUT_EFFECT, flag
from bert.command_line.settings import (
    ModelSettings,
    TextSettings,
    VocabularySettings,
)
from bert.files.tables import FORMATS
from bert.tasks.layers import COMBINATIONS
from bert.weights.told import AskedSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnsweredSettings(AskedSettings):
    """Which model answers what."""

    GROUP = "data"

    input_file: str = flag("-", "File to read; - for standard input.")
    input_format: str | None = flag(
        None,
        "lines: an input a line, a tab between its texts if it has several; tsv and csv: a header "
        "names the columns; jsonl: an object a line; parquet. Absent, by the file's ending, or "
        "else lines.",
        choices=FORMATS,
    )
    columns: str | None = flag(
        None,
        "Comma-separated names of the columns or keys with the texts, in order, where they are not "
        "those of the training or of the task (text_a and text_b for classifiers); numbers from 0 "
        "where there is no header.",
    )
    separator: str | None = flag(
        None,
        "What separates the columns of a CSV file, such as ';', or tab; absent, as in the "
        "training's files, or commas.",
    )
    batch_size: int = flag(
        32, "Sequences that go through the model together.", low=1, group="devices"
    )


# Characters of a text, or of an id, that an archive of vectors has room for.
TEXT_LIMIT = 1000

# Of the original.
_LAYERS = "-1,-2,-3,-4"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractedSettings(TextSettings, ModelSettings, VocabularySettings):
    """Which layers of which model are written of which texts, and how."""

    GROUP = "data"

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
        f"{TEXT_LIMIT} characters of the `texts`. npy: one matrix [lines, H]. Absent, by the "
        "ending of --output_file, or else jsonl.",
        choices=("jsonl", "npz", "npy"),
        group="output",
    )
    max_seq_length: int = flag(
        128, "Tokens per line at most, [CLS] and [SEP] included; longer lines are cut.", low=3
    )
    batch_size: int = flag(32, "Lines to compute at a time.", low=1, group="devices")
    # Who asks for a TPU is told that there is none.
    use_tpu: bool = flag(False, WITHOUT_EFFECT)

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
