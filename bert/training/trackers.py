"""Trackers of experiments, which get the options, the curves and the scores of a training run.

TensorBoard's curves are written in any case; as a tracker, it gets its table of hyperparameters.
"""

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert.files.durable import write_text
from bert.files.owned import claim, remove
from bert.files.paths import find_json_object
from bert.log import logger
from bert.options import OptionError
from bert.training.progress import open_summaries, write_summaries

# The names by which trackers know the run in a folder, and continue it.
TRACKED = "trackers.json"


class _Tracker:
    """A tracker of a run in a folder, whose `name` there is None for a new run."""

    def __init__(self, folder: str, config: Mapping[str, Any], name: str | None) -> None:
        self.folder, self.config, self.name = folder, config, name
        self.title = None if name else os.path.basename(os.path.abspath(folder))
        self.open()

    def open(self) -> None:
        """Opens the run, and sets its name."""

    def log(self, step: int, values: Mapping[str, float], is_final: bool) -> None:
        """Receives a point of the curves, or the final scores."""

    def end(self, has_failed: bool) -> None:
        """Ends the run, or this part of it."""


class _TensorBoard(_Tracker):
    def log(self, step: int, values: Mapping[str, float], is_final: bool) -> None:
        if not is_final:
            return
        from tensorboard.plugins.hparams import api as hparams  # noqa: PLC0415 (takes long)

        writer = open_summaries(self.folder)
        config = self.config.items()
        with writer.as_default(step=step):
            hparams.hparams({key: v if isinstance(v, int | float) else str(v) for key, v in config})
        write_summaries(writer, step, values)
        writer.close()


class _Wandb(_Tracker):
    def open(self) -> None:
        import wandb  # noqa: PLC0415 (optional)

        options = {"name": self.title, "config": dict(self.config)}
        self._run = wandb.init(id=self.name, resume="allow", **options)
        # Steps that a resumed run takes again would be before the last one of wandb's own count.
        self._run.define_metric("*", step_metric="global_step")
        self.name = self._run.id

    def log(self, step: int, values: Mapping[str, float], is_final: bool) -> None:
        self._run.log({"global_step": step, **values})

    def end(self, has_failed: bool) -> None:
        self._run.finish(exit_code=int(has_failed))


class _MLflow(_Tracker):
    def open(self) -> None:
        import mlflow  # noqa: PLC0415 (optional)

        self._mlflow = mlflow
        is_new = self.name is None
        self.name = self._mlflow.start_run(self.name, run_name=self.title).info.run_id
        if is_new:
            # Parameters of a run never change there.
            self._mlflow.log_params(self.config)

    def log(self, step: int, values: Mapping[str, float], is_final: bool) -> None:
        self._mlflow.log_metrics(values, step=step)

    def end(self, has_failed: bool) -> None:
        self._mlflow.end_run("FAILED" if has_failed else "FINISHED")


_KINDS = {"tensorboard": _TensorBoard, "wandb": _Wandb, "mlflow": _MLflow}


class Trackers(contextlib.AbstractContextManager["Trackers"]):
    """The trackers of a training run, none until `open`; they end with the context.

    A tracker that raises an exception is dropped with a warning: training goes on without it.
    """

    def __init__(self) -> None:
        self._trackers: dict[str, _Tracker] = {}

    def open(
        self, kinds: Sequence[str], folder: str, config: Mapping[str, Any], *, begins_anew: bool
    ) -> None:
        """Opens trackers of the run in a folder, and records their names there.

        Args:
          kinds: The trackers, as `read_trackers` returns them.
          folder: The output folder.
          config: The options that the trackers get.
          begins_anew: Whether the names in the folder are those of an earlier run.

        Raises:
          OptionError: where a tracker cannot be opened; nothing has been written then.
          ValueError: where the file of names is damaged.
        """
        path = os.path.join(folder, TRACKED)
        names = {} if begins_anew else find_json_object(path)
        for kind in kinds:
            try:
                self._trackers[kind] = _KINDS[kind](folder, config, names.get(kind))
            except Exception as error:
                known = f" {path!r} names its run." if kind in names else ""
                remedy = f"It says: {error}.{known}"
                raise OptionError("report_to", "name trackers at hand", kind, remedy) from error
            if name := self._trackers[kind].name:
                names[kind] = name
        if names:
            write_text(claim(folder, TRACKED), json.dumps(names, indent=2) + "\n")
        elif begins_anew:
            remove(folder, [TRACKED])

    def log(self, part: str, step: int, values: Mapping[str, Any]) -> None:
        """Sends the numbers among the values of a part, `train`, `eval` or `final`."""
        numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
        scalars = {f"{part}/{name}": float(value) for name, value in numbers.items()}
        self._each(lambda tracker: tracker.log(step, scalars, part == "final"))

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._each(lambda tracker: tracker.end(error is not None))

    def _each(self, call: Callable[[_Tracker], None]) -> None:
        for kind, tracker in [*self._trackers.items()]:
            try:
                call(tracker)
            except Exception as error:
                # Whatever fails in a service, such as its network.
                logger.warning("The run goes on without %s, which has failed: %s", kind, error)
                del self._trackers[kind]
