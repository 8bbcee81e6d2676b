"""Text in JSON, read."""

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Returns what the text says.

    Raises:
      ValueError: where it is not JSON, is not UTF-8, or is nested more deeply than Python reads.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError(str(error)) from error
