"""Processes of one training run on this machine, which are restarted if one dies or hangs."""

import contextlib
import ctypes
import dataclasses
import itertools
import os
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from bert.files.display import visible
from bert.files.machine import usable_cores
from bert.files.owned import LIST_FILE
from bert.files.paths import file_states, os_errors
from bert.files.process import deferred_stop, stop_signal
from bert.log import logger
from bert.options import REQUIRED, Message, Option, OptionGroup, option
from bert.training.cluster import Cluster
from bert.training.link import LOST, TOKEN
from bert.training.meeting import SAVE_LIMIT, SECONDS_TO_SAVE, seconds_of

# More workers than any machine can use, and fewer than there are ports.
_MOST_WORKERS = 1024

# Lines of the log that are shown of a failed worker.
_LINES_SHOWN = 20
# After the first failure, seconds for the other workers to end by themselves, each with an error
# message, and then to obey SIGTERM; the chief, which may be saving, has more.
_SECONDS_ALONE, _SECONDS_TO_OBEY = 20.0, 10.0
_SECONDS_BETWEEN_LOOKS = 0.05

# A GPU in CUDA_VISIBLE_DEVICES, by its number or the beginning of its UUID.
_GPU = re.compile(r"[0-9]+\Z|GPU-|MIG-")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workers(OptionGroup):
    """How many processes train, how often they are restarted, and where their logs are."""

    GROUP = "devices"

    workers: int = option(REQUIRED, "Number of processes to start.", low=1, high=_MOST_WORKERS)
    max_restarts: int = option(
        3, "How often to restart all processes after one has died or hung.", low=0
    )
    worker_logs: str = option(
        "",
        "Folder for the logs of all workers except the chief: worker_1.log and so on. Default: a "
        "temporary folder that is kept only if they fail.",
        group="output",
    )


@dataclasses.dataclass(frozen=True)
class Launch:
    """A command that workers run.

    Attributes:
      command: The program and its arguments.
      resumed: The command that resumes once the first one has deleted the files of earlier runs.
      output_dir: The output folder, None where the command names none.
    """

    command: Sequence[str]
    resumed: Sequence[str]
    output_dir: str | None = None


