"""The memory of this machine and its GPUs, its free disk space and its limit on open files."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bert.files.paths import is_remote

_UNITS = ("bytes", "KB", "MB", "GB", "TB", "PB")


def size_text(count: float) -> str:
    """Returns a number of bytes for a message, such as 1.3 GB."""
    unit = 0
    while count >= 999.5 and unit < len(_UNITS) - 1:
        count /= 1000
        unit += 1
    return f"{count:.3g} {_UNITS[unit]}"


def total_memory(root: str = "/") -> int | None:
    """Returns the bytes of memory, swap included, that this process may use; None if unknown.

    Args:
      root: The folder with `proc` and `sys`.
    """
    values = _read_meminfo(root)
    if "MemTotal" not in values:
        return _installed_memory()
    limits = [limit for limit, _ in _cgroup_limits(root)]
    return min([values["MemTotal"], *limits]) + values.get("SwapTotal", 0)


def free_memory(root: str = "/") -> int | None:
    """Returns the bytes of memory that are or can be made free, without swap; None if unknown."""
    values = _read_meminfo(root)
    if "MemAvailable" not in values:
        return _installed_memory()
    left = [max(limit - used, 0) for limit, used in _cgroup_limits(root)]
    return min([values["MemAvailable"], *left])


def _installed_memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _read_meminfo(root: str) -> dict[str, int]:
    lines = _read(Path(root, "proc/meminfo")).splitlines()
    rows = (line.split() for line in lines)
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if row[2:] == ["kB"]}


def _cgroup_limits(root: str) -> Iterator[tuple[int, int]]:
    """Yields the limit and the use of memory of each control group of this process, in bytes."""
    for line in _read(Path(root, "proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            names, mount = ("memory.max", "memory.current", "inactive_file"), "sys/fs/cgroup"
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            mount = "sys/fs/cgroup/memory"
        else:
            continue
        group = Path(path.lstrip("/"))
        for folder in (group, *group.parents):
            yield from _limit(Path(root, mount, folder), *names)


def _limit(folder: Path, limit: str, used: str, cached: str) -> Iterator[tuple[int, int]]:
    allowed, taken = _read(folder / limit).strip(), _read(folder / used).strip()
    if allowed.isdigit() and taken.isdigit():
        rows = (line.split() for line in _read(folder / "memory.stat").splitlines())
        stat = {row[0]: int(row[1]) for row in rows if len(row) == 2}
        # Memory that caches files is freed on demand.
        yield int(allowed), int(taken) - stat.get(cached, 0)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def gpu_memory() -> list[int]:
    """Returns the bytes of memory of each GPU that `nvidia-smi` shows, [] without it."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    query = [command, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        shown = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [int(line) << 20 for line in shown.stdout.split() if line.isdigit()]


def has_nvidia_gpu(root: str = "/") -> bool:
    """Returns whether there is an NVIDIA GPU with its driver.

    Args:
      root: The folder with `proc`.
    """
    return bool(_read(Path(root, "proc/driver/nvidia/version")) or gpu_memory())


def free_disk(folder: str) -> int | None:
    """Returns the free bytes on the disk of a folder that may not exist yet; None if unknown."""
    if is_remote(folder):
        return None
    place = Path(os.path.realpath(folder))
    for folder_above in (place, *place.parents):
        if folder_above.exists():
            return shutil.disk_usage(folder_above).free
    return None


def allow_open_files(count: int) -> int | None:
    """Raises the limit on open files by `count`, or as far as the system allows.

    Returns:
      The limit where it is lower than needed, else None.
    """
    try:
        import resource  # noqa: PLC0415 (not everywhere)
    except ImportError:
        return None
    # If the system does not list open files, `count` has some to spare.
    with contextlib.suppress(OSError):
        count += len(os.listdir("/dev/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft in (-1, resource.RLIM_INFINITY) or soft >= count:
        return None
    if hard not in (-1, resource.RLIM_INFINITY) and hard < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    return None
