"""What a plan will cost in minutes, and the largest plan that a budget allows."""

import dataclasses
import functools
import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from bert.files.display import read_duration
from bert.files.machine import usable_cores
from bert.log import logger
from paper.jobs import Job
from paper.recipe import LADDER, Recipe

# Seconds until the first step, and billions of operations a second after it, where all cores
# multiply matrices at `_REFERENCE`: of L=4 models in bfloat16 on two cores. What the runs that
# docs/paper/ledger.json lists have taken, two at once.
_COSTS: Mapping[str, tuple[float, float]] = {
    "text": (3.0, 20.0),
    "pretraining": (11.0, 130.0),
    "classifier": (10.0, 105.0),
    "classifier_bilstm": (12.0, 175.0),
    "squad": (12.0, 175.0),
    "squad_bilstm": (14.0, 380.0),
    "ner": (10.0, 125.0),
    "ner_bilstm": (10.0, 125.0),
    "features": (18.0, 85.0),
    "word_vectors": (5.0, 7.0),
}
# Kinds that train no model, and say nothing of those that do.
_WITHOUT_MODEL = ("text", "word_vectors")
_REFERENCE = 220.0
# Of a precision for which a processor has no instructions, too.
_FLOAT32_SLOWNESS = 1.7
_FAST = "mixed_bfloat16"
# Of a layer with the widths of the models of most jobs.
_MEASURE = "from bert.training.devices import measure; print(measure(128, 512))"
# A kind of which so much has been measured is known; before, the guess counts, too.
_KNOWN_SECONDS = 60.0


def parse_budget(text: str) -> float:
    """Returns the seconds of a time such as 20m, 2h or 1h30m.

    Raises:
      ValueError: where it is none.
    """
    try:
        return read_duration(text.strip())
    except ValueError as error:
        raise ValueError(f"`--budget`: {error}.") from None


@dataclasses.dataclass(frozen=True)
class Machine:
    """What the time of a job depends on, besides the job.

    Attributes:
      name: Of the processor, and how many cores of it.
      gflops: Billions of operations a second of matrix products, as measured.
      precision: As `--precision` of the scripts.
      has_bfloat16: Whether the processor may be faster in bfloat16.
    """

    name: str
    gflops: float
    precision: str
    has_bfloat16: bool = True

    def seconds(self, job: Job) -> float:
        """Returns what a job is guessed to take before anything like it has run here."""
        start, speed = _COSTS[job.kind]
        slowness = max(_REFERENCE / self.gflops, 0.05)
        is_fast = self.has_bfloat16 and self.precision == _FAST
        if not is_fast and job.kind not in _WITHOUT_MODEL:
            speed /= _FLOAT32_SLOWNESS
        # A start is one core's work, of which machines have about the same.
        return start + job.gflop / speed * slowness


def measure_machine(precision: str | None) -> Machine:
    """Returns this machine, measured for half a second.

    Args:
      precision: What is asked for; None for bfloat16 where the processor is faster in it.
    """
    text = _read("/proc/cpuinfo")
    models = re.findall(r"^model name\s*:\s*(.+)$", text, flags=re.MULTILINE)
    cores = usable_cores()
    name = f"{models[0].strip() if models else 'a processor'}, {cores} cores"
    has_bfloat16 = "avx512_bf16" in text or "amx_bf16" in text
    if precision is None and has_bfloat16:
        precision = _measure_precision()
        has_bfloat16 = precision == _FAST
    chosen = precision or "float32"
    return Machine(name, cores * _measure_gflops(), chosen, has_bfloat16)


@functools.cache
def _measure_precision() -> str:
    """Returns the precision in which a process of its own trains faster.

    TensorFlow would leave threads in this process, which forks, and take all memory of a GPU.

    Raises:
      ValueError: where that process fails.
    """
    # Its folder, since `-c` imports from the one where this process was started.
    root = Path(__file__).parents[1]
    command = [sys.executable, "-c", _MEASURE]
    said = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if said.returncode:
        [*_, line] = ["nothing", *said.stderr.strip().splitlines()]
        raise ValueError(
            "The faster precision could not be measured, which `--precision=float32` makes "
            f"unnecessary. Its process ended with status {said.returncode} and said last: {line}"
        )
    precision = said.stdout.split()[-1]
    logger.info("Precision: %s, as measured.", precision)
    return precision


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _measure_gflops(seconds: float = 0.3, width: int = 64, count: int = 32) -> float:
    """Returns what one core does, on matrices so small that numpy takes no other."""
    matrix = np.ones((count, width, width), np.float32)
    end = time.perf_counter() + seconds
    times = []
    while time.perf_counter() < end:
        start = time.perf_counter()
        matrix @ matrix
        times.append(time.perf_counter() - start)
    # The fastest: what else runs at the moment will not run all the while.
    return 2e-9 * count * width**3 / min(times)


