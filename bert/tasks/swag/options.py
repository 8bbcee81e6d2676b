"""Options of multiple choice: the data set."""

import dataclasses

from bert.files.rows import SEPARATORS
from bert.options import option
from bert.tasks.options import DataFiles


@dataclasses.dataclass(frozen=True, kw_only=True)
class SwagData(DataFiles):
    """The data set of a model that chooses endings."""

    GROUP = "data"

    data_dir: str | None = option(
        None,
        "Folder with train, val and test, each .csv or .tsv with SWAG's columns, .jsonl or "
        ".parquet.",
    )
    separator: str | None = option(
        None,
        f"Column separator of the files: {SEPARATORS}. Default: tab for .tsv, comma for others.",
    )
