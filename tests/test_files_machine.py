import operator
import os
import signal
import subprocess
import sys

import pytest
from conftest import run_python
from helpers.forks import own_id
from helpers.overlaps import second_of_two
from helpers.waiting import wait_until

from bert.files.machine import (
    Workers,
    _script_hidden,
    free_disk,
    free_memory,
    gpu_memory,
    in_threads,
    size_text,
    total_memory,
)

GB = 1 << 30


@pytest.fixture
def machine(tmp_path):
    """A function that makes the files of a machine of 8 GB, 6 of them free, and returns `/`."""

    def make(**files):
        files = {
            "proc/meminfo": f"MemTotal: {8 << 20} kB\nMemAvailable: {6 << 20} kB\n"
            f"SwapTotal: {1 << 20} kB\nHugePages_Total: 0\n",
            **{name.replace("__", "/").replace("_dot_", "."): text for name, text in files.items()},
        }
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return str(tmp_path)

    return make


def test_memory_is_read_from_the_machine(machine):
    root = machine()
    assert (total_memory(root), free_memory(root)) == (9 * GB, 6 * GB)


@pytest.mark.parametrize("limit", ["max", str(1 << 62)])
def test_a_group_without_a_limit_changes_nothing(machine, limit):
    files = {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": limit}
    root = machine(**files, **{"sys/fs/cgroup/a/memory.current": "5"})
    assert (total_memory(root), free_memory(root)) == (9 * GB, 6 * GB)


@pytest.mark.parametrize("folder", ["a/b/", "a/", ""])
def test_the_limit_of_a_group_or_one_above_it_counts(machine, folder):
    files = {
        "proc/self/cgroup": "0::/a/b\n",
        f"sys/fs/cgroup/{folder}memory.max": str(4 * GB),
        f"sys/fs/cgroup/{folder}memory.current": str(3 * GB),
        f"sys/fs/cgroup/{folder}memory.stat": f"anon 5\ninactive_file {2 * GB}\n",
    }
    root = machine(**files)
    assert (total_memory(root), free_memory(root)) == (5 * GB, 3 * GB)


def test_control_groups_of_version_1_count(machine):
    folder = "sys/fs/cgroup/memory/a"
    files = {
        "proc/self/cgroup": "4:cpu,memory:/a\n3:cpuset:/\n",
        f"{folder}/memory.limit_in_bytes": str(4 * GB),
        f"{folder}/memory.usage_in_bytes": str(5 * GB),
    }
    root = machine(**files)
    assert (total_memory(root), free_memory(root)) == (5 * GB, 0)


def test_other_systems_report_installed_memory(tmp_path):
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert total_memory(str(tmp_path)) == free_memory(str(tmp_path)) == installed


def test_this_machine_has_memory():
    assert 0 < free_memory() <= total_memory()


def test_gpus_are_those_that_nvidia_shows(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_memory() == []
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\necho 16384\necho 81559\n")
    command.chmod(0o755)
    assert gpu_memory() == [16 * GB, 81559 << 20]
    command.write_text("#!/bin/sh\necho No devices were found\nexit 6\n")
    assert gpu_memory() == []


def test_free_disk_is_that_of_the_parent_of_a_new_folder(tmp_path):
    assert abs(free_disk(str(tmp_path / "a" / "b")) - free_disk(str(tmp_path))) < 1e9
    assert free_disk("ram://somewhere") is None


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 KB"),
        (999_600, "1 MB"),
        (1_340_000_000, "1.34 GB"),
        (6.5e12, "6.5 TB"),
        (10**21, "1e+06 PB"),
    ],
)
def test_sizes_are_short(count, text):
    assert size_text(count) == text


def test_results_come_in_order_whatever_the_number_of_processes():
    items = list(range(20))
    state = [str(item) * 3 for item in items]
    for num_processes in (1, 2):
        with Workers(num_processes, state) as workers:
            assert list(workers.map(operator.getitem, items)) == state


def test_a_single_process_may_be_another_one():
    with Workers(1, None) as workers:
        assert [*workers.map(own_id, [0, 1])] == [os.getpid()] * 2
    with Workers(1, None, is_apart=True) as workers:
        assert len({os.getpid(), *workers.map(own_id, [0, 1])}) == 2


def test_the_script_is_there_again_after_two_threads_have_started_processes():
    script = sys.modules["__main__"]
    with second_of_two(_script_hidden):
        assert sys.modules["__main__"] is not script
    assert sys.modules["__main__"] is script


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
    with Workers(2, leave) as workers, pytest.raises(OSError, match="process ended before"):
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
