"""A folder holds one training run, which replaces none but its own files."""

import dataclasses
import json
import shutil

import keras
import numpy as np
import pytest
from conftest import eagerly
from helpers import classifier_runs

import modeling
import run_classifier
from bert.files import owned
from bert.models.open import load
from bert.runs import identity
from bert.runs.identity import plan_training
from bert.training.options import Output
from bert.weights import checkpoint, saving

pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with data, initial weights, and a training run in `out`."""
    folder = tmp_path_factory.mktemp("trained")
    classifier_runs.write_task(folder, lambda color: color, count=16)
    make = classifier_runs.settings_in(folder)
    config = modeling.BertConfig.from_json_file(str(folder / "config.json"))
    encoder = modeling.BertModel(config)
    encoder.build(None)
    for number in (1, 2):
        tensors = {v.path: np.full(v.shape, 0.01 * number, np.float32) for v in encoder.weights}
        saving.save_tensors(str(folder / f"init_{number}.ckpt"), tensors)
    run_classifier.run(
        make(
            do_train=True,
            do_eval=True,
            do_predict=True,
            num_train_epochs=1.0,
            init_checkpoint=str(folder / "init_1.ckpt"),
        )
    )
    shutil.copytree(folder / "out", folder / "teacher")
    return folder


@pytest.fixture
def command(trained, tmp_path):
    """Returns a function that makes the settings of the run, in a copy of its folder."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    make = classifier_runs.settings_in(tmp_path)

    def change(**changes):
        return make(
            **{
                "do_train": True,
                "num_train_epochs": 1.0,
                "init_checkpoint": str(tmp_path / "init_1.ckpt"),
                **changes,
            }
        )

    return change


def content_of(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def drop_an_example(folder):
    path = folder / "train.tsv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"learning_rate": 0.5}, "--learning_rate is 0.003 there and 0.5 now"),
        ({"train_batch_size": 4}, "--train_batch_size is 8 there and 4 now"),
        ({"seed": 5}, "--seed is 12345 there and 5 now"),
        ({"num_train_epochs": 2.0}, "--num_train_epochs is 1.0 there and 2.0 now"),
        ({"warmup_proportion": 0.5}, "--warmup_proportion is 0.1 there and 0.5 now"),
        ({"freeze_layers": 1}, "--freeze_layers is absent there and 1 now"),
        ({"layerwise_lr_decay": 0.5}, "--layerwise_lr_decay is 1.0 there and 0.5 now"),
        ({"max_train_samples": 15}, "--max_train_samples is absent there and 15 now"),
        ({"truncation": "tail"}, "--truncation is 'head' there and 'tail' now"),
        ({"doc_stride": 3}, "--doc_stride is absent there and 3 now"),
        ({"label_smoothing_factor": 0.1}, "--label_smoothing_factor is 0.0 there and 0.1 now"),
        ({"class_weights": "balanced"}, "--class_weights is 'none' there and 'balanced' now"),
        ({"precision": "mixed_bfloat16"}, "--precision is 'float32' there and 'mixed_bfloat16'"),
        ({"init_checkpoint": "init_2.ckpt"}, r"is init_1\.ckpt there and init_2\.ckpt now"),
        ({"teacher": "teacher"}, "--teacher is absent there and teacher now"),
        (drop_an_example, "the train set is 16 records there and 15 records now"),
    ],
)
def test_another_training_run_does_not_resume_the_one_in_the_folder(
    command, tmp_path, changes, difference
):
    if callable(changes):
        changes(tmp_path)
        changes = {}
    if changes.keys() & {"init_checkpoint", "teacher"}:
        changes = {name: str(tmp_path / path) for name, path in changes.items()}
    before = content_of(tmp_path)
    with pytest.raises(ValueError, match=f"must hold the same training.*{difference}"):
        run_classifier.run(command(**changes))
    assert content_of(tmp_path) == before
    if "learning_rate" in changes:
        # A prediction does not depend on the options of training.
        run_classifier.run(command(do_train=False, do_predict=True, **changes))


