"""The story of a pre-training: read, train, evaluate (paper, section 3.1)."""

import contextlib
import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf
from absl import logging

import optimization
from bert.commands.lines import show_lines
from bert.files import fingerprints, owned
from bert.files.durations import duration_text
from bert.files.paths import match_files
from bert.files.progress import clock as time_of
from bert.files.weight_names import step_of
from bert.pretraining import fit, outcome
from bert.pretraining.goals import find_learned
from bert.pretraining.making import Making
from bert.pretraining.objectives import OBJECTIVES
from bert.pretraining.settings import Settings
from bert.reports.sections import Section
from bert.runs import precision, surroundings
from bert.runs.plan import Plan, find_weights, make_plan
from bert.runs.report import write_report
from bert.runs.training import TrainingRun, log_set_up, log_training, open_strategy
from bert.training import loop, strategies
from bert.training.batches import Batches
from bert.training.clock import TrainingClock
from bert.training.evaluation import evaluate, save_results, save_scores
from bert.training.seeds import seeded
from bert.training.validation import check_length
from bert.weights import checkpoint, model_card, provenance
from bert.weights.checkpoint import Stored
from bert.weights.folder import ModelFolder
from bert.weights.kept import kept_files
from bert.weights.projector import projector_files
from modeling import BertConfig

KIND = "pre-training"


@seeded
def run(settings: Settings) -> dict[str, float]:
    """Trains and evaluates as the settings say; returns what `eval_results.txt` holds, if anything.

    Raises:
      ValueError: before the expensive part, where the settings, the data and the model do not fit.
    """
    show_lines()
    fit.check_verbs(settings)
    # Of several workers, one that cannot go on is missed by the others from here on.
    strategy = open_strategy(settings)
    made = fit.find_making(settings)
    settings = precision.resolve(fit.complete(settings, made))
    folder = ModelFolder.of(settings)
    objective = OBJECTIVES[settings.objective]
    config = objective.fit(folder.config)
    init = fit.find_init(settings, folder, config)
    fit.check_making(made, folder, config)
    check_length(settings.max_seq_length, config)
    fit.check_batch_sizes(settings, strategy.num_replicas_in_sync)
    features = fit.features_of(settings, config)
    train_batches = fit.open_training(settings, features, made) if settings.do_train else None
    eval_batches = fit.open_evaluation(settings, features, made) if settings.do_eval else None
    fit.check_same(settings, config, made)
    plan = plan_of(settings, init, made) if settings.do_train else None
    strategies.agree(strategy, _made_of(settings, config, made, plan))
    filled = fit.make_output(settings)
    writes = strategies.is_chief(strategy)
    held = settings.do_train and writes
    with owned.lock(filled.path) if held else contextlib.nullcontext(), strategy.scope():
        # Variables are made with the others.
        with strategies.together(strategy):
            model = objective.make_model(config, dtype=settings.precision)
        log_set_up(model, settings)
        if train_batches is not None and plan is not None:
            options = {**folder.tokenizer_options, **made.cutting}
            if settings.overwrites and writes:
                # They may be what this training has read.
                owned.clear(filled.path, but=kept_files(config, made.vocabulary))
            keep = functools.partial(_keep, filled, config, made, options)
            step = _train(settings, keep, model, train_batches, plan)
        else:
            step = restore(settings, model, init)
        results = {} if eval_batches is None else _evaluate(settings, model, eval_batches)
        if writes:
            _tell(settings, folder, model, eval_batches, step, results)
    return results


def _evaluate(settings: Settings, model: keras.Model, batches: Batches) -> dict[str, float]:
    objective = OBJECTIVES[settings.objective]
    results = evaluate(model, objective.metrics, batches, settings.max_eval_steps)
    # Departs: the original's `loss` is a mean over batches; this one does not depend on their size.
    results["loss"] = sum(value for name, value in results.items() if name.endswith("_loss"))
    return results


