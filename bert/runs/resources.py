"""What every plan opens: devices, the precision, a teacher, the output folder, memory and disk."""

import dataclasses
import functools
import itertools
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import keras
import tensorflow as tf

import modeling
from bert.export.formats import Export
from bert.files import owned
from bert.files.outputs import check_folder, check_saved_model
from bert.files.process import same_random_state
from bert.log import logger
from bert.network.fusion import fused_chains
from bert.options import Message, MessageError, Option, OptionError, typed_flags
from bert.parts import FAILED, Parts
from bert.runs import identity
from bert.runs.identity import Training
from bert.runs.recipes import TrainingStep
from bert.tasks.options import Teacher
from bert.training import devices, strategies
from bert.training.cluster import find_cluster
from bert.training.options import AUTO, Compute, Output, check_length
from bert.weights.checkpoint import Stored, describe_weights
from bert.weights.folder import ModelFolder
from bert.weights.options import ModelSource
from modeling import BertConfig

if TYPE_CHECKING:
    from bert.models.fine_tuned import LoadedModel
    from bert.tasks.distillation import Layers

TaskType = TypeVar("TaskType", bound=Any)

FAST = "mixed_bfloat16"
# The time of all measurements, shared by both precisions in turns, and the least number of rounds.
_SECONDS = 0.2
_LEAST_ROUNDS = 3
# The tokens of a measurement: enough that a layer's activations do not fit in a core's cache.
_ROWS, _LENGTH = 8, 128
# The least gain of bfloat16; a smaller one is not worth its rounding.
_LEAST_GAIN = 0.1


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
        chosen = _choose_precision(folders, config) if strategies.is_chief(strategy) else ""
        return strategies.broadcast(strategy, chosen)

    chosen = parts("precision", choose, config, strategy)
    return dataclasses.replace(compute, precision="float32" if chosen is FAILED else str(chosen))


def _choose_precision(folders: Iterable[str], config: BertConfig) -> str:
    """Returns the precision of a training run in one of the folders, or else the faster one."""
    for folder in folders:
        if begun := identity.read_option(folder, "precision"):
            logger.info("Precision: %s, in which the training in %s began.", begun, folder)
            return str(begun)
    return measure(config.hidden_size, config.intermediate_size)


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


def log_set_up(model: keras.Model, compute: Compute, changed: Mapping[str, Any]) -> None:
    """Logs the devices, the size of the model and the given options, once at the start.

    Args:
      model: The model.
      compute: How it computes.
      changed: The options that differ from their defaults.
    """
    strategy = tf.distribute.get_strategy()
    used = strategy.num_replicas_in_sync
    gpus = len(tf.config.list_physical_devices("GPU"))
    logger.info(
        "Devices: %d used%s; this machine has %d GPUs and %d CPU cores.",
        used,
        f" by {type(strategy).__name__}" if tf.distribute.has_strategy() else "",
        gpus,
        os.cpu_count(),
    )
    if gpus > used:
        logger.warning(
            "%d GPUs are idle: %s uses all.", gpus - used, Option("strategy", "mirrored")
        )
    if used == 1 and compute.all_reduce_precision != "float32":
        logger.warning(
            "%s has no effect on one device.",
            Option("all_reduce_precision", compute.all_reduce_precision),
        )
    logger.info(
        "Model: %s parameters, computing in %s.",
        f"{model.count_params():,}",
        compute.precision,
    )
    logger.info("Flags: %s; the others have their defaults.", " ".join(typed_flags(changed)))


def describe_init(init: Any) -> str:
    """Returns the line of a plan on the initial weights, if there are any."""
    return "of the shape that the configuration asks for" if init else ""


def find_init(
    model: ModelSource,
    source: ModelFolder,
    config: BertConfig,
    output_dir: str,
    steps: TrainingStep,
) -> Stored | None:
    """Returns the weights of `init_checkpoint`, which have the shape of the model; None without.

    Raises:
      OptionError: where a run without training has no weights, either.
    """
    if model.init_checkpoint:
        source.stored.check_fit(config)
        return source.stored
    if not steps.do_train and ModelFolder(output_dir).find_weights() is None:
        raise OptionError(
            "output_dir",
            Message(
                "hold a trained model, or %s name one, unless %s is given",
                *(Option("init_checkpoint"), Option("do_train")),
            ),
            Message("%r, which holds none", output_dir),
        )
    return None


def list_files(folder: str) -> list[str]:
    """Returns the paths of the files that runs have written in an output folder."""
    return [os.path.join(folder, name) for name in sorted(owned.read_names(folder))]


def measure(hidden_size: int, intermediate_size: int) -> str:
    """Returns the precision in which a layer of these widths trains faster on this machine.

    It is measured, since some processors have instructions for bfloat16 and are slower with them.
    """
    usual, fast = measure_times(hidden_size, intermediate_size)
    chosen = FAST if fast < (1 - _LEAST_GAIN) * usual else "float32"
    logger.info(
        "Precision: %s. A layer of this width takes %.1f ms in float32, %.1f ms in %s.",
        *(chosen, 1e3 * usual, 1e3 * fast, FAST),
    )
    return chosen


