"""Pre-training as planned: a model is trained and evaluated (paper, section 3.1)."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from absl import logging

from bert.files import owned
from bert.files.durations import duration_text
from bert.files.outputs import make_folder
from bert.files.progress import clock as time_of
from bert.pretraining import outcome
from bert.pretraining.goals import GOALS
from bert.pretraining.objectives import OBJECTIVES
from bert.pretraining.options import (
    PretrainingSchedule,
)
from bert.pretraining.record_description import RecordDescription
from bert.reports.figures import make_figures
from bert.reports.pretraining import make_sections
from bert.reports.run import title_of, write_report
from bert.reports.sections import Section
from bert.runs import identity, resources
from bert.runs.plans import Result
from bert.runs.pretraining import PreTrainingPlan
from bert.runs.pretraining_model import restore, start
from bert.runs.training import TrainingRun, log_set_up
from bert.training import strategies
from bert.training.batches import Batches
from bert.training.evaluation import evaluate
from bert.training.loop import Observer
from bert.training.scores import save_results, save_scores
from bert.weights import model_card
from bert.weights.folder import ModelFolder
from bert.weights.model_files import make_files
from bert.weights.projector import projector_files
from modeling import BertConfig

KIND = "pre-training"


def run(plan: PreTrainingPlan, observers: Sequence[Observer] = ()) -> Result:
    """Trains and evaluates as planned; as `bert.runs.run.run`."""
    recipe, training, made = plan.recipe, plan.training, plan.made
    output, schedule, folder = recipe.output, recipe.schedule, recipe.output.output_dir
    objective = OBJECTIVES[schedule.objective]
    changed = recipe.changed_options()
    writes = strategies.is_chief(plan.strategy)
    make_folder(folder)
    for batches in filter(None, (plan.train_batches, plan.eval_batches)):
        batches.records.leave_indexes()
    held = training is not None and writes
    with owned.lock(folder) if held else contextlib.nullcontext(), plan.strategy.scope():
        if writes:
            plan.state.check(folder)
        # Variables are made with the others.
        with strategies.together(plan.strategy):
            model = objective.make_model(plan.config, dtype=recipe.compute.precision)
        log_set_up(model, recipe.compute, changed)
        if training is not None and plan.train_batches is not None:
            if output.overwrite_output_dir and writes:
                # They may be what this training run has read.
                owned.clear(folder, but=make_files(plan.config, made.vocabulary))
            with strategies.together(plan.strategy):
                started = start(output, recipe.compute, schedule, recipe.seed, model, training)
            _log_schedule(schedule, started, len(plan.train_batches.records))
            if writes:
                options = {**plan.source.tokenizer_options, **made.cutting}
                _keep(ModelFolder(folder), plan.config, made, options)
            environment = identity.describe(recipe.options(), plan.strategy)
            started.train(plan.train_batches, environment, observers)
            started.end()
            step = started.trainer.step
            _log_end(schedule, started, len(plan.train_batches.records))
            if writes:
                counts = {"train": len(plan.train_batches.records)}
                model_card.record(folder, changed, recipe.model.init_checkpoint, counts=counts)
        else:
            step = restore(output, schedule.objective, model, plan.init)
        results: dict[str, float] = {}
        if plan.eval_batches is not None:
            most = recipe.evaluation.max_eval_steps
            results = _evaluate(schedule.objective, most, model, plan.eval_batches)
        if writes:
            _write(plan, model, step, results)
    return Result(results, step, resources.list_files(folder))


def _evaluate(
    objective: str, max_eval_steps: int, model: keras.Model, batches: Batches
) -> dict[str, float]:
    results = evaluate(model, OBJECTIVES[objective].metrics, batches, max_eval_steps)
    # Departs: the original's `loss` is a mean over batches; this one does not depend on their size.
    results["loss"] = sum(value for name, value in results.items() if name.endswith("_loss"))
    return results


def _write(
    plan: PreTrainingPlan, model: keras.Model, step: int, results: Mapping[str, float]
) -> None:
    """Writes the scores, the report and the model card, and logs what the figures mean."""
    recipe, folder, batches = plan.recipe, plan.recipe.output.output_dir, plan.eval_batches
    objective, evaluation = recipe.schedule.objective, recipe.evaluation
    sections: list[Section] = []
    baselines: dict[str, float] = {}
    metric = OBJECTIVES[objective].accuracy if results else ""
    if batches is not None:
        vocab_file = ModelFolder(folder).find("vocab_file") or plan.source.find("vocab_file")
        guesses = outcome.guess_first_records(objective, evaluation, vocab_file, model, batches)
        sections = make_sections(*guesses)
        save_results(folder, step, results)
        perplexity = outcome.perplexity_of(objective, results)
        save_scores(folder, step, {**results, "perplexity": perplexity})
        frequent = outcome.explain(objective, evaluation.max_eval_steps, results, batches)
        baselines = frequent.baselines(GOALS[objective])
        if recipe.steps.do_train:
            outcome.warn_if_not_learned(recipe.schedule, results[metric], *frequent[:2])
    shown = recipe.options() if recipe.steps.do_train else {}
    figures = make_figures(results, metric, baselines=baselines)
    write_report(folder, title_of(KIND, recipe.data.input_file), shown, step, figures, sections)
    model_card.update(folder)


def _log_schedule(schedule: PretrainingSchedule, run: TrainingRun, num_records: int) -> None:
    records = f"{num_records} records in batches of {schedule.train_batch_size}"
    if clock := run.trainer.clock:
        logging.info(
            "Training on %s until %s are spent, from %s on.",
            records,
            duration_text(clock.budget),
            time_of(clock.spent),
        )
        return
    epochs = schedule.num_train_steps * schedule.train_batch_size / num_records
    logging.info(
        "Training to step %d, %.1f epochs of %s.", schedule.num_train_steps, epochs, records
    )


def _log_end(schedule: PretrainingSchedule, run: TrainingRun, num_records: int) -> None:
    if run.trainer.clock:
        step = run.trainer.step
        epochs = step * schedule.train_batch_size / num_records
        logging.info(
            "In %s, it has made %d steps, %.1f epochs.", schedule.time_budget, step, epochs
        )


def _keep(
    filled: ModelFolder, config: BertConfig, made: RecordDescription, options: Mapping[str, Any]
) -> None:
    """Saves what goes with the weights, and what TensorBoard's projector needs to show words."""
    casing = made.do_lower_case if made.vocabulary else None
    filled.save(config, made.vocabulary, do_lower_case=casing, options=options)
    if made.vocabulary is not None:
        filled.write(projector_files(made.vocabulary, config.vocab_size))
