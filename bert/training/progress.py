"""The progress and the scores of a training run: lines of the log, TensorBoard's curves, and files.

`train_log.jsonl` has the losses, the learning rate and the gradient norm, step by step. It holds no
times, so an interrupted and resumed run writes the same bytes as another one.
"""

import json
import math
import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from bert.files import owned
from bert.files.display import Progress, duration_text
from bert.files.durable import write_text
from bert.files.paths import finite, is_file, parse_json, paths_from, read_file
from bert.log import logger
from bert.training.loop import Observer
from bert.training.options import TRAIN_LOG

if TYPE_CHECKING:
    from bert.training.clock import TrainingClock

# Points of a curve, each also a line of the log, where the option `log_every_steps` is not given; a
# long training run has more.
_POINTS = 20
_MOST_STEPS_BETWEEN_POINTS = 100
# Maximum number of lines: of a longer run, every n-th step has a line. Where the number of steps is
# unknown, n doubles each time that there would be more lines.
MOST_LINES = 10_000

_NAMES = {"gradient_norm": "grad_norm"}


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
      report: Receives the step and the values of each point, besides TensorBoard.
    """

    def __init__(
        self,
        folder: str,
        *,
        first_step: int,
        num_train_steps: int | None,
        batch_size: int,
        every: int,
        clock: "TrainingClock | None" = None,
        report: Callable[[int, Mapping[str, float]], None] = lambda step, values: None,
    ) -> None:
        self._report = report
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
        self._report(step, values)

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


class TrainLog:
    """The results of single steps, on lines of JSON.

    Args:
      folder: The folder of the training run.
      first_step: The step that training resumes from; lines of later steps are dropped.
      num_train_steps: The last step; None for an unknown number.
    """

    def __init__(self, folder: str, *, first_step: int, num_train_steps: int | None) -> None:
        self._folder = folder
        self._doubles = num_train_steps is None
        self._every = -(-(num_train_steps or first_step or 1) // MOST_LINES)
        if self._doubles:
            self._every = 1 << (self._every - 1).bit_length()
        # The lines by step.
        self._lines = _read_lines(os.path.join(folder, TRAIN_LOG), first_step)
        self._written = -1

    def add(self, step: int, results: Mapping[str, float]) -> None:
        """Adds the results of a step, which `write` saves."""
        if step % self._every == 0:
            values = {_NAMES.get(name, name): _short(value) for name, value in results.items()}
            self._lines[step] = json.dumps({"step": step, **values})
        if self._doubles and step > self._every * MOST_LINES:
            self._every *= 2
            self._lines = {at: line for at, line in self._lines.items() if at % self._every == 0}

    def write(self) -> None:
        """Writes the file; called before the checkpoint of the last step is saved."""
        last = max(self._lines, default=0)
        if last != self._written:
            text = "".join(f"{line}\n" for line in self._lines.values())
            write_text(owned.claim(self._folder, TRAIN_LOG), text)
            self._written = last


def _short(value: float) -> float | None:
    """Returns a value with the precision of float32; None where it has overflowed."""
    return float(f"{value:.7g}") if math.isfinite(value) else None


def _read_lines(path: str, last: int) -> dict[int, str]:
    """Returns the lines of a file up to a step, by step."""
    if not last or not is_file(path):
        return {}
    lines = {}
    for number, line in enumerate(read_file(path).splitlines(), start=1):
        try:
            step: Any = parse_json(line)["step"]
        except (ValueError, TypeError, KeyError):
            step = None
        if type(step) is not int:
            logger.warning(
                "%s:%d is not the results of a step, so the file starts over after step %d.",
                path,
                number,
                last,
            )
            return {}
        if step <= last:
            lines[step] = line.decode()
    return lines


def save_results(
    output_dir: str,
    step: int,
    results: Mapping[str, float],
    name: str = "eval_results",
    table: str = "",
) -> None:
    """Writes `<name>.txt`, sorted lines `key = value`, and the same to TensorBoard; logs them once.

    Args:
      output_dir: The folder of the run.
      step: The step of the weights.
      results: The scores by name.
      name: The name of the file, without its ending.
      table: What is logged of the scores; "" for a line with all of them.
    """
    lines = {name: np.float32(value) for name, value in results.items()} | {"global_step": step}
    values = "  ".join(f"{key} {results[key]:.4g}" for key in sorted(results))
    logger.info("Results at step %d:%s", step, "" if table else f" {values}")
    for line in table.splitlines():
        logger.info("  %s", line)
    path = owned.claim(output_dir, f"{name}.txt")
    write_text(path, "".join(f"{key} = {lines[key]!s}\n" for key in sorted(lines)))
    writer = open_summaries(output_dir, name.replace("eval_results", "eval"))
    write_summaries(writer, step, results)
    writer.close()


def save_scores(
    output_dir: str, step: int, scores: Mapping[str, Any], name: str = "eval_results"
) -> None:
    """Writes `<name>.json`, all scores as they are, null where not finite, with the step."""
    values = finite({"global_step": step, **scores})
    text = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
    write_text(owned.claim(output_dir, f"{name}.json"), text)
