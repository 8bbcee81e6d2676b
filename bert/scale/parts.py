"""Part k of n of some work, and the description of a part's output.

The joined outputs of all parts are the output of a single run, byte for byte. A hidden file beside
each output describes its part, so that only parts of one output are joined.
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

# The version of the format of descriptions.
_FORM = 1
# Maximum numbers of parts in a message.
_SHOWN = 12
# Extensions of other formats than JSON lines; outputs with .gz are not written.
_ENDINGS = frozenset({".csv", ".tsv", ".parquet", ".npy", ".npz", ".gz"})
# Differences that have a description of their own.
_WORDS = {"input": "the input is another one", "model": "the model is another one"}


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of some work.

    Attributes:
      number: The number of the part, from 1.
      count: The number of parts.
    """

    number: int
    count: int

    @property
    def is_first(self) -> bool:
        """Whether the output of this part has the header of a table."""
        return self.number == 1

    def of(self, num_items: int, size: int) -> range:
        """Returns the numbers of the items of this part, which consists of chunks of `size` items.

        The sizes of parts differ by one chunk at most; the last parts may be empty.
        """
        num_chunks = -(-num_items // size)
        start, stop = (
            min(size * -(-num_chunks * number // self.count), num_items)
            for number in (self.number - 1, self.number)
        )
        return range(start, stop)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclasses.dataclass(frozen=True)
class Description:
    """The description of the output of a part.

    Attributes:
      number: The number of the part, from 1.
      count: The number of parts.
      made_of: Options and digests of the input and the model, the same for all parts.
      size: The size of the file in bytes.
      digest: The digest of its content.
    """

    number: int
    count: int
    made_of: Mapping[str, Any]
    size: int
    digest: str


@contextlib.contextmanager
def described(
    path: str,
    part: Part | None,
    options: Mapping[str, Any],
    form: str,
    inputs: Sequence[str],
    model_files: Sequence[str],
) -> Iterator[None]:
    """Writes the description of a part after a block that writes its output.

    Args:
      path: The output.
      part: The part; None where the output is no part, and has no description.
      options: The options that change the output, by name.
      form: The format of the output, such as "csv".
      inputs: The files that are read.
      model_files: The files of the model.
    """
    if part is None:
        yield
        return
    made_of = {
        **{name: value for name, value in options.items() if name != "shard"},
        "form": form,
        "input": fingerprints.of_whole_files(inputs),
        "model": fingerprints.of_files([*filter(is_file, model_files)]),
    }
    yield
    digest = fingerprints.of_whole_files([path])
    found = Description(part.number, part.count, made_of, file_size(path), digest)
    text = json.dumps({"form": _FORM, **dataclasses.asdict(found)}, indent=1, sort_keys=True)
    with replace_files([part_path(path)]) as [file]:
        file.write(f"{text}\n".encode())


def check_parts(paths: Sequence[str], output_file: str) -> None:
    """Checks that files are all the parts of one output, in order and unchanged.

    Args:
      paths: The files.
      output_file: The file to join them in, whose extension must fit their format.

    Raises:
      ValueError: where they are not, or where a file has no description.
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
    description = part_path(path)
    if not is_file(description):
        raise MessageError(
            "There must be %r beside %r, which says of which output it is a part. Copy it with the "
            "part, or make the part again; %s joins files as they are.",
            description,
            path,
            Option("unverified", True),
        )
    try:
        values = parse_json(read_file(description))
        if values.pop("form") != _FORM:
            raise ValueError("Its form is not known here.")
        part = Description(**values)
        numbers = (part.number, part.count, part.size)
        if not all(type(number) is int for number in numbers) or type(part.made_of) is not dict:
            raise ValueError("Its values are of other types.")
        if not 1 <= part.number <= part.count:
            raise ValueError(f"There is no part {part.number} of {part.count}.")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{description!r} must be as predict.py or extract_features.py wrote it. {error}"
        ) from error
    return part


def _describe_difference(one: Description, other: Description) -> str:
    if one.count != other.count:
        return f"of {one.count} parts and of {other.count}"
    return fingerprints.describe_differences(one.made_of, other.made_of, _WORDS, " and ")


def _check_numbers(numbers: Sequence[int], count: int, paths: Sequence[str]) -> None:
    found = {*numbers}
    missing = (number for number in range(1, count + 1) if number not in found)
    if shown := ", ".join(f"{number}/{count}" for number in itertools.islice(missing, _SHOWN)):
        raise ValueError(f"All {count} parts must be there. Of {list(paths)}, {shown} is missing.")
    if list(numbers) != sorted(found):
        order = ", ".join(f"{number}/{count}" for number in numbers)
        raise ValueError(
            f"Parts must be in their order, each once. Received {list(paths)}, which are {order}."
        )
