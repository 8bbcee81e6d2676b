"""The precision that suits a machine, and the memory and disk that training needs."""

import dataclasses
import functools
import itertools
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

import modeling
from bert.files.machine import free_disk, free_memory, gpu_memory, size_text
from bert.files.process import same_random_state
from bert.log import logger
from bert.network.kernels import fused_chains
from bert.options import Message, Option, typed_flags
from bert.training.options import Compute, Output
from bert.weights.variables import count_parameters
from modeling import BertConfig

# Weights, gradients and the optimizer's two slots, all float32.
_BYTES = 4
_NUM_SLOTS = 2
# Values that a layer stores for the backward pass: for each token and hidden unit, and for each
# token, head and attended token. Peaks measured on a CPU were within 20 % of this.
_STORED_VALUES = 28
_STORED_SCORES = 3
# The same of a layer of LSTMs, for each token and hidden unit.
_LSTM_VALUES = 30
# The share of these bytes that remains where activations have 16 bits.
_HALF_PRECISION = 0.6
# Logits over the vocabulary, their softmax and its gradient.
_LOGITS = 3

FAST = "mixed_bfloat16"
# The time of all measurements, shared by both precisions in turns, and the least number of rounds.
_SECONDS = 0.2
_LEAST_ROUNDS = 3
# The tokens of a measurement: enough that a layer's activations do not fit in a core's cache.
_ROWS, _LENGTH = 8, 128
# The least gain of bfloat16; a smaller one is not worth its rounding.
_LEAST_GAIN = 0.1


# XLA's matrix products in place of cuBLAS': on an H100, choosing among them took two thirds of the
# time of compiling BERT-Base, for steps that were 5 % faster.
_TUNED_KERNELS = "xla_gpu_enable_triton_gemm"


@dataclasses.dataclass(frozen=True)
class MemoryNeeds:
    """The bytes that a model needs on a device.

    Attributes:
      weights: The bytes of the weights.
      training: The bytes of gradients and the optimizer's slots.
      batch: The bytes of the activations of a batch.
    """

    weights: int
    training: int
    batch: int

    @property
    def total(self) -> int:
        return self.weights + self.training + self.batch


@functools.cache
def can_compile() -> bool:
    """Returns whether XLA compiles for this machine's GPU; warns where its tools are missing."""
    flags = os.environ.get("XLA_FLAGS", "")
    if _TUNED_KERNELS not in flags:
        # XLA reads it when it compiles for the first time.
        os.environ["XLA_FLAGS"] = f"{flags} --{_TUNED_KERNELS}=false"
    try:
        tf.function(tf.exp, jit_compile=True, autograph=False)(tf.ones([8]))
    except tf.errors.OpError as error:
        logger.warning("XLA compiles nothing for this GPU: training is slower. %s", error.message)
        return False
    return True


def estimate_memory(
    config: BertConfig,
    *,
    num_sequences: int,
    length: int,
    precision: str = "float32",
    is_training: bool = True,
    num_predictions: int = 0,
    gradient_checkpointing: bool = False,
) -> MemoryNeeds:
    """Returns the memory that a model needs on each device.

    Args:
      config: The shape of the model.
      num_sequences: Sequences that go through the model at once: a replica's share of a batch,
        divided by the steps of gradient accumulation; each choice of an example is a sequence.
      length: Tokens per sequence.
      precision: As the option `precision`.
      is_training: Whether there are stored activations, gradients and slots.
      num_predictions: Masked tokens per sequence.
      gradient_checkpointing: Whether all layers but one store only their inputs.
    """
    weights = _BYTES * count_parameters(config)
    scores = _STORED_SCORES * config.num_attention_heads * length
    # The values of the feed-forward layer are in proportion to its width.
    width = config.hidden_size * 20 + config.intermediate_size * (_STORED_VALUES - 20) // 4
    layer = config.hidden_size * _LSTM_VALUES if config.is_bilstm else width + scores
    stored = layer * (config.num_hidden_layers if is_training else 1)
    if gradient_checkpointing:
        stored = layer + config.hidden_size * config.num_hidden_layers
    values = num_sequences * length * stored
    logits = _LOGITS * num_sequences * num_predictions * config.vocab_size
    share = 1.0 if precision == "float32" else _HALF_PRECISION
    return MemoryNeeds(
        weights,
        (1 + _NUM_SLOTS) * weights if is_training else 0,
        int(_BYTES * values * share) + _BYTES * logits,
    )


