import contextlib
import json
import random
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN, read_report
from helpers.checked_runs import assert_refused
from helpers.script_runs import finish_beside_killed
from helpers.squad_runs import (
    golden_settings,
    make_question,
    read_json,
    settings_in,
    write_squad,
    write_task,
)

import modeling
import predict
import run_classifier
import run_squad
import tokenization
from bert.models.open import load
from bert.original import squad as original_squad
from bert.tasks.squad import questions as squad_questions
from bert.tasks.squad import windows as squad_windows
from bert.weights.folder import ModelFolder

ANSWER_FILES = ("predictions.json", "nbest_predictions.json", "null_odds.json")


@pytest.fixture
def make_settings(tmp_path):
    return settings_in(tmp_path)


def read_json_lines(path):
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def check_answers(folder, golden, version):
    """Compares with the original's: texts and their order exactly, numbers to rounding."""
    ours, theirs = (
        read_json(path / f"{prefix}predictions.json")
        for path, prefix in ((folder, ""), (golden, f"squad_v{version}_"))
    )
    assert ours == theirs
    assert list(ours) == list(theirs)
    ours = read_json(folder / "nbest_predictions.json")
    theirs = read_json(golden / f"squad_v{version}_nbest_predictions.json")
    assert list(ours) == list(theirs)
    for name, entries in theirs.items():
        assert [entry["text"] for entry in ours[name]] == [entry["text"] for entry in entries]
        for key in ("probability", "start_logit", "end_logit"):
            expected = [entry[key] for entry in entries]
            assert [entry[key] for entry in ours[name]] == pytest.approx(expected, abs=1e-4)
    if version == 2:
        theirs = read_json(golden / "squad_v2_null_odds.json")
        assert read_json(folder / "null_odds.json") == pytest.approx(theirs, abs=1e-4)


@pytest.mark.parametrize("version", [1, 2])
def test_answers_and_nbest_lists_equal_the_original(tmp_path, golden, version):
    scores = run_squad.run(golden_settings(golden, version, tmp_path))
    check_answers(tmp_path, golden, version)
    assert (tmp_path / "null_odds.json").exists() == (version == 2)
    results = read_json(tmp_path / "eval_results.json")
    assert results == {"global_step": 0, **scores}
    names = {1: ["exact_match", "f1"], 2: ["exact", "f1", "total", "HasAns_exact", "best_f1"]}
    assert set(names[version]) <= set(scores)
    assert "<title>Question answering: " in (tmp_path / "predictions.html").read_text()
    report = read_report(tmp_path)
    assert report["sections"]["Answers"]["rows"][0][0]["target"] == "predictions.html"
    assert report["figures"][0]["value"] == pytest.approx(scores["f1"], abs=1e-3)
    assert ("Scores" in report["sections"]) == (version == 2)
    # The windows are there now, and give the same again.
    before = (tmp_path / "nbest_predictions.json").read_bytes()
    if golden == GOLDEN:
        (tmp_path / "nbest_predictions.json").unlink()
        run_squad.run(golden_settings(golden, version, tmp_path))
        assert (tmp_path / "nbest_predictions.json").read_bytes() == before


def test_an_export_may_lose_a_hundredth_of_the_greatest_score():
    assert run_squad.Settings.max_score_loss == 100 * run_classifier.Settings.max_score_loss


def test_original_names_are_importable():
    assert run_squad.SquadExample is squad_questions.SquadExample
    assert run_squad.RawResult is original_squad.RawResult
    assert run_squad.FeatureWriter is original_squad.FeatureWriter
    assert run_squad.InputFeatures is original_squad.InputFeatures
    assert run_squad.get_final_text("john smith", "John Smith's", True) == "John Smith"
    for name in ("read_squad_examples", "convert_examples_to_features", "write_predictions"):
        assert callable(getattr(run_squad, name))


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory):
    """A folder of questions and of a model that has learned them, and the scores of the latter."""
    folder = tmp_path_factory.mktemp("trained")
    write_task(folder)
    settings = settings_in(folder)(do_train=True, do_predict=True, num_train_epochs=25.0)
    return folder, run_squad.run(settings)


