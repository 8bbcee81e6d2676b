"""On what devices a model is trained: one, those of a machine, of several machines, or a TPU."""

import contextlib
import dataclasses
import functools
import os
import threading
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert.files.process import is_script
from bert.log import logger
from bert.options import MessageError, Option
from bert.training.cluster import Cluster, find_cluster
from bert.training.devices import tell_gpus
from bert.training.link import TOKEN, check_port, hide_from_other_machines
from bert.training.meeting import LOST, Meeting, seconds_to_come
from bert.training.options import Compute
from bert.training.pace import LIMIT, SECONDS_OF_A_STEP, SECONDS_TO_END, Pace, seconds_of


def make_strategy(name: str, tpu_name: str | None = None) -> tf.distribute.Strategy:
    """Returns the strategy called "one_device", "mirrored", "multi_worker" or "tpu".

    Args:
      name: "mirrored" uses all GPUs of this machine (or all logical CPUs where there is none);
        "multi_worker" those of all machines that the environment tells of, as
        `bert.training.cluster` reads it.
      tpu_name: Name or address of the TPU.
    """
    if name == "mirrored":
        kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        return tf.distribute.MirroredStrategy(
            [device.name for device in tf.config.list_logical_devices(kind)]
        )
    if name == "multi_worker":
        return _join()[0]
    if name == "tpu":
        try:
            resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect(tpu_name)
        except (ValueError, OSError, tf.errors.OpError) as error:
            raise MessageError(
                "%s needs a TPU, named by %s. Received %r: %s",
                Option("use_tpu"),
                Option("tpu_name"),
                tpu_name,
                str(error).partition("\n")[0],
            ) from error
        return tf.distribute.TPUStrategy(resolver)
    return tf.distribute.get_strategy()


@functools.cache
def _join() -> tuple[tf.distribute.Strategy, Meeting]:
    """Returns the strategy of all workers, which a process can join but once, and their meeting."""
    found = find_cluster(os.environ)
    # One that is alone needs no address.
    cluster = found or Cluster(("localhost:1",), 0)
    seconds = seconds_to_come(os.environ)
    count = len(cluster.workers)
    if count > 1:
        who = cluster.name(cluster.index)
        logger.info("This is %s; %d must come within %g s.", who, count, seconds)
        check_port(cluster.port)
    pace = Pace(seconds_of(os.environ, LIMIT, SECONDS_OF_A_STEP))
    meeting = Meeting(cluster, seconds, pace, os.environ.get(TOKEN, ""))
    if found:
        os.environ["TF_CONFIG"] = cluster.tf_config()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    if count > 1 and cluster.is_local and not hide_from_other_machines(cluster.port):
        logger.warning(
            "Other machines can reach TensorFlow at port %d of this one, and it answers anybody: "
            "use a network that you trust.",
            cluster.port,
        )
    meeting.wake = functools.partial(_abort, pace=pace)
    return strategy, meeting


def _abort(reason: str, pace: Pace) -> None:
    """Ends what waits for a worker that is lost.

    TensorFlow does so by itself, ten seconds later or more, and offers this by no public name.
    What waits for something else, as the one that is lost may, cannot be ended so.
    """
    timer = threading.Timer(SECONDS_TO_END, _end_what_cannot, [reason, pace, pace.mark])
    timer.daemon = True
    timer.start()
    try:
        from tensorflow.python.eager import context  # noqa: PLC0415
    except ImportError:
        return
    context.context().abort_collective_ops(tf.errors.UNAVAILABLE, reason)


def _end_what_cannot(reason: str, pace: Pace, mark: int) -> None:
    """Ends this process where a worker is lost and it has stood still ever since.

    Args:
      reason: What is lost.
      pace: Its own.
      mark: Where it was at that time.
    """
    # Who saves what there is may take longer.
    if is_script() and pace.mark == mark and pace.waits():
        logger.error("%s This process does not end by itself.", reason)
        os._exit(LOST)


def open_strategy(compute: Compute) -> tf.distribute.Strategy:
    """Returns the strategy of the options, and logs the GPUs."""
    if not compute.use_tpu:
        tell_gpus()
    return make_strategy("tpu" if compute.use_tpu else compute.strategy, compute.tpu_name)


def has_several_workers(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether other processes take the same steps."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process writes files: one of all workers does."""
    return strategy.extended.should_checkpoint


def _meeting_of(strategy: tf.distribute.Strategy) -> Meeting | None:
    # Whoever has made a strategy without `make_strategy` has met nobody.
    if not has_several_workers(strategy) or not _join.cache_info().currsize:
        return None
    return _join()[1]


def agree(strategy: tf.distribute.Strategy, values: Mapping[str, Any]) -> None:
    """Compares values that all workers must have, by name, with theirs.

    Raises:
      ValueError: on all workers alike, where some have others, naming them.
    """
    if meeting := _meeting_of(strategy):
        meeting.agree(values)


def of_chief(strategy: tf.distribute.Strategy, value: str) -> str:
    """Returns the chief's value, which it sends to the other workers, where there are any."""
    meeting = _meeting_of(strategy)
    return meeting.share(value.encode())[0].decode() if meeting else value


def pace_of(strategy: tf.distribute.Strategy) -> Pace:
    """Returns what says to the other workers, where there are any, how far this one is."""
    meeting = _meeting_of(strategy)
    return meeting.pace if meeting else Pace()


def together(strategy: tf.distribute.Strategy) -> contextlib.AbstractContextManager[None]:
    """Makes workers leave a block together, and says which is lost where one cannot go on."""
    meeting = _meeting_of(strategy)
    return meeting.together(tf.errors.OpError) if meeting else contextlib.nullcontext()


@dataclasses.dataclass(frozen=True)
class Share:
    """One of several equal parts of some work, and how to have the others' results.

    Attributes:
      meeting: Of all who have a part.
    """

    meeting: Meeting

    @property
    def index(self) -> int:
        """Its number."""
        return self.meeting.cluster.index

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.meeting.cluster.workers)

    def together(self) -> contextlib.AbstractContextManager[None]:
        """As the function."""
        return self.meeting.together(tf.errors.OpError)


def share_of(strategy: tf.distribute.Strategy) -> Share | None:
    """Returns this worker's share of what needs no strategy, None where there is no other."""
    meeting = _meeting_of(strategy)
    return Share(meeting) if meeting and len(meeting.cluster.workers) > 1 else None
