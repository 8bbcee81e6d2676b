"""A trial of a plan: a few steps of training, or the weights of a model that is not trained."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from bert.files.progress import clock as time_of
from bert.parts import UNCHECKED, Parts
from bert.runs.training import TrainingRun
from bert.training.batches import Batches
from bert.training.options import Compute
from bert.weights.variables import count_parameters
from modeling import BertConfig

# Steps to try, the first of which builds the graph, and the seconds after which no other is tried.
STEPS = 6
_SECONDS = 8.0
# Without a GPU, a step is tried on as much of a batch as takes about so many operations.
_OPERATIONS = 4e11


def add(
    parts: Parts,
    strategy: tf.distribute.Strategy,
    training: Any,
    restore: Callable[[], int],
    try_steps: Callable[[], str],
    has_memory: bool,
) -> None:
    """Adds the step of the weights, or if the model is trained, how long that takes.

    Args:
      parts: Of the plan.
      strategy: The devices.
      training: The training run; None where the model is not trained.
      restore: Makes the model and returns the step of its weights.
      try_steps: Takes a few steps of training and returns how long all of them take.
      has_memory: Whether steps can be tried.
    """
    if training is not None and not has_memory:
        parts.add(UNCHECKED, "time", "not measured, for there is too little memory")
        return
    with strategy.scope():
        if training is None:
            parts("model", restore, shows=lambda step: f"step {step}")
        else:
            parts("time", try_steps, shows=str)


def count_examples(compute: Compute, batch_size: int, num_tokens: int, config: BertConfig) -> int:
    """Returns how many examples of a batch a step is tried on, so that it takes some seconds.

    Args:
      compute: The devices.
      batch_size: Examples of a batch.
      num_tokens: Tokens of an example.
      config: The shape of the model.
    """
    if compute.use_tpu or tf.config.list_physical_devices("GPU"):
        return batch_size
    # Two for a multiplication and an addition, three times: forward, and twice as much backward.
    each = 6 * count_parameters(config) * num_tokens
    parts = tf.distribute.get_strategy().num_replicas_in_sync * compute.gradient_accumulation_steps
    return min(batch_size, max(int(_OPERATIONS / each) // parts, 1) * parts)


def time_steps(run: TrainingRun, batch_size: int, batches: Batches, all_steps: float = 0.0) -> str:
    """Takes a few steps, of which nothing is saved; returns how long training may take.

    Args:
      run: The training run before its first step.
      batch_size: Examples of a batch of that run.
      batches: Those to try.
      all_steps: How many such steps several training runs come to.
    """
    clock = run.trainer.clock
    if run.trainer.is_last(run.first_step, run.plan.num_train_steps):
        return f"step {run.first_step:,} is reached already: nothing to train"
    seconds: list[float] = []
    for batch in batches.iterate(0, STEPS, run.trainer.strategy):
        start = time.monotonic()
        run.trainer.train_step(batch)
        seconds.append(time.monotonic() - start)
        if len(seconds) > 1 and sum(seconds) > _SECONDS:
            break
    scale = batch_size / batches.batch_size
    each = scale * statistics.median(seconds[1:])
    count = len(seconds) - 1
    steps = "1 step" if count == 1 else f"{count} steps"
    part = f" on {batches.batch_size} of {batch_size} examples" if scale > 1 else ""
    total = f"about {time_of(each * all_steps)} for all runs, " if all_steps else ""
    if clock:
        left = clock.budget - clock.spent
        will_be = f"{time_of(left)} from step {run.first_step:,} on, about {left / each:,.0f} steps"
    else:
        left = each * (run.plan.last_step - run.first_step)
        will_be = f"about {time_of(left)} from step {run.first_step:,} on"
    return f"{total}{will_be}, evaluations apart: {each:.3g} s a step, estimated by {steps}{part}"
