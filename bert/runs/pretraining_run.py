"""Runs a plan of pre-training: trains and evaluates (paper, section 3.1)."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from bert.files.display import clock as time_of
from bert.files.display import duration_text
from bert.files.outputs import make_folder
from bert.log import logger
from bert.pretraining import outcome
from bert.pretraining.objectives import OBJECTIVES
from bert.pretraining.options import GOALS, PretrainingSchedule
from bert.pretraining.records import RecordDescription
from bert.reports.page import Section
from bert.reports.pretraining import make_sections
from bert.reports.run import make_figures, title_of, write_report
from bert.runs import identity, plans
from bert.runs.plans import Result
from bert.runs.pretraining import PreTrainingPlan
from bert.runs.training import TrainingRun, prepare_folder
from bert.training import devices, strategies
from bert.training.batches import Batches
from bert.training.evaluation import evaluate
from bert.training.loop import Observer
from bert.training.progress import save_results, save_scores
from bert.training.trackers import Trackers
from bert.weights import model_card
from bert.weights.folder import ModelFolder
from bert.weights.model_files import make_files, projector_files
from modeling import BertConfig


def run(plan: PreTrainingPlan, observers: Sequence[Observer] = ()) -> Result:
    """Trains and evaluates as planned; as `bert.runs.run.run`."""
    recipe, training, description = plan.recipe, plan.training, plan.description
    schedule, folder = recipe.schedule, recipe.output.output_dir
    changed = recipe.changed_options()
    writes = strategies.is_chief(plan.strategy)
    make_folder(folder)
    for opened in filter(None, (plan.train_batches, plan.eval_batches)):
        opened.records.leave_indexes()
    with plan.locked(folder), Trackers() as trackers, plan.strategy.scope():
        # All workers make the variables together.
        with strategies.together(plan.strategy):
            model = plan.make_model()
        devices.log_set_up(model, recipe.compute, changed)
        if training is not None and plan.train_batches is not None:
            if writes:
                prepare_folder(
                    recipe.output,
                    trackers,
                    recipe.options(),
                    make_files(plan.config, description.vocabulary),
                )
            with strategies.together(plan.strategy):
                started = plan.start(model)
            started.trackers = trackers
            if writes:
                options = description.complete_options(plan.source.tokenizer_options)
                _save_model_files(ModelFolder(folder), plan.config, description, options)
            environment = identity.describe(recipe.options(), plan.strategy)
            step = _train(started, schedule, plan.train_batches, environment, observers)
            if writes:
                counts = {"train": len(plan.train_batches.records)}
                model_card.record(folder, changed, recipe.model.init_checkpoint, counts=counts)
        else:
            step = plan.load(model)
        objective, limits, batches = schedule.objective, recipe.evaluation, plan.eval_batches
        results: dict[str, float] = {}
        scores: dict[str, float] = {}
        baselines: dict[str, float] = {}
        sections: list[Section] = []
        if batches is not None:
            results = _evaluate(objective, limits.max_eval_steps, model, batches)
            if writes:
                own = ModelFolder(folder)
                vocab_file = own.find("vocab_file") or plan.source.find("vocab_file")
                save_results(folder, step, results)
                scores = {**results, "perplexity": outcome.perplexity_of(objective, results)}
                save_scores(folder, step, scores)
                guesses = outcome.guess_first_records(objective, limits, vocab_file, model, batches)
                sections = make_sections(*guesses)
                baselines = _explain(
                    schedule, limits.max_eval_steps, results, batches, is_trained=bool(training)
                )
        if writes:
            trackers.log("final", step, scores)
            title = title_of("pre-training", recipe.data.input_file)
            shown = recipe.options() if training else {}
            figures = make_figures(results, GOALS[objective].accuracy, baselines=baselines)
            write_report(folder, title, shown, step, figures, sections, baselines)
            model_card.update(folder)
    return Result(results, step, plans.list_files(folder))


def _train(
    run: TrainingRun,
    schedule: PretrainingSchedule,
    batches: Batches,
    environment: Mapping[str, Any],
    observers: Sequence[Observer],
) -> int:
    """Trains to the end, and logs how many epochs that is; returns the last step."""
    num_records, size, clock = len(batches.records), schedule.train_batch_size, run.trainer.clock
    records = f"{num_records} records in batches of {size}"
    if clock:
        logger.info(
            "Training on %s until %s are spent, from %s on.",
            records,
            duration_text(clock.budget),
            time_of(clock.spent),
        )
    else:
        steps = schedule.num_train_steps
        epochs = steps * size / num_records
        logger.info("Training to step %d, %.1f epochs of %s.", steps, epochs, records)
    run.train(batches, environment, observers)
    run.end()
    step = run.trainer.step
    if clock:
        budget, epochs = schedule.time_budget, step * size / num_records
        logger.info("In %s, it has made %d steps, %.1f epochs.", budget, step, epochs)
    return step


def _evaluate(
    objective: str, max_eval_steps: int, model: keras.Model, batches: Batches
) -> dict[str, float]:
    results = evaluate(model, OBJECTIVES[objective].metrics, batches, max_eval_steps)
    # Departs: the original's `loss` is a mean over batches; this one does not depend on their size.
    results["loss"] = sum(value for name, value in results.items() if name.endswith("_loss"))
    return results


def _explain(
    schedule: PretrainingSchedule,
    max_eval_steps: int,
    results: Mapping[str, float],
    batches: Batches,
    *,
    is_trained: bool,
) -> dict[str, float]:
    """Logs what the scores mean, and warns where a trained model has learned nothing.

    Returns:
      The baselines, by score.
    """
    frequent = outcome.explain(schedule.objective, max_eval_steps, results, batches)
    if is_trained:
        accuracy = results[OBJECTIVES[schedule.objective].accuracy]
        outcome.warn_if_not_learned(schedule, accuracy, *frequent[:2])
    return frequent.baselines(GOALS[schedule.objective])


def _save_model_files(
    folder: ModelFolder,
    config: BertConfig,
    description: RecordDescription,
    options: Mapping[str, Any],
) -> None:
    """Saves the files of the model beside the weights, and those of TensorBoard's projector."""
    casing = description.do_lower_case if description.vocabulary else None
    folder.save(config, description.vocabulary, do_lower_case=casing, options=options)
    if description.vocabulary is not None:
        folder.write(projector_files(description.vocabulary, config.vocab_size))
