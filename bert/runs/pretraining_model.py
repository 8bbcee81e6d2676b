"""The weights of a pre-trained model that is evaluated without training."""

import keras

from bert.files.weight_names import step_of
from bert.options import Message, Option, OptionError
from bert.pretraining.goals import find_learned
from bert.pretraining.objectives import OBJECTIVES
from bert.runs import resources
from bert.runs.resumption import find_weights
from bert.training.options import Output
from bert.training.trainer import initialize
from bert.weights import checkpoint, provenance
from bert.weights.checkpoint import Stored

_TRAINS = Option("do_train")


def load(output: Output, objective: str, model: keras.Model, init: Stored | None) -> int:
    """Sets the weights of a model that is not trained, and returns their step.

    Raises:
      ValueError: where there are no weights, or they were not trained for the objective.
    """
    folder = output.output_dir
    weights = {variable.path: variable for variable in model.weights}
    checkpoints = checkpoint.Checkpoints(folder)
    trained = find_weights(output, init)
    if trained and init and trained.prefix == init.prefix:
        _check_learned(objective, folder)
        return checkpoints.restore(weights, trained.prefix)
    if latest := checkpoints.latest():
        step = step_of(latest)
        provenance.check_trained(folder, step, "output_dir")
        _check_learned(objective, folder)
    elif init is not None:
        _check_learned(objective, init.folder)
        _check_heads(model, init)
    else:
        raise resources.no_weights(folder)
    return initialize(model, weights, checkpoints, init)


def _check_heads(model: keras.Model, init: Stored) -> None:
    """Checks that the weights to evaluate include the heads, on which the scores depend."""
    lacking = [each.path for each in model.trainable_weights if each.path not in init.shapes]
    if heads := sorted({"/".join(path.split("/")[:2]) for path in lacking}):
        raise OptionError(
            init.option,
            Message("hold the heads of pre-training, cls/*, to be evaluated without %s", _TRAINS),
            remedy=Message(
                "%r lacks weights of %s; was it fine-tuned, or stripped of its heads? Without a "
                "next-sentence head, %s can be evaluated.",
                *(init.prefix, heads, Option("objective", "masked_lm")),
            ),
        )


def _check_learned(objective: str, folder: str) -> None:
    """Checks that the training run in a folder has trained each head that is evaluated."""
    learned = find_learned(folder)
    if OBJECTIVES[objective].has_next_sentence and learned != objective:
        raise OptionError(
            "objective",
            f"be {learned} to evaluate the model in {folder!r}, which was trained with that and "
            "has learned nothing of next sentences",
            objective,
            Message("Give %s.", Option("objective", learned)),
        )