def test_questions_are_learned_and_answered(make_settings, tmp_path, log, trained_once):
    folder, scores = trained_once
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    assert scores["f1"] > 90
    out = tmp_path / "out"
    texts = read_json(out / "predictions.json")
    golds = {
        each.qas_id: each.answers[0].text
        for each in squad_questions.read_squad_examples(str(tmp_path / "dev.json"), False)
    }
    exact = 100 * np.mean([texts[name] == gold for name, gold in golds.items()])
    assert exact == pytest.approx(scores["exact_match"])
    # Steps are counted in questions, though there are more windows.
    assert read_json(out / "eval_results.json") == {"global_step": 200, **scores}
    assert len(list(tf.data.TFRecordDataset(str(out / "train.tf_record")))) > 64
    # Another day, from the folder alone, at another speed, and in another way.
    before = (out / "predictions.json").read_bytes()
    (tmp_path / "train.json").unlink()
    for changes in ({}, {"bucket_predictions": True, "predict_batch_size": 5}):
        (out / "predictions.json").unlink()
        run_squad.run(make_settings(do_predict=True, **changes))
        assert (out / "predictions.json").read_bytes() == before
        assert any(f"f1 = {scores['f1']:.4f}" in message for message in log.messages)
    run_squad.run(make_settings(do_predict=True, n_best_size=1, null_score_diff_threshold=1.0))
    assert {len(each) for each in read_json(out / "nbest_predictions.json").values()} == {1}


def test_questions_without_an_answer_are_learned(make_settings, tmp_path):
    write_task(tmp_path, every=3)
    scores = run_squad.run(
        make_settings(
            do_train=True, do_predict=True, num_train_epochs=30.0, version_2_with_negative=True
        )
    )
    assert (scores["total"], scores["HasAns_total"], scores["NoAns_total"]) == (24, 16, 8)
    assert scores["HasAns_f1"] > 80
    assert scores["NoAns_f1"] > 80
    assert scores["best_f1"] >= scores["f1"]
    odds = read_json(tmp_path / "out/null_odds.json")
    texts = read_json(tmp_path / "out/predictions.json")
    assert all((odds[name] > 0) == (text == "") for name, text in texts.items())
    model = load(str(tmp_path / "out"))
    answer, none = model.predict([("Which?", "a b red. c"), ("Which?", "a b c d e f")])
    assert (answer["answer"], answer["start"], answer["end"]) == ("red", 4, 7)
    assert (none["answer"], none["start"], none["end"]) == ("", None, None)
    assert answer["null_odds"] < 0 < none["null_odds"]
    message = "`version_2_with_negative` must be True to export"
    assert_refused(run_squad, make_settings(do_export=True), tmp_path, message)


@pytest.mark.usefixtures("eager")
def test_training_examples_are_shuffled_as_the_original_does(make_settings, tmp_path, log):
    write_task(tmp_path, count=20)
    run_squad.run(make_settings(do_train=True, num_train_epochs=0.5))
    assert "Training to step 1: 0.5 epochs of 20 examples in batches of 8." in log.messages
    examples = squad_questions.read_squad_examples(str(tmp_path / "train.json"), True)
    random.Random(12345).shuffle(examples)
    settings = make_settings()
    tokenizer = tokenization.FullTokenizer(settings.vocab_file)
    table = squad_windows.make_features(examples, tokenizer, 16, 4, 4, True)
    expected = tmp_path / "expected"
    squad_windows.write_features(str(expected), table)
    assert (tmp_path / "out/train.tf_record").read_bytes() == expected.read_bytes()


