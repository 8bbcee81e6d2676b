"""Runs the commands of a plan, each once, in processes of their own."""

import contextlib
import dataclasses
import datetime
import importlib.metadata
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from absl import logging

from bert.command_line.console import deferred_stop, stop_signal
from bert.files import manifest
from bert.files.json_text import parse_json
from bert.paper.estimates import Clock, format_minutes, order_by_need, total
from bert.paper.jobs import Job, folder_of, place_of
from bert.paper.ledger import Entry, Ledger
from bert.paper.plan import Plan

# The files that hold scores, and what their names begin with here.
_SCORES = {"eval_results.json": "", "test_results.json": "test_"}
_SECONDS_BETWEEN_LOOKS = 0.1
_ROOT = Path(__file__).parents[2]
# What a script puts before what went wrong.
_BEFORE = re.compile(r"^[\d:]{8} (?:Error: )?")
_PACKAGES = ("tensorflow", "keras", "numpy")

# Runs a command with its output in a file, and returns its exit status.
Start = Callable[[Sequence[str], BinaryIO], int]


def start_process(command: Sequence[str], log: BinaryIO) -> int:
    """Runs a script of the project in a process of its own; a signal to this one is passed on."""
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    with deferred_stop():
        process = subprocess.Popen(
            [sys.executable, "-m", "bert", *command],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # Ctrl-C on a terminal reaches it once, from here.
            start_new_session=True,
        )
        is_told = False
        while process.poll() is None:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            if (number := stop_signal()) and not is_told:
                is_told = True
                process.send_signal(number)
    return process.returncode


@dataclasses.dataclass(frozen=True)
class Failure:
    """A job that failed, and the last line that it said."""

    name: str
    line: str


class Runner:
    """Runs what is missing of a plan.

    Args:
      plan: All of it.
      ledger: What has run, and where it is noted.
      clock: Estimates what has not.
      output_dir: Where everything is written.
      machine: What the ledger calls this machine.
      start: Runs a command.
    """

    def __init__(
        self,
        plan: Plan,
        ledger: Ledger,
        clock: Clock,
        output_dir: str,
        machine: str,
        start: Start = start_process,
    ) -> None:
        self.plan, self.ledger, self.clock = plan, ledger, clock
        self._output_dir, self._machine, self._start = output_dir, machine, start
        self._folders = {
            name: folder_of(job, plan.digests[name], output_dir) for name, job in plan.jobs.items()
        }
        self._places = dict(self._folders)
        for name, part in plan.parts.items():
            self._places[name] = os.path.join(output_dir, _part_folder(name, part.digest))
        self.failures: list[Failure] = []

    def missing(self, wanted: Sequence[str]) -> list[Job]:
        """Returns the jobs that the scores of some need and that have not run, in their order."""
        names = order_by_need(wanted, self.plan.jobs, self._is_scored, self._is_there)
        return [self.plan.jobs[name] for name in names]

    def _is_scored(self, name: str) -> bool:
        return self.plan.digests[name] in self.ledger.entries

    def _is_there(self, name: str) -> bool:
        return os.path.exists(os.path.join(self._folders[name], self.plan.jobs[name].makes))

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
        for place, job in enumerate(left):
            seconds = total(left[place:], self.clock)
            logging.info(
                "%d of %d, about %s left. %s",
                place + 1,
                len(left),
                format_minutes(seconds),
                job.shown(),
            )
            failed = {failure.name for failure in self.failures}
            if lost := [name for name in job.needs if name in failed]:
                self._fail(job.name, f"It needs {lost[0]}, which failed.")
            else:
                self._run_one(job)
            if deletes:
                self._delete(job)
            report(self.failures)

    def _fail(self, name: str, line: str) -> None:
        self.failures.append(Failure(name, line))
        logging.error("%s failed: %s", name, line)

    def _run_one(self, job: Job) -> None:
        self._write_parts(job)
        folder = self._folders[job.name]
        relative = os.path.relpath(folder, self._output_dir)
        if not job.has_scores:
            os.makedirs(folder, exist_ok=True)
        log_path = manifest.claim(self._output_dir, f"logs/{os.path.basename(relative)}.log")
        os.makedirs(os.path.dirname(log_path), exist_ok=True)
        began = time.monotonic()
        with open(log_path, "wb") as log:
            status = self._start(job.command(self._places, folder), log)
        if status:
            self._fail(job.name, _last_line(log_path))
            return
        scores = _read_scores(folder) if job.has_scores else {}
        if job.has_scores and not scores:
            self._fail(job.name, f"It left no scores in {folder}.")
            return
        self._note(job, scores, time.monotonic() - began)

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

    def _delete(self, ended: Job) -> None:
        """Removes what runs have written for a job, and those it needs, if no other needs it."""
        needed = {
            name
            for job in self.plan.jobs.values()
            if not self._is_scored(job.name)
            for name in (job.name, *job.needs)
        }
        for name in (ended.name, *ended.needs):
            folder = self._folders.get(name)
            if folder and name not in needed and manifest.read_names(folder):
                with manifest.lock(folder):
                    manifest.clear(folder)


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


def _last_line(path: str) -> str:
    lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    said = [line.strip() for line in lines if line.strip()]
    return _BEFORE.sub("", said[-1]) if said else "It said nothing."


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
