import contextlib
import json
import math
import shutil
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import change, free_ports, make_examples, model_inputs, record_places

from bert.files import display
from bert.options import OptionError
from bert.pretraining import heads as pretraining_heads
from bert.tasks.answering import collect
from bert.training import evaluation
from bert.training.cluster import Cluster
from bert.training.evaluation import EarlyStopping, Predictor, evaluate
from bert.training.link import LostWorkerError
from bert.training.loop import NonFiniteLossError
from bert.training.meeting import NOWHERE, RESTS, Meeting, Pace, Place
from bert.training.progress import save_results, save_scores

pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture(scope="module")
def tiny_config(tiny_config):
    """One layer: what is made of outputs does not depend on their number."""
    return change(tiny_config, num_hidden_layers=1)


def test_evaluation_does_not_depend_on_the_batch_size(tiny_config, make_batches):
    model = pretraining_heads.pretraining_model(tiny_config)
    results = [
        evaluate(model, pretraining_heads.metrics, make_batches(size, seed=None, count=9), 100)
        for size in (1, 4, 9, 50)
    ]
    for each in results[1:]:
        assert each == pytest.approx(results[0], abs=1e-5)


@pytest.mark.parametrize("bias_of_padding", [0.0, 9.0])
def test_evaluation_divides_one_sum_by_one_weight(tiny_config, make_batches, bias_of_padding):
    examples = make_examples(tiny_config, 9)
    model = pretraining_heads.pretraining_model(tiny_config)
    # A model that predicts [PAD] is right at all positions that are padding, which count for none.
    bias = model.get_layer("cls").predictions.output_bias
    bias.assign([bias_of_padding] + [0.0] * (tiny_config.vocab_size - 1))
    results = evaluate(model, pretraining_heads.metrics, make_batches(4, None, 9), 100)
    outputs = model({name: examples[name] for name in model.input})
    logits = np.asarray(outputs["masked_lm_logits"], np.float64)
    ids, weights = examples["masked_lm_ids"], examples["masked_lm_weights"]
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    losses = -np.take_along_axis(log_probs, ids[..., None], -1)[..., 0]
    hits = logits.argmax(-1) == ids
    labels = examples["next_sentence_labels"][:, 0]
    next_logits = np.asarray(outputs["next_sentence_logits"], np.float64)
    next_log_probs = next_logits - np.log(np.exp(next_logits).sum(-1, keepdims=True))
    assert results == pytest.approx(
        {
            "masked_lm_loss": (losses * weights).sum() / weights.sum(),
            "masked_lm_accuracy": (hits * weights).sum() / weights.sum(),
            "next_sentence_loss": -next_log_probs[np.arange(9), labels].mean(),
            "next_sentence_accuracy": (next_logits.argmax(-1) == labels).mean(),
        },
        abs=1e-5,
    )


def test_sums_over_many_batches_are_not_rounded(tiny_config, make_batches):
    """In 32 bits, 2^24 does not grow by 1."""
    examples = make_examples(tiny_config, 5)
    examples["next_sentence_labels"][:] = np.arange(5)[:, None] == 0
    ids = keras.Input((None,), dtype="int32", name="input_ids")
    model = keras.Model({"input_ids": ids}, {"same": keras.layers.Identity()(ids)})

    def metrics(outputs, batch):
        is_first = batch["next_sentence_labels"][0, 0] == 1
        return {"score": (tf.where(is_first, 2.0**24, 1.0), tf.constant(1.0))}

    batches = make_batches(1, seed=None, examples=examples)
    assert evaluate(model, metrics, batches, 100) == {"score": (2**24 + 4) / 5}


def test_evaluation_stops_after_its_steps(tiny_config, make_batches):
    model = pretraining_heads.pretraining_model(tiny_config)
    two = evaluate(model, pretraining_heads.metrics, make_batches(4, seed=None), 2)
    examples = {name: values[:8] for name, values in make_examples(tiny_config, 20).items()}
    batches = make_batches(8, seed=None, examples=examples)
    assert two == pytest.approx(evaluate(model, pretraining_heads.metrics, batches, 100), abs=1e-5)


@pytest.fixture
def predictor(tiny_config, make_batches):
    model = pretraining_heads.pretraining_model(tiny_config)
    return Predictor(model, make_batches(4, seed=None).signature)


def batches_by_length(make_batches, examples, batch_size):
    lengths = examples["input_mask"].sum(axis=1)
    return make_batches(batch_size, None, examples=examples, lengths=lengths)