@pytest.mark.exhaustive
def test_padding_does_not_change_training(make_settings, tmp_path):
    write_task(tmp_path, count=16)
    weights = []
    for pads in (False, True):
        keras.utils.set_random_seed(1)
        out = str(tmp_path / f"out{pads}")
        run_squad.run(make_settings(do_train=True, pad_to_max_length=pads, output_dir=out))
        reader = tf.train.load_checkpoint(ModelFolder(out).find_weights().prefix)
        weights.append(
            {name: reader.get_tensor(name) for name in reader.get_variable_to_dtype_map()}
        )
    assert "cls/squad/output_weights" in weights[0]
    for name, values in weights[0].items():
        # Adam divides by the gradient's size, so that rounding may grow.
        np.testing.assert_allclose(values, weights[1][name], rtol=0, atol=2e-4, err_msg=name)


@pytest.mark.exhaustive
def test_early_stopping_goes_back_to_the_best(make_settings, tmp_path):
    write_task(tmp_path, count=16)
    scores = run_squad.run(
        make_settings(
            do_train=True, do_predict=True, num_train_epochs=20.0, early_stopping_patience=1,
            save_checkpoints_steps=2, learning_rate=0.0,
        )
    )  # fmt: skip
    history = read_json_lines(tmp_path / "out/evaluations.jsonl")
    assert [line["step"] for line in history] == [2, 4]
    assert scores["f1"] == history[0]["f1"]


@pytest.mark.exhaustive
def test_several_runs_are_summarized(make_settings, tmp_path):
    write_task(tmp_path, every=2, count=16)
    summary = run_squad.run(
        make_settings(
            do_train=True, do_predict=True, num_train_epochs=1.0, num_runs=2,
            version_2_with_negative=True,
        )
    )  # fmt: skip
    assert summary["mean"]["baseline"] == 50.0
    assert (tmp_path / "out/run_2/predictions.json").exists()


@pytest.mark.usefixtures("eager")
def test_other_questions_make_other_windows(make_settings, tmp_path):
    write_task(tmp_path, count=8)
    run_squad.run(make_settings(do_train=True, do_predict=True, num_train_epochs=1.0))
    write_squad(tmp_path / "dev.json", [make_question(np.random.RandomState(5), "new")])
    run_squad.run(make_settings(do_predict=True))
    assert list(read_json(tmp_path / "out/predictions.json")) == ["new"]


