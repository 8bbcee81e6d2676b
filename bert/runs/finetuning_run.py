"""Runs a plan of fine-tuning: trains, evaluates, predicts and exports (paper, section 4)."""

import contextlib
import dataclasses
import functools
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert.export.formats import PRECISIONS, Export
from bert.files import owned
from bert.files.outputs import make_folder
from bert.files.paths import is_folder
from bert.files.stored_models import step_of
from bert.log import logger
from bert.options import Option, OptionError
from bert.reports.page import Section
from bert.reports.parts import names_of, report_part
from bert.reports.run import make_figures, title_of, write_report
from bert.runs import identity, plans
from bert.runs.diagnosis import Attempt, warn_of_little_learning
from bert.runs.finetuning import FineTuningPlan, stored_task
from bert.runs.plans import Result
from bert.runs.recipes import Steps
from bert.tasks.examples import Inputs, Part, find_inputs
from bert.tasks.options import Prediction
from bert.tasks.task import Task, results_name
from bert.training import devices, loop, strategies
from bert.training.evaluation import EarlyStopping, Predictor
from bert.training.trackers import Trackers
from bert.weights import model_card, readers
from bert.weights.folder import ModelFolder
from bert.weights.model_files import MODEL_FILES, make_files
from modeling import BertConfig

# The only field of `task.json` that changes after training.
TEMPERATURE = "temperature"

# The examples that are logged, and those that are with --verbosity=1.
_NUM_SHOWN, _MOST_SHOWN = 2, 20
# The tokens and tags that are shown of an example.
_MOST_TOKENS = 60


def show_examples(task: Task, inputs: Inputs) -> None:
    """Logs the first examples of a part: their names, tokens and answers."""
    head, num_rows = inputs.head(_MOST_SHOWN), inputs.num_rows
    ids, mask = head["input_ids"], head["input_mask"]
    # Long questions and sentences have several rows, which have no answers of their own.
    examples = inputs.examples if len(inputs.examples) == num_rows else [None] * num_rows
    for row in range(len(ids)):
        # A row of several endings shows the first one.
        present = np.asarray(ids[row])[np.asarray(mask[row]) > 0] if ids.ndim == 2 else ids[row, 0]
        tokens = task.tokenizer.convert_ids_to_tokens(present[present > 0].tolist())
        logger.log(
            logging.INFO if row < _NUM_SHOWN else logging.DEBUG,
            "Example %s: %s%s",
            getattr(examples[row], "guid", f"{inputs.part.split}-{row + 1}"),
            _shorten(tokens),
            _answer(examples[row]),
        )


def _answer(example: Any) -> str:
    tags = getattr(example, "tags", None)
    if tags:
        return f" | tags: {_shorten(tags)}"
    label = getattr(example, "label", None)
    return "" if label is None else f" | label: {label}"


def _shorten(words: Any) -> str:
    more = len(words) - _MOST_TOKENS
    shown = " ".join(words[:_MOST_TOKENS])
    return f"{shown} … and {more} more" if more > 0 else shown


