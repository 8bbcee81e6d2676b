"""Runs a plan of fine-tuning: trains, evaluates, predicts and exports (paper, section 4)."""

import contextlib
import dataclasses
import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert.files import owned
from bert.files.outputs import make_folder
from bert.options import OptionError
from bert.reports.figures import make_figures
from bert.reports.page import Figure
from bert.reports.parts import names_of, report_part
from bert.reports.run import title_of, write_report
from bert.reports.sections import Section
from bert.runs import identity, resources, tuning
from bert.runs.diagnostics import Attempt, show_examples, warn_of_little_learning
from bert.runs.finetuning import FineTuningPlan, find_inputs, stored_task
from bert.runs.plans import Result
from bert.runs.recipes import Steps
from bert.runs.training import log_set_up
from bert.tasks.options import Prediction
from bert.tasks.task import Inputs, Part, Task
from bert.training import loop, strategies
from bert.training.evaluation import EarlyStopping, Predictor
from bert.weights import model_card
from bert.weights.folder import ModelFolder
from bert.weights.model_files import MODEL_FILES, make_files
from modeling import BertConfig


def run(
    plan: FineTuningPlan,
    observers: Sequence[loop.Observer] = (),
    *,
    first: Sequence[Section] = (),
) -> tuple[Result, OptionError | None]:
    """Trains, evaluates, predicts and exports as planned; as `bert.runs.run.run`.

    Args:
      plan: The plan.
      observers: As `bert.runs.run.run`.
      first: The first sections of the report.

    Returns:
      The result, and the error of the exports that are refused, if any.
    """
    recipe, source, task, training = plan.recipe, plan.source, plan.task, plan.training
    output, folder, init = recipe.output, recipe.output.output_dir, recipe.model.init_checkpoint
    is_chief = strategies.is_chief(plan.strategy)
    # Read before anything is deleted, since the output folder may be the source.
    model_files = (source.config, source.vocabulary)
    save = functools.partial(_save, folder, model_files)
    title, refusal = _title(task.kind, recipe.data), None
    make_folder(folder)
    with (
        plan.locked(folder),
        # Workers that are not the chief have files of examples of their own.
        contextlib.nullcontext(folder)
        if is_chief
        else tempfile.TemporaryDirectory(prefix="bert-examples-") as record_folder,
    ):
        with plan.strategy.scope():
            # All workers make the variables together.
            with strategies.together(plan.strategy):
                model = task.make_model(recipe.compute.precision)
            if training and output.overwrite_output_dir and is_chief:
                owned.clear(folder, but=MODEL_FILES)
            inputs = [
                task.open_inputs(each, plan.example_file(each.part, record_folder, is_chief))
                for each in plan.inputs
            ]
            if is_chief and training:
                save(task)
            for first_inputs in plan.inputs[:1]:
                show_examples(task, first_inputs)
            log_set_up(model, recipe.compute, recipe.changed_options())
            predictions = _Predictions(task, model)
            if training and not training.has_ended:
                train = find_inputs(inputs, "train")
                batches, objective = train.batches, task.objective(train)
                assert batches is not None
                evaluation = predictions.evaluation(recipe.steps, recipe.evaluation, inputs)
                with strategies.together(plan.strategy):
                    begun = plan.begin_training(model, objective, batches)
                step = tuning.train(
                    *(begun, recipe.schedule, batches),
                    identity.describe(recipe.options(), plan.strategy),
                    *(evaluation, observers),
                )
            else:
                step = plan.load(model)
            predictions = _calibrated(predictions, inputs, step, save if is_chief else None)
            task = predictions.task
            # The usual rates are not those of LSTMs on a frozen model.
            rate = None if recipe.is_feature_based else recipe.schedule.learning_rate
            scores, sections = _score(
                predictions,
                *(inputs, step, folder if is_chief else None, title),
                Attempt(folder, init, rate, step, source.config.hidden_size) if training else None,
            )
        if is_chief:
            write_page = functools.partial(
                write_report,
                *(folder, title, recipe.options() if training else {}, step),
                _make_figures(task, scores),
            )
            # What only predicts a test set does not replace the page of an evaluation.
            has_page = training or any(each.part.split == "dev" for each in inputs)
            if has_page:
                write_page([*first, *sections])
            if training:
                vectors = recipe.features.word_vectors if recipe.features else None
                model_card.record(
                    *(folder, recipe.changed_options(), vectors or init),
                    kind=task.kind,
                    counts={each.part.name: len(each.examples) for each in inputs},
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
    return Result(scores, step, resources.list_files(folder)), refusal


def _make_figures(task: Task, scores: Mapping[str, Any]) -> list[Figure]:
    """Returns the scores at the head of a page, with the baseline of the main one."""
    baselines = {task.metric: scores["baseline"]} if scores.get("baseline") else {}
    return make_figures(scores, task.metric, names_of(task), baselines)


def _calibrated(
    predictions: "_Predictions",
    inputs: Sequence[Inputs],
    step: int,
    save: Callable[[Task], None] | None,
) -> "_Predictions":
    """Returns predictions with the temperature that fits the dev set, if the run is to fit one.

    Args:
      predictions: The predictions of the model.
      inputs: The inputs of all parts.
      step: The step of the weights.
      save: Saves the task with the temperature; None for workers that are not the chief.
    """
    task: Any = predictions.task
    if not getattr(task, "calibrates", False):
        return predictions
    # Few runs calibrate, and of classifiers alone.
    from bert.tasks.classification.results import calibrate  # noqa: PLC0415

    dev = find_inputs(inputs, "dev")
    known = task.task, dev.examples, dev.arrays["label_ids"]
    temperature = calibrate(*known, predictions(dev, step)[0], task.temperature)
    task = dataclasses.replace(task, temperature=temperature)
    if save:
        save(task)
    return _Predictions(task, predictions.model)


def _save(folder: str, model_files: tuple[BertConfig, bytes], task: Task) -> None:
    """Writes the files of a model but its weights into a folder."""
    ModelFolder(folder).save(*model_files, stored_task(task))


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
        workers = strategies.meeting_of_several(tf.distribute.get_strategy())
        return predictor.predict_with_others(inputs.batches, workers)