def test_a_run_resumes_with_changes_on_request(command, tmp_path, log):
    changes = {"num_train_epochs": 2.0, "resume_with_changes": True}
    run_classifier.run(command(**changes))
    assert "Resuming with changes: --num_train_epochs is 1.0 there and 2.0 now." in log.text
    assert "Resuming from step 2" in log.text
    # Now the folder holds the changed run.
    run_classifier.run(command(num_train_epochs=2.0))
    with pytest.raises(ValueError, match=r"is 2\.0 there and 1\.0 now"):
        run_classifier.run(command())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        # The initial weights need not be named again, and may have been moved.
        {"init_checkpoint": None},
        {"init_checkpoint": "copy"},
        {"predict_batch_size": 3, "save_checkpoints_steps": 1, "pad_to_max_length": True},
    ],
)
def test_the_same_training_run_resumes(command, tmp_path, log, changes):
    if changes.get("init_checkpoint"):
        for path in tmp_path.glob("init_1.ckpt*"):
            shutil.copy(path, tmp_path / path.name.replace("init_1", "copy"))
        changes = {"init_checkpoint": str(tmp_path / "copy.ckpt")}
    weights = (tmp_path / "out/bert_model.ckpt.index").read_bytes()
    run_classifier.run(command(**changes))
    assert "step 2 is reached already" in log.text
    assert (tmp_path / "out/bert_model.ckpt.index").read_bytes() == weights


def test_a_run_starts_over_where_nothing_is_trained_yet(command, tmp_path, log):
    out = tmp_path / "out"
    for path in (out / "checkpoint", *out.glob("model.ckpt-2.*"), *out.glob("bert_model.ckpt*")):
        path.unlink()
    run = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps({**run, "ended": False}))
    run_classifier.run(command(init_checkpoint=str(tmp_path / "init_2.ckpt"), learning_rate=0.0))
    assert "training starts over there" in log.text
    stored = checkpoint.Stored.open(str(out)).read(["bert/embeddings/word_embeddings"])
    assert (stored["bert/embeddings/word_embeddings"] == np.float32(0.02)).all()
    assert json.loads((out / "run.json").read_text())["made_of"]["--learning_rate"] == 0.0


def test_a_run_killed_before_its_first_checkpoint_resumes_no_other_run(tmp_path):
    folder = str(tmp_path)
    weights = {"w": keras.Variable(np.ones(2), name="w")}
    checkpoints = saving.Checkpoints(folder)

    def begin(seed):
        made_of = identity.of_training({"seed": seed}, None, {})
        plan = plan_training(Output(output_dir=folder), 10, None, made_of, {})
        plan.record(folder, {})
        return plan

    assert begin(seed=1).starts_over
    checkpoints.save(weights, 0)
    assert not begin(seed=1).starts_over
    (tmp_path / "model.ckpt-0.mine").write_text("mine")
    assert begin(seed=2).starts_over
    assert begin(seed=2).starts_over
    assert {path.name for path in tmp_path.iterdir()} == {
        *("run.json", "model.ckpt-0.mine", owned.LIST_FILE)
    }
    checkpoints.save(weights, 0)
    assert not begin(seed=2).starts_over
    # A run with a step does not start over, and is not resumed by another.
    checkpoints.save(weights, 1)
    with pytest.raises(ValueError, match="--seed is 2 there and 3 now"):
        begin(seed=3)
    assert not begin(seed=2).starts_over


def delete_checkpoints(out, *, with_list=True):
    """Deletes checkpoints, as users do to save disk space, with or without their list."""
    for path in (*out.glob("model.ckpt-*"), *[out / "checkpoint"] * with_list):
        path.unlink()


@eagerly(False)
@pytest.mark.parametrize("with_list", [True, False])
def test_finished_weights_whose_checkpoints_were_deleted_answer_the_same_command(
    command, tmp_path, log, with_list
):
    out = tmp_path / "out"
    delete_checkpoints(out, with_list=with_list)
    weights = (out / "bert_model.ckpt.data-00000-of-00001").read_bytes()
    before = json.loads((out / "eval_results.json").read_text())
    scores = run_classifier.run(command(do_eval=True))
    assert any(message.startswith("Nothing to train") for message in log.messages)
    assert (out / "bert_model.ckpt.data-00000-of-00001").read_bytes() == weights
    assert json.loads((out / "eval_results.json").read_text()) == before
    assert scores["loss"] == before["loss"]


