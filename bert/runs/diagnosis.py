"""Warns where fine-tuning has learned nothing, and says what may help."""

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from bert.files.paths import file_system
from bert.files.stored_models import step_of
from bert.log import logger
from bert.options import Message, Option
from bert.runs import identity
from bert.tasks.task import Task
from bert.weights import checkpoint

# Fine-tuning seldom learns in fewer steps, whatever the rate; nor from a model pre-trained for
# fewer (the paper's models were pre-trained for a million).
_FEW_STEPS, _FEW_PRETRAINING_STEPS = 100, 10_000
# The least standard deviation of predicted numbers that differ, as a fraction of the labels'.
_LEAST_SPREAD = 0.05
# The options that let a folder hold another training run.
_WEIGHTS, _OVERWRITE = Option("init_checkpoint"), Option("overwrite_output_dir")
_START_OVER = Message("Start over there with %s.", _OVERWRITE)
_RESUME = Message(
    "Resume there with %s, or start over with %s.", Option("resume_with_changes"), _OVERWRITE
)
# Fine-tuning fails above these rates (the paper uses 2e-5 to 5e-5), and learns nothing below them.
# A model smaller than BERT-Mini learns up to a higher rate, often best at 1e-3.
_HIGH_RATE, _LOW_RATE = 1e-4, 2e-6
_HIGH_RATE_OF_SMALL, _SMALL = 1e-2, 256


@dataclasses.dataclass(frozen=True)
class Attempt:
    """The facts about a training run that may explain why nothing was learned.

    Attributes:
      output_dir: The folder of the run.
      init_checkpoint: The weights that it started from, if they were named.
      learning_rate: The peak rate; None where the usual rates do not apply.
      num_train_steps: The last step of the run, whether or not early stopping ended it before.
      hidden_size: The width of the model, on which the usual learning rates depend.
    """

    output_dir: str
    init_checkpoint: str | None
    learning_rate: float | None
    num_train_steps: int
    hidden_size: int


def warn_of_little_learning(attempt: Attempt, task: Task, scores: Mapping[str, Any]) -> None:
    """Warns where a trained model is no better than a constant answer.

    Args:
      attempt: The training run.
      task: What was trained.
      scores: The scores of the dev set; with several metrics, the one of the task counts.
    """
    if "baseline" not in scores:
        return
    if scores[task.metric] <= scores["baseline"]:
        if has_one_answer(scores):
            logger.warning(
                "The dev set cannot show whether the model has learned, for all of its examples "
                "have the same answer: evaluate on others, too."
            )
            return
        logger.warning(
            "The model has not learned: %s %.4f is no better than %s, which reaches %.4f. %s",
            task.metric,
            scores[task.metric],
            task.baseline_answer,
            scores["baseline"],
            _find_remedy(attempt),
        )
        return
    spread = scores.get("standard_deviations", {})
    if spread and spread["predictions"] < _LEAST_SPREAD * spread["labels"]:
        logger.warning(
            "It has hardly learned: whatever the text, it predicts nearly the same number. The "
            "standard deviation of its predictions is %.2g, that of the labels %.2g; %s does not "
            "see that. %s",
            spread["predictions"],
            spread["labels"],
            task.metric,
            _find_remedy(attempt),
        )


def has_one_answer(scores: Mapping[str, Any]) -> bool:
    """Returns whether the scores are of examples that all have the same answer."""
    if "standard_deviations" in scores:
        return not scores["standard_deviations"]["labels"]
    counts = [sum(row) for row in scores.get("confusion_matrix", [[0]])]
    # The scores of SQuAD, which have no accuracy, are in percent.
    highest = 1.0 if "accuracy" in scores else 100.0
    return scores["baseline"] == highest or 0 < sum(counts) == max(counts)


def _find_remedy(attempt: Attempt) -> Message:
    named = attempt.init_checkpoint or identity.read_option(attempt.output_dir, "init_checkpoint")
    if not named:
        return Message(
            "Its weights began at random: %s gives it pre-trained ones. %s", _WEIGHTS, _START_OVER
        )
    begun = _steps_of_pretraining(attempt.init_checkpoint or "")
    is_raw = begun is not None and begun < _FEW_PRETRAINING_STEPS
    raw = Message("%s was pre-trained for %s steps, which are few", _WEIGHTS, begun)
    if attempt.num_train_steps < _FEW_STEPS:
        return Message(
            "%d steps are few: give more %s or a smaller %s. %s%s",
            attempt.num_train_steps,
            Option("num_train_epochs"),
            Option("train_batch_size"),
            Message("%s, too. ", raw) if is_raw else "",
            _RESUME,
        )
    if is_raw:
        return Message("%s: pre-train it further, or take a released model. %s", raw, _START_OVER)
    if unusual := _describe_rate(attempt.learning_rate, attempt.hidden_size):
        return Message("%s %s", unusual, _START_OVER)
    return Message(
        "Try another %s, as some learn nothing on small sets (%s tries several), more %s, or "
        "another %s. %s",
        *map(Option, ("seed", "num_runs", "num_train_epochs", "learning_rate")),
        _START_OVER,
    )


def _describe_rate(rate: float | None, hidden_size: int) -> Message | None:
    """Returns what is unusual about a learning rate, if anything is."""
    if rate is None:
        return None
    is_small = hidden_size < _SMALL
    usual = "up to 1e-3 for so small a model" if is_small else "2e-5 to 5e-5"
    option = Option("learning_rate", rate)
    if rate > (_HIGH_RATE_OF_SMALL if is_small else _HIGH_RATE):
        return Message("%s is high; %s are usual.", option, usual)
    return Message("%s is low; %s are usual.", option, usual) if rate < _LOW_RATE else None


def _steps_of_pretraining(path: str) -> int | None:
    """Returns the number of steps that weights were pre-trained for, None if unknown."""
    is_folder = bool(path) and file_system().isdir(path)
    folder = path if is_folder else os.path.dirname(path)
    # A damaged folder does not concern this run, which has ended.
    with contextlib.suppress(ValueError, OSError):
        # A pre-training run from other weights does not count their steps.
        is_pretrained = identity.read_option(folder, "input_file") is not None
        if is_pretrained and not identity.read_option(folder, "init_checkpoint"):
            return step_of((checkpoint.find_trained(folder) or "") if is_folder else path)
    return None
