"""Joins the outputs of parts of some work into the output of a single run, byte for byte.

A hidden file beside each output describes its part, so that only parts of one output are joined.
"""

import codecs
import collections
import contextlib
import gzip
import itertools
import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from typing import IO, BinaryIO

import numpy as np

from bert.files import fingerprints, parquet
from bert.files.paths import (
    file_size,
    index_path,
    is_file,
    is_gzip,
    match_files,
    open_file,
    os_errors,
    parse_json,
    part_path,
    read_file,
    read_lines,
    split_patterns,
)
from bert.files.vectors import Array, array_errors, write_npy, write_npz
from bert.options import Message, MessageError, Option, OptionError
from bert.scale.options import DESCRIPTION_FORM, Description

# Extensions of other formats than JSON lines; outputs with .gz are not written.
_ENDINGS = frozenset({".csv", ".tsv", ".parquet", ".npy", ".npz", ".gz"})
# Differences that have a description of their own.
_WORDS = {"input": "the input is another one", "model": "the model is another one"}


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
    _check_order([part.number for part in parts], parts[0].count, paths)
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
        if values.pop("form") != DESCRIPTION_FORM:
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


def _check_order(numbers: Sequence[int], count: int, paths: Sequence[str]) -> None:
    found = {*numbers}
    missing = (number for number in range(1, count + 1) if number not in found)
    if shown := ", ".join(f"{number}/{count}" for number in itertools.islice(missing, _SHOWN)):
        raise ValueError(f"All {count} parts must be there. Of {list(paths)}, {shown} is missing.")
    if list(numbers) != sorted(found):
        order = ", ".join(f"{number}/{count}" for number in numbers)
        raise ValueError(
            f"Parts must be in their order, each once. Received {list(paths)}, which are {order}."
        )


# Extensions of files that are not joined line by line.
ARRAYS = ("npy", "npz", "parquet")

# The arrays of an archive that describe all of its vectors.
_OF_ALL = ("layers", "pooling")
_BLOCK_BYTES = 1 << 24
# The number of parts in the name of a part.
_COUNT = re.compile("[0-9]-of-([0-9]+)")
# Maximum numbers in a message.
_SHOWN = 12


def form_of(path: str) -> str:
    """Returns the format by which a file is joined: one of `ARRAYS`, or "lines"."""
    ending = os.path.splitext(path)[1].lower().removeprefix(".")
    return ending if ending in ARRAYS else "lines"


def find_parts(
    input_file: str, output_file: str, num_parts: int | None, is_verified: bool
) -> list[str]:
    """Returns the paths of the parts in their order.

    Args:
      input_file: Paths or patterns, comma-separated.
      output_file: The file to join the parts in, which must have their extension.
      num_parts: The number of parts, if it is known.
      is_verified: Whether the descriptions beside the parts must agree.

    Raises:
      ValueError: where they are not the parts of one output.
    """
    patterns = split_patterns(input_file)
    count = num_parts if len(patterns) == 1 else None
    paths: list[str] = []
    for pattern in patterns:
        matched = match_files(pattern, "input_file")
        # A path that is given without a pattern keeps its position.
        paths += matched if matched == [pattern] else order_parts(matched, count)
    _check_count(paths, num_parts)
    if records := [path for path in paths if is_file(index_path(path))]:
        raise OptionError(
            "input_file",
            "name shards of one file that have no index of their own",
            Message("%r, records of create_pretraining_data.py", records[0]),
            "A file of their bytes would lack their index. run_pretraining.py reads all of them by "
            "a pattern.",
        )
    for path in paths:
        if form_of(path) != form_of(output_file):
            received = Message("%r for %r", output_file, path)
            must = "have an ending of the same form as the parts"
            raise OptionError("output_file", must, received)
    _check_packed(paths)
    if form_of(output_file) == "parquet":
        parquet.check_installed(output_file)
    if is_verified:
        check_parts(paths, output_file)
    return paths


def _check_count(paths: Sequence[str], num_parts: int | None) -> None:
    if doubled := [path for path in dict.fromkeys(paths) if paths.count(path) > 1]:
        raise OptionError("input_file", "name each part once", Message("%s again", doubled))
    if num_parts not in (None, len(paths)):
        raise OptionError(
            "input_file",
            Message("name %s parts, as %s says", num_parts, Option("num_parts")),
            Message("%s: %s", len(paths), ", ".join(paths)),
        )


