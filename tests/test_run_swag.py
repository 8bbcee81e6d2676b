import json
import re
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
from conftest import LARGE_GOLDEN, eagerly, read_report
from helpers import opened_tasks
from helpers.checked_runs import assert_refused
from helpers.classifier_runs import read_tsv
from helpers.swag_runs import (
    ROW,
    make_rows,
    settings_in,
    write_rows,
    write_task,
)

import modeling
import predict
import run_swag
import tokenization
from bert.models.open import load
from bert.tasks.swag import examples as swag_examples

SWAG = LARGE_GOLDEN.parent / "data" / "swag" / "sample.jsonl"


@pytest.fixture
def make_settings(tmp_path):
    return settings_in(tmp_path)


def chances_of(row):
    cells = [value for name, value in row.items() if name.startswith("probability_")]
    return [float(cell) for cell in cells if cell]


@pytest.mark.usefixtures("eager")
def test_one_file_is_enough_and_a_labelled_test_set_is_scored(make_settings, tmp_path):
    rows = make_rows(60, 0)
    lines = [["context", "label", "ending0", "ending1"]]
    lines += [[row["context"], str(row["label"]), *row["endings"]] for row in rows]
    lines = [line for line in lines if len(line) == 4]
    (tmp_path / "mine.csv").write_text("".join(";".join(line) + "\n" for line in lines))
    given = {"data_dir": None, "train_file": str(tmp_path / "mine.csv"), "separator": ";"}
    verbs = {"do_train": True, "do_eval": True, "do_predict": True, "num_train_epochs": 0.5}
    scores = run_swag.run(make_settings(**given, **verbs, test_file=given["train_file"]))
    predicted = read_tsv(tmp_path / "out/predictions.tsv")
    assert len(predicted) == len(lines) - 1
    right = np.mean([row["predicted_label"] == row["gold"] for row in predicted])
    assert scores["test_accuracy"] == pytest.approx(right)
    stored = json.loads((tmp_path / "out/test_results.json").read_text())
    assert stored["accuracy"] == scores["test_accuracy"]
    # The same context with other endings is on one side.
    config = modeling.BertConfig.from_json_file(str(tmp_path / "config.json"))
    tokenizer = tokenization.FullTokenizer(str(tmp_path / "vocab.txt"))
    task = opened_tasks.open_task(run_swag, make_settings(**given, **verbs), config, tokenizer)
    read = task.read(["train", "dev"])
    train, dev = ({example.context for example in each} for each in read.values())
    assert dev and not train & dev
    assert run_swag.run(make_settings(**given, do_eval=True))["loss"] == scores["loss"]
    with pytest.raises(ValueError, match=r"separates the columns: give .*separator=';'"):
        run_swag.run(make_settings(**{**given, "separator": None}, do_train=True, do_eval=True))


def test_endings_are_learned_and_predicted(make_settings, tmp_path):
    tests = write_task(tmp_path)
    scores = run_swag.run(
        make_settings(do_train=True, do_eval=True, do_predict=True, num_train_epochs=15.0)
    )
    assert scores["accuracy"] > 0.9
    assert scores["baseline"] < 0.5
    out = tmp_path / "out"
    stored = json.loads((out / "eval_results.json").read_text())
    assert stored == {"global_step": 300, **scores}
    lines = (out / "eval_results.txt").read_text().splitlines()
    results = dict(re.fullmatch(r"(\w+) = (\S+)", line).groups() for line in lines)
    assert list(results) == ["eval_accuracy", "eval_loss", "global_step", "loss"]
    assert float(results["eval_accuracy"]) == pytest.approx(scores["accuracy"])
    dev = read_tsv(out / "dev_predictions.tsv")
    right = [row["predicted_label"] == row["gold"] for row in dev]
    assert np.mean(right) == pytest.approx(scores["accuracy"])
    shown = read_report(out)["sections"]["Examples of the dev set"]["examples"]
    assert [right[example["number"]] for example in shown] == [e["is_right"] for e in shown]
    rows = read_tsv(out / "predictions.tsv")
    assert [row["id"] for row in rows] == [test["id"] for test in tests]
    right = []
    for row, test in zip(rows, tests, strict=True):
        chances = chances_of(row)
        assert len(chances) == len(test["endings"])
        assert sum(chances) == pytest.approx(1.0)
        assert int(row["predicted_label"]) == int(np.argmax(chances))
        assert row["predicted_ending"] == test["endings"][int(row["predicted_label"])]
        right.append(int(row["predicted_label"]) == test["label"])
    assert np.mean(right) > 0.9
    # Another day, from the folder alone.
    before = (out / "predictions.tsv").read_bytes()
    (out / "predictions.tsv").unlink()
    (tmp_path / "train.jsonl").unlink()
    keras.utils.set_random_seed(99)
    run_swag.run(make_settings(do_predict=True))
    assert (out / "predictions.tsv").read_bytes() == before


