"""On what devices a model is trained: one, those of a machine, of several machines, or a TPU."""

import functools
import os

import tensorflow as tf

from bert.command_line.settings import TrainingSettings
from bert.training.devices import tell_gpus
from bert.workers.cluster import find_cluster


def make_strategy(name: str, tpu_name: str | None = None) -> tf.distribute.Strategy:
    """Returns the strategy called "one_device", "mirrored", "multi_worker" or "tpu".

    Args:
      name: "mirrored" uses all GPUs of this machine (or all logical CPUs where there is none);
        "multi_worker" those of all machines that the environment tells of, as
        `bert.workers.cluster` reads it.
      tpu_name: Name or address of the TPU.
    """
    if name == "mirrored":
        kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        return tf.distribute.MirroredStrategy(
            [device.name for device in tf.config.list_logical_devices(kind)]
        )
    if name == "multi_worker":
        return _join()
    if name == "tpu":
        try:
            resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect(tpu_name)
        except (ValueError, OSError, tf.errors.OpError) as error:
            raise ValueError(
                f"`--use_tpu` needs a TPU, named by `--tpu_name`. Received {tpu_name!r}: "
                f"{str(error).partition(chr(10))[0]}"
            ) from error
        return tf.distribute.TPUStrategy(resolver)
    return tf.distribute.get_strategy()


@functools.cache
def _join() -> tf.distribute.Strategy:
    """Returns the strategy of all workers, which a process can join but once."""
    os.environ["TF_CONFIG"] = find_cluster(os.environ).tf_config()
    return tf.distribute.MultiWorkerMirroredStrategy()


def strategy_of(settings: TrainingSettings) -> tf.distribute.Strategy:
    """Returns the strategy that the flags of a script ask for, and tells of the GPUs."""
    if not settings.use_tpu:
        tell_gpus()
    return make_strategy("tpu" if settings.use_tpu else settings.strategy, settings.tpu_name)


def has_several_workers(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether other processes take the same steps."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process writes files: one of all workers does."""
    return strategy.extended.should_checkpoint
