"""Describes each part of a sharded output: its number, the total, and what it was made from.

The part itself holds nothing of it, so that parts joined are the bytes of a single run.
"""

import contextlib
import dataclasses
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert.files import fingerprints
from bert.files.durable import replace_files
from bert.files.json_text import parse_json
from bert.files.paths import file_size, is_file, part_path, read_file

# The form of a description; another one is not read.
_FORM = 1
# Numbers of parts that a message names.
_SHOWN = 12
# Those that are not of JSON lines; what is packed is not written.
_ENDINGS = frozenset({".csv", ".tsv", ".parquet", ".npy", ".npz", ".gz"})
# What has its own words where it differs.
_WORDS = {"input": "the input is another one", "model": "the model is another one"}


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of an output.

    Attributes:
      number: Its number, from 1.
      count: How many parts there are.
      made_of: What all parts have in common: flags, and digests of the input and the model.
      size: Bytes of the file.
      digest: Of its content.
    """

    number: int
    count: int
    made_of: Mapping[str, Any]
    size: int
    digest: str


def write_description(path: str, number: int, count: int, made_of: Mapping[str, Any]) -> None:
    """Writes the description of a part beside its file, which is complete."""
    part = Part(number, count, made_of, file_size(path), fingerprints.of_whole_files([path]))
    text = json.dumps({"form": _FORM, **dataclasses.asdict(part)}, indent=1, sort_keys=True)
    with replace_files([part_path(path)]) as [file]:
        file.write(f"{text}\n".encode())


def check_parts(paths: Sequence[str], output_file: str) -> None:
    """Checks that files are all the parts of one output, in order, each as it was written.

    Args:
      paths: The files.
      output_file: Where they are to be joined; its ending must be that of their form.

    Raises:
      ValueError: where they are not, or where nothing beside one says of which output it is a part.
    """
    parts = [_read_description(path) for path in paths]
    for path, part in zip(paths, parts, strict=True):
        if part.made_of != parts[0].made_of or part.count != parts[0].count:
            raise ValueError(
                f"Parts must belong to the same output. {paths[0]!r} and {path!r} differ: "
                f"{_describe_difference(parts[0], part)}. Make one of them again."
            )
    _check_numbers([part.number for part in parts], parts[0].count, paths)
    form, ending = parts[0].made_of.get("form"), os.path.splitext(output_file)[1].lower()
    if form != (ending.removeprefix(".") if ending in _ENDINGS else "jsonl"):
        raise ValueError(
            "`--output_file` must have an ending of the same form as the parts. Received "
            f"{output_file!r} for {paths[0]!r}, which is {form!r}."
        )
    for path, part in zip(paths, parts, strict=True):
        size = file_size(path)
        if size != part.size or fingerprints.of_whole_files([path]) != part.digest:
            raise ValueError(
                f"{path!r} must be as it was written. It had {part.size} bytes, and "
                f"{f'has {size}' if size != part.size else 'holds others'} now. Copy it again, or "
                "make it again."
            )


def _read_description(path: str) -> Part:
    place = part_path(path)
    if not is_file(place):
        raise ValueError(
            f"There must be {place!r} beside {path!r}, which says of which output it is a part. "
            "Copy it with the part, or make the part again; `--unverified` joins files as they are."
        )
    with _description_errors(place):
        values = parse_json(read_file(place))
        if values.pop("form") != _FORM:
            raise ValueError("Its form is not known here.")
        part = Part(**values)
        numbers = (part.number, part.count, part.size)
        if not all(type(number) is int for number in numbers) or type(part.made_of) is not dict:
            raise ValueError("Its values are of other types.")
        if not 1 <= part.number <= part.count:
            raise ValueError(f"There is no part {part.number} of {part.count}.")
    return part


@contextlib.contextmanager
def _description_errors(place: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{place!r} must be as predict.py or extract_features.py wrote it. {error}"
        ) from error


def _describe_difference(one: Part, other: Part) -> str:
    if one.count != other.count:
        return f"of {one.count} parts and of {other.count}"
    return fingerprints.describe_differences(one.made_of, other.made_of, _WORDS, " and ")


def _check_numbers(numbers: Sequence[int], count: int, paths: Sequence[str]) -> None:
    there = {*numbers}
    missing = (number for number in range(1, count + 1) if number not in there)
    if shown := ", ".join(f"{number}/{count}" for number in itertools.islice(missing, _SHOWN)):
        raise ValueError(f"All {count} parts must be there. Of {list(paths)}, {shown} is missing.")
    if list(numbers) != sorted(there):
        order = ", ".join(f"{number}/{count}" for number in numbers)
        raise ValueError(
            f"Parts must be in their order, each once. Received {list(paths)}, which are {order}."
        )
