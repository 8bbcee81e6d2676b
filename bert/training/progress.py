"""How far a training is, as lines and as curves for TensorBoard."""

import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert.command_line.console import clock
from bert.files import manifest
from bert.files.paths import paths_from


class ProgressLog:
    """Logs the mean results since the last line, the speed and the time left; TensorBoard, too.

    Args:
      folder: Where TensorBoard's event file goes.
      first_step: The step before the first observed one.
      num_train_steps: The step that training ends with.
      batch_size: Examples per step.
      every: Steps between lines.
    """

    def __init__(
        self, folder: str, *, first_step: int, num_train_steps: int, batch_size: int, every: int
    ) -> None:
        self.num_train_steps = num_train_steps
        self.batch_size = batch_size
        self.every = every
        self._writer = open_summaries(folder)
        self._first_step = self._last_step = first_step
        self._started = time.monotonic()
        self._results: list[Mapping[str, float]] = []

    def __call__(self, step: int, results: Mapping[str, float]) -> None:
        self._results.append(results)
        if step == self._first_step + 1:
            # The first step compiles; it would spoil the speed and the time left.
            logging.info(
                "Step %d took %.1f s, most of it to build the graph; loss %.4f.",
                step,
                time.monotonic() - self._started,
                results["loss"],
            )
            self._restart(step)
        if step % self.every == 0 or step == self.num_train_steps:
            self._write(step)

    def _restart(self, step: int) -> None:
        self._last_step = step
        self._started = time.monotonic()

    def _write(self, step: int) -> None:
        means = {
            name: float(np.mean([results[name] for results in self._results]))
            for name in self._results[0]
        }
        means["learning_rate"] = self._results[-1]["learning_rate"]
        self._results = []
        if step > self._last_step:
            seconds = (time.monotonic() - self._started) / (step - self._last_step)
            means["examples_per_second"] = self.batch_size / seconds
            left = f"  ETA {clock(seconds * (self.num_train_steps - step))}"
            self._restart(step)
        else:
            left = ""
        values = "  ".join(f"{name} {value:.4g}" for name, value in means.items())
        logging.info("Step %d/%d  %s%s", step, self.num_train_steps, values, left)
        write_summaries(self._writer, step, means)


def open_summaries(folder: str, name: str = "") -> Any:
    """Returns a writer of an event file for TensorBoard, in a folder of a run or one within it."""
    place = os.path.join(folder, name)
    before = _event_files(place)
    writer = tf.summary.create_file_writer(place)
    new = (os.path.basename(path) for path in _event_files(place) if path not in before)
    manifest.adopt(folder, [os.path.join(name, each) for each in new])
    return writer


def _event_files(folder: str) -> list[str]:
    return paths_from(os.path.join(folder, "events.out.tfevents."))


def write_summaries(writer: Any, step: int, values: Mapping[str, float]) -> None:
    """Writes scalars for TensorBoard."""
    with writer.as_default(step=step):
        for name, value in values.items():
            tf.summary.scalar(name, value)
    writer.flush()