@pytest.mark.usefixtures("eager")
def test_blank_paragraphs_and_missing_answers_are_no_obstacle(make_settings, tmp_path):
    write_task(tmp_path, count=8)
    blank = {"context": " \n", "qas": [{"id": "x", "question": "Which?"}]}
    write_squad(tmp_path / "dev.json", [blank])
    out = tmp_path / "out"
    assert run_squad.run(make_settings(do_train=True, do_predict=True, num_train_epochs=1.0)) == {}
    assert read_json(out / "predictions.json") == {"x": "empty"}
    assert not (out / "eval_results.json").exists()
    write_squad(tmp_path / "dev.json", [blank, make_question(np.random.RandomState(5), "y")])
    scores = run_squad.run(make_settings(do_predict=True))
    assert set(scores) == {"exact_match", "f1"}
    assert list(read_json(out / "predictions.json")) == ["x", "y"]
    (answer,) = load(str(out)).predict([("Which?", " \n")])
    assert (answer["answer"], answer["start"]) == ("", None)
    # What is of other predictions does not stay beside these.
    run_squad.run(make_settings(do_predict=True, version_2_with_negative=True))
    written = {"eval_results.json", "null_odds.json"}
    assert written <= {path.name for path in out.iterdir()}
    write_squad(tmp_path / "dev.json", [blank])
    run_squad.run(make_settings(do_predict=True))
    assert not {path.name for path in out.iterdir()} & written


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "At least one of `do_train`, `do_predict` and `do_export`"),
        ({"do_export": True}, "`output_dir` must hold a trained model"),
        ({"do_train": True, "train_file": None}, "`do_train` needs `train_file`"),
        ({"do_predict": True, "predict_file": None}, "`do_predict` needs `predict_file`"),
        ({"do_train": True, "train_file": "nowhere"}, "`train_file` must name a readable file"),
        ({"do_predict": True, "predict_file": "nowhere"}, "`predict_file` must name a readable"),
        ({"do_train": True, "max_query_length": 13}, "`max_seq_length` must be greater than 16"),
        ({"do_train": True, "num_runs": 2}, "`num_runs` needs `do_train` and `do_predict`"),
        ({"do_train": True, "early_stopping_patience": 1}, "`early_stopping_patience` needs"),
        (
            {"do_predict": True, "bucket_predictions": True, "pad_to_max_length": True},
            "`bucket_predictions` must not be given together",
        ),
        ({"do_train": True, "do_predict": True, "predict_file": "{}"}, "must have `data`"),
        (
            {"do_train": True, "do_predict": True, "num_runs": 2, "predict_file": "blind"},
            "`num_runs` needs answers in `predict_file`",
        ),
        (
            {"do_train": True, "do_predict": True, "num_train_epochs": (1.0, 2.0),
             "predict_file": "blind"},
            "`num_train_epochs` needs answers in `predict_file`",
        ),
        (
            {"do_train": True, "do_predict": True, "early_stopping_patience": 2,
             "predict_file": "blind"},
            "`early_stopping_patience` needs answers",
        ),
        (
            {"do_train": True, "do_predict": True, "early_stopping_patience": 2,
             "predict_file": "half", "max_eval_samples": 1},
            "`max_eval_samples` must leave examples that can be scored",
        ),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(make_settings, tmp_path, changes, message):
    write_task(tmp_path, count=8)
    (tmp_path / "{}").write_text("{}")
    question = {"id": "x", "question": "Which?"}
    write_squad(tmp_path / "blind", [{"context": "a b", "qas": [question]}])
    answered = {**question, "id": "y", "answers": [{"text": "a", "answer_start": 0}]}
    write_squad(tmp_path / "half", [{"context": "a b", "qas": [question, answered]}])
    if changes.get("predict_file") in ("{}", "blind", "half"):
        changes = {**changes, "predict_file": str(tmp_path / changes["predict_file"])}
    assert_refused(run_squad, make_settings(**changes), tmp_path, message)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_seq_length": 17}, "`max_seq_length` must be at most 16"),
        ({"max_query_length": 13}, "`max_seq_length` must be greater than 16"),
        ({"init_checkpoint": "cased_L-12_H-768_A-12/bert_model.ckpt"}, "do_lower_case"),
        ({"init_checkpoint": "uncased_L-12_H-768_A-12/bert_model.ckpt"}, None),
    ],
)
def test_flags_are_validated_for_a_program_as_for_the_script(
    make_settings, tmp_path, changes, message
):
    write_task(tmp_path, count=8)
    config = modeling.BertConfig.from_json_file(str(tmp_path / "config.json"))
    settings = make_settings(**{"do_train": True, **changes})
    with pytest.raises(ValueError, match=message) if message else contextlib.nullcontext():
        run_squad.validate_flags_or_throw(config, settings)


@pytest.mark.usefixtures("eager")
def test_training_resumes_only_with_the_same_windows_and_answers(make_settings, tmp_path):
    write_task(tmp_path, count=8)
    run_squad.run(make_settings(do_train=True, num_train_epochs=1.0))
    train = tmp_path / "train.json"
    before = train.read_bytes()
    contents = read_json(train)
    [paragraph, *_] = contents["data"][0]["paragraphs"]
    paragraph["qas"][0]["answers"] = [{"text": paragraph["context"][:1], "answer_start": 0}]
    train.write_text(json.dumps(contents))
    with pytest.raises(ValueError, match="the answer key of the train set is of 8 questions there"):
        run_squad.run(make_settings(do_train=True))
    train.write_bytes(before)
    with pytest.raises(ValueError, match="`doc_stride` is 4 there and 3 now"):
        run_squad.run(make_settings(do_train=True, doc_stride=3))
    run_squad.run(make_settings(do_predict=True, doc_stride=3))
    run_squad.run(
        make_settings(do_train=True, doc_stride=3, num_train_epochs=1.0, overwrite_output_dir=True)
    )
    out = tmp_path / "out"
    assert read_json(out / "task.json")["doc_stride"] == 3
    assert not any((out / name).exists() for name in ("predictions.json", "eval.windows.npz"))