def run(
    plan: FineTuningPlan,
    observers: Sequence[loop.Observer] = (),
    *,
    clear: Callable[[], None] = lambda: None,
    first: Sequence[Section] = (),
    is_other: bool = False,
) -> tuple[Result, OptionError | None]:
    """Trains, evaluates, predicts and exports as planned; as `bert.runs.run.run`.

    Args:
      plan: The plan.
      observers: As `bert.runs.run.run`.
      clear: Called before the files of an earlier run are deleted, once the trackers are open.
      first: The first sections of the report.
      is_other: Whether the model in the folder is another than the exports there were made from.

    Returns:
      The result, and the error of the exports that are refused, if any.
    """
    recipe, source, task, training = plan.recipe, plan.source, plan.task, plan.training
    output, folder, init = recipe.output, recipe.output.output_dir, recipe.model.init_checkpoint
    is_chief = strategies.is_chief(plan.strategy)
    # Read before anything is deleted, since the output folder may be the source.
    model_files = (source.config, source.vocabulary)
    save = functools.partial(_save, folder, model_files, is_training=training is not None)
    # Read before the task is saved without its temperature.
    resumes = training and not training.starts_over
    stored = ModelFolder(folder).task if resumes or not training else {}
    title, refusal, exported = _title(task.kind, recipe.data), None, []
    make_folder(folder)
    with (
        plan.locked(folder),
        Trackers() as trackers,
        # Workers that are not the chief have files of examples of their own.
        contextlib.nullcontext(folder)
        if is_chief
        else tempfile.TemporaryDirectory(prefix="bert-examples-") as record_folder,
    ):
        with plan.strategy.scope():
            # All workers make the variables together.
            with strategies.together(plan.strategy):
                model = task.make_model(recipe.compute.precision)
            if training and not training.has_ended and is_chief:
                # A run that only predicts loads no loop.
                from bert.runs.training import prepare_folder  # noqa: PLC0415

                prepare_folder(output, trackers, recipe.options(), MODEL_FILES, clear)
            inputs = [
                task.open_inputs(each, plan.example_file(each.part, record_folder, is_chief))
                for each in plan.inputs
            ]
            if is_chief and training:
                save(_with_temperature(task, stored if _nothing_to_train(training, folder) else {}))
            for first_inputs in plan.inputs[:1]:
                show_examples(task, first_inputs)
            devices.log_set_up(model, recipe.compute, recipe.changed_options())
            predictions = _Predictions(task, model)
            evaluation = predictions.evaluation(recipe.steps, recipe.evaluation, inputs)
            step, has_changed = plan.train_or_load(model, inputs, trackers, evaluation, observers)
            predictions = _calibrated(
                predictions,
                inputs,
                step,
                stored if resumes and not has_changed else {},
                save if is_chief else None,
            )
            task = predictions.task
            scores, sections = _score(
                predictions,
                inputs,
                step,
                folder if is_chief else None,
                title,
                # The usual rates are not those of LSTMs on a frozen model.
                Attempt(
                    folder,
                    init,
                    None if recipe.is_feature_based else recipe.schedule.learning_rate,
                    training.last_step,
                    source.config.hidden_size,
                )
                if training
                else None,
            )
        if is_chief:
            trackers.log("final", step, scores)
            # A baseline of 0 says nothing.
            baselines = {task.metric: scores["baseline"]} if scores.get("baseline") else {}
            write_page = functools.partial(
                write_report,
                folder,
                title,
                recipe.options() if training else {},
                step,
                make_figures(scores, task.metric, names_of(task), baselines),
                baselines=baselines,
            )
            # What only predicts a test set does not replace the page of an evaluation.
            has_page = training or any(each.part.split == "dev" for each in inputs)
            if has_page:
                write_page([*first, *sections])
            if training:
                model_card.record(
                    folder,
                    recipe.changed_options(),
                    (recipe.features and recipe.features.word_vectors) or init,
                    kind=task.kind,
                    counts=_count_examples(task, inputs),
                    metric=task.metric,
                )
            model_card.update(folder)
            if recipe.steps.do_export:
                # Few runs export; the writers of other formats are large.
                from bert.runs import exports  # noqa: PLC0415

                files = make_files(*model_files, stored_task(task))
                exported = exports.run(recipe.export, folder, task, model, plan.inputs, files)
                refusal = exports.find_refusal(exported)
                if has_page and (more := exports.make_sections(exported)):
                    write_page([*first, *sections, *more])
            is_other |= getattr(task, TEMPERATURE, 1.0) != stored.get(TEMPERATURE, 1.0)
            if is_other or has_changed:
                _warn_of_older_exports(
                    folder, [each.export for each in exported if not each.is_refused]
                )
    return Result(scores, step, plans.list_files(folder)), refusal


def _count_examples(task: Any, inputs: Sequence[Inputs]) -> dict[str, int]:
    """Returns the number of examples by part, of which those that only a teacher labels are one."""
    counts = {each.part.name: len(each.examples) for each in inputs}
    if count := len(task.unlabeled):
        counts |= {"train": counts["train"] - count, "unlabeled": count}
    return counts


def _warn_of_older_exports(folder: str, written: Sequence[Export]) -> None:
    """Names the exports in a folder that answer as the model did before this run."""
    known = (Export(form, each) for form, precisions in PRECISIONS.items() for each in precisions)
    paths = [os.path.join(folder, each.name) for each in known if each not in written]
    if older := [path for path in paths if is_folder(path)]:
        logger.warning(
            "Exports are not those of the model as it is now: %s. %s, with the %s and %s of each, "
            "writes them again.",
            older,
            *map(Option, ("do_export", "export_format", "export_precision")),
        )


def _calibrated(
    predictions: "_Predictions",
    inputs: Sequence[Inputs],
    step: int,
    earlier: Mapping[str, Any],
    save: Callable[[Task], None] | None,
) -> "_Predictions":
    """Returns predictions with the temperature that fits the dev set, if the run is to fit one.

    Args:
      predictions: The predictions of the model.
      inputs: The inputs of all parts.
      step: The step of the weights.
      earlier: The `task.json` of the same weights, whose temperature a run that fits none keeps.
      save: Saves the task with the temperature; None for workers that are not the chief.
    """
    task: Any = predictions.task
    if getattr(task, "calibrates", False):
        # Few runs calibrate, and of classifiers alone.
        from bert.tasks.classification.results import calibrate  # noqa: PLC0415

        dev = find_inputs(inputs, "dev")
        known = task.task, dev.examples, task.label_ids(dev)
        temperature = calibrate(*known, predictions(dev, step)[0], task.temperature)
        task = dataclasses.replace(task, temperature=temperature)
    elif TEMPERATURE in earlier:
        task = _with_temperature(task, earlier)
    else:
        return predictions
    if save:
        save(task)
    return _Predictions(task, predictions.model)


