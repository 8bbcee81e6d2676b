"""Lines that are kept from the first one on, so that a run that was stopped goes on behind them."""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from typing import BinaryIO, TypeVar

from absl import logging

from bert.files.durable import open_locked, rename, replace_files, sync

Input = TypeVar("Input")


class KeptLines:
    """A local file of lines that appears when it is whole; until then, it has another name.

    Args:
      path: Of the whole file.
      key: Tells what the lines are made of: part of the other name, so that lines of another making
        are never gone on with.

    Attributes:
      unfinished: The other name.
      count: Whole lines that are there.
      num_again: Of the inputs that `pass_over` has returned, the first so many have lines, too.
    """

    def __init__(self, path: str, key: str) -> None:
        self._path = os.path.realpath(path)
        self.unfinished = f"{self._path}.{key}.unfinished"
        self.count = 0
        self.num_again = 0
        # Whether what an earlier run has left is looked through.
        self._is_passed = False
        self._file = self._open()

    def _open(self) -> BinaryIO:
        try:
            return open_locked(self.unfinished)
        except BlockingIOError as error:
            raise ValueError(
                f"`--output_file` must be written by one run at a time. Another one is at "
                f"work on {self.unfinished!r}."
            ) from error

    def pass_over(
        self,
        inputs: Iterator[Input],
        answers: Callable[[bytes, Input], bool],
        header: bytes = b"",
        records: Callable[[BinaryIO], Iterator[bytes]] = iter,
        chunk: int = 1,
    ) -> Iterator[Input]:
        """Returns the inputs to which no line belongs yet, and those before them in their chunk.

        Lines are kept up to the first one that does not belong to its input, or is not whole.

        Args:
          inputs: All of them, one to a line.
          answers: Whether a line belongs to an input.
          header: What the file begins with; lines behind another one are not kept.
          records: Yields the lines of a file, of which one may hold line breaks.
          chunk: Of how many inputs lines are made together.
        """
        begun: list[Input] = []
        end = len(header)
        has_header = self._file.read(end) == header
        for line in records(self._file) if has_header else ():
            each = next(inputs, None)
            if each is None:
                break
            if not line.endswith(b"\n") or not answers(line, each):
                inputs = itertools.chain([each], inputs)
                break
            end += len(line)
            self.count += 1
            begun.append(each)
            if len(begun) == chunk:
                begun.clear()
        if not has_header:
            self._file.seek(0)
            self._file.write(header)
        self._file.seek(end)
        self._file.truncate()
        self._is_passed = True
        if self.count:
            logging.info("Going on behind %d lines in %s.", self.count, self.unfinished)
        self.num_again = len(begun)
        return itertools.chain(begun, inputs)

    def write(self, line: bytes) -> None:
        """Takes a line with its end."""
        self._file.write(line)
        self.count += 1

    def flush(self) -> None:
        """Hands the lines to the file."""
        self._file.flush()

    def finish(self, make: Callable[[BinaryIO, BinaryIO], None] | None = None) -> None:
        """Gives the file its name.

        Args:
          make: Where the lines are not the file itself, writes it from them.
        """
        with self._file:
            self._file.flush()
            if make:
                self._file.seek(0)
                with replace_files([self._path]) as [file]:
                    make(self._file, file)
                os.remove(self.unfinished)
                return
            sync(self.unfinished)
            rename(self.unfinished, self._path)
            sync(os.path.dirname(self._path))

    def leave(self) -> None:
        """Keeps the lines under the other name, if there are any."""
        with contextlib.suppress(OSError):
            self._file.flush()
        # Until then, nobody knows how many belong to the inputs.
        lines = f"{self.count} lines" if self._is_passed else "Lines"
        if self.count if self._is_passed else os.fstat(self._file.fileno()).st_size:
            logging.warning(
                "%s so far are kept in %s; the same command goes on behind them.",
                lines,
                self.unfinished,
            )
        else:
            with contextlib.suppress(OSError):
                os.remove(self.unfinished)
        with contextlib.suppress(OSError):
            self._file.close()


@contextlib.contextmanager
def keep_lines(
    path: str,
    key: str,
    make: Callable[[BinaryIO, BinaryIO], None] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Iterator[KeptLines]:
    """Opens a `KeptLines`, which is finished when the block ends, and else left.

    Args:
      path: Of the whole file.
      key: As `KeptLines` takes it.
      make: As `KeptLines.finish` takes it.
      check: Raises where the whole file must not get its name, as one may have come there since.
    """
    lines = KeptLines(path, key)
    try:
        yield lines
        check()
    except BaseException:
        lines.leave()
        raise
    lines.finish(make)
