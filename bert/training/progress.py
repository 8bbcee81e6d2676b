"""The progress of a training run, as lines of the log and as curves for TensorBoard."""

import os
import statistics
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert.files import owned
from bert.files.durations import duration_text
from bert.files.paths import paths_from
from bert.files.progress import Progress
from bert.log import logger
from bert.training.clock import TrainingClock
from bert.training.loop import Observer

# Points of a curve, each also a line of the log, where the option `log_every_steps` is not given; a
# long training run has more.
_POINTS = 20
_MOST_STEPS_BETWEEN_POINTS = 100


def steps_between_points(every: int | None, num_train_steps: int | None) -> int:
    """Returns the maximum steps between two points of the curves of a training run."""
    if num_train_steps is None:
        return every or _MOST_STEPS_BETWEEN_POINTS
    return every or min(max(num_train_steps // _POINTS, 1), _MOST_STEPS_BETWEEN_POINTS)


class ProgressLog(Observer):
    """Logs the mean results since the last point, the speed and the time left, also to TensorBoard.

    Args:
      folder: The folder of TensorBoard's event file.
      first_step: The step before the first observed one.
      num_train_steps: The last step; None where the clock ends training.
      batch_size: Examples per step.
      every: Steps between points, each of which is also a line of the log.
      clock: The clock of a run with a time budget, which also has a point at each twentieth of it.
    """

    def __init__(
        self,
        folder: str,
        *,
        first_step: int,
        num_train_steps: int | None,
        batch_size: int,
        every: int,
        clock: TrainingClock | None = None,
    ) -> None:
        self.num_train_steps = num_train_steps
        self.batch_size = batch_size
        self.every = every
        self._clock = clock
        self._writer = open_summaries(folder)
        self._first_step = self._last_step = first_step
        self._started = time.monotonic()
        self._last_speed = 0.0
        # Seconds per step in the last intervals.
        self._seconds: deque[float] = deque(maxlen=_POINTS)
        self._results: list[Mapping[str, float]] = []
        self._point = self._next_point()
        total = clock.budget if clock else num_train_steps or 0
        self._progress = Progress("Training", total, self._done(first_step))
        self._progress.announce("building the graph")

    def after_step(self, step: int, results: Mapping[str, float]) -> None:
        self._results.append(results)
        if step == self._first_step + 1:
            # The first step compiles; it would spoil the speed and the time left.
            logger.info(
                "Step %d took %.1f s, most of it to build the graph; loss %.4f.",
                step,
                time.monotonic() - self._started,
                results["loss"],
            )
            self._progress.restart(self._done(step))
            self._restart(step)
        point, self._point = self._point, self._next_point()
        if step % self.every == 0 or step == self.num_train_steps or self._point > point:
            self._write(step)
        self._progress(
            self._done(step), lambda: self._describe(step, {"loss": self._means()["loss"]})
        )

    def at_end(self, error: BaseException | None) -> None:
        # The bar is still shown where training ends before its last step.
        self._progress.close()

    def _done(self, step: int) -> float:
        return self._clock.spent if self._clock else step

    def _next_point(self) -> int:
        """Returns the number of twentieths of the time budget that are spent."""
        return int(_POINTS * self._clock.share) if self._clock else 0

    def _restart(self, step: int) -> None:
        self._last_step = step
        self._started = time.monotonic()

    def _means(self) -> dict[str, float]:
        if not self._results:
            return self._last_means
        # Steps in float16 that overflowed have changed no weight.
        counted = [values for values in self._results if np.isfinite([*values.values()]).all()]
        num_skipped = len(self._results) - len(counted)
        means = {
            name: float(np.mean([results[name] for results in counted or self._results]))
            for name in self._results[0]
        }
        means["learning_rate"] = self._results[-1]["learning_rate"]
        return means | ({"skipped_steps": num_skipped} if num_skipped else {})

    def _write(self, step: int) -> None:
        self._last_means = self._means()
        self._results = []
        values = dict(self._last_means)
        self._progress.write(self._describe(step, values) + self._progress.left(self._done(step)))
        if step > self._last_step:
            values["examples_per_second"] = self._last_speed
            self._seconds.append(self._seconds_per_step(step))
        self._restart(step)
        write_summaries(self._writer, step, values)

    def _seconds_per_step(self, step: int) -> float:
        return (time.monotonic() - self._started) / (step - self._last_step)

    def _measure_speed(self, step: int) -> None:
        """Measures the speed since the last point, unless it is implausibly high.

        Results of the last steps may be read together, which would take no time. The usual time of
        a step is the median of the intervals, since some include an evaluation.
        """
        if step > self._last_step:
            seconds = self._seconds_per_step(step)
            if seconds > statistics.median_low(self._seconds or [0.0]) / 10:
                self._last_speed = self.batch_size / seconds

    def _describe(self, step: int, values: Mapping[str, float]) -> str:
        parts = [f"Step {step}{self._reach()}"]
        parts += [f"{name} {value:.4g}" for name, value in values.items()]
        self._measure_speed(step)
        if self._last_speed:
            parts.append(f"{self._last_speed:,.0f} examples/s")
        return "  ".join(parts)

    def _reach(self) -> str:
        if self._clock is None:
            return f"/{self.num_train_steps}"
        return f", {100 * self._clock.share:.0f} % of {duration_text(self._clock.budget)}"


def open_summaries(folder: str, name: str = "") -> Any:
    """Returns a writer of an event file for TensorBoard, in a folder of a run or one within it."""
    prefix = os.path.join(folder, name, "events.out.tfevents.")
    before = paths_from(prefix)
    writer = tf.summary.create_file_writer(os.path.join(folder, name))
    new = (os.path.basename(path) for path in paths_from(prefix) if path not in before)
    owned.adopt(folder, [os.path.join(name, file) for file in new])
    return writer


def write_summaries(writer: Any, step: int, values: Mapping[str, float]) -> None:
    """Writes scalars for TensorBoard."""
    with writer.as_default(step=step):
        for name, value in values.items():
            tf.summary.scalar(name, value)
    writer.flush()
