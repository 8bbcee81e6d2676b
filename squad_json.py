"""The list under a key of a JSON file, item by item: memory holds one item, not the file."""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from bert.files.paths import open_file

_CHUNK = 1 << 20
_SPACES = re.compile(r"[ \t\n\r]*")
_REST_OF_NUMBER = re.compile(r"[0-9.eE+-]*")


def read_items(input_file: str, key: str) -> Iterator[Any]:
    """Yields the items of the list that a JSON file's object has under `key`.

    Raises:
      ValueError: naming the file, where it cannot be read, is not JSON, or has no such list.
    """
    try:
        file = open_file(input_file)
    except OSError as error:
        raise ValueError(f"{input_file!r} must be a readable file ({error.strerror}).") from error
    with file:
        yield from _items(_Source(file, input_file), input_file, key)


def _items(source: "_Source", input_file: str, key: str) -> Iterator[Any]:
    if source.peek() != "{":
        raise ValueError(
            f"{input_file!r} must hold an object with `{key}`, as SQuAD's files do. It begins with "
            f"{source.peek()!r}."
        )
    names = []
    for _ in source.between("{", "}"):
        name = source.value()
        source.take(":")
        names.append(name)
        if name != key:
            source.value()
            continue
        if source.peek() != "[":
            raise ValueError(
                f"{input_file!r}: `{key}` must be a list. It begins with {source.peek()!r}."
            )
        for _ in source.between("[", "]"):
            yield source.value()
    source.end()
    if key not in names:
        raise ValueError(f"{input_file!r} must have `{key}`, as SQuAD's files do. It has {names}.")


class _Source:
    """Text from which JSON values are taken one after another."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._text = ""
        self._position = 0
        self._ended = False
        # Of what is no longer in memory.
        self._num_characters = self._num_lines = 0

    def _read_on(self) -> bool:
        """Reads more; returns whether there was any."""
        if self._ended:
            return False
        rest = self._text[self._position :]
        self._num_characters += self._position
        self._num_lines += self._text.count("\n", 0, self._position)
        # As much again: a value is begun anew with each reading, so their number is kept small.
        chunk = self._file.read(max(_CHUNK, len(rest)))
        self._ended = not chunk
        try:
            self._text = rest + self._decode(chunk, self._ended)
        except UnicodeDecodeError as error:
            raise ValueError(f"{self._name!r} must be UTF-8 text. {error}.") from error
        self._position = 0
        return True

    def _fail(self, message: str, position: int) -> ValueError:
        line = self._num_lines + self._text.count("\n", 0, position) + 1
        return ValueError(
            f"{self._name!r} must be JSON. {message} at character "
            f"{self._num_characters + position}, line {line}."
        )

    def peek(self) -> str:
        """Returns the next character that is no space; none at the end."""
        while True:
            match = _SPACES.match(self._text, self._position)
            assert match is not None
            self._position = match.end()
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._read_on():
                return ""

    def take(self, characters: str) -> str:
        """Returns the next character, which must be one of these, and goes past it."""
        character = self.peek()
        if not character or character not in characters:
            received = repr(character) if character else "the end of the file"
            wanted = " or ".join(map(repr, characters))
            raise self._fail(f"Expected {wanted}, found {received}", self._position)
        self._position += 1
        return character

    def between(self, opening: str, closing: str) -> Iterator[None]:
        """Yields before each part of a list or an object, which the caller takes."""
        self.take(opening)
        if self.peek() == closing:
            self.take(closing)
            return
        while True:
            yield
            if self.take("," + closing) == closing:
                return

    def value(self) -> Any:
        """Returns the next value and goes past it."""
        self.peek()
        while True:
            try:
                value, end = json.JSONDecoder().raw_decode(self._text, self._position)
            except json.JSONDecodeError as error:
                if self._read_on():
                    continue
                raise self._fail(error.msg, error.pos) from error
            # A number may go on after `1`, `1.` or `1.5e`.
            if _REST_OF_NUMBER.fullmatch(self._text, end) and self._read_on():
                continue
            self._position = end
            return value

    def end(self) -> None:
        """Checks that nothing follows."""
        if self.peek():
            raise self._fail("Expected the end of the file", self._position)