@pytest.mark.parametrize("batch_size", [1, 4, 50])
def test_predictions_come_with_the_numbers_of_their_records(
    tiny_config, make_batches, predictor, batch_size
):
    examples = make_examples(tiny_config, 11)
    expected = predictor.model(model_inputs(examples), training=False)
    seen = []
    for numbers, outputs in predictor.predict(
        batches_by_length(make_batches, examples, batch_size)
    ):
        seen.extend(numbers)
        assert outputs.keys() == expected.keys()
        for name, values in outputs.items():
            np.testing.assert_allclose(values, np.asarray(expected[name])[numbers], atol=1e-5)
    assert sorted(seen) == list(range(11))
    # Else the numbers would not matter.
    assert seen != list(range(11))


@pytest.mark.parametrize(("count", "batch_size"), [(1, 4), (2, 4), (3, 4), (3, 50)])
def test_workers_that_share_predictions_each_have_those_of_one(
    tiny_config, make_batches, predictor, count, batch_size
):
    batches = batches_by_length(make_batches, make_examples(tiny_config, 22), batch_size)
    workers = tuple(f"localhost:{port}" for port in free_ports(count))
    found = [None] * count

    def predict(index):
        meeting = Meeting(Cluster(workers, index), 20.0)
        with contextlib.closing(meeting):
            found[index] = [*predictor.predict(batches, meeting)]
            meeting.all_gather(b"")

    threads = [threading.Thread(target=predict, args=(index,)) for index in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    expected = [*predictor.predict(batches)]
    for each in found:
        assert len(each) == len(expected)
        for (numbers, outputs), (own_numbers, own_outputs) in zip(expected, each, strict=True):
            np.testing.assert_array_equal(own_numbers, numbers)
            assert own_outputs.keys() == outputs.keys()
            for name, values in outputs.items():
                np.testing.assert_array_equal(own_outputs[name], values)


@pytest.mark.parametrize("late", [0, 1])
def test_worker_that_hangs_in_a_prediction_is_named(tiny_config, make_batches, predictor, late):
    workers = tuple(f"localhost:{port}" for port in free_ports(2))
    examples = make_examples(tiny_config, 22)
    of_all = [batches_by_length(make_batches, examples, 4) for _ in workers]
    # So that no batch takes longer than the others.
    collect(predictor.predict(of_all[0]))
    found = [None] * 2

    def predict(index):
        batches = of_all[index]
        own = batches.every(2, index)
        lost = threading.Event()
        iterate = own.iterate

        def read(*arguments):
            for number, batch in enumerate(iterate(*arguments)):
                if (index, number) == (late, 1):
                    assert lost.wait(20.0)
                yield batch

        own.iterate, batches.every = read, lambda count, index: own
        meeting = Meeting(Cluster(workers, index), 20.0, Pace(2.0))
        meeting.wake = lambda _: lost.set()
        with contextlib.closing(meeting), pytest.raises(LostWorkerError) as error:
            [*predictor.predict(batches, meeting)]
        found[index] = str(error.value)

    threads = [threading.Thread(target=predict, args=(index,)) for index in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    who = Cluster(workers, 0).name(late).capitalize()
    said = f"{who} has not got beyond a batch of an evaluation or prediction in "
    assert all(each.startswith(said) for each in found), found


def test_an_evaluation_reports_its_place(tiny_config, make_batches, monkeypatch):
    batches = make_batches(3, seed=None, count=9)
    pace, seen = record_places(monkeypatch, evaluation, batches)
    model = pretraining_heads.pretraining_model(tiny_config)
    evaluate(model, pretraining_heads.metrics, batches, 3)
    # What is known when a batch is read is of the one before.
    assert seen == [Place(0, RESTS, evaluated) for evaluated in (0, 1, 3)]
    assert pace.place == NOWHERE


def test_evaluation_and_prediction_say_how_far_they_are(
    tiny_config, make_batches, monkeypatch, log
):
    model = pretraining_heads.pretraining_model(tiny_config)
    batches = make_batches(3, seed=None, count=9)
    predictor = Predictor(model, batches.signature)
    assert sum(len(numbers) for numbers, _ in predictor.predict(batches)) == 9
    evaluate(model, pretraining_heads.metrics, batches, 2)
    assert not [message for message in log.messages if "ETA" in message]
    monkeypatch.setattr(display, "_SECONDS_BETWEEN_LINES", 0)
    assert sum(len(numbers) for numbers, _ in predictor.predict(batches)) == 9
    evaluate(model, pretraining_heads.metrics, batches, 2)
    lines = [message.split("  ETA")[0] for message in log.messages if "ETA" in message]
    assert lines == ["Predicting: 33 %", "Predicting: 67 %", "Evaluating: 50 %"]


def test_results_are_written_sorted_with_the_step(tmp_path):
    save_results(str(tmp_path), 12, {"loss": 0.1, "accuracy": 1.0})
    text = (tmp_path / "eval_results.txt").read_text()
    assert text == "accuracy = 1.0\nglobal_step = 12\nloss = 0.1\n"


@pytest.mark.parametrize("table", ["", "accuracy  0.7500\n\nloss      0.1250"])
def test_scores_are_logged_once_in_a_line_or_a_table(tmp_path, log, table):
    save_results(str(tmp_path), 12, {"loss": 0.125, "accuracy": 0.75}, table=table)
    logged = "\n".join(log.messages)
    assert (logged.count("0.125"), logged.count("0.75"), logged.count("step 12")) == (1, 1, 1)


def test_scores_that_are_no_numbers_are_none_in_json(tmp_path):
    scores = {"loss": math.nan, "f1": 0.5, "per_class": {"a": [math.inf, 1]}}
    save_scores(str(tmp_path), 12, scores)
    stored = json.loads((tmp_path / "eval_results.json").read_text(), parse_constant=pytest.fail)
    assert stored == {"global_step": 12, "loss": None, "f1": 0.5, "per_class": {"a": [None, 1]}}


@pytest.fixture
def model():
    inputs = keras.Input((2,), name="x")
    return keras.Model(inputs, keras.layers.Dense(1, name="dense")(inputs))


def stopping(folder, model, scores, *, patience=0, start=0, writes=True):
    """Returns what stops early, and a function that evaluates after a step.

    The model's bias is the step, so that its weights tell when they were kept.
    """
    given = iter(scores)
    early = EarlyStopping(
        lambda _: {"f1": next(given), "baseline": 0.3, "per_class": {}}, "f1", patience
    )
    early.open(str(folder), model, start, writes=writes)

    def evaluate_after(step):
        model.weights[1].assign([step])
        return early(step)

    return early, evaluate_after


def kept_bias(early):
    (name,) = (n for n, _ in tf.train.list_variables(early.best_weights) if n.endswith("bias"))
    return tf.train.load_variable(early.best_weights, name)


@pytest.mark.parametrize(
    ("patience", "scores", "over"),
    [
        (2, [0.1, 0.4, 0.3, 0.4], [False, False, False, True]),
        (2, [0.1, 0.4, 0.3, 0.5, 0.5], [False, False, False, False, False]),
        (1, [0.1, 0.1], [False, True]),
        (0, [0.4, 0.3, 0.2, 0.1], [False, False, False, False]),
    ],
)
def test_training_is_over_after_so_many_evaluations_in_vain(
    tmp_path, model, patience, scores, over
):
    early, evaluate_after = stopping(tmp_path, model, scores, patience=patience)
    assert [evaluate_after(step) for step in range(1, len(scores) + 1)] == over
    # Of equals, the first.
    best = int(np.argmax(scores))
    assert early.best == {"step": best + 1, "f1": scores[best]}
    assert kept_bias(early) == best + 1


def test_no_evaluation_has_no_best(tmp_path, model):
    early, _ = stopping(tmp_path, model, [], patience=1)
    assert (early.best, early.best_weights, early.is_over) == (None, None, False)


def test_a_resumed_run_reads_only_scores_of_earlier_steps(tmp_path, model):
    _, evaluate_after = stopping(tmp_path, model, [0.3, 0.2, 0.9], patience=2)
    for step in (2, 4, 6):
        assert not evaluate_after(step)
    early, evaluate_after = stopping(tmp_path, model, [0.1], patience=2, start=5)
    assert early.best == {"step": 2, "f1": 0.3}
    assert evaluate_after(6)
    lines = (tmp_path / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"step": 2, "f1": 0.3}, {"step": 4, "f1": 0.2}, {"step": 6, "f1": 0.1},
    ]  # fmt: skip
    # A later best had its weights saved, but not its checkpoint: the one of before is still there.
    assert kept_bias(early) == 2
    # Begun anew, it knows nothing, and neither does a run that resumes it.
    for start in (0, 5):
        assert stopping(tmp_path, model, [], start=start)[0].best is None


def test_early_stopping_needs_its_best_weights_from_the_start(tmp_path, model):
    _, evaluate_after = stopping(tmp_path, model, [0.3, 0.2], patience=2)
    for step in (2, 4):
        assert not evaluate_after(step)
    shutil.rmtree(tmp_path / "best")
    with pytest.raises(OptionError, match=r"best evaluation.*model\.ckpt-2.*evaluations\.jsonl"):
        stopping(tmp_path, model, [], patience=2, start=4)
    # Without early stopping, they are not used.
    assert stopping(tmp_path, model, [], start=4)[0].best == {"step": 2, "f1": 0.3}
    (tmp_path / "evaluations.jsonl").unlink()
    early, _ = stopping(tmp_path, model, [0.2], patience=2, start=4)
    early.at_steps(2, 8)
    assert early.best == {"step": 4, "f1": 0.2}
    assert kept_bias(early) == 4


def test_a_score_that_is_no_number_is_null_in_the_history(tmp_path, model):
    early = EarlyStopping(lambda _: {"f1": 0.5, "loss": math.nan}, "f1")
    early.open(str(tmp_path), model, 0, writes=True)
    early(2)
    text = (tmp_path / "evaluations.jsonl").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {"step": 2, "f1": 0.5, "loss": None}
    early.open(str(tmp_path), model, 2, writes=True)
    assert early.best["f1"] == 0.5


def test_other_workers_write_no_scores_and_no_weights(tmp_path, model):
    early, evaluate_after = stopping(tmp_path, model, [0.5, 0.1], patience=1, writes=False)
    assert [evaluate_after(1), evaluate_after(2)] == [False, True]
    assert early.best == {"step": 1, "f1": 0.5}
    assert not (tmp_path / "evaluations.jsonl").exists()
    assert not (tmp_path / "best").exists()


def test_weights_that_are_not_finite_are_not_evaluated(tmp_path, model):
    early, _ = stopping(tmp_path, model, [0.5])
    model.weights[1].assign([math.nan])
    found = "At step 2: 1 of 1 values of `dense/bias` are not finite.*`learning_rate`"
    with pytest.raises(NonFiniteLossError, match=found):
        early(2)
    assert early.best is None
    assert not (tmp_path / "evaluations.jsonl").exists()


def test_evaluations_come_at_their_steps_and_after_the_last(tmp_path, model):
    early, _ = stopping(tmp_path, model, [0.1, 0.2, 0.3])
    early.at_steps(3, 7)
    assert not any(early.after_step(step, {}) for step in range(1, 8))
    lines = (tmp_path / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [3, 6, 7]


@pytest.mark.parametrize(
    "line",
    [
        '{"step": 2, "f1": 0.',
        "[1, 2]",
        '{"f1": 0.5}',
        '{"step": 2}',
        '{"step": "2", "f1": 0.5}',
        '{"step": 2, "f1": null}',
        "[" * 100_000,
    ],
)
def test_a_damaged_history_is_named_by_line(tmp_path, tiny_config, line):
    path = tmp_path / "evaluations.jsonl"
    path.write_text(f'{{"step": 1, "f1": 0.25}}\n{line}\n')
    model = pretraining_heads.pretraining_model(tiny_config)
    stopping = EarlyStopping(lambda _: {"f1": 1.0}, "f1")
    with pytest.raises(ValueError, match=r"evaluations\.jsonl:2: must be an object with `step`"):
        stopping.open(str(tmp_path), model, 5, writes=True)
    path.write_text('{"step": 1, "f1": 0.25}\n{"step": 7, "f1": 1}\n')
    stopping.open(str(tmp_path), model, 5, writes=True)
    assert stopping.best == {"step": 1, "f1": 0.25}


def test_an_evaluation_that_was_cut_off_is_made_up_for(tmp_path, model):
    _, evaluate_after = stopping(tmp_path, model, [0.1])
    assert not evaluate_after(2)
    # The weights of step 4 were saved, and then a signal came.
    for done in (False, True):
        early, _ = stopping(tmp_path, model, [] if done else [0.4], start=4)
        model.weights[1].assign([4])
        early.at_steps(2, 9)
        assert early.best == {"step": 4, "f1": 0.4}
        assert kept_bias(early) == 4
    lines = (tmp_path / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2, 4]
    # The last step is one to evaluate after, others are not, and neither is the beginning.
    for step, last, due in ((5, 9, []), (0, 9, []), (5, 5, [0.2])):
        early, _ = stopping(tmp_path, model, due, start=step)
        early.at_steps(2, last)