def _check_packed(paths: Sequence[str]) -> None:
    packed = {is_gzip(path): path for path in paths if file_size(path)}
    if len(packed) > 1:
        received = Message("%r, which is gzip, and %r", packed[True], packed[False])
        raise OptionError("input_file", "name files that are all gzip or all plain", received)


def order_parts(paths: Sequence[str], num_parts: int | None = None) -> list[str]:
    """Returns the paths that a pattern matches in the order of the numbers in their names.

    Args:
      paths: The files.
      num_parts: The number of parts, where names such as `part-1-of-4` do not contain it.

    Raises:
      ValueError: where a number is missing or repeated, or names differ in several numbers.
    """
    split = {path: re.split("([0-9]+)", path) for path in paths}
    # Texts and numbers alternate, so that they are never compared with each other.
    ordered = sorted(paths, key=lambda path: [int(w) if w.isdecimal() else w for w in split[path]])
    counts = {int(found[1]) for path in paths if (found := _COUNT.search(os.path.basename(path)))}
    if len(counts) > 1:
        raise ValueError(
            "Parts must belong to the same output. Those that are found are of "
            f"{sorted(counts)}: {ordered}."
        )
    numbers = _numbers([split[path] for path in ordered])
    if numbers is not None:
        _check_numbers(numbers, num_parts or max(counts, default=0), ordered)
    elif counts and len(paths) != max(counts):
        raise ValueError(f"There must be {max(counts)} parts. There are {len(paths)}: {ordered}.")
    return ordered


def _numbers(names: Sequence[Sequence[str]]) -> list[int] | None:
    """Returns the numbers in which split names differ; None where they have none."""
    texts = {tuple(name[::2]) for name in names}
    columns = {*zip(*([int(word) for word in name[1::2]] for name in names), strict=False)}
    differing = [column for column in columns if len({*column}) > 1]
    same_length = len({len(name) for name in names}) == 1
    if len(names) == 1 or (same_length and len(texts) > 1 and not differing):
        return None
    if len(texts) > 1 or len(differing) > 1:
        shown = ["".join(name) for name in names[:_SHOWN]]
        raise ValueError(
            f"What a pattern matches must differ in one number. Received {shown}. Give a pattern "
            "that matches the parts alone, or the parts themselves, with commas between."
        )
    # Otherwise the names differ only in leading zeros.
    return list(differing[0]) if differing else [0] * len(names)


def _check_numbers(numbers: Sequence[int], count: int, paths: Sequence[str]) -> None:
    first = min(numbers[0], 1)
    expected = range(first, max(first + count, numbers[-1] + 1))
    times = collections.Counter(numbers)
    # At most as many as are shown: between two dates there may be millions.
    missing = itertools.islice((number for number in expected if number not in times), _SHOWN)
    wrong = [f"{number} is missing" for number in missing]
    wrong += [f"{number} is there twice" for number in sorted(times) if times[number] > 1]
    wrong += [f"{number} is one too many" for number in numbers if 0 < count <= number - first]
    if wrong:
        raise ValueError(
            f"Parts must have the numbers from {first} on, each once"
            + (f", {count} in all" if count else "")
            + f". Of {paths[0]!r} to {paths[-1]!r}, {', '.join(wrong[:_SHOWN])}. Parts with other "
            "numbers can be given themselves, with commas between."
        )


def join(paths: Sequence[str], form: str, file: BinaryIO) -> None:
    """Joins files in their order, line by line or, for a form of `ARRAYS`, by rows.

    A text that does not end with a line feed gets one before the text that follows.

    Raises:
      ValueError: where a file does not fit the first one.
    """
    if form == "npy":
        write_npy(file, "values", _join_arrays([_Stored(path) for path in paths]))
    elif form == "npz":
        write_npz(file, {name: _join_named(paths, name) for name in _names(paths)})
    elif form == "parquet":
        parquet.join_parquet(paths, file)
    else:
        _join_lines(paths, file)


def _join_lines(paths: Sequence[str], file: BinaryIO) -> None:
    between = b""
    for path in paths:
        with os_errors(path), open_file(path) as part:
            block = part.read(_BLOCK_BYTES)
            is_text = _is_text(block)
            file.write(between if block else b"")
            while block:
                file.write(block)
                between = b"\n" if is_text and not block.endswith(b"\n") else b""
                block = part.read(_BLOCK_BYTES)
        if is_gzip(path):
            between = _packed_end(path)


