"""The workers of a training run, and the number of this one, from environment variables.

The first of these that is set counts:

    TF_CONFIG                             TensorFlow's own, in JSON
    BERT_WORKERS and BERT_WORKER          host1:2222,host2:2222 and a number from 0
    BERT_WORKERS, JOB_COMPLETION_INDEX    the same under Kubernetes, which numbers the pods of a job
    SLURM_STEP_NODELIST and others        what `srun` sets

The first worker is the chief, which alone writes files.
"""

import contextlib
import dataclasses
import ipaddress
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert.log import logger
from bert.options import MessageError, Option

Environment = Mapping[str, str]

# Under SLURM, jobs that share a machine must not share ports: each job has a range of ports, below
# those that systems give to outgoing connections.
_FIRST_PORT, _END_PORT, _PORTS_OF_A_JOB = 10000, 32000, 64

# The host of an address of IPv6, such as that of [::1]:2222.
_IPV6 = re.compile(r"^\[[^\s/\[\]]*:[^\s/\[\]]*\]")
# Maximum number of workers in a list.
_MOST_WORKERS = 1 << 14

_MULTI_WORKER = Option("strategy", "multi_worker")
_REMEDY = (
    "On one machine, `bert launch --workers=2` starts all workers; on several, set BERT_WORKERS "
    "and BERT_WORKER, or TF_CONFIG, on each, or start them by `srun`: docs/distributed.md."
)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The processes of one training run.

    Attributes:
      workers: The address of each worker, as host:port; the chief is the first.
      index: The number of this process.
    """

    workers: tuple[str, ...]
    index: int

    def __post_init__(self) -> None:
        wrong = [worker for worker in self.workers if not _is_address(worker)]
        if wrong or not self.workers:
            raise ValueError(
                "Workers must be addresses such as host1:2222. Received "
                f"{wrong[0] if wrong else ''!r}."
            )
        twice = [worker for worker, count in Counter(self.workers).items() if count > 1]
        if twice:
            raise ValueError(f"Each worker must have an address of its own. {twice[0]!r} is twice.")
        if not 0 <= self.index < len(self.workers):
            raise ValueError(
                f"The number of a worker must be from 0 to {len(self.workers) - 1}, for there are "
                f"{len(self.workers)}. Received {self.index}."
            )

    def name(self, index: int) -> str:
        """Returns the name of a worker for messages."""
        return f"worker {index}{' (the chief)' * (index == 0)} at {self.workers[index]}"

    def address(self, index: int) -> tuple[str, int]:
        """Returns the host and the port of a worker."""
        host, _, port = self.workers[index].rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def is_local(self) -> bool:
        """Whether all workers have loopback addresses, so that they are on this machine."""
        return all(is_loopback(self.address(i)[0]) for i in range(len(self.workers)))

    def tf_config(self) -> str:
        """Returns the value of TF_CONFIG, which TensorFlow reads."""
        task = {"type": "worker", "index": self.index}
        return json.dumps({"cluster": {"worker": self.workers}, "task": task})


def find_cluster(environment: Environment) -> Cluster | None:
    """Returns the cluster in environment variables; None, with a warning, where there is none.

    Args:
      environment: As `os.environ`.

    Raises:
      ValueError: where the variables contradict each other, or a job of SLURM has no step.
    """
    sources = {
        "TF_CONFIG": _of_tf_config,
        "BERT_WORKERS": _of_list,
        "SLURM_STEP_NODELIST": _of_slurm,
    }
    for name, read in sources.items():
        if environment.get(name, "").strip() not in ("", "{}"):
            try:
                cluster = read(environment)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
            if len(cluster.workers) == 1:
                logger.warning(
                    "%s: %s names a single worker: THIS PROCESS TRAINS ALONE. %s",
                    _MULTI_WORKER,
                    name,
                    _REMEDY,
                )
            return cluster
    if "SLURM_JOB_ID" in environment:
        raise MessageError(
            "%s in a job of SLURM must be started by `srun`, once on each machine. Received a job "
            "without a step: write `srun` before the command.",
            _MULTI_WORKER,
        )
    # As TensorFlow does.
    logger.warning(
        "%s: none of %s names other workers: THIS PROCESS TRAINS ALONE. %s",
        _MULTI_WORKER,
        ", ".join(sources),
        _REMEDY,
    )
    return None


def expand(text: str) -> list[str]:
    """Returns the names in a list of SLURM's, such as "a,b[1-3,07],c[0-1]d", in its order.

    Numbers keep their leading zeros; several brackets in a name stand for all combinations.
    """
    names: list[str] = []
    for part in _split_outside_brackets(text):
        pieces = re.split(r"\[([^\[\]:]*)\]", part.strip())
        texts = [_IPV6.sub("", piece) for piece in pieces[::2]]
        if any("[" in text or "]" in text for text in texts) or not part.strip():
            raise ValueError(f"It must be a list such as host[1-3,7],other. Received {text!r}.")
        choices = [[piece] for piece in pieces]
        choices[1::2] = [[*_numbers(piece, text)] for piece in pieces[1::2]]
        _check_count(len(names) + math.prod(map(len, choices)), text)
        names += map("".join, itertools.product(*choices))
    return names


def _check_count(count: int, text: str) -> None:
    if count > _MOST_WORKERS:
        raise ValueError(f"There must be at most {_MOST_WORKERS} workers. Received {text!r}.")


def _split_outside_brackets(text: str) -> list[str]:
    return re.split(r",(?![^\[]*\])", text)


def _numbers(ranges: str, text: str) -> Iterator[str]:
    for part in ranges.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        numbers = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
        if not numbers:
            raise ValueError(f"Brackets must hold numbers such as [1-3,7]. Received {text!r}.")
        _check_count(numbers.stop - numbers.start, text)
        width = len(match[1]) if match else 0
        yield from (f"{number:0{width}}" for number in numbers)


def _is_address(text: Any) -> bool:
    if not isinstance(text, str):
        return False
    host, _, port = text.rpartition(":")
    is_host = re.fullmatch(r"[^\s/\[\]]+", host) or _IPV6.fullmatch(host)
    return bool(is_host) and port.isdecimal() and 0 < int(port) < 1 << 16


def is_loopback(host: str) -> bool:
    """Returns whether a host, by number or name, is this machine's loopback interface."""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        # Python takes no 127.0.0.1 within an address of IPv6 for one.
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback
    return host == "localhost"


