import dataclasses
import json
import re

import numpy as np
import pytest

from bert.runs.diagnosis import Attempt, warn_of_little_learning
from bert.weights import saving

# The option with which a training run starts over in its folder.
START_OVER = {"overwrite_output_dir"}


@dataclasses.dataclass
class Guessing:
    metric: str = "f1"
    baseline_answer: str = "always giving the same answer"


def warn(scores, *, metric="f1", **changes):
    attempt = Attempt("out", "bert", learning_rate=5e-5, num_train_steps=500, hidden_size=768)
    warn_of_little_learning(dataclasses.replace(attempt, **changes), Guessing(metric), scores)


@pytest.mark.parametrize(
    ("step", "changed", "remedy", "let_by"),
    [
        (
            500,
            {"init_checkpoint": None},
            "Its weights began at random: `init_checkpoint`",
            START_OVER,
        ),
        (
            500,
            {"learning_rate": 0.1},
            "`learning_rate=0.1` is high; 2e-5 to 5e-5 are usual.",
            START_OVER,
        ),
        (500, {"learning_rate": 1e-6}, "`learning_rate=1e-06` is low; 2e-5 to 5e-5", START_OVER),
        (
            9,
            {},
            "9 steps are few: give more `num_train_epochs` or a smaller",
            {"resume_with_changes"} | START_OVER,
        ),
        # That there were few comes before how they were.
        (9, {"learning_rate": 0.1}, "9 steps are few: give", {"resume_with_changes"} | START_OVER),
        # A small model is fine-tuned at higher rates, as docs/tagging.md does.
        (500, {"learning_rate": 1e-3, "hidden_size": 255}, "Try another `seed`", START_OVER),
        (
            500,
            {"learning_rate": 1e-3, "hidden_size": 256},
            "`learning_rate=0.001` is high",
            START_OVER,
        ),
        (
            500,
            {"learning_rate": 0.1, "hidden_size": 64},
            "`learning_rate=0.1` is high; up",
            START_OVER,
        ),
        (500, {}, "Try another `seed`, as some learn nothing on small sets", START_OVER),
    ],
)
def test_a_run_that_learned_nothing_gets_a_remedy(log, step, changed, remedy, let_by):
    """The remedy names the option that lets the folder hold another training run."""
    warn({"f1": 0.8122, "accuracy": 0.68, "baseline": 0.8122}, num_train_steps=step, **changed)
    [message] = log.messages
    said = "The model has not learned: f1 0.8122 is no better than always giving the same answer, "
    assert message.startswith(f"{said}which reaches 0.8122. {remedy}")
    assert set(re.findall("`((?:resume|overwrite)_[a-z_]+)", message)) == let_by


def test_a_rate_is_not_called_unusual_where_the_usual_ones_do_not_apply(log):
    warn({"f1": 0.0, "baseline": 0.0}, learning_rate=None, hidden_size=64)
    assert "Try another `seed`" in log.messages[-1]


@pytest.mark.parametrize(
    ("name", "made_of", "step", "said"),
    [
        ("model.ckpt-300", {"--input_file": {}}, 500, "`init_checkpoint` was pre-trained for 300"),
        ("", {"--input_file": {}}, 500, "`init_checkpoint` was pre-trained for 300"),
        ("", {"--input_file": {}}, 9, "9 steps are few.* was pre-trained for 300 steps"),
        # Started from other weights, fine-tuned, or trained for long.
        ("", {"--input_file": {}, "--init_checkpoint": {"path": "bert"}}, 500, "is high"),
        ("", {"the train set": {}}, 500, "is high"),
        ("model.ckpt-20000", {"--input_file": {}}, 500, "is high"),
    ],
)
def test_few_steps_of_pre_training_are_named(log, tmp_path, name, made_of, step, said):
    (tmp_path / "run.json").write_text(json.dumps({"made_of": made_of}))
    saving.save_tensors(str(tmp_path / "model.ckpt-300"), {"w": np.ones(1)})
    warn(
        {"f1": 0.5, "baseline": 0.5},
        num_train_steps=step,
        learning_rate=0.1,
        init_checkpoint=str(tmp_path / name),
    )
    assert re.search(said, log.messages[-1])


def test_predicted_numbers_that_hardly_differ_are_warned_of(log):
    """Pearson sees nothing but the order, and is high for predictions that hardly differ."""
    for predictions, is_warned in ((0.0499, True), (0.0501, False)):
        log.clear()
        deviations = {"predictions": predictions, "labels": 1.0}
        scores = {"pearson": 0.7776, "baseline": 0.0, "standard_deviations": deviations}
        warn(scores, metric="pearson")
        assert bool(log.messages) == is_warned
    # Labels that do not differ say nothing of the predictions.
    deviations = {"predictions": 0.0, "labels": 0.0}
    warn({"pearson": 0.1, "baseline": 0.0, "standard_deviations": deviations}, metric="pearson")
    assert not log.messages


@pytest.mark.parametrize(
    ("metric", "scores"),
    [
        ("accuracy", {"accuracy": 1.0, "baseline": 1.0, "confusion_matrix": [[0, 0], [0, 7]]}),
        ("matthews", {"matthews": 0.0, "baseline": 0.0, "confusion_matrix": [[3, 4], [0, 0]]}),
        # Of endings, the right one may always be the first.
        ("accuracy", {"accuracy": 0.9, "baseline": 1.0}),
        # Questions without an answer.
        ("f1", {"exact": 100.0, "f1": 100.0, "baseline": 100.0}),
        (
            "pearson",
            {
                "pearson": 0.0,
                "baseline": 0.0,
                "standard_deviations": {"predictions": 0.5, "labels": 0.0},
            },
        ),
    ],
)
def test_a_dev_set_of_one_answer_says_nothing_of_what_was_learned(log, metric, scores):
    """With one label for all, no model is better than always giving it."""
    warn(scores, metric=metric)
    [message] = log.messages
    assert message.startswith("The dev set cannot show whether the model has learned")
    assert "overwrite_output_dir" not in message


@pytest.mark.parametrize("scores", [{"f1": 0.82, "baseline": 0.8122}, {}])
def test_a_model_that_beats_the_baseline_is_not_warned_of(log, scores):
    warn(scores)
    assert log.messages == []
