"""Fine-tuning as planned: train, evaluate, predict and export (paper, section 4)."""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert.files import owned
from bert.files.outputs import make_folder
from bert.reports.figures import make_figures
from bert.reports.parts import names_of, report_part
from bert.reports.run import title_of, write_report
from bert.reports.sections import Section
from bert.runs import exports, identity, resources, tuning
from bert.runs.finetuning import FILE_NAMES, FineTuningPlan, begin_training, evaluates
from bert.runs.hints import Attempt, warn_of_little_learning
from bert.runs.opening import stored_task
from bert.runs.plans import Result
from bert.runs.recipes import FineTuning
from bert.runs.shown import show_examples
from bert.runs.training import log_set_up
from bert.tasks.task import ExampleFile, Inputs, Part, Task
from bert.training import loop, strategies
from bert.training.evaluation import EarlyStopping, Predictor
from bert.weights import model_card
from bert.weights.folder import ModelFolder
from bert.weights.model_files import MODEL_FILES, make_files


def run(
    plan: FineTuningPlan,
    observers: Sequence[loop.Observer] = (),
    *,
    first: Sequence[Section] = (),
) -> tuple[Result, Sequence[exports.Parity]]:
    """Trains, evaluates, predicts and exports as planned; as `bert.runs.run.run`.

    Args:
      plan: What is to be done.
      observers: As `bert.runs.run.run`.
      first: What the page of the run shows before what it shows of the model.

    Returns:
      What came of it, and how the exports compare with the model.
    """
    recipe, source, task, training = plan.recipe, plan.source, plan.task, plan.training
    output = recipe.output
    is_chief = strategies.is_chief(plan.strategy)
    # The folder that is filled may be the source.
    model_files = (source.config, source.vocabulary)
    make_folder(output.output_dir)
    with _record_folder(output.output_dir, training is not None, is_chief) as folder:
        if is_chief:
            plan.state.check(output.output_dir)
        with plan.strategy.scope():
            # Variables are made with the others.
            with strategies.together(plan.strategy):
                model = task.make_model(recipe.compute.precision)
            if training and output.overwrite_output_dir and is_chief:
                owned.clear(output.output_dir, but=MODEL_FILES)
            made = [each.inputs for each in plan.made]
            inputs = [
                task.open_inputs(each, _example_file(recipe, each.part, folder, is_chief))
                for each in made
            ]
            if is_chief and training:
                ModelFolder(output.output_dir).save(*model_files, stored_task(task))
            for each in made[:1]:
                show_examples(task, each)
            log_set_up(model, recipe.compute, recipe.changed_options())
            step, scores, sections = _use_model(plan, model, inputs, observers)
        exported: Sequence[exports.Parity] = ()
        if is_chief:
            exported = _write(plan, model, inputs, step, scores, [*first, *sections])
    return Result(scores, step, resources.list_files(output.output_dir)), exported


def _write(
    plan: FineTuningPlan,
    model: keras.Model,
    inputs: Sequence[Inputs],
    step: int,
    scores: Mapping[str, Any],
    sections: Sequence[Section],
) -> Sequence[exports.Parity]:
    """Writes the page of the run, the card of the model and the exports."""
    recipe, task, folder = plan.recipe, plan.task, plan.recipe.output.output_dir
    shown = recipe.options() if plan.training else {}
    baselines = {task.metric: scores["baseline"]} if scores.get("baseline") else {}
    figures = make_figures(scores, task.metric, names_of(task), baselines)
    page = (folder, _title(task.kind, recipe.data), shown, step, figures)
    # What only predicts a test set does not replace the page of an evaluation.
    has_page = plan.training or any(each.part.split == "dev" for each in inputs)
    if has_page:
        write_report(*page, sections)
    if plan.training:
        counts = {f"{each.part.split}{each.part.suffix}": len(each.examples) for each in inputs}
        init = recipe.features.word_vectors if recipe.features else None
        model_card.record(
            folder,
            recipe.changed_options(),
            init or recipe.model.init_checkpoint,
            kind=task.kind,
            counts=counts,
            metric=task.metric,
        )
    model_card.update(folder)
    if not recipe.steps.do_export:
        return ()
    # What is exported is for one device, whatever the model was trained on.
    dev = next((each.inputs for each in plan.made if each.inputs.part == Part("dev")), None)
    files = make_files(plan.source.config, plan.source.vocabulary, stored_task(task))
    exported = exports.run(recipe.export, folder, task, model, dev, files)
    if has_page and (more := exports.make_sections(exported)):
        write_report(*page, [*sections, *more])
    return exported


def _title(kind: str, data: Any) -> str:
    """Returns the title of a page from the options of the data, of which each kind has its own."""
    names = ("data_dir", "train_file", "predict_file", "dev_file", "test_file")
    paths = (getattr(data, name, None) for name in names)
    return title_of(kind, next(filter(None, paths), None))