@pytest.mark.exhaustive
def test_a_model_that_cannot_see_the_context_learns_nothing(make_settings, tmp_path):
    write_task(tmp_path)
    for name in ("train", "val"):
        rows = [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        write_rows(tmp_path / f"{name}.jsonl", [{**row, "context": "old"} for row in rows])
    scores = run_swag.run(make_settings(do_train=True, do_eval=True, num_train_epochs=15.0))
    assert scores["accuracy"] < 0.7


@pytest.mark.exhaustive
def test_a_resumed_training_run_ends_with_the_same_weights(make_settings, tmp_path):
    write_task(tmp_path, count=32)
    whole = make_settings(do_train=True, do_eval=True, num_train_epochs=2.0)
    scores = run_swag.run(whole)
    # As if killed after step 5 of 8.
    split = make_settings(
        do_train=True, do_eval=True, num_train_epochs=2.0, output_dir=str(tmp_path / "split"),
        save_checkpoints_steps=5,
    )  # fmt: skip
    keras.utils.set_random_seed(7)
    run_swag.run(split)
    keras.utils.set_random_seed(7)
    restart(tmp_path / "split", 5)
    assert run_swag.run(split) == scores


def restart(folder, step):
    """Takes a folder back to its checkpoint of that step."""
    (folder / "checkpoint").write_text(
        f'model_checkpoint_path: "model.ckpt-{step}"\n'
        f'all_model_checkpoint_paths: "model.ckpt-{step}"\n'
    )
    for path in folder.glob("bert_model.ckpt*"):
        path.unlink()


@pytest.mark.exhaustive
def test_several_runs_and_early_stopping_go_by_the_accuracy(make_settings, tmp_path):
    write_task(tmp_path, count=32)
    summary = run_swag.run(
        make_settings(
            do_train=True, do_eval=True, num_runs=2, num_train_epochs=6.0,
            early_stopping_patience=1, save_checkpoints_steps=2, learning_rate=1e-9,
        )
    )  # fmt: skip
    assert summary["metric"] == "accuracy"
    for number in (1, 2):
        folder = tmp_path / f"out/run_{number}"
        history = [json.loads(x) for x in (folder / "evaluations.jsonl").read_text().splitlines()]
        # Nothing is learned at such a rate, so the second evaluation is no better.
        assert [each["step"] for each in history] == [2, 4]
        assert json.loads((folder / "eval_results.json").read_text())["global_step"] == 2


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    write_task(folder, count=16)
    with eagerly():
        run_swag.run(settings_in(folder)(do_train=True, do_predict=True, num_train_epochs=1.0))
    return folder


@pytest.fixture
def trained(trained_once, tmp_path):
    """A folder that the script has filled, for each test to do with as it likes."""
    return Path(shutil.copytree(trained_once / "out", tmp_path / "out"))


def test_scores_depend_neither_on_batches_nor_padding_nor_the_others_endings(
    make_settings, tmp_path, trained
):
    rows = make_rows(30, 3)
    write_rows(tmp_path / "val.jsonl", rows)
    expected = run_swag.run(make_settings(do_eval=True))
    # An example of seven endings gives all others of its file five more places.
    longer = {"context": "old bird", "endings": ["in old nest"] * 7, "label": 0}
    write_rows(tmp_path / "test.jsonl", rows)
    run_swag.run(make_settings(do_predict=True))
    alone = read_tsv(tmp_path / "out/predictions.tsv")
    for changes in (
        {"eval_batch_size": 1, "predict_batch_size": 1, "max_seq_length": 31},
        {"eval_batch_size": 7, "pad_to_max_length": True, "predict_batch_size": 5},
    ):
        write_rows(tmp_path / "test.jsonl", [*rows, longer])
        scores = run_swag.run(make_settings(do_eval=True, do_predict=True, **changes))
        assert scores["loss"] == pytest.approx(expected["loss"], abs=1e-5)
        assert scores["accuracy"] == expected["accuracy"]
        *together, last = read_tsv(tmp_path / "out/predictions.tsv")
        assert chances_of(last) == pytest.approx([1 / 7] * 7)
        for ours, theirs in zip(together, alone, strict=True):
            assert chances_of(ours) == pytest.approx(chances_of(theirs), abs=1e-5)
            assert ours["predicted_ending"] == theirs["predicted_ending"]


def test_loaded_model_answers_as_the_script_does(trained):
    tests = make_rows(20, 2)
    rows = read_tsv(trained / "predictions.tsv")
    for batch_size in (1, 3, 64):
        model = load(str(trained), batch_size=batch_size)
        answers = model.predict([(row["context"], row["endings"]) for row in tests])
        for answer, row in zip(answers, rows, strict=True):
            assert str(answer["label"]) == row["predicted_label"]
            assert answer["ending"] == row["predicted_ending"]
            assert answer["probabilities"] == pytest.approx(chances_of(row), abs=1e-5)
    assert model.predict([]) == []
    (one,) = model.predict([{**tests[0], "endings": tuple(tests[0]["endings"])}])
    assert one["probabilities"] == pytest.approx(answers[0]["probabilities"], abs=1e-6)


def test_predict_reads_json_lines(trained, tmp_path):
    write_rows(tmp_path / "ask.jsonl", make_rows(5, 4), with_labels=False)
    settings = predict.Settings(
        model_dir=str(trained),
        input_file=str(tmp_path / "ask.jsonl"),
        output_file=str(tmp_path / "answers.jsonl"),
    )
    assert predict.run(settings) == 5
    for line in (tmp_path / "answers.jsonl").read_text().splitlines():
        answer = json.loads(line)
        assert answer["ending"] == answer["endings"][answer["label"]]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"context": "old bird"}, "must have 'context', 'endings'"),
        (
            {"context": "old bird", "endings": "in"},
            "Input 0, .*must have a list of texts as 'endings'",
        ),
        ({"context": "old bird", "endings": ["in"]}, "Input 0, .*at least two endings"),
        ({"context": "old bird", "endings": ["in", " "]}, "every ending must have text"),
        ({"context": ["old"], "endings": ["in", "old"]}, "must have text as 'context'"),
    ],
)
def test_invalid_inputs_are_named(trained, row, message):
    with pytest.raises(ValueError, match=message):
        load(str(trained)).predict([row])