@pytest.mark.parametrize("has_weights", [True, False])
@pytest.mark.parametrize("change", ["learning_rate", "example", "unknown", "resume"])
def test_no_other_run_replaces_one_that_has_ended(command, tmp_path, change, has_weights):
    out = tmp_path / "out"
    delete_checkpoints(out, with_list=has_weights or change == "unknown")
    changes = {"learning_rate": 0.5} if change in ("learning_rate", "resume") else {}
    changes |= {"resume_with_changes": True} if change == "resume" else {}
    if change == "example":
        drop_an_example(tmp_path)
    if change == "unknown":
        (out / "run.json").unlink()
    if not has_weights:
        for path in out.glob("bert_model.ckpt*"):
            path.unlink()
    before = content_of(out)
    if change == "unknown" and not has_weights:
        # Nothing in the folder is of a training run.
        run_classifier.run(command(**changes))
        return
    with pytest.raises(ValueError, match=r"must hold the same training.*`.*overwrite_output_dir`"):
        run_classifier.run(command(**changes))
    assert content_of(out) == before
    if has_weights and change == "example":
        run_classifier.run(command(**changes, overwrite_output_dir=True))
        assert not (out / "eval_results.json").exists()
        assert (out / "model.ckpt-0.index").exists()


@pytest.mark.parametrize("strategy", ["one_device", "multi_worker"])
def test_a_run_whose_results_were_deleted_is_trained_again(command, tmp_path, strategy):
    out = tmp_path / "out"
    delete_checkpoints(out, with_list=False)
    for path in out.glob("bert_model.ckpt*"):
        path.unlink()
    run_classifier.run(command(strategy=strategy))
    assert (out / "model.ckpt-0.index").exists() and (out / "bert_model.ckpt.index").exists()


def test_weights_in_the_folder_are_used_as_named(command, tmp_path):
    out = tmp_path / "out"

    def score(init=None):
        return run_classifier.run(
            command(do_train=False, do_eval=True, init_checkpoint=init and str(tmp_path / init))
        )["loss"]

    # Weights that are neither in the folder nor what it was trained from are refused.
    before = content_of(out)
    with pytest.raises(ValueError, match=r"init_checkpoint` must name weights in `.*output_dir`"):
        score("init_2.ckpt")
    assert content_of(out) == before
    last = score()
    assert score("init_1.ckpt") == score("out") == score("out/model.ckpt-2") == last
    first = score("out/model.ckpt-0")
    assert first != last
    assert json.loads((out / "eval_results.json").read_text())["global_step"] == 0
    # Without `run.json`, the weights in the folder are used.
    (out / "run.json").unlink()
    assert score("init_2.ckpt") == last
    assert score("out/model.ckpt-0") == first


def test_overwriting_deletes_the_files_of_runs_alone(command, tmp_path):
    out = tmp_path / "out"
    mine = {"predictions.csv", "predictions_of_my_boss.xlsx", "run_1/a", "eval/b", "notes.partial"}
    for name in mine:
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text("mine")
    run_classifier.run(command(overwrite_output_dir=True, seed=7))
    left = {str(path.relative_to(out)) for path in content_of(out)}
    events = {name for name in left if "tfevents" in name}
    checkpoints = {name for name in left if ".ckpt" in name}
    assert left - events - checkpoints == mine | {
        *("bert_config.json", "checkpoint", "run.json", "task.json", "train.tf_record"),
        *("README.md", "report.html", "train_log.jsonl", "vocab.txt", owned.LIST_FILE),
    }
    assert len(events) == 1
    assert {name.partition(".ckpt")[0] for name in checkpoints} == {"model", "bert_model"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_train_epochs": 0.01}, "must give at least one step"),
        ({"init_checkpoint": "out"}, "`.*init_checkpoint` must not be of the run in"),
        ({"init_checkpoint": "out/best"}, "`.*init_checkpoint` must not be of the run in"),
        (
            {"init_checkpoint": "out/model.ckpt-2"},
            "`.*init_checkpoint` must not be of the run in",
        ),
        (
            {"teacher": "teacher", "unlabeled_file": "out/predictions.tsv"},
            "`.*unlabeled_file` must not be of the run in",
        ),
    ],
)
def test_a_run_that_is_refused_deletes_nothing(command, tmp_path, changes, message):
    if "num_train_epochs" not in changes:
        files = {"bert_config_file": "config.json", "vocab_file": "vocab.txt"}
        changes = {name: str(tmp_path / value) for name, value in {**changes, **files}.items()}
    before = content_of(tmp_path)
    for overwrites in (True, False):
        with pytest.raises(ValueError, match=message):
            run_classifier.run(command(overwrite_output_dir=overwrites, **changes))
    assert content_of(tmp_path) == before


