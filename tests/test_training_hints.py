import dataclasses

import pytest

from bert.command_line.settings import FineTuningSettings
from bert.training.hints import tell_whether_learned


@dataclasses.dataclass
class Guessing:
    metric: str = "f1"
    guess: str = "always giving the same answer"


def tell(scores, *, step=500, **flags):
    settings = FineTuningSettings(output_dir="out", **{"init_checkpoint": "bert", **flags})
    tell_whether_learned(settings, Guessing(), step, scores)


@pytest.mark.parametrize(
    ("step", "changed", "remedy"),
    [
        (500, {"init_checkpoint": None}, "Its weights began at random: --init_checkpoint"),
        (500, {"learning_rate": 0.1}, "--learning_rate=0.1 is high; 2e-5 to 5e-5 are usual."),
        (500, {"learning_rate": 1e-6}, "--learning_rate=1e-06 is low; 2e-5 to 5e-5 are usual."),
        (9, {}, "9 steps are few: give more --num_train_epochs or a smaller --train_batch_size."),
        (500, {}, "Try another --seed, as some learn nothing on small sets"),
    ],
)
def test_a_training_that_taught_nothing_is_told_what_to_try(log, step, changed, remedy):
    tell({"f1": 0.8122, "accuracy": 0.68, "baseline": 0.8122}, step=step, **changed)
    [message] = log.messages
    said = "It has not learned: f1 0.8122 is no better than always giving the same answer, which "
    assert message.startswith(said + "reaches 0.8122. " + remedy)


@pytest.mark.parametrize("scores", [{"f1": 0.82, "baseline": 0.8122}, {}])
def test_nothing_is_said_of_others(log, scores):
    tell(scores)
    assert log.messages == []