@contextlib.contextmanager
def _record_folder(output_dir: str, is_training: bool, is_chief: bool) -> Iterator[str]:
    """Gives the folder for the files of examples; workers that are not the chief have their own.

    Raises:
      ValueError: where another process trains in the output folder.
    """
    if is_chief:
        with owned.lock(output_dir) if is_training else contextlib.nullcontext():
            yield output_dir
        return
    with tempfile.TemporaryDirectory(prefix="bert-examples-") as folder:
        yield folder


def _example_file(recipe: FineTuning, part: Part, folder: str, is_chief: bool) -> ExampleFile:
    sizes = {
        "train": recipe.schedule.train_batch_size,
        "dev": getattr(recipe.evaluation, "eval_batch_size", recipe.evaluation.predict_batch_size),
    }
    return ExampleFile(
        owned.claim(folder, f"{FILE_NAMES[part.split]}{part.suffix}.tf_record"),
        sizes.get(part.split, recipe.evaluation.predict_batch_size),
        recipe.seed if part.split == "train" else None,
        trim=not recipe.lengths.pad_to_max_length,
        is_kept=is_chief,
    )


def _use_model(
    plan: FineTuningPlan,
    model: keras.Model,
    inputs: Sequence[Inputs],
    observers: Sequence[loop.Observer],
) -> tuple[int, dict[str, Any], list[Section]]:
    """Trains or loads the model, and predicts.

    Returns:
      The step of the weights, the scores, and what the page of the run shows of them.
    """
    recipe, task = plan.recipe, plan.task
    is_chief = strategies.is_chief(tf.distribute.get_strategy())
    predictions = _Predictions(task, model)
    if plan.training and not plan.training.has_ended:
        main = {each.part.split: each for each in inputs if not each.part.suffix}
        evaluation = None
        if evaluates(recipe.steps, recipe.evaluation):
            evaluation = EarlyStopping(
                lambda step: predictions(main["dev"], step)[1],
                task.metric,
                recipe.evaluation.early_stopping_patience,
            )
        batches = main["train"].batches
        assert batches is not None
        objective = task.objective(main["train"])
        with strategies.together(plan.strategy):
            run = begin_training(recipe, plan.training, model, objective, batches)
        environment = identity.describe(recipe.options(), plan.strategy)
        step = tuning.train(run, recipe.schedule, batches, environment, evaluation, observers)
    else:
        is_given = bool(recipe.model.init_checkpoint)
        step = tuning.load(recipe.output, plan.source, model, is_given=is_given)
    results: dict[str, Any] = {}
    sections: list[Section] = []
    for each in inputs:
        if each.part.split == "train":
            continue
        predicted, scores = predictions(each, step)
        results |= _named(each.part, scores)
        if not is_chief:
            continue
        task.write(recipe.output.output_dir, step, each, predicted, scores)
        title = _title(task.kind, recipe.data)
        sections += report_part(task, recipe.output.output_dir, title, each, predicted, scores)
        if plan.training and each.part == Part("dev"):
            warn_of_little_learning(_attempt(plan, step), task, scores)
    return step, results, sections


def _attempt(plan: FineTuningPlan, step: int) -> Attempt:
    recipe = plan.recipe
    # LSTMs on a frozen model learn at rates of their own.
    is_usual = not (recipe.features and recipe.features.feature_based)
    return Attempt(
        output_dir=recipe.output.output_dir,
        init_checkpoint=recipe.model.init_checkpoint,
        learning_rate=recipe.schedule.learning_rate if is_usual else None,
        step=step,
        hidden_size=plan.source.config.hidden_size,
    )


def _named(part: Part, scores: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a part's scores under the names that they have among those of all parts."""
    if part.suffix:
        return {}
    if part.split == "dev":
        return scores
    return {
        f"{part.split}_{name}": value
        for name, value in scores.items()
        if isinstance(value, float) and name != "baseline"
    }


class _Predictions:
    """Predictions of a model as it is, and their scores.

    Those of weights of the same step are found once: at the end of a training, the last evaluation
    may have found them already.
    """

    def __init__(self, task: Task, model: keras.Model) -> None:
        self.model = model
        self._task = task
        self._predictors: dict[str, Predictor] = {}
        self._found: dict[Part, tuple[int, Any, dict[str, Any]]] = {}

    def __call__(self, inputs: Inputs, step: int) -> tuple[Any, dict[str, Any]]:
        """Returns predictions and scores with the weights of a step."""
        found = self._found.get(inputs.part)
        if found is None or found[0] != step:
            predictions = self._task.decode(inputs, self._outputs(inputs))
            found = (step, predictions, self._task.score(inputs, predictions))
            self._found[inputs.part] = found
        return found[1:]

    def _outputs(self, inputs: Inputs) -> Iterator[Any]:
        if inputs.batches is None:
            return iter(())
        signature = inputs.batches.signature
        # Parts whose batches have the same signature share the function, which is built once.
        key = repr(sorted(signature.items()))
        if key not in self._predictors:
            self._predictors[key] = Predictor(self.model, signature)
        predictor = self._predictors[key]
        share = strategies.share_of(tf.distribute.get_strategy())
        return predictor.predict_with_others(inputs.batches, share)
