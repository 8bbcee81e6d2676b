"""Runs the commands of a plan, each once, in processes of their own."""

import contextlib
import ctypes
import dataclasses
import datetime
import importlib.metadata
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from bert.files import owned
from bert.files.machine import usable_cores
from bert.files.paths import index_path, parse_json
from bert.files.process import deferred_stop, stop_signal
from bert.log import logger
from paper.estimates import Clock, chains, format_minutes, order_by_need, total
from paper.jobs import Job, folder_of, place_of
from paper.ledger import Entry, Ledger
from paper.plan import Plan

# The files that hold scores, and what their names begin with here.
_SCORES = {"eval_results.json": "", "test_results.json": "test_"}
_SECONDS_BETWEEN_LOOKS = 0.1
# PR_SET_PDEATHSIG of prctl(2).
_DEATH_SIGNAL = 1
_ROOT = Path(__file__).parents[1]
# What a script puts before what went wrong.
_BEFORE = re.compile(r"^[\d:]{8} (?:Error: )?")
_PACKAGES = ("tensorflow", "keras", "numpy")


class Process(Protocol):
    """A command that was started, as `subprocess.Popen`."""

    def poll(self) -> int | None:
        """Returns its exit status, None while it runs."""

    def send_signal(self, sig: int, /) -> None:
        """Sends it a signal."""


# Starts a command, of so many threads, with its output in a file.
Start = Callable[[Sequence[str], BinaryIO, int], Process]


def start_process(command: Sequence[str], log: BinaryIO, num_threads: int) -> Process:
    """Starts a script of the project in a process of its own, which on Linux ends with this one."""
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        # Not `-m bert`, which would be another one that lies in the folder where this was started.
        [sys.executable, str(_ROOT / f"{command[0]}.py"), *command[1:]],
        env={"TF_NUM_INTRAOP_THREADS": str(num_threads), **os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        # Ctrl-C on a terminal reaches it once, from here.
        start_new_session=True,
        # This process has no threads of its own.
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
    )


def _end_with_parent() -> None:
    """Has the system kill this process when its parent is gone, even where that was killed.

    What it has written is as whole as after any other end, and whoever goes on finds nobody there.
    """
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)


@dataclasses.dataclass(frozen=True)
class Failure:
    """A job that failed, and the last line that it said."""

    name: str
    line: str


class _Run:
    """A job that is being run.

    Attributes:
      job: Which.
      process: Its command.
      log_path: Where it says what it does.
      log_start: The bytes that were there before.
      seconds: It has had the machine for so long, of which several that run at once have a share
        each; and before, where it was stopped.
    """

    def __init__(
        self, job: Job, process: Process, log_path: str, log_start: int, seconds: float
    ) -> None:
        self.job, self.process = job, process
        self.log_path, self.log_start = log_path, log_start
        self.seconds = seconds


@contextlib.contextmanager
def _none_left(running: Sequence[_Run]) -> Iterator[None]:
    """Ends what still runs where an error ends the block."""
    try:
        yield
    finally:
        for each in running:
            each.process.send_signal(signal.SIGTERM)


