"""The flags of every script that answers inputs of a file."""

import dataclasses

from bert.command_line.flags import flag
from bert.files.tables import FORMATS
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