def _packed_end(path: str) -> bytes:
    """Returns a packed line feed where a packed text lacks its last one, else nothing."""
    lines = (line for line, _ in read_lines(path))
    # A record may begin with the byte of a line feed, in its length of eight bytes.
    first = [*itertools.islice(lines, 8)]
    last = next(iter(collections.deque(lines, maxlen=1)), first[-1] if first else b"")
    lacks_end = _is_text(b"".join(first)) and last and not last.endswith(b"\n")
    return gzip.compress(b"\n", mtime=0) if lacks_end else b""


def _is_text(block: bytes) -> bool:
    """Returns whether a file begins as UTF-8 text, not as records or a packed file."""
    try:
        # The last character may be incomplete.
        return "\0" not in codecs.utf_8_decode(block)[0]
    except UnicodeDecodeError:
        return False


class _Stored:
    """An array in a file of NumPy, or under a name in an archive."""

    def __init__(self, path: str, name: str | None = None) -> None:
        self.path = path
        self.name = name
        with self._open() as (_, header):
            self.shape, is_fortran, self.dtype = header
        if is_fortran or not self.shape:
            raise ValueError(
                f"{path!r} must hold rows, one behind the other. It holds "
                f"{'columns, in the order of Fortran' if is_fortran else 'a single number'}. Save "
                "it again with `numpy.save(path, numpy.array(values, order='C', ndmin=1))`."
            )

    @contextlib.contextmanager
    def _open(self) -> Iterator[tuple[IO[bytes], tuple[tuple[int, ...], bool, np.dtype]]]:
        """Opens the file after the header: the shape, whether in Fortran order, and the dtype."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(os_errors(self.path))
            file: IO[bytes] = stack.enter_context(open_file(self.path))
            stack.enter_context(array_errors(self.path))
            if self.name:
                archive = stack.enter_context(zipfile.ZipFile(file))
                file = stack.enter_context(archive.open(f"{self.name}.npy"))
            np.lib.format.read_magic(file)
            yield file, np.lib.format.read_array_header_1_0(file)

    def blocks(self) -> Iterator[np.ndarray]:
        """Yields blocks of rows; texts, which are wide and compressed, one at a time."""
        with self._open() as (file, (shape, _, dtype)):
            row_bytes = dtype.itemsize * int(np.prod(shape[1:]))
            step = 1 if dtype.kind == "U" else max(_BLOCK_BYTES // max(row_bytes, 1), 1)
            for start in range(0, shape[0], step):
                num_rows = min(step, shape[0] - start)
                read = file.read(num_rows * row_bytes)
                if len(read) < num_rows * row_bytes:
                    raise ValueError(
                        f"Its header has {shape[0]} rows; it ends after "
                        f"{start + len(read) // row_bytes}."
                    )
                yield np.frombuffer(read, dtype).reshape(num_rows, *shape[1:])


def _names(paths: Sequence[str]) -> list[str]:
    """Returns the names of the arrays, which all archives must have."""
    found: list[list[str]] = []
    for path in paths:
        with os_errors(path), open_file(path) as file, array_errors(path):
            found.append(np.lib.npyio.NpzFile(file).files)
        if found[-1] != found[0]:
            raise ValueError(
                f"{path!r} must hold {found[0]}, as {paths[0]!r}. It holds {found[-1]}."
            )
    return found[0]


def _join_named(paths: Sequence[str], name: str) -> Array:
    parts = [_Stored(path, name) for path in paths]
    if name not in _OF_ALL:
        return _join_arrays(parts)
    values = [[block.tolist() for block in part.blocks()] for part in parts]
    for part, other in zip(parts, values, strict=True):
        if other != values[0]:
            raise ValueError(
                f"{part.path!r} must have the {name} {values[0]}, as {parts[0].path!r}. It has "
                f"{other}."
            )
    return parts[0].shape, parts[0].dtype.str, parts[0].blocks()


def _join_arrays(parts: Sequence[_Stored]) -> Array:
    first = parts[0]
    for part in parts:
        if (part.shape[1:], part.dtype.kind) != (first.shape[1:], first.dtype.kind):
            raise ValueError(
                f"{part.path!r} must have rows of {first.shape[1:]}, as {first.path!r}. They are "
                f"of {part.shape[1:]}."
            )
    # The array of texts is as wide as the longest one of all.
    dtype = max((part.dtype for part in parts), key=lambda dtype: dtype.itemsize)
    shape = (sum(part.shape[0] for part in parts), *first.shape[1:])
    return shape, dtype.str, (block for part in parts for block in part.blocks())