def _nothing_to_train(training: identity.Training, folder: str) -> bool:
    """Returns whether the weights in the folder are those of the last step."""
    steps = map(step_of, readers.weight_files(folder))
    return training.has_ended or training.num_train_steps in steps


def _with_temperature(task: Any, stored: Mapping[str, Any]) -> Any:
    """Returns the task with the temperature that a `task.json` has, if there is one."""
    given = {TEMPERATURE: stored[TEMPERATURE]} if TEMPERATURE in stored else {}
    return dataclasses.replace(task, **given)


def _save(
    folder: str, model_files: tuple[BertConfig, bytes], task: Task, *, is_training: bool
) -> None:
    """Writes the files of a model but its weights; of a trained one, changes the temperature."""
    stored = stored_task(task)
    if there := {} if is_training else ModelFolder(folder).task:
        stored = {**there, TEMPERATURE: stored.get(TEMPERATURE, 1.0)}
    ModelFolder(folder).save(*model_files, stored)


def _title(kind: str, data: Any) -> str:
    """Returns the title of a page from the options of the data, which differ between kinds."""
    names = ("data_dir", "train_file", "predict_file", "dev_file", "test_file")
    paths = (getattr(data, name, None) for name in names)
    return title_of(kind, next(filter(None, paths), None))


def _score(
    predictions: "_Predictions",
    inputs: Sequence[Inputs],
    step: int,
    folder: str | None,
    title: str,
    attempt: Attempt | None,
) -> tuple[dict[str, Any], list[Section]]:
    """Predicts and scores the dev and test sets; returns the scores and sections of the report.

    Args:
      predictions: The predictions of the model.
      inputs: The inputs of all parts.
      step: The step of the weights.
      folder: The folder to write predictions and scores to; None to write nothing.
      title: The title of pages.
      attempt: The training run, for warnings where nothing was learned; None for none.
    """
    results: dict[str, Any] = {}
    sections: list[Section] = []
    task = predictions.task
    for part_inputs in inputs:
        part = part_inputs.part
        if part.split == "train":
            continue
        predicted, scores = predictions(part_inputs, step)
        if part == Part("dev"):
            results |= scores
        elif not part.suffix:
            results |= {
                f"{part.split}_{name}": value
                for name, value in scores.items()
                if isinstance(value, float) and name != "baseline"
            }
        if folder is None:
            continue
        if not scores:
            # Those in the folder are of other predictions.
            name = results_name(part)
            owned.remove(folder, [f"{name}.json", f"{name}.txt"])
        task.write(folder, step, part_inputs, predicted, scores)
        sections += report_part(task, folder, title, part_inputs, predicted, scores)
        if attempt and part == Part("dev"):
            warn_of_little_learning(attempt, task, scores)
    return results, sections


class _Predictions:
    """The predictions of a model and their scores.

    With weights of the same step, they are computed once: the last evaluation during training may
    have computed them already.
    """

    def __init__(self, task: Task, model: keras.Model) -> None:
        self.model = model
        self.task = task
        self._predictors: dict[str, Predictor] = {}
        self._found: dict[Part, tuple[int, Any, dict[str, Any]]] = {}

    def __call__(self, inputs: Inputs, step: int) -> tuple[Any, dict[str, Any]]:
        """Returns predictions and scores with the weights of a step."""
        found = self._found.get(inputs.part)
        if found is None or found[0] != step:
            predictions = self.task.decode(inputs, self._outputs(inputs))
            found = (step, predictions, self.task.score(inputs, predictions))
            self._found[inputs.part] = found
        return found[1:]

    def evaluation(
        self, steps: Steps, options: Prediction, inputs: Sequence[Inputs]
    ) -> EarlyStopping | None:
        """Returns the evaluation of the dev set during training, if there is one."""
        patience = options.early_stopping_patience
        if not steps.evaluates(patience):
            return None
        dev = find_inputs(inputs, "dev")
        return EarlyStopping(lambda step: self(dev, step)[1], self.task.metric, patience)

    def _outputs(self, inputs: Inputs) -> Iterator[Any]:
        if inputs.batches is None:
            return iter(())
        signature = inputs.batches.signature
        # Parts whose batches have the same signature share the function, which is built once.
        key = repr(sorted(signature.items()))
        if key not in self._predictors:
            self._predictors[key] = Predictor(self.model, signature)
        predictor = self._predictors[key]
        workers = strategies.meeting_of(tf.distribute.get_strategy())
        return predictor.predict(inputs.batches, workers)
