import dataclasses
import functools
import json
import sys

import pytest
import tensorflow as tf
from helpers.observers import Call
from helpers.script_worlds import classifier_world, pretraining_world

import run_classifier
import run_pretraining
from bert.files.process import Stop
from bert.options import OptionError
from bert.runs.plan import plan
from bert.runs.run import run
from bert.training.trackers import Trackers

pytestmark = pytest.mark.usefixtures("eager")

# A package of this name, as far as a run sees it: it writes down what it is called with.
PACKAGE = """
import json, os
def _add(**line):
    with open(os.environ["SENT"], "a") as file:
        file.write(json.dumps(line) + "\\n")
class _Run:
    def __init__(self, id):
        self.id = id
    def define_metric(self, name, step_metric):
        _add(axis=step_metric)
    def log(self, values):
        if "REFUSED" in os.environ:
            raise ConnectionError("no network")
        _add(values=values)
    def finish(self, exit_code):
        _add(exit_code=exit_code)
def init(id, resume, name, config):
    if "LOGGED_OUT" in os.environ:
        raise RuntimeError("api_key not configured")
    run = _Run(id or os.urandom(4).hex())
    _add(opened=run.id, given=id, config=config)
    return run
"""


@pytest.fixture
def sent(tmp_path, monkeypatch):
    """Returns the calls that a package named wandb has got."""
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    folder, lines = tmp_path / "packages", tmp_path / "sent.jsonl"
    folder.mkdir()
    (folder / "wandb.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("SENT", str(lines))
    yield lambda: [json.loads(line) for line in lines.read_text().splitlines()]
    sys.modules.pop("wandb", None)


@pytest.fixture
def train(tmp_path):
    """Returns a function that trains and evaluates a classifier in `out`."""
    world = classifier_world(tmp_path) | {"do_eval": True, "num_train_epochs": 2.0}
    world["eval_batch_size"] = 10

    def train(*observers, **options):
        settings = run_classifier.Settings(**{**world, "save_checkpoints_steps": 2, **options})
        return run(plan(run_classifier.make_recipe(settings)), observers).scores

    return train


def events(folder):
    """Returns the tag, the step and the summary of each value in the event files of a folder."""
    return [
        (value.tag, event.step, value)
        for path in sorted(folder.glob("events.out.tfevents.*"))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    ]


def curves(folder):
    """Returns by tag and step the numbers in the event files of a folder."""
    return {
        (tag, step): tf.make_ndarray(value.tensor).item()
        for tag, step, value in events(folder)
        if value.metadata.plugin_data.plugin_name == "scalars"
    }


def points(lines, part):
    """Returns by name and step the values of a part that a tracker has got."""
    values = [line["values"] for line in lines if "values" in line]
    return {
        (name.removeprefix(part), each["global_step"]): value
        for each in values
        for name, value in each.items()
        if name.startswith(part)
    }


def stop_at(step):
    def stop(at, _):
        if at == step:
            raise Stop(2)

    return stop


def test_a_tracker_gets_options_curves_and_scores(tmp_path, train, sent):
    train(report_to="wandb")
    lines, out = sent(), tmp_path / "out"
    flags = json.loads((out / "run.json").read_text())["ran_with"]["flags"]
    assert lines[0]["config"] == {name.removeprefix("--"): flags[name] for name in flags}
    assert lines[-1] == {"exit_code": 0}
    assert points(lines, "train/") == pytest.approx(curves(out), rel=1e-6)
    history = map(json.loads, (out / "evaluations.jsonl").read_text().splitlines())
    evaluations = {(name, each["step"]): each[name] for each in history for name in each}
    assert points(lines, "eval/") == {
        key: evaluations[key] for key in evaluations if key[0] != "step"
    }
    scores = json.loads((out / "eval_results.json").read_text())
    final = points(lines, "final/")
    assert final == {(name, scores["global_step"]): scores[name] for name, _ in final}
    assert {"accuracy", "loss", "f1"} <= {name for name, _ in final}


def test_a_tracker_gets_all_scores_of_pretraining(tmp_path, sent):
    world = pretraining_world(tmp_path) | {"do_eval": True, "report_to": "wandb"}
    run_pretraining.run(run_pretraining.Settings(**world))
    scores = json.loads((tmp_path / "out" / "eval_results.json").read_text())
    step = scores.pop("global_step")
    assert points(sent(), "final/") == {(name, step): scores[name] for name in scores}
    assert "perplexity" in scores


def test_a_resumed_run_continues_in_the_tracker(tmp_path, train, sent):
    with pytest.raises(Stop):
        train(Call(stop_at(3)), report_to="wandb")
    train(report_to="wandb")
    train(report_to="wandb", overwrite_output_dir=True)
    lines = sent()
    given = [(line["opened"], line["given"]) for line in lines if "opened" in line]
    (first, _), _, (other, _) = given
    assert given == [(first, None), (first, first), (other, None)]
    assert other != first
    assert [line["exit_code"] for line in lines if "exit_code" in line] == [1, 0, 0]


def test_trackers_change_nothing_and_may_fail(tmp_path, train, sent, monkeypatch, caplog):
    def files(folder):
        names = ("bert_model.ckpt.data-00000-of-00001", "train_log.jsonl", "eval_results.json")
        return [(tmp_path / folder / name).read_bytes() for name in names]

    train(output_dir=str(tmp_path / "alone"))
    monkeypatch.setenv("REFUSED", "1")
    train(report_to="wandb")
    assert files("alone") == files("out")
    assert sum("no network" in message for message in caplog.messages) == 1
    assert not (tmp_path / "alone" / "trackers.json").exists()


@pytest.mark.parametrize("name", ["wandb", "mlflow", "sacred"])
def test_a_tracker_that_is_not_installed_ends_the_run_before_anything(
    name, tmp_path, train, monkeypatch
):
    # Folders such as wandb leaves are no packages.
    for package in ("wandb", "mlflow"):
        (tmp_path / package).mkdir()
        monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(p for p in sys.path if "trackers" not in p)])
    with pytest.raises(OptionError, match=f"report_to.*{name}"):
        train(report_to=name)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [{}, {"num_runs": 2}])
