"""The time that training takes, estimated from a few steps."""

import statistics
import time

import tensorflow as tf

from bert.files.progress import clock as time_of
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


def count_examples(compute: Compute, batch_size: int, num_tokens: int, config: BertConfig) -> int:
    """Returns the number of examples of a batch to try a step on, so that it takes some seconds.

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
    """Takes a few steps, and saves nothing; returns how long training may take.

    Args:
      run: The training run before its first step.
      batch_size: Examples of a batch of that run.
      batches: The batches to try.
      all_steps: The steps of all training runs of a search; 0 for a single run.
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
