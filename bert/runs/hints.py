"""What a training that has learned nothing is told: that it has not, and what to try."""

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from absl import logging

from bert.commands.settings import FineTuningSettings
from bert.files.paths import file_system
from bert.files.weight_names import step_of
from bert.tasks.task import Task
from bert.weights import checkpoint, provenance

# Fewer steps seldom teach anything, whatever the rate; nor does a model that was pre-trained for
# fewer, of which the paper's took a million.
_FEW_STEPS, _FEW_PRETRAINING_STEPS = 100, 10_000
# Predictions of a number that differ by a smaller part of what the labels do are all the same.
_LEAST_SPREAD = 0.05
# What lets a folder take another training than the one that it holds.
_ANEW = "Begin anew there with --overwrite_output_dir."
_ONWARDS = "Go on from there with --resume_with_changes, or begin anew with --overwrite_output_dir."
# Rates beyond which fine-tuning fails (the paper's are 2e-5 to 5e-5), and below which it stands;
# and up to which a model smaller than BERT-Mini learns, often best at 1e-3.
_HIGH_RATE, _LOW_RATE = 1e-4, 2e-6
_HIGH_RATE_OF_SMALL, _SMALL = 1e-2, 256


def tell_whether_learned(
    settings: FineTuningSettings,
    task: Task,
    step: int,
    scores: Mapping[str, Any],
    hidden_size: int,
) -> None:
    """Warns where a trained model is no better than guessing.

    Args:
      settings: Those of the training.
      task: What was trained.
      step: The step of the weights.
      scores: Those of the dev set; with several metrics, that of the task counts.
      hidden_size: That of the model, on which the usual learning rates depend.
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
            _remedy(settings, hidden_size, step),
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
            _remedy(settings, hidden_size, step),
        )


def _remedy(settings: FineTuningSettings, hidden_size: int, step: int) -> str:
    kept = provenance.read(settings.output_dir).get("made_of", {})
    if not settings.init_checkpoint and not kept.get("--init_checkpoint"):
        return f"Its weights began at random: --init_checkpoint gives it pre-trained ones. {_ANEW}"
    begun = _steps_of_pretraining(settings)
    is_raw = begun is not None and begun < _FEW_PRETRAINING_STEPS
    raw = f"--init_checkpoint was pre-trained for {begun} steps, which are few, too. " * is_raw
    if step < _FEW_STEPS:
        return (
            f"{step} steps are few: give more --num_train_epochs or a smaller --train_batch_size. "
            f"{raw}{_ONWARDS}"
        )
    if is_raw:
        return (
            f"--init_checkpoint was pre-trained for {begun} steps, which are few: pre-train it "
            f"further, or take a released model. {_ANEW}"
        )
    if unusual := _describe_rate(settings, hidden_size):
        return f"{unusual} {_ANEW}"
    return (
        "Try another --seed, as some learn nothing on small sets (--num_runs tries several), more "
        f"--num_train_epochs, or another --learning_rate. {_ANEW}"
    )


def _describe_rate(settings: FineTuningSettings, hidden_size: int) -> str:
    """Returns what is unusual about the learning rate, if anything is."""
    rate, is_small = settings.learning_rate, hidden_size < _SMALL
    # LSTMs on a frozen model learn at rates of their own.
    if getattr(settings, "feature_based", None):
        return ""
    usual = "up to 1e-3 for so small a model" if is_small else "2e-5 to 5e-5"
    if rate > (_HIGH_RATE_OF_SMALL if is_small else _HIGH_RATE):
        return f"--learning_rate={rate:g} is high; {usual} are usual."
    return f"--learning_rate={rate:g} is low; {usual} are usual." if rate < _LOW_RATE else ""


def _steps_of_pretraining(settings: FineTuningSettings) -> int | None:
    """Returns for how long the model was pre-trained that this began with, None if not known."""
    path = settings.init_checkpoint or ""
    is_folder = bool(path) and file_system().isdir(path)
    folder = path if is_folder else os.path.dirname(path)
    # What is damaged there is no matter of this training, which has ended.
    with contextlib.suppress(ValueError, OSError):
        made_of = provenance.read(folder).get("made_of", {})
        # Only of a pre-training that began at random.
        if "--input_file" in made_of and not made_of.get("--init_checkpoint"):
            return step_of((checkpoint.find_trained(folder) or "") if is_folder else path)
    return None