def test_a_tracker_that_cannot_be_opened_deletes_nothing(
    tmp_path, train, sent, monkeypatch, options
):
    def files():
        return {p: p.read_bytes() for p in sorted((tmp_path / "out").rglob("*")) if p.is_file()}

    train = functools.partial(train, **options)
    train(report_to="wandb")
    before = files()
    monkeypatch.setenv("LOGGED_OUT", "1")
    for report_to in ("wandb", "tensorboard,wandb"):
        with pytest.raises(OptionError, match=r"`report_to`.*wandb.*api_key not configured"):
            train(report_to=report_to, overwrite_output_dir=True)
    assert files() == before
    if options:
        with pytest.raises(OptionError, match=r"`report_to`"):
            train(report_to="wandb", num_runs=3)
        assert (tmp_path / "out" / "bert_model.ckpt.index").exists()
    # The names of trackers are those of the run that is overwritten.
    train(overwrite_output_dir=True)
    assert not [*(tmp_path / "out").rglob("trackers.json")]


def test_a_damaged_list_of_trackers_is_named(tmp_path):
    (tmp_path / "trackers.json").write_text("{")
    with pytest.raises(ValueError, match=r"trackers\.json' must be JSON"):
        Trackers().open(["tensorboard"], str(tmp_path), {}, begins_anew=False)


def test_pretraining_deletes_nothing_either(tmp_path, sent, monkeypatch):
    settings = run_pretraining.Settings(**pretraining_world(tmp_path))
    run_pretraining.run(settings)
    before = sorted((tmp_path / "out").iterdir())
    monkeypatch.setenv("LOGGED_OUT", "1")
    again = dataclasses.replace(settings, report_to="wandb", overwrite_output_dir=True)
    with pytest.raises(OptionError, match=r"`report_to`.*wandb.*api_key not configured"):
        run_pretraining.run(again)
    assert sorted((tmp_path / "out").iterdir()) == before
    monkeypatch.delenv("LOGGED_OUT")
    run_pretraining.run(again)
    assert [*json.loads((tmp_path / "out" / "trackers.json").read_text())] == ["wandb"]


def test_tensorboard_gets_hyperparameters_and_final_scores(tmp_path, train):
    scores = train(report_to="tensorboard")
    plugins = [value.metadata.plugin_data.plugin_name for _, _, value in events(tmp_path / "out")]
    assert plugins.count("hparams") == 1
    final = {tag: value for (tag, _), value in curves(tmp_path / "out").items() if "final" in tag}
    assert final["final/accuracy"] == pytest.approx(scores["accuracy"])


# Warnings of other packages are theirs.
@pytest.mark.filterwarnings("default")
def test_wandb_offline(tmp_path, train, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    assert hasattr(wandb, "init")
    with pytest.raises(Stop):
        train(Call(stop_at(3)), report_to="wandb")
    train(report_to="wandb")
    name = json.loads((tmp_path / "out" / "trackers.json").read_text())["wandb"]
    assert len([*(tmp_path / "wandb").glob(f"offline-run-*-{name}/run-{name}.wandb")]) == 2


# Warnings of other packages are theirs.
@pytest.mark.filterwarnings("default")
def test_mlflow_in_a_file(tmp_path, train, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    with pytest.raises(Stop):
        train(Call(stop_at(3)), report_to="mlflow")
    scores = train(report_to="mlflow")
    name = json.loads((tmp_path / "out" / "trackers.json").read_text())["mlflow"]
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    [found] = client.search_runs(["0"])
    assert (found.info.run_id, found.info.status) == (name, "FINISHED")
    assert found.data.params["learning_rate"] == "0.01"
    assert found.data.metrics["final/accuracy"] == scores["accuracy"]
    assert [point.step for point in client.get_metric_history(name, "eval/accuracy")][-1] == 5
