"""The steps of fine-tuning runs: how many there are, and whether each run resumes another."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bert.files.display import counted
from bert.log import logger
from bert.options import Message, Option, OptionError
from bert.runs import identity
from bert.runs.identity import Training, plan_training
from bert.tasks.examples import Inputs, find_inputs
from bert.tasks.options import Schedule, Teacher
from bert.training.options import Output
from bert.weights.checkpoint import Stored


def plan_trainings(
    runs: Iterable[tuple[Schedule, Output, Mapping[str, Any]]],
    patience: int,
    others: Mapping[str, Any],
    paths: Mapping[str, str | None],
    init: Stored | None,
    data: Sequence[Inputs],
) -> list[Training]:
    """Returns the training run of each recipe, checked against the one in its folder.

    Args:
      runs: The schedule, the output and the options that shape the model, of each run.
      patience: `early_stopping_patience`.
      others: By option, what else the training is made of.
      paths: By option, other files that are read.
      init: The weights to start from, or None.
      data: The inputs of all parts.
    """
    train = find_inputs(data, "train")
    num_examples = round((train.num_examples or train.num_rows) / train.share)
    described: dict[str, Any] = {}
    # A data set that is read in part is not compared.
    if all(inputs.share == 1 for inputs in data):
        # The choice of the best weights depends on the dev set.
        for split in ("train", "dev") if patience else ("train",):
            described |= find_inputs(data, split).describe()
        described |= others
    trainings = []
    for schedule, output, shaping in runs:
        num_steps = count_steps(schedule, num_examples)
        every, per_epoch = output.save_checkpoints_steps, num_examples // schedule.train_batch_size
        warn_of_patience(patience, every, num_steps, per_epoch)
        made_of = identity.of_training(shaping, init, described)
        trainings.append(plan_training(output, num_steps, init, made_of, paths))
    return trainings


def describe_teacher(options: Teacher | None, task: Any) -> dict[str, Any]:
    """Returns the name and the digest of the teacher, by option; {} for a task that has none."""
    if options is None:
        return {}
    return {"teacher": task.teacher.weights if task.teacher else None}


def describe_trainings(trainings: Sequence[Training]) -> str:
    """Returns the line of a plan on the steps of its runs."""
    steps = [training.last_step for training in trainings]
    if len(steps) == 1:
        return trainings[0].describe()
    each = f"{min(steps):,}" + (f" to {max(steps):,}" if len({*steps}) > 1 else "")
    return f"{sum(steps):,} in all, {each} a run"


def count_steps(schedule: Schedule, num_examples: int) -> int:
    """Returns the number of steps of the training run (original: run_classifier.py, main).

    Raises:
      OptionError: where it is 0.
    """
    epochs, batch_size = schedule.num_train_epochs, schedule.train_batch_size
    steps = int(num_examples / batch_size * epochs)
    if steps < 1:
        raise OptionError(
            "num_train_epochs",
            "give at least one step",
            remedy=Message(
                "%s epochs of %d examples give none with %s.",
                epochs,
                num_examples,
                Option("train_batch_size", batch_size),
            ),
        )
    return steps


def warn_of_patience(patience: int, every: int, steps: int, steps_per_epoch: int) -> None:
    """Warns where a training run ends before early stopping could end it.

    Args:
      patience: `early_stopping_patience`.
      every: `save_checkpoints_steps`, between two evaluations.
      steps: The steps of the run.
      steps_per_epoch: The steps of an epoch.
    """
    if not patience or (patience + 1) * every < steps:
        return
    # Twice an epoch, or as often as it takes.
    better = min(max(steps_per_epoch // 2, 1), (steps - 1) // (patience + 1))
    remedy = Message(
        "Give a smaller %s or more %s.",
        Option("early_stopping_patience"),
        Option("num_train_epochs"),
    )
    if better:
        remedy = Message("Give %s.", Option("save_checkpoints_steps", better))
    logger.warning(
        "%s cannot end this training of %d steps: it is evaluated every %s steps and at the end, "
        "%s in all. %s",
        Option("early_stopping_patience", patience),
        steps,
        Option("save_checkpoints_steps", every),
        counted(-(-steps // every), "time"),
        remedy,
    )
