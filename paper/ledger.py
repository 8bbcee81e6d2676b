"""What has run, and what came of it: a file that is never lost and may go to another machine."""

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bert.files.durable import write_text
from bert.files.owned import claim
from bert.files.paths import parse_json, read_file

LEDGER_FILE = "ledger.json"


@dataclasses.dataclass(frozen=True)
class Entry:
    """A job that has run.

    Attributes:
      name: Of the job.
      kind: Its kind.
      command: As a reader types it.
      scores: By name; those of a test set begin with `test_`. Empty where it has none.
      seed: Of its draws.
      seconds: That it took, on `machine`, with those before it was stopped and resumed.
      guessed: Those that it was guessed to take.
      machine: The processor and its cores.
      versions: Of what computed it.
      date: On which it ended.
      earlier: The scores of the same job when it ran before and led elsewhere, as on another
        processor.
    """

    name: str
    kind: str
    command: str
    scores: Mapping[str, float]
    seed: int | None
    seconds: float
    guessed: float
    machine: str
    versions: Mapping[str, str]
    date: str
    earlier: Sequence[Mapping[str, float]] = dataclasses.field(default_factory=list)

    @property
    def results(self) -> list[Mapping[str, float]]:
        """The scores of each time that it ran and led elsewhere; none where it has no scores."""
        return [each for each in (*self.earlier, self.scores) if each]


def _to_dict(entry: Entry) -> dict[str, Any]:
    values = dataclasses.asdict(entry)
    return values if entry.earlier else {k: v for k, v in values.items() if k != "earlier"}


class Ledger:
    """The entries by the digest of their command and inputs, and the recipes by budget and data.

    Args:
      path: The file, which need not be there.
      others: Ledgers that are read besides.
    """

    def __init__(self, path: str, others: Iterable[str] = ()) -> None:
        self._path = path
        self.recipes: dict[str, Mapping[str, Any]] = {}
        # The file that each is from.
        self.sources: dict[str, str] = {}
        self.entries: dict[str, Entry] = {}
        # The seconds so far of what was stopped here and will be resumed, by digest.
        self.stopped: dict[str, float] = {}
        for each in others:
            self._read(each)
        if os.path.exists(path):
            self._read(path)

    def _read(self, path: str) -> None:
        try:
            values = parse_json(read_file(path))
        except OSError as error:
            raise ValueError(
                f"`--ledger` must name files that can be read. Received {path!r} ({error})."
            ) from None
        except ValueError:
            values = None
        try:
            self.recipes.update(values["recipes"])
            self.sources.update(dict.fromkeys(values["recipes"], path))
            entries = {digest: Entry(**entry) for digest, entry in values["runs"].items()}
            if path == self._path:
                stopped = values.get("stopped", {})
                self.stopped = {digest: float(seconds) for digest, seconds in stopped.items()}
        except (KeyError, TypeError, AttributeError, ValueError):
            raise ValueError(
                f"{path!r} must be a ledger of reproduce_paper.py, with `recipes` and `runs`. It "
                "is another file, or damaged. Restore it, or give another one."
            ) from None
        for digest, entry in entries.items():
            self._take(digest, entry)

    def _take(self, digest: str, entry: Entry) -> None:
        """Replaces the entry of the same job, whose other scores stay among the earlier ones."""
        if known := self.entries.get(digest):
            earlier: list[Mapping[str, float]] = []
            for each in (*known.results, *entry.earlier):
                if each != entry.scores and each not in earlier:
                    earlier.append(each)
            entry = dataclasses.replace(entry, earlier=earlier)
        self.entries[digest] = entry

    def add(self, digest: str, entry: Entry) -> None:
        """Takes note of a job, on the disk, too."""
        self._take(digest, entry)
        self.stopped.pop(digest, None)
        self.save()

    def add_stopped(self, digest: str, seconds: float) -> None:
        """Takes note of the time of a job that goes on where it was stopped, on the disk, too."""
        self.stopped[digest] = seconds
        self.save()

    def save(self) -> None:
        """Writes the file, which is the old one or the new one for whoever reads it."""
        values = {
            "recipes": self.recipes,
            "runs": {key: _to_dict(entry) for key, entry in self.entries.items()},
            "stopped": self.stopped,
        }
        claim(*os.path.split(self._path))
        write_text(self._path, json.dumps(values, indent=1, ensure_ascii=False) + "\n")

    def scored(self, digests: Mapping[str, str]) -> set[str]:
        """Returns the names of the jobs whose scores are known.

        Args:
          digests: Of the jobs, by name.
        """
        found = {name: self.entries[key] for name, key in digests.items() if key in self.entries}
        return {name for name, entry in found.items() if entry.scores}

    def times(self, machine: str) -> list[tuple[str, float, float]]:
        """Returns of all that ran on a machine the kind, the seconds, and those guessed."""
        return [
            (entry.kind, entry.seconds, entry.guessed)
            for entry in self.entries.values()
            if entry.machine == machine
        ]
