"""How a model is fine-tuned: its steps, what of it learns how fast, and which weights are kept."""

import os
import re
from collections.abc import Sequence

import keras
import tensorflow as tf
from absl import logging

import optimization
from bert.commands.settings import FineTuningSettings
from bert.files.signals import deferred_stop
from bert.files.weight_names import WEIGHTS, step_of
from bert.runs import identity
from bert.runs.resumption import Training, find_weights
from bert.runs.training import TrainingRun
from bert.training import strategies
from bert.training.batches import Batches
from bert.training.evaluation import EarlyStopping
from bert.training.loop import Observer
from bert.training.objective import Objective
from bert.training.trainer import Trainer
from bert.weights import checkpoint, provenance, saving
from bert.weights.folder import ModelFolder


def train(
    settings: FineTuningSettings,
    plan: Training,
    model: keras.Model,
    objective: Objective,
    batches: Batches,
    evaluation: EarlyStopping | None = None,
    others: Sequence[Observer] = (),
) -> int:
    """Trains the model, saves its weights, and returns the step that they are from.

    With early stopping, the weights are the best; else they are the last.

    Args:
      settings: Those of the script.
      plan: What is to be done.
      model: As in `bert.network.heads`.
      objective: What is minimized.
      batches: Those to train on.
      evaluation: Called every `save_checkpoints_steps` and at the end, or None.
      others: Called after every step.

    Raises:
      ValueError: where the folder is further than `--num_train_epochs` goes.
    """
    num_train_steps = plan.last_step
    with strategies.together(tf.distribute.get_strategy()):
        run = begin(settings, plan, model, objective, batches)
    trainer = run.trainer
    writes = strategies.is_chief(trainer.strategy)
    observer: Observer | None = None
    if evaluation:
        evaluation.open(settings.output_dir, model, run.first_step, writes=writes)
        # What is evaluated there may be the best, which all read when the chief has kept it.
        with strategies.together(trainer.strategy):
            observer = evaluation.at_steps(settings.save_checkpoints_steps, num_train_steps)
    if evaluation and evaluation.is_over:
        logging.warning("Nothing to train: early stopping ended it at step %d.", run.first_step)
    else:
        _log_plan(settings, len(batches.records), num_train_steps)
        if writes and run.first_step < num_train_steps:
            # They are of an earlier training: a prediction must not take them for this one's.
            saving.remove(os.path.join(settings.output_dir, WEIGHTS))
        environment = identity.describe(vars(settings), trainer.strategy)
        run.train(batches, environment, others, evaluation=observer)
    with deferred_stop():
        step = _keep_weights(settings, model, trainer.step, evaluation)
        run.end()
    return step


def begin(
    settings: FineTuningSettings,
    plan: Training,
    model: keras.Model,
    objective: Objective,
    batches: Batches,
) -> TrainingRun:
    """Returns the training before its first step, its weights read; as `train`."""
    freeze(model, settings.freeze_layers)
    trainer = make_trainer(settings, model, objective, batches, plan.last_step)
    run = TrainingRun(settings, trainer, plan)
    if run.first_step > plan.last_step:
        raise ValueError(
            f"`--num_train_epochs` must reach step {run.first_step}, where "
            f"{settings.output_dir!r} is. It gives {plan.last_step} steps; give more epochs "
            "or `--overwrite_output_dir`."
        )
    return run


def count_steps(settings: FineTuningSettings, num_examples: int) -> int:
    """Returns the steps of the training (original: run_classifier.py, main).

    Raises:
      ValueError: where there are none.
    """
    steps = int(num_examples / settings.train_batch_size * settings.num_train_epochs)
    if steps < 1:
        raise ValueError(
            f"`--num_train_epochs` must give at least one step. {settings.num_train_epochs} epochs "
            f"of {num_examples} examples give none with `--train_batch_size="
            f"{settings.train_batch_size}`."
        )
    return steps