class Clock:
    """Estimates jobs, the better the more of their kind have run here.

    Args:
      machine: As measured.
      ran: Of what has run on it: the kind, the seconds, and what was guessed.
    """

    def __init__(self, machine: Machine, ran: Iterable[tuple[str, float, float]] = ()) -> None:
        self._machine = machine
        self._sums: dict[str, tuple[float, float]] = {}
        for kind, seconds, guessed in ran:
            self.learn(kind, seconds, guessed)

    def learn(self, kind: str, seconds: float, guessed: float) -> None:
        """Takes note of a job that has ended."""
        took, thought = self._sums.get(kind, (0.0, 0.0))
        self._sums[kind] = (took + seconds, thought + guessed)

    def guess(self, job: Job) -> float:
        """Returns the seconds that a job would take if nothing had run."""
        return self._machine.seconds(job)

    def seconds(self, job: Job) -> float:
        """Returns the seconds that a job will take."""
        return self.guess(job) * self._correction(job.kind)

    def _correction(self, kind: str) -> float:
        took, thought = self._sums.get(kind, (0.0, 0.0))
        others = [sums for name, sums in self._sums.items() if name not in (kind, *_WITHOUT_MODEL)]
        all_took = sum(took for took, _ in others)
        all_thought = sum(thought for _, thought in others)
        # What is not known yet is as wrong as the rest; nothing known is taken as it is guessed.
        prior = (all_took + _KNOWN_SECONDS) / (all_thought + _KNOWN_SECONDS)
        return (took + prior * _KNOWN_SECONDS) / (thought + _KNOWN_SECONDS)


def total(jobs: Iterable[Job], clock: Clock) -> float:
    """Returns the seconds that jobs take one after another."""
    return sum(map(clock.seconds, jobs))


def chains(jobs: Sequence[Job], clock: Clock) -> dict[str, float]:
    """Returns, by name, the seconds of each job and of the longest chain of those behind it.

    Args:
      jobs: Each behind those that it needs.
      clock: Estimates them.
    """
    behind: dict[str, float] = {}
    found = {}
    for job in reversed(jobs):
        found[job.name] = clock.seconds(job) + behind.get(job.name, 0.0)
        for name in job.needs:
            behind[name] = max(behind.get(name, 0.0), found[job.name])
    return found


def choose(
    budget: float, jobs_of: Callable[[Recipe], Collection[Job]], clock: Clock
) -> tuple[Recipe, float]:
    """Returns the highest rung of the ladder that a budget allows, or the lowest; and its seconds.

    Args:
      budget: In seconds.
      jobs_of: Returns all jobs of a recipe.
      clock: Estimates them.
    """
    best: tuple[Recipe, float] | None = None
    for recipe in LADDER:
        seconds = total(jobs_of(recipe), clock)
        if best is not None and seconds > budget:
            break
        best = (recipe, seconds)
    assert best is not None
    return best


def format_minutes(seconds: float) -> str:
    """Returns a time for a reader, such as 0.4 min, 25 min, or 3 h 05 min."""
    if seconds < 570:
        return f"{seconds / 60:.1f} min"
    minutes = round(seconds / 60)
    hours, left = divmod(minutes, 60)
    return f"{hours} h {left:02} min" if hours else f"{minutes} min"


def order_by_need(
    wanted: Sequence[str],
    jobs: Mapping[str, Job],
    is_scored: Callable[[str], bool],
    is_there: Callable[[str], bool],
) -> list[str]:
    """Returns the names of the jobs to run, in the order of `jobs`.

    A job that has scores is not run for these again. It is run again where its files are gone and
    another job begins with them.

    Args:
      wanted: Names of those whose scores are wanted.
      jobs: By name, each behind those that it needs.
      is_scored: Whether a job's scores are known.
      is_there: Whether its files are.
    """
    chosen: set[str] = set()

    def make(name: str) -> None:
        if name in jobs and name not in chosen:
            chosen.add(name)
            for each in jobs[name].needs:
                if not (each in jobs and is_there(each)):
                    make(each)

    for name in wanted:
        if not is_scored(name):
            make(name)
    return [name for name in jobs if name in chosen]
