import os

import pytest

from bert.files.machine import (
    free_disk,
    free_memory,
    gpu_memory,
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