@pytest.mark.parametrize(
    ("changes", "rows", "message"),
    [
        ({"do_train": False}, [ROW], "At least one of `do_train`, `do_eval`"),
        ({}, None, r"`data_dir` must hold one of \['train.csv'"),
        ({"data_dir": "nowhere"}, [ROW], "'nowhere', which is not a folder"),
        ({}, [], "must hold"),
        ({}, [ROW, {**ROW, "label": 2}], r"train.jsonl:2: .* from 0 to 1. Received 2"),
        ({"do_eval": True}, [ROW], r"must hold one of \['val.csv'.*leave `data_dir` out"),
        ({"max_seq_length": 4}, [ROW], "`max_seq_length` must be at least 5"),
    ],
)
def test_what_cannot_work_is_refused(make_settings, tmp_path, changes, rows, message):
    if rows is not None:
        write_rows(tmp_path / "train.jsonl", rows)
    settings = make_settings(**{"do_train": True, **changes})
    assert_refused(run_swag, settings, tmp_path, message)
    assert not (tmp_path / "out/task.json").exists()


@pytest.mark.usefixtures("eager")
def test_rows_of_swag_go_through(make_settings, tmp_path):
    if not SWAG.exists():
        pytest.skip(f"{SWAG} is not there.")
    for name in ("train", "val", "test"):
        shutil.copy(SWAG, tmp_path / f"{name}.jsonl")
    scores = run_swag.run(
        make_settings(do_train=True, do_eval=True, do_predict=True, num_train_epochs=2.0)
    )
    counts = np.bincount([example.label for example in swag_examples.read(str(SWAG))])
    assert scores["baseline"] == counts.max() / 10
    assert len(read_tsv(tmp_path / "out/predictions.tsv")) == 10