def _integer(environment: Environment, name: str) -> int:
    text = environment.get(name, "")
    if not text.isdecimal():
        raise ValueError(f"`{name}` must be set to a number from 0. Received {text!r}.")
    return int(text)


def _of_tf_config(environment: Environment) -> Cluster:
    text = environment["TF_CONFIG"]
    example = (
        '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, '
        '"task": {"type": "worker", "index": 0}}'
    )
    try:
        config = json.loads(text)
        jobs, task = config["cluster"], config["task"]
        kind, index = str(task["type"]), int(task["index"])
        lists = {job: jobs[job] for job in ("chief", "worker") if job in jobs}
        workers = {job: [*addresses] for job, addresses in lists.items()}
        # Workers follow the chief; an evaluator or parameter server is refused below.
        before = len(workers.get("chief", [])) if kind == "worker" else 0
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ValueError(f"It must be JSON such as {example}. Received {text!r}.") from error
    if kind not in workers or not 0 <= index < len(workers[kind]):
        raise ValueError(
            "It must list all workers, and in `task` the type and number of one of them, such as "
            f"{example}. Received {text!r}."
        )
    return Cluster(tuple(itertools.chain(*workers.values())), before + index)


def _of_list(environment: Environment) -> Cluster:
    workers = tuple(expand(environment["BERT_WORKERS"]))
    names = ("BERT_WORKER", "JOB_COMPLETION_INDEX")
    name = next((name for name in names if environment.get(name)), names[0])
    return Cluster(workers, _integer(environment, name))


def _of_slurm(environment: Environment) -> Cluster:
    nodes = expand(environment["SLURM_STEP_NODELIST"])
    count, index = (_integer(environment, f"SLURM_{name}") for name in ("NTASKS", "PROCID"))
    per_node = (
        environment.get("SLURM_STEP_TASKS_PER_NODE") or f"{count // len(nodes)}(x{len(nodes)})"
    )
    tasks = _tasks_per_node(per_node)
    if len(tasks) != len(nodes) or sum(tasks) != count:
        raise ValueError(
            f"SLURM_STEP_TASKS_PER_NODE must give the {count} tasks of SLURM_NTASKS to the "
            f"{len(nodes)} nodes. Received {per_node!r}."
        )
    if environment.get("SLURM_DISTRIBUTION", "block").split(":")[0].split(",")[0] != "block":
        raise ValueError(
            "Tasks must be given to nodes in blocks, the default distribution of `srun`. "
            f"Received {environment['SLURM_DISTRIBUTION']!r}."
        )
    first = slurm_port(_integer(environment, "SLURM_JOB_ID"))
    if max(tasks) > _PORTS_OF_A_JOB:
        raise ValueError(
            f"There must be at most {_PORTS_OF_A_JOB} tasks on a node. Received {per_node!r}."
        )
    workers = (
        f"{node}:{first + local}"
        for node, num_tasks in zip(nodes, tasks, strict=True)
        for local in range(num_tasks)
    )
    return Cluster(tuple(workers), index)


def _tasks_per_node(text: str) -> Sequence[int]:
    """Returns the numbers in text such as "2(x3),1": 2, 2, 2, 1."""
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if not match:
            raise ValueError(f"Tasks per node must be such as 2(x3),1. Received {text!r}.")
        _check_count(len(numbers) + int(match[2] or 1), text)
        numbers += [int(match[1])] * int(match[2] or 1)
    return numbers


def slurm_port(job_id: int) -> int:
    """Returns the first port of a job; consecutive jobs have different ranges of ports."""
    num_jobs = (_END_PORT - _FIRST_PORT) // _PORTS_OF_A_JOB
    return _FIRST_PORT + job_id % num_jobs * _PORTS_OF_A_JOB
