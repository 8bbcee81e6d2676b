"""A cache of the user: files that can be made anew, by the digest of what they are made of."""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import tempfile
import time

from bert.files.machine import size_text
from bert.files.paths import read_file
from bert.log import logger

_CONTENT, _RECORD = "content", "entry.json"
_NAME = re.compile(r"[0-9a-f]{64}")
_MAX_BYTES = 5 * 10**9
# An unfinished entry of this age belongs to a process that was killed.
_DAY = 24 * 60 * 60


@dataclasses.dataclass(frozen=True)
class Entry:
    """A folder in the cache, with a file and its digest.

    Attributes:
      root: The cache.
      path: The folder, named by the digest of what the file is made of.
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
        return cls(root, os.path.join(root, key))

    @property
    def exists(self) -> bool:
        """Whether the folder is there; what is in it may be damaged."""
        return os.path.exists(self.path)

    def read(self) -> bytes | None:
        """Returns the file; None where it is absent or damaged."""
        if not self.exists:
            return None
        try:
            content = read_file(os.path.join(self.path, _CONTENT))
            record = json.loads(read_file(os.path.join(self.path, _RECORD)))
            is_whole = record["sha256"] == hashlib.sha256(content).hexdigest()
        except (OSError, ValueError, LookupError, TypeError):
            is_whole = False
        if not is_whole:
            logger.warning("%r is damaged, and is made anew.", self.path)
            _remove(self.path)
            return None
        with contextlib.suppress(OSError):
            # The oldest entries are removed first.
            os.utime(self.path)
        return content

    def write(self, content: bytes) -> None:
        """Writes the file, unless another process has; a cache that cannot be written is named."""
        record = json.dumps({"sha256": hashlib.sha256(content).hexdigest()})
        try:
            os.makedirs(self.root, exist_ok=True)
            folder = tempfile.mkdtemp(dir=self.root, prefix=".making-")
            try:
                for name, written in ((_CONTENT, content), (_RECORD, record.encode())):
                    with open(os.path.join(folder, name), "wb") as file:
                        file.write(written)
                with contextlib.suppress(OSError):
                    os.rename(folder, self.path)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            self._trim()
        except OSError as error:
            logger.warning("Nothing is kept for the next time: %s.", error)

    def _trim(self) -> None:
        """Removes the oldest entries of a cache that is too large, and what killed ones left."""
        found = []
        for each in os.scandir(self.root):
            try:
                age = each.stat(follow_symlinks=False).st_mtime
            except FileNotFoundError:
                # Another process has renamed or removed it meanwhile.
                continue
            if not each.is_dir(follow_symlinks=False) or each.path == self.path:
                continue
            if each.name.startswith(".making-") and time.time() - age > _DAY:
                _remove(each.path)
            elif _NAME.fullmatch(each.name):
                found.append((age, each.path))
        total = _size(self.path) + sum(_size(path) for _, path in found)
        for _, path in sorted(found):
            if total <= _MAX_BYTES:
                break
            logger.info("Removing %r, since the cache exceeds %s.", path, size_text(_MAX_BYTES))
            total -= _size(path)
            _remove(path)


def _size(folder: str) -> int:
    with contextlib.suppress(OSError):
        return sum(each.stat(follow_symlinks=False).st_size for each in os.scandir(folder))
    return 0


def _remove(folder: str) -> None:
    """Removes the files of an entry, and its folder where nothing else is in it."""
    for name in (_CONTENT, _RECORD):
        with contextlib.suppress(OSError):
            os.remove(os.path.join(folder, name))
    with contextlib.suppress(OSError):
        os.rmdir(folder)
