"""The choice of `precision="auto"`: the precision in which this machine trains faster."""

import functools
import itertools
import time
from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

import modeling
from bert.log import logger
from bert.network.fusion import fused_chains
from bert.training.seeds import seeded_with
from bert.weights import provenance

FAST = "mixed_bfloat16"
# The time of all measurements, shared by both precisions in turns, and the least number of rounds.
_SECONDS = 0.2
_LEAST_ROUNDS = 3
# The tokens of a measurement: enough that a layer's activations do not fit in a core's cache.
_ROWS, _LENGTH = 8, 128
# The least gain of bfloat16; a smaller one is not worth its rounding.
_LEAST_GAIN = 0.1


def choose(folders: Iterable[str], config: modeling.BertConfig) -> str:
    """Returns the precision of a training run in one of the folders, or else the faster one."""
    for folder in folders:
        if begun := provenance.read(folder).get("made_of", {}).get("--precision"):
            logger.info("Precision: %s, in which the training in %s began.", begun, folder)
            return str(begun)
    return measure(config.hidden_size, config.intermediate_size)


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
    config = modeling.BertConfig(
        vocab_size=1,
        hidden_size=hidden_size,
        num_hidden_layers=1,
        # The size of the paper's heads is 64.
        num_attention_heads=1 if hidden_size % 64 else hidden_size // 64,
        intermediate_size=intermediate_size,
    )
    with seeded_with(0):
        usual, fast = _measure([_make_step(dtype, config) for dtype in ("float32", FAST)])
    return usual, fast


def _make_step(precision: str, config: modeling.BertConfig) -> Callable[[], None]:
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