def _tell(
    settings: Settings,
    source: ModelFolder,
    model: keras.Model,
    batches: Batches | None,
    step: int,
    results: dict[str, float],
) -> None:
    """Writes the scores, the report and the model card, and logs what the figures mean."""
    sections: list[Section] = []
    if batches is not None:
        sections = outcome.look(settings, source, model, batches)
        save_results(settings.output_dir, step, results)
        perplexity = outcome.perplexity_of(settings, results)
        save_scores(settings.output_dir, step, {**results, "perplexity": perplexity})
    metric = OBJECTIVES[settings.objective].accuracy if results else ""
    write_report(settings, KIND, step, results, sections, metric)
    model_card.update(settings.output_dir)
    if batches is None:
        return
    frequent = outcome.explain(settings, results, batches)
    if settings.do_train:
        outcome.tell_whether_learned(settings, results[metric], *frequent)


def _train(
    settings: Settings,
    keep: Callable[[], None],
    model: keras.Model,
    batches: Batches,
    plan: Plan,
) -> int:
    with strategies.together(tf.distribute.get_strategy()):
        run = begin(settings, model, plan)
    _log_plan(settings, run, len(batches.records))
    if strategies.is_chief(run.trainer.strategy):
        keep()
    log_training(settings, run, batches)
    run.train(batches, surroundings.describe(settings, run.trainer.strategy))
    run.end()
    step = run.trainer.step
    if run.trainer.clock:
        epochs = step * settings.train_batch_size / len(batches.records)
        logging.info(
            "In %s, it has made %d steps, %.1f epochs.", settings.time_budget, step, epochs
        )
    if strategies.is_chief(run.trainer.strategy):
        model_card.tell(settings, counts={"train": len(batches.records)})
    return step


def _log_plan(settings: Settings, run: TrainingRun, num_records: int) -> None:
    records = f"{num_records} records in batches of {settings.train_batch_size}"
    if clock := run.trainer.clock:
        logging.info(
            "Training on %s until %s are spent, from %s on.",
            records,
            duration_text(clock.budget),
            time_of(clock.spent),
        )
        return
    epochs = settings.num_train_steps * settings.train_batch_size / num_records
    logging.info(
        "Training to step %d, %.1f epochs of %s.", settings.num_train_steps, epochs, records
    )


def plan_of(settings: Settings, init: Stored | None, made: Making) -> Plan:
    """Returns the training that is asked for, checked against the one in the folder."""
    if settings.seconds is None and settings.num_warmup_steps >= settings.num_train_steps:
        logging.warning(
            "The learning rate never reaches --learning_rate: --num_warmup_steps=%d are not fewer "
            "than --num_train_steps=%d. About a tenth is usual.",
            settings.num_warmup_steps,
            settings.num_train_steps,
        )
    if settings.warmup_proportion == 1.0:
        logging.warning("The learning rate only rises with --warmup_proportion=1. 0.1 is usual.")
    data: dict[str, Any] = {"--input_file": _describe(settings)}
    if masking := fit.find_masking(settings, made):
        data["the masking of the records"] = str(masking)
    # However it is typed.
    data["--time_budget"] = settings.seconds and duration_text(settings.seconds)
    data["--warmup_proportion"] = settings.warmup_proportion
    return make_plan(settings, settings.num_train_steps, init, data, overwrites=settings.overwrites)


def _describe(settings: Settings) -> dict[str, str]:
    files = match_files(settings.input_file, "input_file")
    return {"files": settings.input_file, "sha256": fingerprints.of_files(files)}


def _made_of(
    settings: Settings, config: BertConfig, made: Making, plan: Plan | None
) -> dict[str, Any]:
    """Returns by name what all workers must have alike, where there are several."""
    if settings.strategy != "multi_worker":
        return {}
    # Of another training, files may be listed that were deleted.
    begins_anew = plan is not None and plan.begins_anew
    latest = None if begins_anew else checkpoint.Checkpoints(settings.output_dir).latest()
    patterns = {"input_file": settings.input_file, "eval_input_file": settings.eval_input_file}
    return {
        "the configuration": config.to_dict(),
        "the vocabulary": fingerprints.of_bytes(made.vocabulary or b""),
        "the weights in --output_dir": os.path.basename(latest or ""),
        **(plan.made_of if plan else {}),
        # By what is in them, for elsewhere they may lie elsewhere.
        **{
            f"--{name}": fingerprints.of_files(match_files(pattern, name))
            for name, pattern in patterns.items()
            if pattern
        },
    }


