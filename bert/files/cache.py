"""A cache of the user: files that can be made anew, by the digest of what they are made of."""

import contextlib
import dataclasses
import hashlib
import os
import re

from bert.files import durable
from bert.files.machine import size_text
from bert.log import logger

_NAME = re.compile(r"[0-9a-f]{64}\.entry")
_MAX_BYTES = 5 * 10**9


@dataclasses.dataclass(frozen=True)
class Entry:
    """A file in the cache: the SHA-256 of its content, and the content.

    Attributes:
      root: The cache.
      path: The file, named by the digest of what the content is made of.
    """

    root: str
    path: str

    @classmethod
    def find(cls, folder: str, key: str) -> "Entry":
        """Returns the entry of a key, whether it is there or not.

        Args:
          folder: The name of the folder in the user's cache.
          key: The digest, 64 hexadecimal digits.
        """
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        root = os.path.join(home, folder)
        return cls(root, os.path.join(root, f"{key}.entry"))

    @property
    def exists(self) -> bool:
        """Whether the file is there; its content may be damaged."""
        return os.path.exists(self.path)

    def read(self) -> bytes | None:
        """Returns the content; None where it is absent or damaged."""
        if not self.exists:
            return None
        digest, content = b"", b""
        with contextlib.suppress(OSError), open(self.path, "rb") as file:
            digest, content = file.read(hashlib.sha256().digest_size), file.read()
        if digest != hashlib.sha256(content).digest():
            logger.warning("%r is damaged, and is made anew.", self.path)
            _remove(self.path)
            return None
        with contextlib.suppress(OSError):
            # The oldest entries are removed first.
            os.utime(self.path)
        return content

    def write(self, content: bytes) -> None:
        """Writes the content; a cache that cannot be written is named."""
        try:
            os.makedirs(self.root, exist_ok=True)
            with durable.replace_files([self.path]) as (file,):
                file.write(hashlib.sha256(content).digest())
                file.write(content)
            self._trim()
        except OSError as error:
            logger.warning("Nothing is kept for the next time: %s.", error)

    def _trim(self) -> None:
        """Removes the oldest entries of a cache that is too large, and what killed ones left."""
        durable.remove_leftovers(self.root, _NAME.findall(" ".join(os.listdir(self.root))))
        found = []
        for each in os.scandir(self.root):
            # Another process may have removed it meanwhile.
            with contextlib.suppress(FileNotFoundError):
                if _NAME.fullmatch(each.name):
                    found.append((each.stat().st_mtime, each.stat().st_size, each.path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total > _MAX_BYTES and path != self.path:
                logger.info("Removing %r, since the cache exceeds %s.", path, size_text(_MAX_BYTES))
                total -= size
                _remove(path)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.remove(path)