def log_training_memory(
    compute: Compute,
    config: BertConfig,
    *,
    num_sequences: int,
    num_replicas: int,
    length: int,
    num_predictions: int = 0,
    teacher: BertConfig | None = None,
) -> bool:
    """Logs the memory that training needs on each device, and warns if it is more than is free.

    Args:
      compute: How the model computes.
      config: The shape of the model.
      num_sequences: Sequences of a batch; each choice of an example is a sequence.
      num_replicas: Devices that share a batch; those of this machine share its memory.
      length: Tokens per sequence.
      num_predictions: Masked tokens per sequence.
      teacher: The shape of a teacher that is a part of the training step.

    Returns:
      Whether there is enough memory, as far as is known.
    """
    share = -(-num_sequences // (num_replicas * compute.gradient_accumulation_steps))
    estimate = functools.partial(
        estimate_memory, num_sequences=share, length=length, num_predictions=num_predictions
    )
    needs = estimate(
        config,
        precision=compute.precision,
        gradient_checkpointing=compute.gradient_checkpointing,
    )
    taught = estimate(teacher, is_training=False).total if teacher else 0
    total = needs.total + taught
    gpus = gpu_memory() if tf.config.list_physical_devices("GPU") else []
    # TensorFlow reserves nearly all memory of a GPU at once, so its free memory means nothing.
    free, place = (min(gpus), "on each GPU") if gpus else (free_memory(), "free")
    logger.info(
        "Memory: weights %s, gradients and optimizer %s, a batch about %s%s; about %s in all%s.",
        *map(size_text, (needs.weights, needs.training, needs.batch)),
        f", the teacher about {size_text(taught)}" if teacher else "",
        size_text(total),
        f", of {size_text(free)} {place}" if free is not None else "",
    )
    if free is None or total <= free:
        return True
    checkpointing = Message("Give %s, lower", Option("gradient_checkpointing"))
    logger.warning(
        "About %s of memory will be needed, and %s are %s: the run may be killed. %s %s or %s, or "
        "raise %s.",
        size_text(total),
        size_text(free),
        place,
        "Lower" if compute.gradient_checkpointing else checkpointing,
        *map(Option, ("train_batch_size", "max_seq_length", "gradient_accumulation_steps")),
    )
    return False


def log_disk(
    output: Output,
    config: BertConfig,
    num_train_steps: Iterable[int | None],
    num_weights_alone: int = 0,
) -> None:
    """Logs the space that checkpoints need and what is free, and warns if that is less.

    Args:
      output: What is saved where.
      config: The shape of the model.
      num_train_steps: The last step of each training run; None for an unknown number.
      num_weights_alone: As `checkpoint_bytes`.
    """
    needed = sum(
        checkpoint_bytes(output, config, steps, num_weights_alone) for steps in num_train_steps
    )
    free = free_disk(output.output_dir)
    if free is None:
        return
    logger.info("Disk: checkpoints about %s, of %s free.", size_text(needed), size_text(free))
    if needed > free:
        logger.warning(
            "The checkpoints to come take about %s, and %s are free in %s. Lower %s, or give "
            "another %s.",
            size_text(needed),
            size_text(free),
            output.output_dir,
            Option("keep_checkpoint_max"),
            Option("output_dir"),
        )


def checkpoint_bytes(
    output: Output, config: BertConfig, num_train_steps: int | None, num_weights_alone: int = 0
) -> int:
    """Returns the bytes of all checkpoints that a training run has on disk at once.

    These are the saved ones, the one that is written before an old one is removed, and those of
    weights alone.

    Args:
      output: What is saved when.
      config: The shape of the model.
      num_train_steps: The last step; None for an unknown number.
      num_weights_alone: Checkpoints without the optimizer's slots.
    """
    weights = _BYTES * count_parameters(config)
    # One is saved before the first step, and one at the end. An unknown number of steps is assumed
    # to fill all checkpoints that are kept.
    steps = output.save_checkpoints_steps * (output.keep_checkpoint_max + 1)
    steps = steps if num_train_steps is None else num_train_steps
    written = 1 + -(-steps // output.save_checkpoints_steps)
    saved = min(output.keep_checkpoint_max or written, written)
    resumable = saved + (written > saved)
    return weights * ((1 + _NUM_SLOTS) * resumable + num_weights_alone)


def measure(hidden_size: int, intermediate_size: int) -> str:
    """Returns the precision in which a layer of these widths trains faster on this machine.

    It is measured, since some processors have instructions for bfloat16 and are slower with them.
    """
    usual, fast = measure_times(hidden_size, intermediate_size)
    chosen = FAST if fast < (1 - _LEAST_GAIN) * usual else "float32"
    logger.info(
        "Precision: %s. A layer of this width takes %.1f ms in float32, %.1f ms in %s.",
        chosen,
        1e3 * usual,
        1e3 * fast,
        FAST,
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
