"""Warnings about a training run that has learned nothing, and what to try."""

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from absl import logging

from bert.files.paths import file_system
from bert.files.weight_names import step_of
from bert.options import Message, Option
from bert.tasks.task import Task
from bert.weights import checkpoint, provenance

# Fewer steps seldom teach anything, whatever the rate; nor does a model that was pre-trained for
# fewer, of which the paper's took a million.
_FEW_STEPS, _FEW_PRETRAINING_STEPS = 100, 10_000
# Predictions of a number that differ by a smaller part of what the labels do are all the same.
_LEAST_SPREAD = 0.05
# What lets a folder take another training than the one that it holds.
_WEIGHTS, _OVERWRITE = Option("init_checkpoint"), Option("overwrite_output_dir")
_ANEW = Message("Start over there with %s.", _OVERWRITE)
_ONWARDS = Message(
    "Resume there with %s, or start over with %s.", Option("resume_with_changes"), _OVERWRITE
)
# Rates beyond which fine-tuning fails (the paper's are 2e-5 to 5e-5), and below which it stands;
# and up to which a model smaller than BERT-Mini learns, often best at 1e-3.
_HIGH_RATE, _LOW_RATE = 1e-4, 2e-6
_HIGH_RATE_OF_SMALL, _SMALL = 1e-2, 256


@dataclasses.dataclass(frozen=True)
class Attempt:
    """A training run, as far as it may be the reason why nothing was learned.

    Attributes:
      output_dir: The folder of the run.
      init_checkpoint: The weights that it started from, if they were named.
      learning_rate: The peak rate; None for what learns at rates of its own.
      step: The step of the weights.
      hidden_size: The width of the model, on which the usual learning rates depend.
    """

    output_dir: str
    init_checkpoint: str | None
    learning_rate: float | None
    step: int
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
        logging.warning(
            "It has not learned: %s %.4f is no better than %s, which reaches %.4f. %s",
            task.metric,
            scores[task.metric],
            task.guess,
            scores["baseline"],
            _find_remedy(attempt),
        )
        return
    spread = scores.get("standard_deviations", {})
    if spread and spread["predictions"] < _LEAST_SPREAD * spread["labels"]:
        logging.warning(
            "It has hardly learned: whatever the text, it predicts nearly the same number. The "
            "standard deviation of its predictions is %.2g, that of the labels %.2g; %s does not "
            "see that. %s",
            spread["predictions"],
            spread["labels"],
            task.metric,
            _find_remedy(attempt),
        )


def _find_remedy(attempt: Attempt) -> Message:
    stored = provenance.read(attempt.output_dir).get("made_of", {})
    if not attempt.init_checkpoint and not stored.get("--init_checkpoint"):
        return Message(
            "Its weights began at random: %s gives it pre-trained ones. %s", _WEIGHTS, _ANEW
        )
    begun = _steps_of_pretraining(attempt.init_checkpoint or "")
    is_raw = begun is not None and begun < _FEW_PRETRAINING_STEPS
    raw = Message("%s was pre-trained for %s steps, which are few", _WEIGHTS, begun)
    if attempt.step < _FEW_STEPS:
        return Message(
            "%d steps are few: give more %s or a smaller %s. %s%s",
            *(attempt.step, Option("num_train_epochs"), Option("train_batch_size")),
            *(Message("%s, too. ", raw) if is_raw else "", _ONWARDS),
        )
    if is_raw:
        return Message("%s: pre-train it further, or take a released model. %s", raw, _ANEW)
    if unusual := _describe_rate(attempt.learning_rate, attempt.hidden_size):
        return Message("%s %s", unusual, _ANEW)
    return Message(
        "Try another %s, as some learn nothing on small sets (%s tries several), more %s, or "
        "another %s. %s",
        *map(Option, ("seed", "num_runs", "num_train_epochs", "learning_rate")),
        _ANEW,
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
    """Returns for how many steps weights were pre-trained, None if that is not known."""
    is_folder = bool(path) and file_system().isdir(path)
    folder = path if is_folder else os.path.dirname(path)
    # A damaged folder does not concern this run, which has ended.
    with contextlib.suppress(ValueError, OSError):
        made_of = provenance.read(folder).get("made_of", {})
        # Only of a pre-training that began at random.
        if "--input_file" in made_of and not made_of.get("--init_checkpoint"):
            return step_of((checkpoint.find_trained(folder) or "") if is_folder else path)
    return None
