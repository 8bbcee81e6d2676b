import dataclasses
import json
import shutil

import keras
import pytest
from conftest import eagerly, read_report
from helpers import classifier_runs
from helpers.checked_runs import check

import run_classifier
from bert.commands.checks import WRONG
from bert.models.open import load
from bert.runs import search
from bert.runs.plan import plan
from bert.runs.recipes import Command
from bert.runs.run import run
from bert.training.evaluation import EarlyStopping
from bert.weights import saving

GRID = {"learning_rate": (1e-5, 0.005)}
FOLDERS = ["learning_rate_1e-05-run_1", "learning_rate_0.005-run_1"]


class KilledError(BaseException):
    pass


def settings_in(folder):
    make = classifier_runs.settings_in(folder)
    classifier_runs.write_task(folder, lambda color: color)
    given = {"do_train": True, "do_eval": True, "num_train_epochs": 4.0}
    return lambda **changes: make(**{**given, **changes})


@pytest.fixture
def make_settings(tmp_path):
    return settings_in(tmp_path)


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """The folder of a search over a grid, a function that makes settings there, and the summary."""
    folder = tmp_path_factory.mktemp("searched")
    make = settings_in(folder)
    return folder, make, run_classifier.run(make(**GRID, do_predict=True))


def content(folder):
    """Returns the files of a folder, without the curves, of which each process writes its own."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "tfevents" not in path.name:
            lines = path.read_bytes().split(b"\n")
            found[str(path.relative_to(folder))] = [
                line for line in lines if b"tfevents" not in line
            ]
    return found


def test_runs_are_ordered_by_point_and_seed(make_settings):
    settings = make_settings(learning_rate=(2e-5, 3e-5), train_batch_size=[16], num_runs=2, seed=7)
    runs = run_classifier.make_recipe(settings).trials
    assert [each.folder for each in runs] == [
        "learning_rate_2e-05-run_1",
        "learning_rate_2e-05-run_2",
        "learning_rate_3e-05-run_1",
        "learning_rate_3e-05-run_2",
    ]
    assert [each.recipe.schedule.learning_rate for each in runs] == [2e-5, 2e-5, 3e-5, 3e-5]
    assert [each.recipe.seed for each in runs] == [7, 8, 7, 8]
    assert {each.recipe.schedule.train_batch_size for each in runs} == {16}
    # The command of a run makes its model again.
    assert {each.recipe.options()["num_runs"] for each in runs} == {1}
    # All runs are scored on the same examples.
    assert {each.recipe.data.split_seed for each in runs} == {7}


def test_values_that_hardly_differ_have_folders_of_their_own(make_settings):
    settings = make_settings(learning_rate=(1e-5, 1.0000001e-5), num_train_epochs=(1.0, 1234567.0))
    folders = {each.folder for each in run_classifier.make_recipe(settings).trials}
    assert len(folders) == 4
    assert "learning_rate_1e-05-num_train_epochs_1-run_1" in folders


def test_the_best_model_is_used_by_a_single_worker_without_training(make_settings, tmp_path):
    given = {"strategy": "multi_worker", "early_stopping_patience": 2, "num_runs": 2, "seed": 7}
    search = run_classifier.make_recipe(make_settings(**given))
    used = search.use_of("run_2")
    assert (used.seed, used.output.output_dir) == (8, str(tmp_path / "out"))
    assert (used.compute.strategy, used.steps.do_train) == ("one_device", False)
    assert (used.evaluation.early_stopping_patience, used.steps.do_eval) == (0, True)


def test_each_run_must_have_a_seed(make_settings, tmp_path):
    with pytest.raises(ValueError, match=r"seed.* must be at most 4294967294 with .*num_runs"):
        run_classifier.run(make_settings(seed=2**32 - 1, num_runs=2))
    assert not (tmp_path / "out").exists()


def test_one_value_is_no_grid(make_settings, tmp_path):
    one = run_classifier.make_recipe(make_settings(learning_rate=(0.5,)))
    assert (one.output.output_dir, one.schedule.learning_rate) == (str(tmp_path / "out"), 0.5)


@pytest.mark.parametrize("values", [(), (16, 16)])
def test_values_of_a_grid_differ(make_settings, values):
    with pytest.raises(ValueError, match="`train_batch_size` must have at least one value"):
        make_settings(train_batch_size=values)


@pytest.fixture(scope="module")
def alone(searched, tmp_path_factory):
    """The folder of a run that is a point of the grid."""
    _, make, _ = searched
    out = tmp_path_factory.mktemp("alone") / "out"
    settings = make(learning_rate=0.005, do_predict=True, output_dir=str(out))
    keras.utils.clear_session()
    keras.utils.set_random_seed(settings.seed)
    run_classifier.run(settings)
    return out


def test_a_point_equals_a_run_of_its_own(searched, alone):
    folder, _, _ = searched
    ours, theirs = content(folder / "out" / FOLDERS[1]), content(alone)
    assert ours.keys() == theirs.keys()
    # These may contain the name of the folder.
    others = {"run.json", "README.md", "report.html"}
    assert {name: ours[name] for name in ours.keys() - others} == {
        name: theirs[name] for name in theirs.keys() - others
    }


def test_the_best_model_is_copied_and_answers(searched):
    folder, _, summary = searched
    out = folder / "out"
    accuracies = [each["mean"]["accuracy"] for each in summary["points"]]
    best = accuracies.index(max(accuracies))
    assert accuracies[best] > min(accuracies)
    assert summary["best"]["folder"] == FOLDERS[best]
    names = ("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001", "task.json")
    for name in (*names, "eval_results.json", "predictions.tsv"):
        assert (out / name).read_bytes() == (out / FOLDERS[best] / name).read_bytes(), name
    texts = ["a red b", "blue", "c green"]
    answers = load(str(out)).predict(texts)
    assert answers == load(str(out / FOLDERS[best])).predict(texts)


def test_an_older_model_does_not_answer_with_files_of_the_next(searched, alone, tmp_path):
    """No weights are left once the files of a better model have begun to replace others."""
    out, better = tmp_path / "out", tmp_path / "better"
    shutil.copytree(searched[0] / "out" / FOLDERS[0], out)
    shutil.copytree(alone, better)
    (better / "vocab.txt").unlink()
    assert (out / "bert_model.ckpt.index").exists()
    with pytest.raises(FileNotFoundError):
        search.keep_model(str(better), str(out))
    assert not (out / "bert_model.ckpt.index").exists()


@pytest.mark.usefixtures("eager")
def test_a_calibration_of_the_best_model_outlasts_its_search(searched, tmp_path):
    folder, make, summary = searched
    out = tmp_path / "out"
    shutil.copytree(folder / "out", out)
    given = json.loads((out / "task.json").read_text())

    def change(place, temperature):
        (place / "task.json").write_text(json.dumps({**given, "temperature": temperature}))

    change(out, 2.0)
    before = (out / "task.json").read_bytes()
    run_classifier.run(make(**GRID, do_predict=True, output_dir=str(out)))
    assert (out / "task.json").read_bytes() == before
    assert (out / "predictions.tsv").read_bytes() != (folder / "out/predictions.tsv").read_bytes()
    # A run that was calibrated has a temperature of its own, and so has another model.
    best = out / summary["best"]["folder"]
    change(best, 3.0)
    search.keep_model(str(best), str(out))
    assert json.loads((out / "task.json").read_text())["temperature"] == 3.0
    [other] = {*FOLDERS} - {best.name}
    search.keep_model(str(out / other), str(out))
    assert "temperature" not in json.loads((out / "task.json").read_text())


@pytest.mark.usefixtures("eager")
def test_exports_of_another_best_model_are_named(searched, tmp_path, log):
    folder, make, summary = searched
    out, best = tmp_path / "out", summary["best"]["folder"]
    shutil.copytree(folder / "out", out)
    [other] = {*FOLDERS} - {best}
    search.keep_model(str(out / other), str(out))
    (out / "saved_model").mkdir()
    for _ in range(2):
        run_classifier.run(make(**GRID, do_predict=True, output_dir=str(out)))
    older = f"Exports are not those of the model as it is now: {[str(out / 'saved_model')]}"
    # The second time, the model has not changed.
    assert log.text.count(older) == 1
    # A search that was killed has removed it.
    saving.remove(str(out / "bert_model.ckpt"))
    run_classifier.run(make(**GRID, do_predict=True, output_dir=str(out)))
    assert log.text.count(older) == 1


def test_a_refused_export_does_not_end_a_search(tmp_path):
    """Run 1 has a perfect score, run 2 has not; an export of eight bits differs a little."""
    pytest.importorskip("ai_edge_litert")
    make = classifier_runs.settings_in(tmp_path)
    rows = [
        (text, number) for number, (text, _) in enumerate(classifier_runs.make_rows(30, 5, str))
    ]
    for name in ("train.tsv", "dev.tsv"):
        classifier_runs.write_tsv(tmp_path / name, rows)
    given = {"task_type": "regression", "do_train": True, "do_eval": True, "num_train_epochs": 0.3}
    given["num_runs"] = 2
    with eagerly():
        run_classifier.run(make(**given))
    out = tmp_path / "out"
    answers = classifier_runs.read_tsv(out / "run_1/dev_predictions.tsv")
    own = [(text, row["predicted_score"]) for (text, _), row in zip(rows, answers, strict=True)]
    classifier_runs.write_tsv(tmp_path / "dev.tsv", own)
    (out / "run_2/eval_results.json").unlink()
    given |= {"do_export": True, "export_format": "tflite", "export_precision": "int8"}
    with pytest.raises(ValueError, match="Received 0, but tflite_int8 loses"):
        run_classifier.run(make(**given, max_score_loss=0.0))
    assert json.loads((out / "runs.json").read_text())["best"]["folder"] == "run_1"
    assert (out / "run_2/eval_results.json").exists()
    assert not [*out.rglob("tflite*")]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("rates", "changes"),
    [
        ((1e38, 0.005), {}),
        ((1e38, 2e38), {}),
        # The only step is evaluated.
        ((1e30, 0.005), {"num_train_epochs": 0.125, "warmup_proportion": 0.0}),
    ],
)
def test_a_point_that_diverges_does_not_end_a_search(make_settings, tmp_path, log, rates, changes):
    settings = make_settings(**{"learning_rate": rates, "num_train_epochs": 0.25, **changes})
    if rates[1] > 1:
        with pytest.raises(ArithmeticError, match="`learning_rate`"):
            run_classifier.run(settings)
        return
    summary = run_classifier.run(settings)
    assert summary["best"]["folder"] == FOLDERS[1]
    assert summary["points"][0]["failed"] == [settings.seed]
    assert "This run has no score, and the others go on without it" in log.text
    assert "could not be saved" not in log.text
    assert "is no better than guessing (0." in log.text
    stored = json.loads((tmp_path / "out/runs.json").read_text())
    assert stored["points"][0]["mean"]["accuracy"] is None
    assert stored["points"][1]["mean"]["accuracy"] == summary["points"][1]["mean"]["accuracy"]
    assert read_report(tmp_path / "out")


@pytest.mark.usefixtures("eager")
def test_a_search_that_replaces_another_resumes_its_own_runs(searched, monkeypatch, tmp_path):
    """The search is killed in its first run, and resumed without the flag to overwrite."""
    folder, make, _ = searched
    out = tmp_path / "out"
    shutil.copytree(folder / "out", out)
    settings = make(**GRID, num_train_epochs=0.25, output_dir=str(out))

    def die(*_):
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(EarlyStopping, "__call__", die)
        with pytest.raises(KilledError):
            run_classifier.run(dataclasses.replace(settings, overwrite_output_dir=True))
    assert not (out / FOLDERS[1]).exists()
    summary = run_classifier.run(settings)
    assert len(summary["points"]) == 2


@pytest.mark.usefixtures("eager")
def test_the_best_model_goes_where_a_search_resumes_with_changes(searched, monkeypatch, tmp_path):
    """The search is killed in its first run, so that no run has ended that is of the new search."""
    folder, make, _ = searched
    out = tmp_path / "out"
    shutil.copytree(folder / "out", out)

    def die(*_):
        raise KilledError

    monkeypatch.setattr(EarlyStopping, "__call__", die)
    changes = {"num_train_epochs": 4.125, "resume_with_changes": True}
    with pytest.raises(KilledError):
        run_classifier.run(make(**GRID, **changes, output_dir=str(out)))
    assert not list(out.glob("bert_model*"))


def test_the_folder_of_the_best_model_records_its_run(searched):
    folder, _, summary = searched
    out, best = folder / "out", folder / "out" / summary["best"]["folder"]
    ours, theirs = (json.loads((each / "run.json").read_text()) for each in (out, best))
    # Only the flags are those of the search.
    assert ours["ran_with"]["flags"]["--learning_rate"] == [*GRID["learning_rate"]]
    for values in (ours, theirs):
        del values["ran_with"]["flags"]
    assert ours == theirs and ours["told"]["command"]
    assert (out / "README.md").read_bytes() == (best / "README.md").read_bytes()
    titles = [*read_report(out)["sections"]]
    assert titles[:2] == ["Mean and standard deviation", "Runs"]
    assert titles[-1] == "Examples of the dev set"


def test_the_log_names_the_given_flags_alone(searched, tmp_path, log):
    folder, make, _ = searched
    shutil.copytree(folder / "out" / FOLDERS[0], tmp_path / "out")
    files = {"vocab_file": None, "bert_config_file": None, "do_train": False}
    run_classifier.run(make(**files, output_dir=str(tmp_path / "out")))
    [flags] = (message for message in log.messages if message.startswith("Flags: "))
    assert "--do_eval" in flags and "_file" not in flags


def test_the_table_marks_the_best(searched):
    folder, _, summary = searched
    title, _, header, *rows, _, sentence, _ = (folder / "out/runs.txt").read_text().split("\n")
    assert title == "2 points"
    assert header.split()[:2] == ["learning_rate", "accuracy"]
    (marked,) = (row for row in rows if row.startswith("*"))
    assert rows.index(marked) == FOLDERS.index(summary["best"]["folder"])
    for row, point in zip(rows, summary["points"], strict=True):
        assert f"{point['mean']['accuracy']:.4f}" in row
    assert summary["best"]["folder"] in sentence
    assert json.loads((folder / "out/runs.json").read_text()) == summary


@pytest.mark.exhaustive
def test_a_killed_search_resumes(searched, monkeypatch, tmp_path, log):
    folder, make, _ = searched
    settings = make(**GRID, do_predict=True, output_dir=str(tmp_path / "out"))
    evaluate = EarlyStopping.__call__

    def die(self, step):
        if FOLDERS[1] in self._folder:
            raise KilledError
        return evaluate(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(EarlyStopping, "__call__", die)
        with pytest.raises(KilledError):
            run_classifier.run(settings)
    assert not (tmp_path / "out/bert_model.ckpt.index").exists()
    run_classifier.run(settings)
    page = str(tmp_path / "out/report.html")
    assert sum(page in message for message in log.messages) == 1
    assert content(tmp_path / "out") == content(folder / "out")


def test_faults_of_all_points_are_raised_before_the_first_run(make_settings, alone, tmp_path):
    with pytest.raises(ValueError, match="must give at least one step"):
        run_classifier.run(make_settings(num_train_epochs=(1.0, 0.001)))
    with pytest.raises(ValueError, match="must be a multiple of"):
        run_classifier.run(make_settings(train_batch_size=(8, 9), gradient_accumulation_steps=2))
    with pytest.raises(ValueError, match="`learning_rate` of several values needs `do_train`"):
        run_classifier.run(make_settings(learning_rate=(0.1, 0.2), do_eval=False))
    shutil.copytree(alone, tmp_path / "out/train_batch_size_9-run_1")
    with pytest.raises(ValueError, match=r"--learning_rate is 0\.005 there and 0\.003 now"):
        run_classifier.run(make_settings(train_batch_size=(8, 9)))
    assert not list(tmp_path.glob("out/train_batch_size_8-run_1/*model*"))


@pytest.mark.exhaustive
def test_a_search_replaces_no_weights_of_another_run(make_settings, searched, alone, log):
    folder, _, _ = searched
    assert search.may_keep_best(make_settings(output_dir=str(folder / "out")))
    assert not search.may_keep_best(make_settings(output_dir=str(alone)))
    assert "those of the best run stay in the folder of that run" in log.text
    overwriting = make_settings(output_dir=str(alone), overwrite_output_dir=True)
    assert search.may_keep_best(overwriting)


@pytest.mark.usefixtures("eager")
def test_a_search_of_a_recipe_in_python_may_replace_its_own_best_model(make_settings):
    settings = make_settings(num_train_epochs=0.125)
    recipe = dataclasses.replace(run_classifier.make_recipe(settings), command=Command())
    run(plan(recipe.expand(2)))
    assert search.may_keep_best(recipe.output)


def test_a_training_by_itself_does_not_replace_the_best_of_several(searched, tmp_path):
    folder, make, summary = searched
    out = tmp_path / "out"
    shutil.copytree(folder / "out", out)
    before = content(out)
    best = summary["best"]["learning_rate"]
    with pytest.raises(ValueError, match=r"must hold the same training.*--learning_rate is"):
        run_classifier.run(make(learning_rate=best + 0.5, output_dir=str(out)))
    assert content(out) == before
    # The run that is the best one may be repeated.
    run_classifier.run(make(learning_rate=best, output_dir=str(out)))
    name = "bert_model.ckpt.data-00000-of-00001"
    assert content(out)[name] == before[name]
    settings = make(learning_rate=0.5, num_train_epochs=0.125, output_dir=str(out))
    with eagerly():
        run_classifier.run(dataclasses.replace(settings, overwrite_output_dir=True))
    assert not {"runs.json", "runs.txt", FOLDERS[0] + "/run.json"} & {*content(out)}


@pytest.mark.usefixtures("eager")
def test_several_runs_leave_the_weights_of_a_single_run(make_settings, alone, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(alone, out)
    for path in (out / "checkpoint", *out.glob("model.ckpt-*")):
        path.unlink()
    before = (out / "bert_model.ckpt.index").read_bytes()
    summary = run_classifier.run(make_settings(num_runs=2, num_train_epochs=0.125))
    assert (out / "bert_model.ckpt.index").read_bytes() == before
    assert (out / summary["best"]["folder"] / "bert_model.ckpt.index").exists()


@pytest.mark.usefixtures("eager")
def test_overwriting_deletes_the_files_of_a_search_alone(searched, monkeypatch, tmp_path):
    folder, make, _ = searched
    out = tmp_path / "out"
    shutil.copytree(folder / "out", out)
    (out / FOLDERS[0] / "notes.txt").write_text("mine")
    settings = make(
        num_runs=2, num_train_epochs=0.125, overwrite_output_dir=True, output_dir=str(out)
    )

    def die(*_):
        raise KilledError

    monkeypatch.setattr(EarlyStopping, "__call__", die)
    with pytest.raises(KilledError):
        run_classifier.run(settings)
    assert [path.name for path in (out / FOLDERS[0]).iterdir()] == ["notes.txt"]
    assert not (out / FOLDERS[1]).exists()
    assert not list(out.glob("bert_model*"))
    assert (out / "run_1/model.ckpt-0.index").exists()


def test_of_equals_the_first_is_the_best():
    def result(seed, score):
        return {"seed": seed, "folder": f"run_{seed}", "scores": {"f1": score, "baseline": 0.5}}

    scores = [float("nan"), 0.5, 0.9, 0.7, 0.7, 0.9, 0.8, 0.8]
    points = [{"learning_rate": rate} for rate in (0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.4, 0.4)]
    grouped = search._group(points, [result(*each) for each in enumerate(scores)], "f1")
    summary, said = search._sum_up(grouped, "f1")
    assert summary["best"] == {"learning_rate": 0.2, "folder": "run_2", "seed": 2}
    assert [each["failed"] for each in summary["points"]] == [[0, 1], [], [], []]
    assert summary["points"][2]["standard_deviation"]["f1"] == pytest.approx(0.2**0.5 / 10**0.5)
    assert "learning_rate 0.2 (the first of 3 equals), seed 2, in run_2" in said
    lines = search._table(grouped, "f1", summary["best"])
    assert [line[0] for line in lines[1:]] == [" ", "*", " ", " "]
    assert "0.8000 ± 0.1414" in lines[2]


def test_no_run_has_failed_by_a_dev_set_of_one_answer():
    scores = {"accuracy": 1.0, "baseline": 1.0, "confusion_matrix": [[4, 0], [0, 0]]}
    runs = [{"seed": 7, "folder": "run_1", "scores": scores}]
    [point] = search._group([{}], runs, "accuracy")
    assert point["failed"] == []


def test_a_run_that_diverged_is_not_the_best_while_another_has_a_score():
    rates, scores = (1.0, 1.0, 0.1, 0.1), ({}, {}, {}, {"f1": 0.9, "baseline": 0.5})
    results = [
        {"seed": seed, "folder": f"run_{seed}", "scores": each} for seed, each in enumerate(scores)
    ]
    search._fill_scores(results)
    grouped = search._group([{"learning_rate": rate} for rate in rates], results, "f1")
    # It has learned nothing.
    assert [point["failed"] for point in grouped] == [[0, 1], [2]]
    summary, said = search._sum_up(grouped, "f1")
    assert summary["best"] == {"learning_rate": 0.1, "folder": "run_3", "seed": 3}
    assert said == "Best by f1 on the dev set: learning_rate 0.1, seed 3, in run_3."


def test_check_covers_the_whole_grid(make_settings):
    lines = check(run_classifier, make_settings(**GRID, train_batch_size=(4, 8), num_runs=2))
    texts = {line.name: line.text for line in lines}
    assert (texts["runs"], texts["ended runs"]) == ("8 in all; then the best is used", "0 of 8")
    # 64 examples, four times, in batches of 4 and 8, at two rates, with two seeds.
    assert texts["steps"] == "384 in all, 32 to 64 a run"
    assert "for all runs" in texts["time"]
    assert "learning_rate_1e-05-train_batch_size_4-run_1" in texts["output folder"]
    assert not any(line.mark == WRONG for line in lines)
    few = check(run_classifier, make_settings(num_train_epochs=(1.0, 0.001)))
    assert [line.name for line in few if line.mark == WRONG] == ["steps"]


@pytest.mark.parametrize(
    ("changes", "ended", "disk"),
    [
        ({}, "2 of 2", "0 bytes"),
        ({"overwrite_output_dir": True}, "0 of 2", "690 KB"),
        ({"learning_rate": (1e-5, 0.005, 0.01)}, "2 of 3", "345 KB"),
        ({"num_train_epochs": 4.125, "resume_with_changes": True}, "0 of 2", "690 KB"),
    ],
)
def test_check_counts_the_runs_that_have_ended(searched, changes, ended, disk):
    _, make, _ = searched
    lines = {line.name: line for line in check(run_classifier, make(**(GRID | changes)))}
    assert lines["ended runs"].text == ended
    assert f"about {disk}, of" in str(lines["disk"])
    assert ("for all runs" in lines["time"].text) == (ended != "2 of 2")


def test_check_finds_that_runs_have_ended_with_other_options(searched):
    _, make, _ = searched
    lines = check(run_classifier, make(learning_rate=(1e-5, 0.005, 0.01), seed=7))
    [wrong] = [line for line in lines if line.mark == WRONG]
    assert wrong.name == "steps"
    assert "--seed is 12345 there and 7 now" in wrong.text


def test_several_seeds_have_a_mean_and_a_deviation():
    scores = {7: 0.8, 8: 0.5, 9: 0.9}
    runs = [
        {
            "seed": seed,
            "folder": f"run_{seed - 6}",
            "scores": {"f1": score, "baseline": 0.6, "of": {}},
        }
        for seed, score in scores.items()
    ]
    grouped = search._group([{}] * 3, runs, "f1")
    summary, said = search._sum_up(grouped, "f1")
    assert summary["mean"] == pytest.approx({"f1": 0.7333333, "baseline": 0.6})
    assert summary["standard_deviation"] == pytest.approx({"f1": 0.2081666, "baseline": 0.0})
    assert (summary["failed"], summary["runs"]) == ([8], runs)
    assert summary["best"] == {"folder": "run_3", "seed": 9}
    assert search._lines(grouped[0])[0] == "f1 = 0.7333 ± 0.2082  (0.8000, 0.5000, 0.9000)"
    assert said == "Best by f1 on the dev set: seed 9, in run_3."
