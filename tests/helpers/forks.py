"""Python in processes of its own that have TensorFlow loaded when they begin.

They are forked from a process that has done nothing but import it, which takes longer than most of
what is run so. What an import does, and when, is not to be seen here: see `conftest.run_python`.
"""

import atexit
import contextlib
import json
import multiprocessing
import os
import runpy
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import time
import traceback
import unittest.mock
from pathlib import Path

from helpers.waiting import LONGEST, wait_until

ROOT = Path(__file__).parents[2]

# The environment of commands whose numbers no test compares: graphs are built faster than they run.
BUILT_QUICKLY = {"XLA_FLAGS": "--xla_backend_optimization_level=0", "GRAPHS_AS_WRITTEN": "1"}

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["helpers.quiet"])


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
        _start(self._process)

    def poll(self):
        return self._process.exitcode

    def wait(self, timeout=LONGEST):
        """Returns the exit status; None where the process has not ended in so many seconds."""
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
        process.kill()
        output, errors = process.stdout.read_text(), process.stderr.read_text()
    if check:
        assert returncode == 0, errors
    return subprocess.CompletedProcess(arguments, returncode, output, errors)


def fork_workers(monkeypatch):
    """Has workers begin as forks, with TensorFlow loaded, where they would begin from nothing."""
    fork_python("-c", "")
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: _context)


def own_id(_, item):
    """For a worker to answer: what it is asked must lie in a module that imports little."""
    time.sleep(0.1)
    return os.getpid()


def _start(process):
    """Starts a process; the first one starts the process that the others are forked from."""
    # The latter finds what it is to import by this alone: it ignores `sys.path` until Python 3.12.
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    with unittest.mock.patch.dict(os.environ, path):
        process.start()


def _run(arguments, streams, env):
    assert "tensorflow" in sys.modules, "It should have been imported before the fork."
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


# Runs as `python` in shell commands: asks for a fork, hands it its streams and passes signals on.
_PYTHON = """#!{python} -IS
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({address!r})
    socket.send_fds(asked, [b" "], [0, 1, 2])
    asked.sendall(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode() + b"\\n")
    told = asked.makefile()
    process = int(told.readline())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: os.kill(process, number))
    sys.exit(int(told.readline()))
"""


@contextlib.contextmanager
def python_for_shells(folder):
    """Within this context, `folder/python` runs `script.py …` or, as `-`, what it is given to read.

    The project is the one in the folder where it is called, not the one that is tested from.
    """
    address = str(folder / "socket")
    server = _context.Process(target=_serve, args=(address,))
    _start(server)
    wait_until(lambda: os.path.exists(address) or not server.is_alive(), LONGEST)
    assert server.is_alive()
    client = folder / "python"
    client.write_text(_PYTHON.format(python=sys.executable, address=address))
    client.chmod(0o755)
    try:
        yield
    finally:
        server.kill()
        server.join()


def _serve(address):
    assert "tensorflow" in sys.modules, "It should have been imported before the fork."
    server = _Server(f"{address}.new", _Asked)
    os.rename(server.server_address, address)
    server.serve_forever(poll_interval=60)


class _Server(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    pass


class _Asked(socketserver.StreamRequestHandler):
    """One who asked for a Python, which is forked from the process that answers him."""

    def handle(self):
        _, streams, _, _ = socket.recv_fds(self.connection, 1, 3)
        asked = json.loads(self.rfile.readline())
        process = os.fork()
        if not process:
            os._exit(_run_afresh(*asked, streams))
        for stream in streams:
            os.close(stream)
        self.wfile.write(b"%d\n" % process)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        self.wfile.write(b"%d\n" % (status if status >= 0 else 128 - status))


def _run_afresh(arguments, folder, env, streams):
    """Runs a script as if nothing of the project had been imported, and returns its status."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in [*sys.modules]:
        if name.partition(".")[0] in ("bert", "forks", "waiting"):
            del sys.modules[name]
    others = [path for path in sys.path if path not in (str(ROOT), str(ROOT / "tests"), "")]
    sys.path[:] = [os.path.dirname(os.path.abspath(arguments[0])), *others]
    sys.argv = arguments
    if "GRAPHS_AS_WRITTEN" in env:
        options = {"disable_meta_optimizer": True}
        sys.modules["tensorflow"].config.optimizer.set_experimental_options(options)
    status = 0
    try:
        if arguments[0] == "-":
            exec(compile(sys.stdin.read(), "<stdin>", "exec"), {"__name__": "__main__"})
        elif arguments[0] == "-m":
            sys.argv, sys.path[0] = arguments[1:], folder
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    return status