def test_the_vocabulary_of_the_folder_itself_may_be_given(command, tmp_path):
    """The vocabulary is read before anything is deleted."""
    files = {"bert_config_file": "bert_config.json", "vocab_file": "vocab.txt"}
    given = {name: str(tmp_path / "out" / value) for name, value in files.items()}
    before = {path: (tmp_path / "out" / path).read_bytes() for path in files.values()}
    run_classifier.run(command(overwrite_output_dir=True, **given))
    assert {path: (tmp_path / "out" / path).read_bytes() for path in files.values()} == before


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_damaged_initial_weights_delete_nothing(command, tmp_path):
    flip_a_bit(tmp_path / "init_1.ckpt.data-00000-of-00001")
    before = content_of(tmp_path)
    with pytest.raises(ValueError, match=r"init_1\.ckpt"):
        run_classifier.run(command(overwrite_output_dir=True))
    assert content_of(tmp_path) == before


def test_a_search_does_not_delete_the_weights_that_it_starts_from(command, tmp_path):
    several = {"num_runs": 2, "do_eval": True, "output_dir": str(tmp_path / "several")}
    run_classifier.run(command(**several))
    before = content_of(tmp_path / "several")
    changes = {"init_checkpoint": str(tmp_path / "several/run_2/bert_model.ckpt")}
    with pytest.raises(ValueError, match=r"`.*init_checkpoint` must not be of the run in"):
        run_classifier.run(command(**several, **changes, overwrite_output_dir=True))
    assert content_of(tmp_path / "several") == before
    with owned.lock(str(tmp_path / "several")):
        before = content_of(tmp_path / "several")
        with pytest.raises(ValueError, match="must be a folder in which nothing else trains"):
            run_classifier.run(command(**several, overwrite_output_dir=True))
        assert content_of(tmp_path / "several") == before


def test_a_folder_without_its_list_of_files_resumes_and_loses_nothing(command, tmp_path, log):
    out = tmp_path / "out"
    (out / owned.LIST_FILE).unlink()
    run_classifier.run(command())
    assert "step 2 is reached already" in log.text
    weights = content_of(out)
    run_classifier.run(command(overwrite_output_dir=True, seed=7))
    kept = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert kept["model.ckpt-2.index.kept-1"] == weights[out / "model.ckpt-2.index"]


@pytest.mark.parametrize("overwrites", [False, True])
def test_nothing_is_trained_in_the_folder_of_a_released_model(command, tmp_path, overwrites):
    released = tmp_path / "released"
    released.mkdir()
    for path in tmp_path.glob("init_1.ckpt*"):
        shutil.copy(path, released / path.name.replace("init_1", "bert_model"))
    shutil.copy(tmp_path / "vocab.txt", released)
    before = content_of(released)
    settings = command(
        init_checkpoint=str(released),
        output_dir=str(released),
        overwrite_output_dir=overwrites,
    )
    with pytest.raises(ValueError, match="must not hold weights that were not trained there"):
        run_classifier.run(settings)
    assert content_of(released) == before


def test_one_run_at_a_time_trains_in_a_folder(command, tmp_path):
    settings = command(overwrite_output_dir=True)
    with owned.lock(settings.output_dir):
        before = content_of(tmp_path)
        with pytest.raises(ValueError, match="must be a folder in which nothing else trains"):
            run_classifier.run(settings)
        assert content_of(tmp_path) == before
        # Another process may evaluate meanwhile.
        run_classifier.run(dataclasses.replace(settings, do_train=False, do_predict=True))
    run_classifier.run(settings)


def test_weights_of_a_run_that_has_not_ended_are_reported(command, tmp_path, log):
    out = tmp_path / "out"
    for path in out.glob("bert_model.ckpt*"):
        path.unlink()
    run = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps({**run, "ended": False, "num_train_steps": 9}))
    load(str(out))
    assert "the weights are those of step 2 of 9" in log.text
    for path in (out / "checkpoint", *out.glob("model.ckpt-2.*")):
        path.unlink()
    with pytest.raises(ValueError, match=r"must hold trained weights.*not got beyond step 0"):
        load(str(out))
    with pytest.raises(ValueError, match=r"must hold trained weights.*not got beyond step 0"):
        run_classifier.run(command(do_train=False, do_predict=True))
