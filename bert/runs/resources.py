"""The parts of every plan: devices, model, precision, output folder, memory and disk."""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert.export.formats import Export
from bert.files import owned
from bert.files.outputs import check_folder, check_saved_model
from bert.log import logger
from bert.options import Message, Option, OptionError
from bert.parts import FAILED, Parts
from bert.runs import identity, precision
from bert.runs.resumption import Training
from bert.training import devices, strategies
from bert.training.cluster import find_cluster
from bert.training.options import AUTO, Compute, Output
from bert.weights.folder import ModelFolder
from modeling import BertConfig


@dataclasses.dataclass(frozen=True)
class Batch:
    """The sizes that decide how much memory and disk a training run needs.

    Attributes:
      num_sequences: Sequences of a batch.
      length: Tokens per sequence.
      num_predictions: Masked tokens per sequence.
      num_weights_alone: Number of checkpoints without the optimizer's slots.
    """

    num_sequences: int
    length: int
    num_predictions: int = 0
    num_weights_alone: int = 0


def open_devices(
    parts: Parts,
    compute: Compute,
    options: Mapping[str, Any],
    strategy: tf.distribute.Strategy | None,
    *,
    is_trial: bool,
) -> tuple[Any, Any]:
    """Adds the devices; returns their strategy and their number.

    Args:
      parts: Records what is found.
      compute: The requested devices.
      options: All options of the run, in which workers must agree.
      strategy: A strategy that was opened before, if any.
      is_trial: Whether one of several workers is checked alone.
    """

    def open_strategy() -> tf.distribute.Strategy:
        if is_trial and compute.strategy == "multi_worker" and not compute.use_tpu:
            return _stay_alone()
        opened = strategy or strategies.open_strategy(compute)
        strategies.check_same(opened, identity.shared_by_workers(options))
        return opened

    opened = parts("devices", open_strategy, shows=_describe_devices)
    return (FAILED, FAILED) if opened is FAILED else (opened, opened.num_replicas_in_sync)


def _stay_alone() -> tf.distribute.Strategy:
    if cluster := find_cluster(os.environ):
        logger.warning(
            "Of %d workers, only %s is checked, as if it were alone.",
            len(cluster.workers),
            cluster.name(cluster.index),
        )
    return tf.distribute.get_strategy()


def _describe_devices(strategy: tf.distribute.Strategy) -> str:
    gpus = len(tf.config.list_physical_devices("GPU"))
    used = strategy.num_replicas_in_sync
    return f"{used} used, of {gpus} GPUs and {os.cpu_count()} CPU cores"


def choose_precision(
    parts: Parts,
    compute: Compute,
    outputs: Sequence[Output],
    config: Any,
    strategy: Any,
    *,
    is_training: bool,
) -> Compute:
    """Adds the precision that `auto` stands for; returns the options of computing with it.

    Args:
      parts: Records what is found.
      compute: The options of computing.
      outputs: The output folders; a run that resumes in one of them has its precision.
      config: The shape of the model.
      strategy: The devices, whose chief chooses.
      is_training: Whether the run trains.
    """
    if compute.precision != AUTO:
        return compute
    starts_over = is_training and outputs[0].overwrite_output_dir
    folders = [] if starts_over else [output.output_dir for output in outputs]

    def choose(config: BertConfig, strategy: tf.distribute.Strategy) -> str:
        chosen = precision.choose(folders, config) if strategies.is_chief(strategy) else ""
        return strategies.broadcast(strategy, chosen)

    chosen = parts("precision", choose, config, strategy)
    return dataclasses.replace(compute, precision="float32" if chosen is FAILED else str(chosen))


def add_folder(
    parts: Parts, output: Output, *, is_training: bool, exports: Iterable[Export] = ()
) -> None:
    """Adds the output folder and its lock.

    Args:
      parts: Records what is found.
      output: The folder, and whether files of runs in it are deleted.
      is_training: Whether the run trains in the folder.
      exports: The exports that the run writes there.
    """
    output_dir = output.output_dir

    def check() -> None:
        check_folder(output_dir)
        if is_training:
            ModelFolder(output_dir).check_fillable(overwrites=output.overwrite_output_dir)
        for export in exports:
            check_saved_model(os.path.join(output_dir, export.name), export.file)

    there = "is there" if tf.io.gfile.isdir(output_dir) else "is new"
    parts("output folder", check, shows=lambda _: f"{output_dir!r} {there}")
    if is_training:
        nothing = "nothing else trains there"
        parts("lock", owned.check_lock, output_dir, shows=lambda _: nothing)


def add_needs(
    parts: Parts,
    compute: Compute,
    output: Output,
    config: Any,
    num_replicas: Any,
    batch: Batch,
    trainings: Any,
) -> bool:
    """Adds memory and disk; returns whether there is enough memory, as far as that is known.

    Args:
      parts: Records what is found.
      compute: The options of computing.
      output: The options of what is saved.
      config: The shape of the model.
      num_replicas: Devices that share a batch.
      batch: The batch of a step.
      trainings: The training runs.
    """

    def log_memory(config: BertConfig, num_replicas: int) -> bool:
        return devices.log_training_memory(
            compute,
            config,
            num_sequences=batch.num_sequences,
            num_replicas=num_replicas,
            length=batch.length,
            num_predictions=batch.num_predictions,
        )

    def log_disk(config: BertConfig, trainings: Sequence[Training]) -> None:
        num_train_steps = [training.num_train_steps for training in trainings]
        devices.log_disk(output, config, num_train_steps, batch.num_weights_alone)

    has_memory = parts("memory", log_memory, config, num_replicas)
    parts("disk", log_disk, config, trainings)
    return has_memory is not False


def describe_init(init: Any) -> str:
    """Returns the line of a plan on the initial weights, if there are any."""
    return "of the shape that the configuration asks for" if init else ""


def no_weights(folder: str) -> OptionError:
    """Returns the error of a run without training where there are no weights."""
    return OptionError(
        "output_dir",
        Message(
            "hold a trained model, or %s name one, unless %s is given",
            *(Option("init_checkpoint"), Option("do_train")),
        ),
        Message("%r, which holds none", folder),
    )


def list_files(folder: str) -> list[str]:
    """Returns the paths of the files that runs have written in an output folder."""
    return [os.path.join(folder, name) for name in sorted(owned.read_names(folder))]
