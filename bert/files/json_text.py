"""Text in JSON, read; and values that it has."""

import json
import math
from collections.abc import Mapping
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


def finite(value: Any) -> Any:
    """Returns a value with None for each number in it that is not finite, which JSON has not."""
    if isinstance(value, Mapping):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
