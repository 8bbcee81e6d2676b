"""What a disk may hold after a loss of power: what was synchronized, and of the rest anything."""

import itertools
import os
import re
import stat

# In the names of files and folders that are being written, or are on their way out.
LEFTOVER = re.compile(r"\.partial|\.[0-9a-f]{32}\.tmp$|\.old\.tmp$")


class PowerLoss:
    """Watches how a folder is written, and remembers all that a loss of power could leave of it.

    The content of a file counts from when the file is synchronized; before, the file is empty. A
    name counts from when its folder is synchronized; before, it may be there or not, each on its
    own.

    Args:
      folder: What is watched, with the folders in it.
      patch: A `pytest.MonkeyPatch`.

    Attributes:
      states: What could be left, as contents of files by their path in the folder. A folder in it
        counts as a file whose name ends with "/".
      last: Those of `states` that could still be left at the end.
    """

    def __init__(self, folder, patch):
        self.folder = str(folder)
        self.states, self.last = {}, []
        # Open files keep their number, so that no other file is taken for them.
        self._open = {}
        self._contents = {}
        self._names = self._look()
        self._root = os.stat(self.folder).st_ino
        for number in self._open:
            self._synchronize(number)
        for name in ("replace", "remove"):
            patch.setattr(os, name, self._watched(getattr(os, name)))
        patch.setattr(os, "fsync", self._watched(os.fsync, self._after_fsync))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.last = self.strike()
        for descriptor in self._open.values():
            os.close(descriptor)

    def _look(self):
        """Returns the names in each folder, and opens what is new."""
        found, paths = {}, [self.folder]
        for path in paths:
            names = found[self._number(path)] = {}
            for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
                if entry.is_file() or entry.is_dir():
                    names[entry.name] = self._number(entry.path)
                if entry.is_dir():
                    paths.append(entry.path)
        return found

    def _number(self, path):
        number = os.stat(path).st_ino
        if number not in self._open:
            self._open[number] = os.open(path, os.O_RDONLY)
        return number

    def _synchronize(self, number):
        status = os.fstat(self._open[number])
        if stat.S_ISREG(status.st_mode):
            self._contents[number] = os.pread(self._open[number], status.st_size, 0)

    def _watched(self, operation, after=None):
        def watched(*args):
            self.strike()
            operation(*args)
            if after:
                after(*args)
            self.strike()

        return watched

    def _after_fsync(self, descriptor):
        number = os.fstat(descriptor).st_ino
        now = self._look()
        if number in now:
            self._names[number] = now[number]
        elif number in self._open:
            self._synchronize(number)

    def strike(self):
        """Remembers, and returns, what a loss of power at this moment could leave."""
        states = [*self._outcomes(self._root, self._look())]
        self.states.update((tuple(sorted(state.items())), state) for state in states)
        return states

    def _outcomes(self, folder, now):
        """Yields what may be found in a folder."""
        new, old = now.get(folder, {}), self._names.get(folder, {})
        names = sorted(name for name in new | old if not LEFTOVER.search(name))
        choices = [
            [
                each
                for number in {old.get(name), new.get(name)}
                for each in self._of(name, number, now)
            ]
            for name in names
        ]
        for chosen in itertools.product(*choices):
            yield {path: content for part in chosen for path, content in part.items()}

    def _of(self, name, number, now):
        """Yields what may be found at a name, if it is that of this file or folder."""
        if number is None:
            yield {}
        elif number in now or number in self._names:
            for inner in self._outcomes(number, now):
                yield {f"{name}/": b"", **{f"{name}/{path}": inner[path] for path in inner}}
        else:
            yield {name: self._contents.get(number, b"")}

    def write_states(self, folder):
        """Yields a folder for each thing that could have been left."""
        for number, state in enumerate(self.states.values()):
            place = folder / str(number)
            place.mkdir()
            for name, content in state.items():
                if name.endswith("/"):
                    (place / name).mkdir()
                else:
                    (place / name).write_bytes(content)
            yield place
