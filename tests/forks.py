"""Python in processes of its own that have TensorFlow loaded when they begin.

They are forked from a process that has done nothing but import it, which takes longer than most of
what is run so. What an import does, and when, is not to be seen here: see `conftest.run_python`.
"""

import atexit
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["bert.command_line.quiet_import", "tensorflow", "keras"])


class Forked:
    """`python script.py …` or `python -c code …` at the root of the project, as a Popen."""

    def __init__(self, arguments, stdout, stderr, **env):
        self.stdout, self.stderr = Path(stdout), Path(stderr)
        streams = [os.path.abspath(stream) for stream in (stdout, stderr)]
        for stream in streams:
            open(stream, "w").close()
        self._process = _context.Process(
            target=_run, args=([str(each) for each in arguments], streams, {**os.environ, **env})
        )
        self._process.start()

    def poll(self):
        return self._process.exitcode

    def wait(self, timeout=None):
        self._process.join(timeout)
        return self._process.exitcode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self._process.pid, number)

    def kill(self):
        self._process.kill()


def fork_python(*arguments, check=True, **env):
    """As `conftest.run_python`, but with TensorFlow loaded already."""
    with tempfile.TemporaryDirectory() as folder:
        process = Forked(arguments, f"{folder}/stdout", f"{folder}/stderr", **env)
        returncode = process.wait()
        output, errors = process.stdout.read_text(), process.stderr.read_text()
    if check:
        assert returncode == 0, errors
    return subprocess.CompletedProcess(arguments, returncode, output, errors)


def own_id(_, item):
    """For a worker to answer: what it is asked must lie in a module that imports little."""
    time.sleep(0.1)
    return os.getpid()


def _run(arguments, streams, env):
    os.environ.clear()
    os.environ.update(env)
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    for number, path in enumerate(streams, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
    try:
        if arguments[0] == "-c":
            sys.argv = ["-c", *arguments[2:]]
            exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = arguments
            runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")
    finally:
        # Multiprocessing ends a process without them.
        atexit._run_exitfuncs()