@pytest.fixture
def trained(trained_once, tmp_path):
    """A folder that the script has filled, for each test to do with as it likes."""
    return Path(shutil.copytree(trained_once[0] / "out", tmp_path / "out"))


def test_loaded_model_answers_as_the_script_does(trained_once, trained):
    questions = squad_questions.read_squad_examples(str(trained_once[0] / "dev.json"), False)
    expected = read_json(trained / "nbest_predictions.json")
    for batch_size in (3, 64):
        model = predict.load(str(trained), batch_size=batch_size)
        assert model.fields == ("question", "context")
        answers = model.predict([(each.question_text, each.context) for each in questions])
        for question, answer in zip(questions, answers, strict=True):
            nbest = expected[question.qas_id]
            assert [each["answer"] for each in answer["nbest"]] == [each["text"] for each in nbest]
            assert answer["probability"] == pytest.approx(nbest[0]["probability"], abs=1e-4)
            score = nbest[0]["start_logit"] + nbest[0]["end_logit"]
            assert answer["score"] == pytest.approx(score, abs=1e-3)
            for each in answer["nbest"]:
                assert question.context[each["start"] : each["end"]] == each["answer"]
    assert model.predict([]) == []
    # One context for many questions, and one much longer than a window.
    long = " ".join(["a b c"] * 100 + ["green."] + ["d e"] * 100)
    for answer in model.predict([("Which?", long)] * 2):
        assert long[answer["start"] : answer["end"]] == answer["answer"] == "green"


def test_predict_answers_lines_of_question_and_context(trained, tmp_path):
    (tmp_path / "in.txt").write_text("Which?\ta b red. c\nWhich?\tblue. d\n")
    count = predict.run(
        predict.Settings(
            model_dir=str(trained),
            input_file=str(tmp_path / "in.txt"),
            output_file=str(tmp_path / "answers.jsonl"),
        )
    )
    answers = read_json_lines(tmp_path / "answers.jsonl")
    assert count == 2
    assert [each["answer"] for each in answers] == ["red", "blue"]
    assert answers[0]["context"] == "a b red. c"


@pytest.mark.slow
@pytest.mark.exhaustive
def test_run_killed_anywhere_ends_with_the_same_answers(make_settings, tmp_path):
    write_task(tmp_path, every=3, count=1500)
    defaults = run_squad.Settings.__dataclass_fields__

    def arguments_for(output):
        settings = make_settings(
            output_dir=str(output),
            do_train=True,
            do_predict=True,
            version_2_with_negative=True,
            train_batch_size=32,
            predict_batch_size=1,
            save_checkpoints_steps=20,
        )
        values = {name: getattr(settings, name) for name in defaults}
        changed = {name: each for name, each in values.items() if each != defaults[name].default}
        return ["run_squad.py", *(f"--{name}={value}" for name, value in changed.items())]

    def while_trained(run):
        assert run.wait_for_saves(3)

    kills = [
        lambda run: run.wait_for(run.output.exists),
        while_trained,
        lambda run: run.wait_for((run.output / "bert_model.ckpt.index").exists),
    ]
    whole, cut = finish_beside_killed(arguments_for, tmp_path, kills)
    for name in [*ANSWER_FILES, "predictions.html", "eval_results.json"]:
        assert (cut / name).read_bytes() == (whole / name).read_bytes(), name
