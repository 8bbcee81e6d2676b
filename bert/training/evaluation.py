"""Evaluation and prediction, the history of scores, the best weights, and early stopping."""

import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert.files.display import Progress
from bert.files.durable import write_text
from bert.files.owned import claim, claim_folder, remove
from bert.files.paths import finite, parse_json, read_file
from bert.files.stored_models import of_step
from bert.log import logger
from bert.network.kernels import infer
from bert.options import Message, Option, OptionError
from bert.training.loop import Batch, NonFiniteLossError, Observer
from bert.training.meeting import Meeting
from bert.training.options import EVALUATIONS
from bert.training.progress import open_summaries, write_summaries
from bert.training.strategies import meeting_of
from bert.weights import saving
from bert.weights.formats import find_not_finite

Tensor = Any

BEST = "best"


def evaluate(
    model: keras.Model,
    metrics: Callable[[Mapping[str, Tensor], Batch], dict[str, tuple[Tensor, Tensor]]],
    batches: Any,
    max_steps: int,
) -> dict[str, float]:
    """Returns each metric over the batches, as one sum divided by one weight.

    Args:
      model: A functional model whose inputs are a dictionary.
      metrics: From outputs and batch, the (sum, weight) of each metric.
      batches: As `batches.Batches`.
      max_steps: Batches to read at most.
    """
    strategy = tf.distribute.get_strategy()
    names: list[str] = []

    def replica_step(batch: Batch) -> Tensor:
        outputs = model({name: batch[name] for name in model.input}, training=False)
        pairs = metrics(outputs, batch)
        names[:] = list(pairs)
        sums = tf.stack([tf.stack(pair) for pair in pairs.values()])  # [metrics, 2]
        if strategy.num_replicas_in_sync == 1:
            return sums
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, sums)

    @tf.function(reduce_retracing=True, autograph=False)
    def step(batch: Batch) -> Tensor:
        return strategy.run(replica_step, args=(batch,))

    num_steps = min(max_steps, batches.num_batches)
    sums = []
    progress = Progress("Evaluating", num_steps)
    workers = meeting_of(strategy)
    with workers.pace.evaluating(), workers.together(tf.errors.OpError):
        for index, batch in enumerate(batches.iterate(0, num_steps, strategy), start=1):
            workers.pace.next_batch()
            sums.append(strategy.experimental_local_results(step(batch))[0])
            progress(index)
        # Read only now, so that a GPU does not wait for the host between batches.
        total = sum((batch_sums.numpy().astype(float) for batch_sums in sums), np.zeros(()))
    return {
        name: float(value / weight) if weight else float("nan")
        for name, (value, weight) in zip(names, total, strict=True)
    }


class Predictor:
    """Computes the outputs of a model for batches, with a function that is built once.

    Args:
      model: A functional model whose inputs and outputs are dictionaries.
      signature: Shapes and dtypes of a batch, which may hold more than the inputs.
    """

    def __init__(self, model: keras.Model, signature: Mapping[str, tf.TensorSpec]) -> None:
        self.model = model
        inputs = {name: signature[name] for name in model.input}
        self._function = tf.function(
            lambda batch: infer(model, batch), input_signature=[inputs], autograph=False
        )

    def __call__(self, inputs: Batch) -> dict[str, np.ndarray]:
        """Returns the outputs for one batch."""
        outputs = self._function({name: inputs[name] for name in self.model.input})
        return {name: values.numpy() for name, values in outputs.items()}

    def predict(
        self, batches: Any, workers: Meeting | None = None
    ) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
        """Yields, for each batch, the numbers of its records and the outputs for them.

        Several workers share the computation. Each batch goes through the model of one of them, so
        the outputs are those of a single worker, bit for bit, on machines of one kind.

        Args:
          batches: As `batches.Batches`.
          workers: All workers; None for this process alone.
        """
        workers = workers or Meeting()
        part = batches.every(workers.count, workers.index)
        own = map(self, part.iterate(0, part.num_batches))
        progress = Progress("Predicting", batches.num_batches)
        with workers.pace.evaluating(), workers.together(tf.errors.OpError):
            for first in range(0, batches.num_batches, workers.count):
                outputs = next(own, {})
                workers.pace.next_batch()
                gathered = _gather(workers, outputs)
                for step, found in zip(range(first, batches.num_batches), gathered, strict=False):
                    yield batches.numbers(step), found
                progress(min(first + workers.count, batches.num_batches))


def _gather(workers: Meeting, arrays: dict[str, Any]) -> Iterable[dict[str, np.ndarray]]:
    """Returns the arrays of all workers, in their order."""
    if workers.count == 1:
        return [arrays]
    file = io.BytesIO()
    np.savez(file, **arrays)
    return (dict(np.load(io.BytesIO(part))) for part in workers.all_gather(file.getvalue()))


