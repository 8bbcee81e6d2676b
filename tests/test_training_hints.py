import dataclasses
import re

import pytest

from bert.command_line.settings import FineTuningSettings
from bert.training.hints import tell_whether_learned
from run_ner import Settings as NerSettings

# What begins a training anew in its folder.
ANEW = {"overwrite_output_dir"}


@dataclasses.dataclass
class Guessing:
    metric: str = "f1"
    guess: str = "always giving the same answer"


def tell(scores, *, step=500, **flags):
    settings = FineTuningSettings(output_dir="out", **{"init_checkpoint": "bert", **flags})
    tell_whether_learned(settings, Guessing(), step, scores)


@pytest.mark.parametrize(
    ("step", "changed", "remedy", "let_by"),
    [
        (500, {"init_checkpoint": None}, "Its weights began at random: --init_checkpoint", ANEW),
        (500, {"learning_rate": 0.1}, "--learning_rate=0.1 is high; 2e-5 to 5e-5 are usual.", ANEW),
        (500, {"learning_rate": 1e-6}, "--learning_rate=1e-06 is low; 2e-5 to 5e-5 are us", ANEW),
        (
            9,
            {},
            "9 steps are few: give more --num_train_epochs or a smaller",
            {"resume_with_changes"} | ANEW,
        ),
        (500, {}, "Try another --seed, as some learn nothing on small sets", ANEW),
    ],
)
def test_a_training_that_taught_nothing_is_told_what_to_try(log, step, changed, remedy, let_by):
    """And what lets the folder take it, which holds another training now."""
    tell({"f1": 0.8122, "accuracy": 0.68, "baseline": 0.8122}, step=step, **changed)
    [message] = log.messages
    said = "It has not learned: f1 0.8122 is no better than always giving the same answer, which "
    assert message.startswith(said + "reaches 0.8122. " + remedy)
    assert set(re.findall("--((?:resume|overwrite)_[a-z_]+)", message)) == let_by


def test_what_learns_on_a_frozen_model_is_told_of_no_usual_rate(log):
    settings = NerSettings(output_dir="out", word_vectors="v", feature_based=True)
    settings = dataclasses.replace(settings, init_checkpoint="made", learning_rate=1e-3)
    tell_whether_learned(settings, Guessing(), 9, {"f1": 0.0, "baseline": 0.0})
    assert "9 steps are few" in log.messages[-1]


@pytest.mark.parametrize("scores", [{"f1": 0.82, "baseline": 0.8122}, {}])
def test_nothing_is_said_of_others(log, scores):
    tell(scores)
    assert log.messages == []