def warn_of_patience(settings: FineTuningSettings, steps: int, num_examples: int) -> None:
    """Warns where a training ends before early stopping could end it."""
    patience, every = settings.early_stopping_patience, settings.save_checkpoints_steps
    if not patience or (patience + 1) * every < steps:
        return
    # Twice an epoch, or as often as it takes.
    half_epoch = max(num_examples // settings.train_batch_size // 2, 1)
    better = min(half_epoch, (steps - 1) // (patience + 1))
    logging.warning(
        "--early_stopping_patience=%d cannot end this training of %d steps: it is evaluated every "
        "--save_checkpoints_steps=%d steps and at the end, %d times in all. %s",
        patience,
        steps,
        every,
        -(-steps // every),
        f"Give --save_checkpoints_steps={better}."
        if better
        else "Give a smaller --early_stopping_patience or more --num_train_epochs.",
    )


def _log_plan(settings: FineTuningSettings, num_examples: int, num_train_steps: int) -> None:
    logging.info(
        "Training to step %d: %g epochs of %d examples in batches of %d.",
        num_train_steps,
        settings.num_train_epochs,
        *(num_examples, settings.train_batch_size),
    )


def freeze(model: keras.Model, num_layers: int | None) -> None:
    """Makes embeddings and the first layers of the encoder constant; None for neither."""
    if num_layers is None:
        return
    bert = model.get_layer("bert")
    for layer in [bert.embeddings, *bert.stacked_layers[:num_layers]]:
        layer.trainable = False


def learning_rate_scales(model: keras.Model, decay: float) -> dict[str, float]:
    """Returns by path what multiplies the learning rate: `decay` once per layer from the top.

    The head and the pooler have 1, the top layer `decay`, the one below its square, and so on down
    to the embeddings (Clark et al., ELECTRA, appendix B).
    """
    num_layers = len(model.get_layer("bert").stacked_layers)
    scales = {}
    for variable in model.weights:
        if match := re.match(r"bert/encoder/layer_(\d+)/", variable.path):
            scales[variable.path] = decay ** (num_layers - int(match[1]))
        elif variable.path.startswith("bert/embeddings/"):
            scales[variable.path] = decay ** (num_layers + 1)
    return scales


def make_trainer(
    settings: FineTuningSettings,
    model: keras.Model,
    objective: Objective,
    batches: Batches,
    num_train_steps: int,
) -> Trainer:
    """Returns a trainer with the optimizer that the settings ask for."""
    optimizer = optimization.bert_optimizer(
        settings.learning_rate,
        num_train_steps,
        int(num_train_steps * settings.warmup_proportion),
    )
    if settings.layerwise_lr_decay != 1.0:
        optimizer.learning_rate_scales = learning_rate_scales(model, settings.layerwise_lr_decay)
    return Trainer.of(
        settings, model, optimizer, objective, seed=settings.seed, signature=batches.signature
    )


def _keep_weights(
    settings: FineTuningSettings, model: keras.Model, step: int, evaluation: EarlyStopping | None
) -> int:
    """Writes the weights-only checkpoint, after going back to the best if that is asked for."""
    weights = {variable.path: variable for variable in model.weights}
    if settings.early_stopping_patience and evaluation and evaluation.best_weights:
        folder = checkpoint.Checkpoints(settings.output_dir)
        step = folder.restore(weights, evaluation.best_weights)
        logging.info("The weights are those of step %d, the best.", step)
    if strategies.is_chief(tf.distribute.get_strategy()):
        prefix = os.path.join(settings.output_dir, WEIGHTS)
        checkpoint.save_variables(prefix, weights, step)
        logging.info("Saved the weights without the optimizer's slots to %s.", prefix)
    return step


def load(settings: FineTuningSettings, source: ModelFolder, model: keras.Model) -> int:
    """Sets the model's weights without training, and returns the step that they are from.

    They come from `--output_dir`, as `find_weights` finds them; or else from `--init_checkpoint`,
    which must hold the head, too.
    """
    named = source.stored if settings.init_checkpoint else None
    trained = find_weights(settings, named)
    if trained is None:
        source.stored.assign(model.weights, with_head=True)
        return 0
    is_named = named is not None and named.prefix == trained.prefix
    if not is_named:
        provenance.check_trained(settings.output_dir, step_of(trained.prefix), "output_dir")
    weights = {variable.path: variable for variable in model.weights}
    step = checkpoint.Checkpoints(settings.output_dir).restore(weights, trained.prefix)
    unread = "; --init_checkpoint is not read" if named and not is_named else ""
    logging.info("The weights are those of step %d in %s%s.", step, trained.prefix, unread)
    return step
