"""Reads and writes JSON."""

import json
import math
from collections.abc import Mapping
from typing import Any

from bert.files.paths import is_file, read_file
from bert.options import OptionError


def parse_json(text: str | bytes) -> Any:
    """Returns the value of a text.

    Raises:
      ValueError: where the text is not JSON or UTF-8, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError(str(error)) from error


def read_json_object(path: str, option: str = "") -> dict[str, Any]:
    """Returns the JSON object in a file.

    Raises:
      OptionError: naming the option that gave the path, if any, where there is no file.
      ValueError: where the file is not JSON, or not an object.
    """
    try:
        values = parse_json(read_file(path))
    except FileNotFoundError as error:
        if not option:
            raise
        raise OptionError(option, "exist", path) from error
    except ValueError as error:
        raise ValueError(f"{path!r} must be JSON: {error}.") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path!r} must hold a JSON object. Received {values!r:.80}.")
    return values


def find_json_object(path: str) -> dict[str, Any]:
    """Returns the JSON object in a file, {} where there is no file."""
    return read_json_object(path) if is_file(path) else {}


def to_json(values: Mapping[str, Any]) -> bytes:
    """Returns the text of a JSON file."""
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def finite(value: Any) -> Any:
    """Returns a value with None for numbers that are not finite, which JSON lacks."""
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
