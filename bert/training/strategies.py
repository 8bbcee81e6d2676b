"""The devices of a training run: one, those of a machine, those of several machines, or a TPU."""

import contextlib
import functools
import os
import threading

import tensorflow as tf

from bert.files.process import is_script
from bert.log import logger
from bert.network.gpus import log_gpus
from bert.options import MessageError, Option
from bert.training.cluster import find_cluster
from bert.training.link import (
    LOST,
    SECONDS_TO_COME,
    TIMEOUT,
    TOKEN,
    check_port,
    hide_from_other_machines,
)
from bert.training.meeting import (
    ALONE,
    LIMIT,
    SECONDS_OF_A_STEP,
    SECONDS_TO_END,
    Meeting,
    Pace,
    Place,
    seconds_of,
)
from bert.training.options import Compute


def make_strategy(name: str, tpu_name: str | None = None) -> tf.distribute.Strategy:
    """Returns the strategy called "one_device", "mirrored", "multi_worker" or "tpu".

    Args:
      name: "mirrored" uses all GPUs of this machine (or all logical CPUs where there is none);
        "multi_worker" those of all workers that `bert.training.cluster` finds.
      tpu_name: Name or address of the TPU.
    """
    if name == "mirrored":
        return _mirror()
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
def _mirror() -> tf.distribute.Strategy:
    """Returns the strategy of all devices of this machine, one for all runs of a process.

    A second strategy would number its sums from the beginning again, and TensorFlow refuses a sum
    of another shape than the first one with that number.
    """
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    devices = [device.name for device in tf.config.list_logical_devices(kind)]
    return tf.distribute.MirroredStrategy(devices)


@functools.cache
def _join() -> tuple[tf.distribute.Strategy, Meeting]:
    """Returns the strategy of all workers, which a process joins only once, and their meeting."""
    found = find_cluster(os.environ)
    cluster = found or ALONE
    seconds = seconds_of(os.environ, TIMEOUT, SECONDS_TO_COME)
    count = len(cluster.workers)
    _, port = cluster.address(cluster.index)
    if count > 1:
        who = cluster.name(cluster.index)
        logger.info("This is %s; all %d workers must connect within %g s.", who, count, seconds)
        check_port(port)
    pace = Pace(seconds_of(os.environ, LIMIT, SECONDS_OF_A_STEP))
    meeting = Meeting(cluster, seconds, pace, os.environ.get(TOKEN, ""))
    if found:
        os.environ["TF_CONFIG"] = cluster.tf_config()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    if count > 1 and cluster.is_local and not hide_from_other_machines(port):
        logger.warning(
            "Other machines can reach TensorFlow at port %d of this one, and it answers anybody: "
            "use a network that you trust.",
            port,
        )
    meeting.wake = functools.partial(_abort, pace=pace)
    return strategy, meeting


def _abort(reason: str, pace: Pace) -> None:
    """Ends the collective operations of TensorFlow that wait for a lost worker.

    TensorFlow does so by itself, but only after ten seconds or more; the function is not public.
    The process may still wait for something else, such as a file system, and ends after a time.
    """
    timer = threading.Timer(SECONDS_TO_END, _exit_if_stuck, [reason, pace, pace.place])
    timer.daemon = True
    timer.start()
    try:
        from tensorflow.python.eager import context  # noqa: PLC0415
    except ImportError:
        return
    context.context().abort_collective_ops(tf.errors.UNAVAILABLE, reason)


def _exit_if_stuck(reason: str, pace: Pace, place: Place) -> None:
    """Ends this process if it is still at the place where it was when a worker was lost."""
    # Saving may take longer.
    if is_script() and pace.place == place and pace.is_limited():
        logger.error("%s This process does not end by itself.", reason)
        os._exit(LOST)


def open_strategy(compute: Compute) -> tf.distribute.Strategy:
    """Returns the strategy of the options, and logs the GPUs."""
    if not compute.use_tpu:
        log_gpus()
    return make_strategy("tpu" if compute.use_tpu else compute.strategy, compute.tpu_name)


def has_several_workers(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether other processes take the same steps."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process writes files: one of all workers does."""
    return strategy.extended.should_checkpoint


def meeting_of(strategy: tf.distribute.Strategy) -> Meeting:
    """Returns the workers that take the same steps; where there are no others, this one alone."""
    # A strategy that was made without `make_strategy` has no meeting.
    is_joined = has_several_workers(strategy) and _join.cache_info().currsize
    return _join()[1] if is_joined else Meeting()


def together(strategy: tf.distribute.Strategy) -> contextlib.AbstractContextManager[None]:
    """Returns a context that all workers leave together, and that names a lost worker."""
    return meeting_of(strategy).together(tf.errors.OpError)