def free_ports(count: int, ephemeral: str = "/proc/sys/net/ipv4/ip_local_port_range") -> list[int]:
    """Returns ports that nothing listens at, below those of outgoing connections.

    Args:
      count: The number of ports.
      ephemeral: The file with the range of the ports of outgoing connections.
    """
    try:
        end = int(Path(ephemeral).read_text().split()[0])
    except (OSError, ValueError, IndexError):
        end = 32768
    # In random order, so that two launchers do not find the same ports free.
    candidates = random.sample(range(10000, max(end, 10000 + 4096)), 2048)
    ports: list[int] = []
    for port in candidates:
        with contextlib.suppress(OSError), socket.socket() as tried:
            # At all interfaces, as TensorFlow.
            tried.bind(("", port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise ValueError(f"There must be {count} free ports. Received {len(ports)}.")


def share_machine(
    environment: Mapping[str, str], count: int, gpus: Sequence[str]
) -> list[dict[str, str]]:
    """Returns the environment of each worker, with its share of the cores and GPUs.

    Args:
      environment: The environment of this process; its settings of threads or GPUs stay.
      count: The number of workers.
      gpus: The GPUs of this machine, as CUDA_VISIBLE_DEVICES names them.

    Raises:
      ValueError: where there are GPUs, but fewer than workers.
    """
    threads = str(max(1, usable_cores() // count))
    shares = [{"TF_NUM_INTRAOP_THREADS": threads, **environment} for _ in range(count)]
    if not gpus:
        return shares
    if len(gpus) < count:
        raise ValueError(
            f"There must be a GPU for each worker, or none is used. Received {len(gpus)} for "
            f"{count} workers. Start fewer; or set CUDA_VISIBLE_DEVICES=-1, to compute on the CPU."
        )
    size = len(gpus) // count
    for index, share in enumerate(shares):
        share["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[index * size : (index + 1) * size])
    return shares


def list_gpus(environment: Mapping[str, str], root: str = "/") -> list[str]:
    """Returns the GPUs that may be used, as CUDA_VISIBLE_DEVICES names them."""
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        # As in CUDA, the first entry that names no GPU, such as -1 or NoDevFiles, ends the list.
        return [*itertools.takewhile(_GPU.match, map(str.strip, chosen.split(",")))]
    found = Path(root, "proc/driver/nvidia/gpus")
    return [str(number) for number, _ in enumerate(found.iterdir())] if found.is_dir() else []


class _Attempt:
    """The processes of one attempt.

    Args:
      command: The command of each worker.
      environments: The environment of each worker.
      logs: The output of all workers but the first.
      seconds_to_save: Maximum seconds for the chief to end after another worker has failed.

    Attributes:
      statuses: The exit statuses by worker, in the order in which the workers ended.
      hung: The workers that were killed because they did not end.
    """

    def __init__(
        self,
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        logs: Sequence[IO[bytes]],
        seconds_to_save: float,
    ) -> None:
        workers = tuple(f"localhost:{port}" for port in free_ports(len(environments)))
        token = secrets.token_hex()
        self._processes: list[subprocess.Popen[bytes]] = []
        for index, environment in enumerate(environments):
            log = logs[index - 1] if index else None
            cluster = Cluster(workers, index)
            self._processes.append(
                subprocess.Popen(
                    command,
                    env={**environment, "TF_CONFIG": cluster.tf_config(), TOKEN: token},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log and subprocess.STDOUT,
                    # Ctrl-C on a terminal reaches it through this process alone.
                    start_new_session=True,
                    preexec_fn=_end_with_parent,  # noqa: PLW1509, of one thread
                )
            )
        self.statuses: dict[int, int] = {}
        self.hung: list[int] = []
        self._is_stopping = False
        self._has_warned = False
        self._seconds_to_save = seconds_to_save

    @property
    def running(self) -> list[int]:
        """The workers that have not ended."""
        return [index for index in range(len(self._processes)) if index not in self.statuses]

    def wait(self) -> None:
        """Waits until all workers have ended; after a failure, the others have limited time.

        A signal to this process is passed on; it sets no time limit, since workers may save.
        """
        failed: float | None = None
        while self.running:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            for index in self.running:
                if self._processes[index].poll() is not None:
                    self.statuses[index] = self._processes[index].returncode
            number = stop_signal()
            if number and not self._is_stopping:
                self._stop(number)
            # A worker that obeys a signal has not failed.
            good = {0, 128 + number, -number} if number else {0}
            if failed is None and not good.issuperset(self.statuses.values()):
                failed = time.monotonic()
            if failed is not None:
                self._end_others(time.monotonic() - failed)

    def _end_others(self, seconds: float) -> None:
        if seconds > _SECONDS_ALONE and not self._is_stopping:
            self._stop(signal.SIGTERM)
        if seconds <= _SECONDS_ALONE + _SECONDS_TO_OBEY:
            return
        is_over = seconds > self._seconds_to_save
        if 0 in self.running and not is_over and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "Worker 0 (the chief) is still saving or ending. It has %g s to, or as many as %s "
                "says.",
                self._seconds_to_save,
                SAVE_LIMIT,
            )
        late = [index for index in self.running if index or is_over]
        self.hung += [index for index in late if index not in self.hung]
        self._signal(late, signal.SIGKILL)

    def _signal(self, indexes: Sequence[int], number: int) -> None:
        for index in indexes:
            # The process is waited for only here, so its id cannot belong to another one yet.
            self._processes[index].send_signal(number)

    def _stop(self, number: int) -> None:
        self._is_stopping = True
        self._signal(self.running, number)


def _end_with_parent() -> None:
    """Makes Linux stop a worker when the launcher ends, even if it is killed."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def find_cause(statuses: Mapping[int, int], hung: Sequence[int] = ()) -> tuple[int, int]:
    """Returns the worker that failed first, and its exit status.

    Args:
      statuses: The status of all workers in the order in which they ended, as `Popen.returncode`.
      hung: The workers that were killed because they did not end.
    """
    failed = {index: status for index, status in statuses.items() if status}
    # Other workers report only the loss; the chief's output has been shown already.
    first = {i: status for i, status in failed.items() if status != LOST and i not in hung}
    for index, status in first.items():
        is_same = first.get(0) == status > 0
        return (0 if is_same else index), status
    for index in hung:
        return index, failed[index]
    return next(iter(failed.items()), (0, 0))


def launch(workers: Workers, started: Launch) -> int:
    """Runs a command as several workers until they end, and returns the exit status."""
    seconds_to_save = seconds_of(os.environ, SAVE_LIMIT, SECONDS_TO_SAVE)
    environments = share_machine(os.environ, workers.workers, list_gpus(os.environ))
    command, owned = started.command, _find_list(started.output_dir)
    folder = workers.worker_logs or tempfile.mkdtemp(prefix="bert-launch-")
    os.makedirs(folder, exist_ok=True)
    paths = [os.path.join(folder, f"worker_{index}.log") for index in range(1, workers.workers)]
    status = 0
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: _keep_logs(workers, folder, failed=status != 0))
        logs = [stack.enter_context(open(path, "ab")) for path in paths]
        for number in range(workers.max_restarts + 1):
            with deferred_stop():
                attempt = _Attempt(command, environments, logs, seconds_to_save)
                attempt.wait()
            index, status = find_cause(attempt.statuses, attempt.hung)
            is_hung = index in attempt.hung
            if not status:
                break
            if index and not is_hung:
                _show_end(index, paths[index - 1])
            restarts = status < 0 or status == LOST
            if owned is None or _find_list(started.output_dir) != owned:
                command = started.resumed
            # The chief's own error message has been shown.
            if index or restarts:
                what = describe_end(index, status, is_hung)
                then = _describe_restart(number, workers, started, command) if restarts else ""
                logger.warning("%s%s", what, then)
            if not restarts:
                break
    return 128 - status if status < 0 else status


def _keep_logs(workers: Workers, folder: str, *, failed: bool) -> None:
    """Removes a temporary folder of logs; after a failure, logs its path instead."""
    if workers.worker_logs:
        return
    if failed and workers.workers > 1 and not stop_signal():
        logger.warning("The logs of the workers except the chief are in %s.", folder)
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _find_list(output_dir: str | None) -> tuple[int, int] | None:
    """Returns the state of the list of a run's files in a folder; None where there is none.

    It changes once a run has deleted the files of an earlier one and written a new list.
    """
    if not output_dir:
        return None
    path = os.path.join(output_dir, LIST_FILE)
    try:
        with os_errors(path):
            [state] = file_states([path])
    except OSError:
        return None
    return state


def _show_end(index: int, path: str) -> None:
    lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    for line in lines[-_LINES_SHOWN:]:
        print(f"worker {index} | {visible(line)}", file=sys.stderr, flush=True)


def describe_end(index: int, status: int, is_hung: bool) -> str:
    """Returns a message about a failed worker.

    Args:
      index: The number of the worker.
      status: As `Popen.returncode`.
      is_hung: Whether it was killed because it did not end when others failed.
    """
    who = f"Worker {index}{' (the chief)' * (index == 0)}"
    if is_hung:
        return f"{who} hung."
    if status >= 0:
        return f"{who} ended with exit status {status}."
    names = {number.value: number.name for number in signal.Signals}
    return f"{who} was killed by {names.get(-status, f'signal {-status}')}."


def _describe_restart(
    number: int, workers: Workers, started: Launch, command: Sequence[str]
) -> Message:
    """Returns a message about the restart after attempt `number`, or what `command` would do."""
    most, overwrites = workers.max_restarts, command != started.resumed
    if number < most:
        aim = "start over" if overwrites else "resume from the last checkpoint"
        return Message(" All are restarted, to %s (%s of %s).", aim, number + 1, most)
    again = f"after {most} restarts" if most else Message("with %s", Option("max_restarts", 0))
    is_changed = not overwrites and started.command != started.resumed
    without = Message(" without %s", Option("overwrite_output_dir")) if is_changed else ""
    then = "starts over" if overwrites else "resumes"
    return Message(" Nothing is restarted %s; the same command%s %s.", again, without, then)
