"""What a disk may hold after a loss of power: what was synchronized, and of the rest anything."""

import itertools
import os
import re
import stat

# In the names of files that are being written.
LEFTOVER = re.compile(r"\.partial|\.[0-9a-f]{32}\.tmp$")


class PowerLoss:
    """Watches how a folder is written, and remembers all that a loss of power could leave of it.

    What is in a file counts from when the file is synchronized; before, it is empty. A name counts
    from when its folder is; before, it may be there or not, each on its own.

    Args:
      folder: What is watched; of the folders in it, nothing is known.
      patch: A `pytest.MonkeyPatch`.
    """

    def __init__(self, folder, patch):
        self.folder = str(folder)
        self.states = {}
        # Open files keep their number, so that no other file is taken for them.
        self._open = {}
        self._contents = {}
        self._names = self._look()
        for number in self._names.values():
            self._synchronize(number)
        for name in ("replace", "remove"):
            patch.setattr(os, name, self._watched(getattr(os, name)))
        patch.setattr(os, "fsync", self._watched(os.fsync, self._after_fsync))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.strike()
        for descriptor in self._open.values():
            os.close(descriptor)

    def _look(self):
        names = {}
        for entry in sorted(os.scandir(self.folder), key=lambda entry: entry.name):
            if entry.is_file():
                names[entry.name] = entry.inode()
                if entry.inode() not in self._open:
                    self._open[entry.inode()] = os.open(entry.path, os.O_RDONLY)
        return names

    def _synchronize(self, number):
        descriptor = self._open[number]
        self._contents[number] = os.pread(descriptor, os.fstat(descriptor).st_size, 0)

    def _watched(self, operation, after=None):
        def watched(*args):
            self.strike()
            operation(*args)
            if after:
                after(*args)
            self.strike()

        return watched

    def _after_fsync(self, descriptor):
        status = os.fstat(descriptor)
        names = self._look()
        if stat.S_ISDIR(status.st_mode):
            self._names = names
        elif status.st_ino in self._open:
            self._synchronize(status.st_ino)

    def strike(self):
        """Remembers what a loss of power at this moment could leave."""
        now = self._look()
        names = sorted(name for name in now | self._names if not LEFTOVER.search(name))
        choices = [{self._names.get(name), now.get(name)} for name in names]
        for chosen in itertools.product(*choices):
            state = {
                name: self._contents.get(number, b"")
                for name, number in zip(names, chosen, strict=True)
                if number is not None
            }
            self.states[tuple(sorted(state.items()))] = state

    def write_states(self, folder):
        """Yields a folder for each thing that could have been left."""
        for number, state in enumerate(self.states.values()):
            place = folder / str(number)
            place.mkdir()
            for name, content in state.items():
                (place / name).write_bytes(content)
            yield place
