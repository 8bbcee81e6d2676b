"""The results of training steps, which may be read after the next step has been started."""

import collections
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert.files import owned
from bert.training.keeper import REMEDY, NonFiniteLossError
from bert.training.loss_scale import LossScale
from bert.training.train_log import TrainLog


class Results:
    """Starts steps and reads their results, in order.

    Args:
      trainer: As `loop.Trainer`.
      batches: Those that the steps take, as `batches.Batches`.
      folder: Where the batch of a step whose loss is not finite is written; None for nowhere.
      log: Keeps the results.
    """

    def __init__(
        self, trainer: Any, batches: Any, folder: str | None, log: TrainLog | None
    ) -> None:
        self._trainer = trainer
        self._batches = batches
        self._folder = folder
        self._log = log
        self._unread: collections.deque[tuple[int, Any]] = collections.deque()

    def start(self, step: int, batch: Mapping[str, Any]) -> None:
        """Starts a step, which a GPU may be at for longer than this takes."""
        self._unread.append((step, self._trainer.start_step(batch)))

    def read(self, num_unread: int = 0) -> list[tuple[int, dict[str, float]]]:
        """Returns the steps that have ended and their results, until so many are left unread.

        Raises:
          NonFiniteLossError: with the first such step and where its batch was written.
        """
        ended = []
        while len(self._unread) > num_unread:
            step, started = self._unread.popleft()
            results = self._trainer.read_results(started)
            self._check_finite(step, results)
            if self._log:
                self._log.add(step, results)
            ended.append((step, results))
        return ended

    def _check_finite(self, step: int, results: Mapping[str, float]) -> None:
        can_halve = results.get("loss_scale", LossScale.LEAST) != LossScale.LEAST
        watched = ["loss"] if can_halve else ["loss", "gradient_norm"]
        if all(np.isfinite(results[name]) for name in watched):
            return
        path = f"non_finite_step_{step}.tf_record"
        if self._folder is not None:
            path = owned.claim(self._folder, path)
            with tf.io.TFRecordWriter(path) as writer:
                for record in self._batches.serialized(step - 1):
                    writer.write(record)
        raise NonFiniteLossError(
            f"The loss must stay finite. At step {step}: "
            f"{', '.join(f'{name} {value:.6g}' for name, value in results.items())}. Its batch is "
            f"in {path!r}; the checkpoints before it are kept. {REMEDY}"
        )
