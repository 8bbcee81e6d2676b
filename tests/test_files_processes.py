import operator
import os
import signal
import subprocess
import sys

import pytest
from conftest import run_python
from helpers.forks import own_id
from helpers.waiting import wait_until

from bert.files.machine import Workers, in_threads


def test_results_come_in_order_whatever_the_number_of_processes():
    items = list(range(20))
    state = [str(item) * 3 for item in items]
    for num_processes in (1, 2):
        with Workers(num_processes, state) as workers:
            assert list(workers.map(operator.getitem, items)) == state


def test_results_of_threads_come_in_order_until_one_fails():
    taken = []

    def invert(item):
        taken.append(item)
        return 1 / (item - 50)

    results = in_threads(invert, range(1000))
    assert [next(results) for _ in range(50)] == [1 / (item - 50) for item in range(50)]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert 51 <= len(taken) < 100


def test_items_are_read_as_results_are_requested():
    taken = []

    def items():
        for item in range(100):
            taken.append(item)
            yield item

    with Workers(2, range(100)) as workers:
        results = workers.map(operator.getitem, items())
        assert next(results) == 0
        assert len(taken) < 20


def test_an_error_in_a_process_is_raised_here():
    with Workers(2, [1]) as workers, pytest.raises(IndexError):
        list(workers.map(operator.getitem, [7]))


def test_a_process_that_ends_early_is_an_error_that_says_so():
    leave = "import os; os._exit(1)"
    with Workers(2, leave) as workers, pytest.raises(OSError, match="processes ended"):
        list(workers.map(exec, [{}]))


def test_at_least_one_process_is_needed():
    with pytest.raises(ValueError, match="num_processes"):
        Workers(0, None)


WORK = """
import os, sys, time

def modules(state, item):
    return sorted(sys.modules)

def own_id(state, item):
    time.sleep(0.2)
    return os.getpid()

def slow(state, item):
    time.sleep(60)
"""

SCRIPT = """
import heavy, work
from bert.files import machine
if __name__ == "__main__":
    with machine.Workers(2, None) as workers:
        (modules,) = workers.map(work.modules, [0])
    assert "work" in modules and not {"heavy", "tensorflow"} & set(modules), modules
"""

KILLED = """
import os, signal
import work
from bert.files import machine
if __name__ == "__main__":
    workers = machine.Workers(2, None)
    print(*set(workers.map(work.own_id, range(4))), flush=True)
    for _ in workers.map(work.slow, [0, 1, 2]):
        pass
"""


def write_script(folder, script):
    (folder / "heavy.py").write_text("")
    (folder / "work.py").write_text(WORK)
    (folder / "script.py").write_text(script)
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.getcwd()])}


def test_processes_import_neither_the_script_nor_what_it_imports(tmp_path):
    run_python(str(tmp_path / "script.py"), **write_script(tmp_path, SCRIPT))


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="Looks up processes in /proc.")
def test_processes_end_with_their_parent_even_if_it_is_killed(tmp_path):
    env = write_script(tmp_path, KILLED)
    kill = (
        "import os, subprocess, sys\n"
        f"process = subprocess.Popen([sys.executable, {str(tmp_path / 'script.py')!r}], "
        "stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)\n"
        "print(process.stdout.readline(), end='', flush=True)\n"
        "process.kill()\n"
        "process.wait()\n"
    )
    ids = [int(each) for each in run_python("-c", kill, **env).stdout.split()]
    assert ids
    try:
        wait_until(lambda: not any(map(_runs, ids)))
    finally:
        for each in filter(_runs, ids):
            os.kill(each, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_worker_processes_ignore_signals_to_stop(number):
    with Workers(2, None) as workers:
        for process_id in set(workers.map(own_id, range(4))):
            os.kill(process_id, number)
        assert len(list(workers.map(own_id, range(4)))) == 4


STOPPED = """
import work
from bert.commands.console import run_script
from bert.files import machine

def main(_):
    with machine.Workers(2, None) as workers:
        print(*set(workers.map(work.own_id, range(4))), flush=True)
        # One of them works, the other waits.
        for _ in workers.map(work.slow, [0]):
            pass

if __name__ == "__main__":
    run_script(main)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_ends_them_with_one_line(tmp_path, number):
    """As Ctrl-C sends it."""
    env = write_script(tmp_path, STOPPED)
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        ids = [int(each) for each in process.stdout.readline().split()]
        os.killpg(process.pid, number)
        # The work would take a minute.
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert errors.splitlines()[-1].endswith(f" Warning: Stopped by {number.name}.")
    assert len(errors.splitlines()) == 1
    assert [each for each in ids if _runs(each)] == []


def _runs(process_id):
    try:
        with open(f"/proc/{process_id}/stat") as file:
            # What has ended waits as "Z" for someone to ask after it.
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