def begin(settings: Settings, model: keras.Model, plan: Plan) -> TrainingRun:
    """Returns the training before its first step, its weights read."""
    clock = TrainingClock(settings.seconds) if settings.seconds else None
    optimizer = (
        clock.optimizer(settings.learning_rate, settings.warmup_proportion or 0.0)
        if clock
        else optimization.bert_optimizer(
            settings.learning_rate, settings.num_train_steps, settings.num_warmup_steps
        )
    )
    loss = OBJECTIVES[settings.objective].loss
    trainer = loop.Trainer.of(settings, model, optimizer, loss, seed=settings.seed)
    trainer.clock = clock
    run = TrainingRun(settings, trainer, plan)
    if not clock and run.first_step > settings.num_train_steps:
        raise ValueError(
            f"`--num_train_steps` must be at least {run.first_step}, where "
            f"{settings.output_dir!r} is. Received {settings.num_train_steps}; give more steps or "
            "another `--output_dir`."
        )
    return run


def _keep(
    filled: ModelFolder, config: BertConfig, made: Making, options: Mapping[str, Any]
) -> None:
    """Stores what goes with the weights, and what TensorBoard's projector needs to show words."""
    casing = made.do_lower_case if made.vocabulary else None
    filled.keep(config, made.vocabulary, do_lower_case=casing, options=options)
    if made.vocabulary is not None:
        filled.write(projector_files(made.vocabulary, config.vocab_size))


def restore(settings: Settings, model: keras.Model, init: Stored | None) -> int:
    """Sets the model's weights without training, and returns the step that they are from.

    Raises:
      ValueError: where there are none, or they have not learned what is to be evaluated.
    """
    weights = {variable.path: variable for variable in model.weights}
    checkpoints = checkpoint.Checkpoints(settings.output_dir)
    trained = find_weights(settings, init)
    if trained and init and trained.prefix == init.prefix:
        _check_learned(settings, settings.output_dir)
        return checkpoints.restore(weights, trained.prefix)
    if latest := checkpoints.latest():
        step = step_of(latest)
        provenance.check_trained(settings.output_dir, step, "output_dir")
        _check_learned(settings, settings.output_dir)
    elif init is not None:
        _check_learned(settings, init.folder)
        _check_heads(model, init)
    else:
        raise ValueError(
            "`--output_dir` must hold a trained model, or `--init_checkpoint` name one, unless "
            f"`--do_train` is given. Received {settings.output_dir!r}, which holds none."
        )
    return loop.initialize(model, weights, checkpoints, init)


def _check_heads(model: keras.Model, init: Stored) -> None:
    """Checks that the weights to evaluate have all that the figures depend on."""
    lacking = [each.path for each in model.trainable_weights if each.path not in init.shapes]
    if heads := sorted({"/".join(path.split("/")[:2]) for path in lacking}):
        raise ValueError(
            f"`--{init.flag}` must hold the heads of pre-training, cls/*, to be evaluated without "
            f"`--do_train`. {init.prefix!r} lacks weights of {heads}; was it fine-tuned, or "
            "stripped of its heads? Without a next-sentence head, `--objective=masked_lm` can be "
            "evaluated."
        )


def _check_learned(settings: Settings, folder: str) -> None:
    """Checks that no head is evaluated that the training in a folder left as it was drawn."""
    learned = find_learned(folder)
    if OBJECTIVES[settings.objective].has_next_sentence and learned != settings.objective:
        raise ValueError(
            f"`--objective` must be {learned} to evaluate the model in {folder!r}, which was "
            "trained with that and has learned nothing of next sentences. Received "
            f"{settings.objective!r}. Give `--objective={learned}`."
        )
