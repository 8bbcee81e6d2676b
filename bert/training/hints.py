"""What a training that has learned nothing is told: that it has not, and what to try."""

from collections.abc import Mapping
from typing import Any

from absl import logging

from bert.command_line.settings import FineTuningSettings
from bert.training.task import Task
from bert.weights import provenance

# Fewer steps seldom teach anything, whatever the rate.
_FEW_STEPS = 100
# What lets a folder take another training than the one that it holds.
_ANEW = "Begin anew there with --overwrite_output_dir."
_ONWARDS = "Go on from there with --resume_with_changes, or begin anew with --overwrite_output_dir."
# Rates beyond which fine-tuning fails (the paper's are 2e-5 to 5e-5), and below which it stands.
_HIGH_RATE, _LOW_RATE = 1e-4, 2e-6


def tell_whether_learned(
    settings: FineTuningSettings, task: Task, step: int, scores: Mapping[str, Any]
) -> None:
    """Warns where a trained model is no better than guessing.

    Args:
      settings: Those of the training.
      task: What was trained.
      step: The step of the weights.
      scores: Those of the dev set; with several metrics, that of the task counts.
    """
    if "baseline" not in scores or scores[task.metric] > scores["baseline"]:
        return
    logging.warning(
        "It has not learned: %s %.4f is no better than %s, which reaches %.4f. %s",
        task.metric,
        scores[task.metric],
        task.guess,
        scores["baseline"],
        _remedy(settings, step),
    )


def _remedy(settings: FineTuningSettings, step: int) -> str:
    kept = provenance.read(settings.output_dir).get("made_of", {})
    if not settings.init_checkpoint and not kept.get("--init_checkpoint"):
        return f"Its weights began at random: --init_checkpoint gives it pre-trained ones. {_ANEW}"
    # LSTMs on a frozen model learn at rates of their own.
    is_usual = not getattr(settings, "feature_based", None)
    rate = settings.learning_rate
    if is_usual and rate > _HIGH_RATE:
        return f"--learning_rate={rate:g} is high; 2e-5 to 5e-5 are usual. {_ANEW}"
    if is_usual and rate < _LOW_RATE:
        return f"--learning_rate={rate:g} is low; 2e-5 to 5e-5 are usual. {_ANEW}"
    if step < _FEW_STEPS:
        return (
            f"{step} steps are few: give more --num_train_epochs or a smaller --train_batch_size. "
            f"{_ONWARDS}"
        )
    return (
        "Try another --seed, as some learn nothing on small sets (--num_runs tries several), more "
        f"--num_train_epochs, or another --learning_rate. {_ANEW}"
    )
