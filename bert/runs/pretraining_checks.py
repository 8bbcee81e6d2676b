"""What `--check` shows before a pre-training."""

from typing import Any

from bert.commands.checks import FAILED, Checks
from bert.pretraining import fit
from bert.pretraining.making import Making
from bert.pretraining.masked_batches import MaskedBatches
from bert.pretraining.objectives import OBJECTIVES
from bert.pretraining.settings import Settings
from bert.runs import checks as training_checks
from bert.runs import pretraining as training
from bert.runs.plan import Plan
from bert.training.batches import Batches
from bert.training.validation import check_length
from bert.weights.checkpoint import Stored
from bert.weights.checks import check_model
from modeling import BertConfig


def check_pretraining(checks: Checks, settings: Settings) -> None:
    """Checks what `training.run` needs."""
    verbs = training_checks.verbs_text(settings)
    checks("flags", fit.check_verbs, settings, tells=lambda _: verbs)
    strategy, num_replicas = training_checks.check_devices(checks, settings)
    made = checks("made with", fit.find_making, settings, tells=Making.tell)
    settings = fit.complete(settings, Making({}, "") if made is FAILED else made)
    settings = training_checks.check_precision(checks, settings)
    source, config = check_model(checks, settings)
    objective = OBJECTIVES[settings.objective]
    config = checks("objective", objective.fit, config, tells=lambda _: objective.name)
    told = "can be the model's"
    checks("vocabulary", fit.check_making, made, source, config, tells=lambda _: told)
    init = checks("weights", fit.find_init, settings, source, config, tells=_describe_init)
    length, size = settings.max_seq_length, settings.train_batch_size
    checks("lengths", check_length, length, config, tells=lambda _: f"up to {length} tokens")
    told = f"{size} sequences, in {settings.precision}"
    checks("batch", fit.check_batch_sizes, settings, num_replicas, tells=lambda _: told)
    features = FAILED if config is FAILED else fit.features_of(settings, config)
    batches = None
    if settings.do_train:
        batches = checks(
            "records", fit.open_training, settings, features, made, tells=_describe_records
        )
    if settings.do_eval:
        held_out = (settings, features, made)
        checks("held-out records", fit.open_evaluation, *held_out, tells=_describe_records)
    training_checks.check_folder(checks, settings, fit.check_output)
    told = "of the same shape, if there is any"
    checks("model there", fit.check_same, settings, config, made, tells=lambda _: told)
    if not settings.do_train:
        checks("model", _restore_model, settings, config, init, strategy, tells=_describe_step)
        return
    plan = checks(
        "steps", training.plan_of, settings, init, made, tells=training_checks.describe_plan
    )
    plans = FAILED if plan is FAILED else [plan]
    if training_checks.check_needs(checks, settings, config, num_replicas, plans):
        checks("time", _try, settings, config, batches, plan, strategy, tells=str)


def _describe_init(init: Stored | None) -> str:
    return "of the shape that the configuration asks for" if init else ""


def _describe_records(batches: Batches) -> str:
    return f"{len(batches.records):,}, of which the first of each file is as it should be"


def _describe_step(step: int) -> str:
    return f"step {step}"


def _restore_model(
    settings: Settings,
    config: BertConfig,
    init: Stored | None,
    strategy: Any,
) -> int:
    with strategy.scope():
        model = OBJECTIVES[settings.objective].make_model(config, dtype=settings.precision)
        return training.restore(settings, model, init)


def _try(
    settings: Settings,
    config: BertConfig,
    batches: Batches,
    plan: Plan,
    strategy: Any,
) -> str:
    """Begins the training and takes a few steps; returns how long it takes."""
    size = training_checks.rows_to_try(settings, config, strategy.num_replicas_in_sync)
    objective = OBJECTIVES[settings.objective]
    masker = batches.masker if isinstance(batches, MaskedBatches) else None
    few = objective.make_batches(
        batches.records, batches.features, size, settings.seed, masker=masker
    )
    with strategy.scope():
        model = objective.make_model(config, dtype=settings.precision)
        return training_checks.time_text(settings, training.begin(settings, model, plan), plan, few)
