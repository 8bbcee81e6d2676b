"""A command of the plan: what it needs, what it makes, and what tells it from every other."""

import dataclasses
import json
import os
import re
from collections.abc import Mapping

from bert.files import fingerprints

# In a flag, what stands for the place of a job, of a part of the data, or of the job itself.
_PLACE = re.compile(r"<([^<>]+)>")
OWN = "<>"
# Flags that change no result.
_NEUTRAL = (
    *("--output_dir=", "--output_file=", "--save_checkpoints_steps=", "--keep_checkpoint_max="),
)
SCORES = ("eval_results.json", "test_results.json")


@dataclasses.dataclass(frozen=True)
class Job:
    """A command that is run once.

    Attributes:
      name: Such as `base/SST-2/12345`.
      kind: What its time is estimated by.
      script: Of the project, without `.py`.
      flags: With `<name>` for the place of what another job, or the data, made, and `<>` for its
        own.
      gflop: The work, in 1e9 operations, start apart.
      makes: The file whose being there says that it is done, below its own place.
      has_scores: Whether it scores something, and so has a line in the ledger.
      seed: Of its draws, where it has any.
    """

    name: str
    kind: str
    script: str
    flags: tuple[str, ...]
    gflop: float
    makes: str
    has_scores: bool = True
    seed: int | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of what its flags mention, each once."""
        found = [name for flag in self.flags for name in _PLACE.findall(flag)]
        return tuple(dict.fromkeys(found))

    @property
    def resumes(self) -> bool:
        """Whether it goes on where it was stopped; what does not train begins again."""
        return self.script.startswith("run_")

    def command(self, places: Mapping[str, str], own: str) -> list[str]:
        """Returns the script and its flags, with the places of all that they mention."""

        def fill(flag: str) -> str:
            filled = _PLACE.sub(lambda match: places[match[1]], flag)
            return filled.replace(OWN, own)

        return [self.script, *map(fill, self.flags)]

    def shown(self) -> str:
        """Returns the command for a reader, with short names of places."""

        def short(flag: str) -> str:
            named = _PLACE.sub(lambda match: place_of(match[1]), flag)
            return named.replace(OWN, place_of(self.name))

        return " ".join(["python", f"{self.script}.py", *map(short, self.flags)])


def place_of(name: str) -> str:
    """Returns where something is shown to lie, below --output_dir."""
    if name.startswith("data:"):
        return f"data/{name.removeprefix('data:')}"
    return f"runs/{name.replace('/', '-')}"


def digest_all(jobs: Mapping[str, Job], inputs: Mapping[str, str]) -> dict[str, str]:
    """Returns the digest of every job: of its command, and of all that goes into it.

    Args:
      jobs: By name, each behind those that it needs.
      inputs: Digests of the parts of the data, by name.
    """
    digests = dict(inputs)
    for name, job in jobs.items():
        parts = {
            "script": job.script,
            "flags": [_PLACE.sub("<>", flag) for flag in job.flags if not _is_neutral(flag)],
            "inputs": [digests[each] for each in job.needs],
        }
        digests[name] = fingerprints.of_bytes(json.dumps(parts).encode())
    return {name: digests[name] for name in jobs}


def _is_neutral(flag: str) -> bool:
    return flag.startswith(_NEUTRAL)


def folder_of(job: Job, digest: str, output_dir: str) -> str:
    """Returns the folder of a job's files, which no other command has."""
    return os.path.join(output_dir, f"{place_of(job.name)}-{digest[:8]}")
