"""Scores during training: their history, the best weights, and when to stop."""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf
from absl import logging

import training
from bert.files.paths import make_folder, open_file, write_text
from bert.weights import checkpoint

BEST = "best"
HISTORY_FILE = "evaluations.jsonl"


class Evaluation:
    """Evaluates during training, keeps the best weights, and tells when it no longer improves.

    What it finds goes to `evaluations.jsonl`, from which a resumed run knows what came before.

    Args:
      function: Returns scores of the model as it is.
      metric: Name of the score that counts; higher is better.
      patience: Evaluations without improvement after which training ends; 0 for never.
    """

    def __init__(
        self, function: Callable[[], Mapping[str, Any]], metric: str, patience: int = 0
    ) -> None:
        self.function = function
        self.metric = metric
        self.patience = patience
        self._history: list[dict[str, Any]] = []

    def open(self, folder: str, model: keras.Model, step: int, *, writes: bool) -> None:
        """Starts at `step` of the training in `folder`; reads what came before."""
        self._folder, self._model, self._writes = folder, model, writes
        make_folder(os.path.join(folder, BEST))
        path = os.path.join(folder, HISTORY_FILE)
        lines: list[bytes] = []
        if step and tf.io.gfile.exists(path):
            with open_file(path) as file:
                lines = file.read().splitlines()
        history = [json.loads(line) for line in lines]
        self._history = [scores for scores in history if scores["step"] <= step]
        self._writer = tf.summary.create_file_writer(os.path.join(folder, "eval"))

    @property
    def best(self) -> dict[str, Any] | None:
        """The scores of the best evaluation, the first of equals, with their `step`."""
        return max(self._history, key=lambda scores: scores[self.metric], default=None)

    @property
    def best_weights(self) -> str | None:
        """The prefix of the weights of the best evaluation."""
        if self.best is None:
            return None
        return os.path.join(self._folder, BEST, f"model.ckpt-{self.best['step']}")

    @property
    def is_over(self) -> bool:
        """Whether training has ended for want of improvement."""
        if not self.patience or self.best is None:
            return False
        return len(self._history) - self._history.index(self.best) > self.patience

    def __call__(self, step: int) -> bool:
        """Evaluates after `step`, and returns `is_over`."""
        scores = {
            name: float(value)
            for name, value in self.function().items()
            if isinstance(value, int | float)
        }
        self._history.append({"step": step, **scores})
        is_best = self._history[-1] is self.best
        values = "  ".join(f"{name} {value:.4g}" for name, value in scores.items())
        logging.info("Evaluation at step %d  %s%s", step, values, "  (best)" if is_best else "")
        if self._writes:
            if is_best:
                best = checkpoint.Checkpoints(os.path.join(self._folder, BEST), 1)
                best.save({variable.path: variable for variable in self._model.weights}, step)
            training.write_summaries(self._writer, step, scores)
            text = "".join(json.dumps(line) + "\n" for line in self._history)
            write_text(os.path.join(self._folder, HISTORY_FILE), text)
        if self.is_over:
            logging.info(
                "No better %s in %d evaluations: training ends.", self.metric, self.patience
            )
        return self.is_over

    def at_steps(self, every: int, last: int) -> training.Observer:
        """Returns an observer that evaluates every so many steps and after the last one."""

        def observe(step: int, _: Mapping[str, float]) -> bool:
            return (step % every == 0 or step == last) and self(step)

        return observe
