"""Temperature scaling: probabilities that say how often the answers are right.

Logits are divided by one number, so that no answer changes, only how sure the model is of it.
Source: Guo et al., On Calibration of Modern Neural Networks, 2017, section 4.2.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize_scalar

from bert.log import logger
from bert.options import OptionError
from bert.tasks.classification import results
from bert.tasks.classification.examples import ClassificationTask, InputExample
from bert.tasks.examples import find_labelled
from bert.tasks.task import Inputs

# Of fewer examples, the temperature is mostly chance.
MIN_EXAMPLES = 50
# The logarithms of the least and the greatest temperature.
_BOUNDS = (-3.0, 3.0)


def check_examples(examples: Sequence[InputExample]) -> None:
    """Checks that enough examples of a dev set have a label."""
    count = len(find_labelled(examples))
    if count < MIN_EXAMPLES:
        raise OptionError(
            "calibrate",
            f"have {MIN_EXAMPLES} examples with a label in the dev set",
            f"{count}",
            "Give a larger one, or leave it out.",
        )


def calibrate(
    task: ClassificationTask, inputs: Inputs, logits: np.ndarray, earlier: float = 1.0
) -> float:
    """Returns the temperature that fits a dev set.

    Args:
      task: The labels, and the type of the task.
      inputs: The dev set.
      logits: float [B, C], the predictions for it.
      earlier: The temperature by which the logits are divided already.
    """
    known = find_labelled(inputs.examples)
    label_ids = inputs.arrays["label_ids"][known]
    logits = np.asarray(logits, np.float64)[known] * earlier
    temperature = fit_temperature(task.task_type, logits, label_ids)
    before, after = (
        results.score(task, logits / each, label_ids)["loss"] for each in (1.0, temperature)
    )
    logger.info(
        "A temperature of %.3f fits the %d examples of the dev set: their loss is %.4f instead of "
        "%.4f.",
        *(temperature, len(known), after, before),
    )
    return temperature


def fit_temperature(task_type: str, logits: np.ndarray, label_ids: np.ndarray) -> float:
    """Returns the temperature of the least loss.

    Args:
      task_type: "classification" or "multi_label".
      logits: float64 [B, C].
      label_ids: int [B, 1], or [B, C] of a multi-label task.
    """

    def loss(log_temperature: float) -> float:
        scaled = logits / np.exp(log_temperature)
        if task_type == "multi_label":
            return float((np.logaddexp(0, scaled) - scaled * label_ids).mean())
        right = np.take_along_axis(scaled, label_ids, axis=1)[:, 0]
        return float((np.logaddexp.reduce(scaled, axis=1) - right).mean())

    found = minimize_scalar(loss, bounds=_BOUNDS, method="bounded", options={"xatol": 1e-4})
    return round(float(np.exp(found.x)), 4)