def _read_history(path: str, metric: str) -> list[dict[str, Any]]:
    """Returns the scores of each line of a file; an empty list where there is no file."""
    if not tf.io.gfile.exists(path):
        return []
    history = []
    for number, line in enumerate(read_file(path).splitlines(), start=1):
        try:
            scores = parse_json(line)
        except ValueError:
            scores = None
        is_valid = isinstance(scores, dict) and type(scores.get("step")) is int
        if not is_valid or type(scores.get(metric)) not in (int, float):
            raise ValueError(
                f"{path}:{number}: must be an object with `step` and `{metric}`, numbers. Received "
                f"{line!r:.80}. Restore the file; or delete it, to continue as if nothing had been "
                "evaluated yet."
            )
        history.append(scores)
    return history


class EarlyStopping(Observer):
    """Evaluates during training, saves the best weights, and ends training without improvement.

    The scores are in `evaluations.jsonl`, which a resumed run reads.

    Args:
      function: Returns the scores of the model after a step.
      metric: Name of the score that counts; higher is better.
      patience: Evaluations without improvement after which training ends; 0 for never.

    Attributes:
      report: Receives the step and the scores of each evaluation, on the chief.
    """

    def __init__(
        self, function: Callable[[int], Mapping[str, Any]], metric: str, patience: int = 0
    ) -> None:
        self.function = function
        self.metric = metric
        self.patience = patience
        self.report: Callable[[int, Mapping[str, float]], None] = lambda step, scores: None
        self._history: list[dict[str, Any]] = []

    def open(self, folder: str, model: keras.Model, step: int, *, writes: bool) -> None:
        """Starts at `step` of the training run in `folder`, and reads its earlier scores.

        Raises:
          OptionError: where the weights that training may end with are gone.
        """
        self._folder, self._model, self._writes = folder, model, writes
        path = os.path.join(folder, EVALUATIONS)
        history = _read_history(path, self.metric) if step else []
        self._history = [scores for scores in history if scores["step"] <= step]
        self._step = step
        weights = self.best_weights if self.patience else None
        if weights and not tf.io.gfile.exists(f"{weights}.index"):
            raise OptionError(
                "output_dir",
                "hold the weights of its best evaluation",
                weights,
                Message(
                    "Restore them; or delete %r, to continue as if nothing had been evaluated yet. "
                    "A model that is finished is used without %s.",
                    path,
                    Option("do_train"),
                ),
            )
        if writes:
            if not step:
                # A later resumption must not read the scores of another run.
                claim(folder, EVALUATIONS)
                remove(folder, [EVALUATIONS])
            claim_folder(folder, BEST)
            self._writer = open_summaries(folder, "eval")

    @property
    def best(self) -> dict[str, Any] | None:
        """The scores of the best evaluation, the first of equals, with their `step`."""
        return max(self._history, key=lambda scores: scores[self.metric], default=None)

    @property
    def best_weights(self) -> str | None:
        """The prefix of the weights of the best evaluation."""
        if self.best is None:
            return None
        return os.path.join(self._folder, BEST, of_step(self.best["step"]))

    @property
    def is_over(self) -> bool:
        """Whether training ends because the score no longer improves."""
        if not self.patience or self.best is None:
            return False
        return len(self._history) - self._history.index(self.best) > self.patience

    def __call__(self, step: int) -> bool:
        """Evaluates after `step`, and returns `is_over`.

        Raises:
          NonFiniteLossError: where a weight is not finite, on all workers alike.
        """
        self._check_finite(step)
        scores = {
            name: float(value)
            for name, value in self.function(step).items()
            if isinstance(value, int | float) and name != "baseline"
        }
        self._history.append({"step": step, **scores})
        is_best = self._history[-1] is self.best
        values = "  ".join(f"{name} {value:.4g}" for name, value in scores.items())
        logger.info("Evaluation at step %d  %s%s", step, values, "  (best)" if is_best else "")
        if self._writes:
            if is_best:
                best = saving.Checkpoints(os.path.join(self._folder, BEST), 2)
                best.save({variable.path: variable for variable in self._model.weights}, step)
            write_summaries(self._writer, step, scores)
            text = "".join(json.dumps(finite(line)) + "\n" for line in self._history)
            write_text(claim(self._folder, EVALUATIONS), text)
            self.report(step, scores)
        if self.is_over:
            logger.info(
                "No better %s in %d evaluations: training ends.", self.metric, self.patience
            )
        return self.is_over

    def _check_finite(self, step: int) -> None:
        """Checks the weights, one after another, so that few are copied from a GPU at a time."""
        for variable in self._model.weights:
            values = tf.identity(variable.value).numpy()
            if problem := find_not_finite({variable.path: values}):
                raise NonFiniteLossError.at(step, "weights", f"{problem}.")

    def needs_results(self, step: int) -> bool:
        return step % self._every == 0 or step == self._last

    def after_step(self, step: int, results: Mapping[str, float]) -> bool:
        return self.needs_results(step) and self(step)

    def at_steps(self, every: int, last: int) -> None:
        """Evaluates every `every` steps and after the last one from now on.

        If an earlier run was stopped before its last evaluation was done, that is done first.
        """
        self._every, self._last = every, last
        is_done = self._step in (0, *(scores["step"] for scores in self._history))
        if self.needs_results(self._step) and not is_done:
            self(self._step)
