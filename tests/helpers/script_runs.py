"""Scripts in processes of their own, to be killed at chosen moments."""

import os
import re
import signal

from helpers.forks import Forked
from helpers.waiting import LONGEST, wait_until


class ScriptRun:
    """A script in a process of its own, and what it has saved."""

    def __init__(self, arguments, output, **env):
        self.output = output
        self.log = output.with_suffix(".log")
        self.process = Forked(arguments, os.devnull, self.log, **env)

    def wait_for(self, condition, pause=0.0005):
        """Returns whether the condition came true while the process lived."""

        def found():
            return "ended" if self.process.poll() is not None else condition() and "came"

        return wait_until(found, LONGEST, pause=pause, describe=self.log.read_text) == "came"

    def saved(self):
        path = self.output / "checkpoint"
        return path.read_text() if path.exists() else ""

    def wait_for_saves(self, count):
        for _ in range(count):
            before = self.saved()
            if not self.wait_for(lambda before=before: self.saved() != before):
                return False
        return True

    def wait_for_steps(self):
        """Returns when the first step is done, which is built slowly."""
        has_begun = self.wait_for(lambda: "Step 1 took" in self.log.read_text(), pause=0.01)
        assert has_begun, self.log.read_text()

    def stopped_at(self, number):
        """Returns the step at which a run that got the signal says that it stopped."""
        assert self.process.wait() == 128 + number, self.log.read_text()
        lines = self.log.read_text().splitlines()
        assert not any(line.startswith("Traceback") for line in lines)
        match = re.search(
            r"^[\d:]{8} Warning: Stopped at step (\d+); the same command goes on\.$", lines[-1]
        )
        assert match, lines
        return int(match[1])

    def kill(self):
        """Kills without warning; returns whether there was something left to kill."""
        self.process.kill()
        return self.process.wait() == -signal.SIGKILL

    def finish(self):
        assert self.process.wait() == 0, self.log.read_text()


def kill_and_resume(arguments, output, kills):
    """Starts the run anew until each of `kills` has struck, then lets it finish."""
    for kill in kills:
        run = ScriptRun(arguments, output)
        try:
            kill(run)
        finally:
            was_alive = run.kill()
        assert was_alive, f"The run ended before it could be killed:\n{run.log.read_text()}"
    ScriptRun(arguments, output).finish()


def finish_beside_killed(arguments_for, tmp_path, kills):
    """Returns the folders of a run that was left alone and of one that was killed and resumed."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    uninterrupted = ScriptRun(arguments_for(whole), whole)
    try:
        kill_and_resume(arguments_for(cut), cut, kills)
        uninterrupted.finish()
    finally:
        uninterrupted.kill()
    assert _files(cut) == _files(whole)
    return whole, cut


def _files(folder):
    # Each process writes its own file of curves.
    paths = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    return {path for path in paths if "tfevents" not in path}