class Runner:
    """Runs what is missing of a plan.

    Args:
      plan: All of it.
      ledger: What has run, and where it is noted.
      clock: Estimates what has not.
      output_dir: Where everything is written.
      machine: What the ledger calls this machine.
      num_workers: Commands that run at once.
      start: Starts a command.
    """

    def __init__(
        self,
        plan: Plan,
        ledger: Ledger,
        clock: Clock,
        output_dir: str,
        machine: str,
        *,
        num_workers: int = 1,
        start: Start = start_process,
    ) -> None:
        self.plan, self.ledger, self.clock = plan, ledger, clock
        self._output_dir, self._machine, self._start = output_dir, machine, start
        self._folders = {
            name: folder_of(job, plan.digests[name], output_dir) for name, job in plan.jobs.items()
        }
        self._places = dict(self._folders)
        for name, part in plan.parts.items():
            folder = _part_folder(name, part.digest)
            self._places[name] = part.folder or os.path.join(output_dir, folder)
        self.failures: list[Failure] = []
        self._num_workers = num_workers
        self._num_threads = max(usable_cores() // num_workers, 1)

    def missing(self, wanted: Sequence[str]) -> list[Job]:
        """Returns the jobs that the scores of some need and that have not run, in their order."""
        names = order_by_need(wanted, self.plan.jobs, self._is_scored, self._is_there)
        return [self.plan.jobs[name] for name in names]

    def _is_scored(self, name: str) -> bool:
        return self.plan.digests[name] in self.ledger.entries

    def _is_there(self, name: str) -> bool:
        return os.path.exists(os.path.join(self._folders[name], self.plan.jobs[name].makes))

    def check_locks(self, jobs: Iterable[Job]) -> None:
        """Checks that nothing else trains where jobs are to be run.

        Raises:
          ValueError: where a process does, such as one whose parent was killed.
        """
        for job in jobs:
            owned.check_lock(self._folders[job.name])

    def run(
        self,
        wanted: Sequence[str],
        report: Callable[[Sequence[Failure]], None],
        *,
        deletes: bool = False,
    ) -> None:
        """Runs what is missing.

        Args:
          wanted: Names of the jobs whose scores are wanted.
          report: Called when a job has ended.
          deletes: Whether weights go that nothing begins with any more.
        """
        left = self.missing(wanted)
        count = len(left)
        running: list[_Run] = []
        # A signal is passed on to what runs, and ends this when that has ended.
        with deferred_stop(), _none_left(running):
            if deletes:
                self._delete(running)
            while running or (left and not stop_signal()):
                if job := None if stop_signal() else self._next(left, running):
                    left.remove(job)
                    self._tell(job, count - len(left), count, left)
                    ended = not self._begin(job, running)
                else:
                    ended = False
                    for each in self._ended(running):
                        self._finish(each)
                        ended = True
                    if ended and deletes:
                        self._delete(running)
                if ended:
                    report(self.failures)

    def _next(self, left: Sequence[Job], running: Sequence[_Run]) -> Job | None:
        """Returns the next job, where there is room for one whose needs are there.

        They come in the order of the plan, so that one table is complete before the next. But a
        chain of jobs that would run alone in the end, with the other cores idle, begins now.
        """
        if len(running) >= self._num_workers:
            return None
        awaited = {job.name for job in left} | {each.job.name for each in running}
        ready = [job for job in left if not awaited & {*job.needs}]
        if not ready:
            return None
        seconds = chains(left, self.clock)
        longest = max(ready, key=lambda job: seconds[job.name])
        waits_too_long = seconds[longest.name] * self._num_workers >= total(left, self.clock)
        return longest if waits_too_long else ready[0]

    def _tell(self, job: Job, number: int, count: int, behind: Sequence[Job]) -> None:
        left = format_minutes(total([job, *behind], self.clock))
        logger.info("%d of %d, about %s left. %s", number, count, left, job.shown())

    def _begin(self, job: Job, running: list[_Run]) -> bool:
        """Starts a job, and returns whether it could be."""
        failed = {failure.name for failure in self.failures}
        if lost := [name for name in job.needs if name in failed]:
            self._fail(job.name, f"It needs {lost[0]}, which failed.")
            return False
        self._write_parts(job)
        folder = self._folders[job.name]
        relative = os.path.relpath(folder, self._output_dir)
        if not job.has_scores:
            os.makedirs(folder, exist_ok=True)
        if any(flag.startswith("--output_file=") for flag in job.flags):
            # Its script, which has no folder of its own, claims nothing.
            owned.claim_all(folder, [job.makes, index_path(job.makes)])
        log_path = owned.claim(self._output_dir, f"logs/{os.path.basename(relative)}.log")
        os.makedirs(os.path.dirname(log_path), exist_ok=True)
        with open(log_path, "ab") as log:
            log_start = log.tell()
            process = self._start(job.command(self._places, folder), log, self._num_threads)
        before = self.ledger.stopped.get(self.plan.digests[job.name], 0.0)
        running.append(_Run(job, process, log_path, log_start, before))
        return True

    def _ended(self, running: list[_Run]) -> list[_Run]:
        """Returns those that have ended, after a moment; they are no longer among the others."""
        began, stopped = time.monotonic(), stop_signal()
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        if (number := stop_signal()) and not stopped:
            for each in running:
                each.process.send_signal(number)
        for each in running:
            each.seconds += (time.monotonic() - began) / len(running)
        ended = [each for each in running if each.process.poll() is not None]
        for each in ended:
            running.remove(each)
        return ended

    def _finish(self, ended: _Run) -> None:
        """Takes note of what a job has come to."""
        job, folder = ended.job, self._folders[ended.job.name]
        scores = _read_scores(folder) if job.has_scores else {}
        if ended.process.poll():
            if job.resumes:
                self.ledger.add_stopped(self.plan.digests[job.name], round(ended.seconds, 2))
            if not stop_signal():
                self._fail(job.name, _last_line(ended.log_path, ended.log_start))
        elif job.has_scores and not scores:
            self._fail(job.name, f"It left no scores in {folder}.")
        else:
            self._note(job, scores, ended.seconds)

    def _fail(self, name: str, line: str) -> None:
        self.failures.append(Failure(name, line))
        logger.error("%s failed: %s", name, line)

    def _note(self, job: Job, scores: dict[str, float], seconds: float) -> None:
        guessed = self.clock.guess(job)
        self.clock.learn(job.kind, seconds, guessed)
        entry = Entry(
            name=job.name,
            kind=job.kind,
            command=job.shown(),
            scores=scores,
            seed=job.seed,
            seconds=round(seconds, 2),
            guessed=round(guessed, 2),
            machine=self._machine,
            versions=_versions(),
            date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        )
        self.ledger.add(self.plan.digests[job.name], entry)

    def _write_parts(self, job: Job) -> None:
        for name in job.needs:
            if part := self.plan.parts.get(name):
                part.write(self._output_dir, _part_folder(name, part.digest))

    def _delete(self, running: Sequence[_Run]) -> None:
        """Removes what runs have written in folders from which nothing is to be run any more."""
        left = [*self.missing([*self.plan.jobs]), *(each.job for each in running)]
        needed = {name for job in left for name in (job.name, *job.needs)}
        for name, folder in self._folders.items():
            if name not in needed and owned.read_names(folder):
                before = _size(folder)
                with owned.lock(folder):
                    owned.clear(folder)
                freed = (before - _size(folder)) / 1e6
                logger.info("Deleted %.1f MB of %s, which nothing needs any more.", freed, name)


def _size(folder: str) -> int:
    """Returns the bytes of all files in a folder, and in those within it."""
    return sum(path.lstat().st_size for path in Path(folder).rglob("*") if path.is_file())


def _part_folder(name: str, digest: str) -> str:
    return f"{place_of(name)}-{digest[:8]}"


def _read_scores(folder: str) -> dict[str, float]:
    """Returns the numbers in the files of scores in a folder."""
    found: dict[str, float] = {}
    for name, begin in _SCORES.items():
        path = Path(folder, name)
        if path.exists():
            values = parse_json(path.read_text(encoding="utf-8"))
            found.update(
                (begin + key, float(value))
                for key, value in values.items()
                if type(value) in (int, float)
            )
    return found


def _last_line(path: str, start: int) -> str:
    lines = Path(path).read_bytes()[start:].decode(errors="replace").splitlines()
    said = [line.strip() for line in lines if line.strip()]
    return _BEFORE.sub("", said[-1]) if said else "It said nothing."


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
