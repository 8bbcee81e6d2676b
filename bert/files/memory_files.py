"""Files in memory, of rows that a program gives in place of the path of a file."""

import hashlib
import json
import os
from typing import Any

from bert.files.paths import file_system
from bert.options import Message, OptionError


def save_rows(rows: Any, option: str) -> str:
    """Returns the path of a JSON-lines file in memory, which has a digest of the rows.

    Args:
      rows: A list of dictionaries, or an object whose `to_dict("records")` returns one, such as a
        DataFrame.
      option: The name of the option that gave the rows.

    Raises:
      OptionError: where these are no rows of JSON values.
    """
    try:
        records = rows.to_dict("records") if hasattr(rows, "to_dict") else list(rows)
        lines = [json.dumps(dict(record), ensure_ascii=False) + "\n" for record in records]
    except (TypeError, ValueError) as error:
        raise OptionError(
            option,
            "be a path, a DataFrame, or a list of dictionaries of texts and numbers",
            remedy=Message("Received a %s: %s.", type(rows).__name__, error),
        ) from error
    content = "".join(lines).encode("utf-8")
    folder = f"ram://rows/{hashlib.sha256(content).hexdigest()}"
    path = os.path.join(folder, f"{option}.jsonl")
    gfile = file_system()
    if not gfile.exists(path):
        gfile.makedirs(folder)
        with gfile.GFile(path, "wb") as file:
            file.write(content)
    return path