@functools.cache
def measure_times(hidden_size: int, intermediate_size: int) -> tuple[float, float]:
    """Returns the seconds of a layer's training step in float32 and in bfloat16, measured once."""
    config = BertConfig(
        vocab_size=1,
        hidden_size=hidden_size,
        num_hidden_layers=1,
        # The size of the paper's heads is 64.
        num_attention_heads=1 if hidden_size % 64 else hidden_size // 64,
        intermediate_size=intermediate_size,
    )
    with same_random_state(0):
        usual, fast = _measure([_make_step(dtype, config) for dtype in ("float32", FAST)])
    return usual, fast


def _make_step(precision: str, config: BertConfig) -> Callable[[], None]:
    """Returns a function that computes a layer's forward and backward pass."""
    encoder = modeling.Encoder(config, dtype=precision)
    encoder.build(None)
    variables = [variable.value for variable in encoder.trainable_variables]
    inputs = tf.ones([_ROWS * _LENGTH, config.hidden_size], encoder.compute_dtype)
    input_mask = tf.ones([_ROWS, _LENGTH], tf.int32)

    def step() -> None:
        with fused_chains(encoder), tf.GradientTape() as tape:
            outputs = encoder(inputs, input_mask)[-1]
        # Reading the result waits for a GPU.
        tape.gradient(outputs, variables)[-1].numpy()

    return step


def _measure(steps: Sequence[Callable[[], None]]) -> list[float]:
    """Returns the shortest time of each step, in seconds."""
    for step in steps:
        # The first call compiles.
        step()
    rounds: list[list[float]] = []
    while len(rounds) < _LEAST_ROUNDS or sum(map(sum, rounds)) < _SECONDS:
        times = [time.perf_counter()]
        for step in steps:
            step()
            times.append(time.perf_counter())
        rounds.append([after - before for before, after in itertools.pairwise(times)])
    return [min(times) for times in zip(*rounds, strict=True)]


def teach(
    task: TaskType, options: Teacher, output_dir: str, batch_size: int, *, fetches: bool = True
) -> TaskType:
    """Returns the task of a student with the teacher that the options name.

    Args:
      task: The task of the student.
      options: The options of the teacher.
      output_dir: The folder of the student.
      batch_size: The number of examples in a prediction step of the teacher.
      fetches: Whether a teacher of the hub that is not in the local cache is fetched.

    Raises:
      ValueError: where the teacher has another task, or its layers cannot be learned.
    """
    # Few runs open another model.
    from bert.models.open import find_folder  # noqa: PLC0415
    from bert.models.options import NO_OVERRIDES  # noqa: PLC0415

    assert options.teacher
    if os.path.realpath(options.teacher) == os.path.realpath(output_dir):
        raise MessageError(
            "%s must not be the %s, in which the student is trained. Received %r for both.",
            *(Option("teacher"), Option("output_dir"), options.teacher),
        )
    folder = find_folder(options.teacher, "teacher", NO_OVERRIDES, fetches=fetches)
    described = describe_weights(folder.stored) or {}
    # Loading the teacher must not change the initial weights of the student.
    with same_random_state():
        model = _load_teacher(folder.path, batch_size, described["sha256"])
    if model.task.kind != task.kind:
        ours, theirs = (kind.replace("_", " ") for kind in (task.kind, model.task.kind))
        raise OptionError(
            "teacher",
            f"be a model of {ours}",
            remedy=f"The one in {options.teacher!r} is one of {theirs}.",
        )
    layers = _open_layers(options, model, task, task.config)
    taught: TaskType = task.with_teacher(model, layers, options)
    return taught


def _open_layers(
    options: Teacher, model: "LoadedModel", task: Any, config: BertConfig
) -> "Layers | None":
    """Returns the layers of the teacher that the student learns; None for none."""
    from bert.models.vectors import find_encoder  # noqa: PLC0415
    from bert.tasks import distillation  # noqa: PLC0415

    if options.distill_layers is None:
        return None
    path = options.teacher or ""
    encoder = find_encoder(model.model)
    if encoder is None:
        raise MessageError(
            "%s needs a %s with layers. The one in %r has word vectors alone.",
            *(Option("distill_layers"), Option("teacher"), path),
        )
    distillation.check_same_tokenizer(task, model.task, path)
    check_length(task.max_seq_length, encoder.config)
    weight = options.distill_layers_weight
    return distillation.open_layers(options.distill_layers, weight, encoder, config)


@functools.lru_cache(maxsize=1)
def _load_teacher(path: str, batch_size: int, digest: str) -> "LoadedModel":
    """Returns the model in a folder; the runs of a search share it while its files are the same."""
    from bert.models.fine_tuned import open_fine_tuned  # noqa: PLC0415
    from bert.models.open import find_folder  # noqa: PLC0415
    from bert.models.options import NO_OVERRIDES  # noqa: PLC0415

    del digest
    folder = find_folder(path, "teacher", NO_OVERRIDES)
    return open_fine_tuned(folder, NO_OVERRIDES, batch_size=batch_size)
