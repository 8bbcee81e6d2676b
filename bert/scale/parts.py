"""Parts of work that several runs share, and the description of each part's output.

The outputs joined are those of a single run byte for byte, so that a part's number, the number of
parts and what they are made from are in a hidden file beside it.
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
from bert.options import Message, MessageError, Option, OptionError

# The version of a description; others are not read.
_FORM = 1
# Numbers of parts that a message names.
_SHOWN = 12
# All that are not of JSON lines; what is packed is not written.
_ENDINGS = frozenset({".csv", ".tsv", ".parquet", ".npy", ".npz", ".gz"})
# What has its own words where it differs.
_WORDS = {"input": "the input is another one", "model": "the model is another one"}


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of some work.

    Attributes:
      number: Its number, from 1.
      count: How many parts there are.
    """

    number: int
    count: int

    @property
    def is_first(self) -> bool:
        """Whether its output begins the complete one, with a header if that has one."""
        return self.number == 1

    def of(self, num_items: int, size: int) -> range:
        """Returns the places of its items, where chunks of `size` items are not divided.

        The parts differ by one chunk at most, so that some are empty where there are few chunks.
        """
        start, stop = (
            min(size * self._chunks_before(number, -(-num_items // size)), num_items)
            for number in (self.number - 1, self.number)
        )
        return range(start, stop)

    def pick(self, num_chunks: int) -> range:
        """Returns which of so many chunks are its own."""
        return self.of(num_chunks, 1)

    def _chunks_before(self, number: int, num_chunks: int) -> int:
        # Rounded up, so that it is the last ones that may be empty.
        return -(-num_chunks * number // self.count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclasses.dataclass(frozen=True)
class Description:
    """What is known of the output of a part.

    Attributes:
      number: The number of the part, from 1.
      count: How many parts there are.
      made_of: What all parts have in common: options, and digests of the input and the model.
      size: Bytes of the file.
      digest: The digest of its content.
    """

    number: int
    count: int
    made_of: Mapping[str, Any]
    size: int
    digest: str


def write_description(path: str, part: Part, made_of: Mapping[str, Any]) -> None:
    """Writes the description of a part beside its file, which is complete."""
    digest = fingerprints.of_whole_files([path])
    found = Description(part.number, part.count, made_of, file_size(path), digest)
    text = json.dumps({"form": _FORM, **dataclasses.asdict(found)}, indent=1, sort_keys=True)
    with replace_files([part_path(path)]) as [file]:
        file.write(f"{text}\n".encode())


def check_parts(paths: Sequence[str], output_file: str) -> None:
    """Checks that files are all the parts of one output, in order and unchanged.

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
        received = Message("%r for %r, which is %r", output_file, paths[0], form)
        raise OptionError("output_file", "have an ending of the same form as the parts", received)
    for path, part in zip(paths, parts, strict=True):
        size = file_size(path)
        if size != part.size or fingerprints.of_whole_files([path]) != part.digest:
            raise ValueError(
                f"{path!r} must be as it was written. It had {part.size} bytes, and "
                f"{f'has {size}' if size != part.size else 'holds others'} now. Copy it again, or "
                "make it again."
            )


def _read_description(path: str) -> Description:
    place = part_path(path)
    if not is_file(place):
        raise MessageError(
            "There must be %r beside %r, which says of which output it is a part. Copy it with the "
            "part, or make the part again; %s joins files as they are.",
            place,
            path,
            Option("unverified", True),
        )
    with _description_errors(place):
        values = parse_json(read_file(place))
        if values.pop("form") != _FORM:
            raise ValueError("Its form is not known here.")
        part = Description(**values)
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


def _describe_difference(one: Description, other: Description) -> str:
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
