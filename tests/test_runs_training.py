import json
import re
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from conftest import change, exhaustive, read_tensors
from helpers.trainers import assert_same

from bert.commands.training import FineTuningSettings
from bert.files import owned
from bert.files.outputs import make_folder
from bert.network import heads
from bert.network.heads import classification_objective, classifier_model
from bert.options import shaping_options
from bert.runs import identity, training
from bert.runs.finetuning_steps import count_steps
from bert.runs.identity import plan_training
from bert.tasks.task import ExampleFile
from bert.training.evaluation import EarlyStopping
from bert.training.loop import Objective
from bert.training.records import Feature, encoder_features
from bert.weights import saving
from bert.weights.folder import ModelFolder

pytestmark = pytest.mark.usefixtures("eager")

LENGTH = 16
OBJECTIVE = Objective(*classification_objective("classification"))
TASK = {"kind": "classification", "labels": ("no", "yes"), "max_seq_length": LENGTH}


@pytest.fixture
def vocab_file(tmp_path, tiny_config):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokens += [f"w{index}" for index in range(len(tokens), tiny_config.vocab_size)]
    path = tmp_path / "words.txt"
    path.write_text("\n".join(tokens) + "\n")
    return str(path)


@pytest.fixture
def make_settings(tmp_path, tiny_config, vocab_file):
    (tmp_path / "config.json").write_text(tiny_config.to_json_string())

    def make(**changes) -> FineTuningSettings:
        return FineTuningSettings(
            **{
                "bert_config_file": str(tmp_path / "config.json"),
                "vocab_file": vocab_file,
                "output_dir": str(tmp_path / "out"),
                "do_train": True,
                "max_seq_length": LENGTH,
                "train_batch_size": 4,
                "num_train_epochs": 2.0,
                "learning_rate": 0.01,
                **changes,
            }
        )

    return make


def make_arrays(config, count=18, seed=0):
    """Texts whose label is whether their first token is of the first half of the vocabulary."""
    rng = np.random.RandomState(seed)
    lengths = rng.randint(4, LENGTH + 1, size=(count, 1))
    mask = (np.arange(LENGTH) < lengths).astype(np.int32)
    ids = rng.randint(4, config.vocab_size, size=(count, LENGTH)).astype(np.int32) * mask
    return {
        "input_ids": ids,
        "input_mask": mask,
        "segment_ids": mask * 0,
        "label_ids": (ids[:, :1] < config.vocab_size // 2).astype(np.int32),
        "is_real_example": np.ones((count, 1), np.int32),
    }


def open_batches(settings, config, arrays, *, seed=None, batch_size=4):
    features = {
        **encoder_features(
            max_seq_length=LENGTH,
            vocab_size=config.vocab_size,
            type_vocab_size=config.type_vocab_size,
        ),
        "label_ids": Feature(1, "the task", 2, "labels"),
        "is_real_example": Feature(1, "the format", 2, "a bit"),
    }
    path = f"{settings.output_dir}-{len(arrays['input_ids'])}.tf_record"
    file = ExampleFile(path, batch_size, seed, trim=not settings.pad_to_max_length)
    file.write(arrays)
    return file.open(features, arrays["input_mask"].sum(axis=1))


def open_output(settings, task):
    """Returns the output folder, checked as a plan checks it."""
    source = ModelFolder.of(settings, settings, settings.output_dir)
    folder = ModelFolder(settings.output_dir)
    make_folder(settings.output_dir)
    folder.check_same(source.config, source.vocabulary, task)
    return folder


def run(settings, config, evaluation=None):
    """Trains as scripts do; returns the model and the step of its weights."""
    keras.utils.set_random_seed(3)
    batches = open_batches(settings, config, make_arrays(config), seed=settings.seed)
    source = ModelFolder.of(settings, settings, settings.output_dir)
    open_output(settings, TASK).save(config, source.vocabulary, TASK)
    model = classifier_model(config, 2)
    return model, train(settings, model, batches, evaluation)


def train(settings, model, batches, evaluation):
    steps = count_steps(settings, len(batches.records))
    made_of = identity.of_training(shaping_options(settings), None, {})
    plan = plan_training(settings, steps, None, made_of, {})
    begun = training.TrainingRun(
        settings, make_trainer(settings, model, batches, plan.last_step), plan
    )
    return begun.fine_tune(settings, batches, {}, len(batches.records), evaluation)


def make_trainer(settings, model, batches, num_train_steps):
    return training.make_trainer(
        model,
        OBJECTIVE,
        settings,
        settings,
        seed=settings.seed,
        num_train_steps=num_train_steps,
        signature=batches.signature,
    )


def weights_of(model):
    return {variable.path: variable.numpy() for variable in model.weights}


def test_examples_are_read_as_written(make_settings, tiny_config):
    arrays = make_arrays(tiny_config, count=1203)
    batches = open_batches(make_settings(), tiny_config, arrays, batch_size=2000)
    (batch,) = batches.iterate(0, 1)
    order = batches.numbers(0)
    for name, values in arrays.items():
        np.testing.assert_array_equal(batch[name], values[order])


def test_padding_to_the_longest_or_to_the_maximum_gives_the_same_losses(
    make_settings, still_config, monkeypatch
):
    monkeypatch.setattr(heads, "HEAD_DROPOUT_PROB", 0.0)
    losses, shapes = [], []
    for pads in (False, True):
        settings = make_settings(pad_to_max_length=pads)
        keras.utils.set_random_seed(3)
        batches = open_batches(settings, still_config, make_arrays(still_config), seed=1)
        model = classifier_model(still_config, 2)
        trainer = make_trainer(settings, model, batches, 4)
        read = list(batches.iterate(0, 4))
        shapes.append([batch["input_ids"].shape[1] for batch in read])
        losses.append([trainer.train_step(batch)["loss"] for batch in read])
    assert set(shapes[1]) == {LENGTH}
    assert min(shapes[0]) < LENGTH
    np.testing.assert_allclose(losses[0], losses[1], rtol=0, atol=2e-5)


def test_training_saves_the_model(make_settings, tiny_config, tmp_path):
    settings = make_settings(num_train_epochs=0.5)
    model, step = run(settings, tiny_config)
    assert step == 2
    out = tmp_path / "out"
    weights = read_tensors(str(out / "bert_model.ckpt"))
    assert weights.pop("global_step") == 2
    assert_same(weights, weights_of(model))
    assert (out / "vocab.txt").read_text() == Path(settings.vocab_file).read_text()
    stored = ModelFolder(str(out)).read_task()
    assert (stored["kind"], stored["labels"]) == (TASK["kind"], ["no", "yes"])
    whole = (out / "model.ckpt-2.data-00000-of-00001").stat().st_size
    small = (out / "bert_model.ckpt.data-00000-of-00001").stat().st_size
    assert whole / 3.05 < small < whole / 2.95
    again, step = run(settings, tiny_config)
    assert step == 2
    assert_same(weights_of(again), weights_of(model))


def test_resumed_training_ends_as_one_without_interruption(make_settings, tiny_config, tmp_path):
    class InterruptionError(Exception):
        pass

    def interrupt():
        raise InterruptionError

    def make(folder):
        steps = {"num_train_epochs": 0.7, "save_checkpoints_steps": 1}
        return make_settings(output_dir=str(tmp_path / folder), **steps)

    scores = iter([0.5, 0.7, 0.6, 0.2, 0.1])
    whole, _ = run(make("whole"), tiny_config, EarlyStopping(lambda _: {"f1": next(scores)}, "f1"))
    scores = iter([0.5, 0.7])
    failing = EarlyStopping(lambda _: {"f1": next(scores, None) or interrupt()}, "f1")
    with pytest.raises(InterruptionError):
        run(make("halves"), tiny_config, failing)
    # The step is saved; its evaluation is made up for.
    assert saving.Checkpoints(str(tmp_path / "halves")).latest().endswith("-3")
    rest = iter([0.6, 0.2])
    resumed = EarlyStopping(lambda _: {"f1": next(rest)}, "f1")
    halves, _ = run(make("halves"), tiny_config, resumed)
    assert_same(weights_of(halves), weights_of(whole))
    for folder in ("whole", "halves"):
        lines = (tmp_path / folder / "evaluations.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == [1, 2, 3]
    assert resumed.best == {"step": 2, "f1": 0.7}


@pytest.mark.parametrize("with_list", [True, False])
def test_a_run_removes_the_weights_of_an_earlier_run(make_settings, tiny_config, with_list):
    class InterruptionError(Exception):
        pass

    def interrupt():
        raise InterruptionError

    run(make_settings(num_train_epochs=0.25), tiny_config)
    folder = make_settings().output_dir
    assert ModelFolder(folder).find_weights().prefix.endswith("bert_model.ckpt")
    if not with_list:
        (Path(folder) / owned.LIST_FILE).unlink()
    changes = {"num_train_epochs": 0.7, "resume_with_changes": True}
    more = make_settings(save_checkpoints_steps=2, **changes)
    scores = iter([{"f1": 0.5}])
    evaluation = EarlyStopping(lambda _: next(scores, None) or interrupt(), "f1")
    with pytest.raises(InterruptionError):
        run(more, tiny_config, evaluation)
    assert ModelFolder(folder).find_weights().prefix.endswith("/model.ckpt-3")
    assert len([*Path(folder).glob("bert_model.ckpt*.kept-1")]) == (0 if with_list else 3)


def test_changes_that_the_checkpoint_has_no_variables_for_are_named(make_settings, tiny_config):
    run(make_settings(num_train_epochs=0.25, freeze_layers=1), tiny_config)
    changes = {"num_train_epochs": 0.5, "resume_with_changes": True}
    with pytest.raises(ValueError, match=r"lacks .*adam_m.* --freeze_layers is 1 there and 0 now"):
        run(make_settings(freeze_layers=0, **changes), tiny_config)


def test_early_stopping_goes_back_to_the_best_weights(make_settings, tiny_config, tmp_path, log):
    settings = make_settings(save_checkpoints_steps=1, early_stopping_patience=2)
    seen, scores = [], iter([0.1, 0.4, 0.3, 0.4, 0.9])
    models = []

    def evaluate(_):
        seen.append(weights_of(models[0]) if models else None)
        return {"f1": next(scores), "loss": 1.0, "per_class": {}}

    make = classifier_model
    keras.utils.set_random_seed(3)
    batches = open_batches(settings, tiny_config, make_arrays(tiny_config), seed=settings.seed)
    make_folder(settings.output_dir)
    models.append(make(tiny_config, 2))
    evaluation = EarlyStopping(evaluate, "f1", settings.early_stopping_patience)
    step = train(settings, models[0], batches, evaluation)
    # 0.4 at step 2 is not reached again by more than itself: steps 3 and 4 are two in vain.
    assert (step, len(seen)) == (2, 4)
    assert_same(weights_of(models[0]), seen[1])
    kept = read_tensors(str(tmp_path / "out/bert_model.ckpt"))
    assert kept["global_step"] == 2
    best = read_tensors(str(tmp_path / "out/best/model.ckpt-2"))
    assert_same({name: kept[name] for name in seen[1]}, seen[1])
    assert_same({name: best[name] for name in seen[1]}, seen[1])
    assert saving.Checkpoints(settings.output_dir).latest().endswith("-4")
    # Started again, it stays where it has stopped.
    again = make(tiny_config, 2)
    evaluation = EarlyStopping(evaluate, "f1", settings.early_stopping_patience)
    assert train(settings, again, batches, evaluation) == 2
    assert_same(weights_of(again), seen[1])
    assert "early stopping ended it at step 4" in log.text


def test_without_early_stopping_the_weights_are_the_last(make_settings, tiny_config, tmp_path):
    scores = iter([0.9, 0.1, 0.1])
    evaluation = EarlyStopping(lambda _: {"f1": next(scores)}, "f1")
    settings = make_settings(num_train_epochs=0.7, save_checkpoints_steps=1)
    _, step = run(settings, tiny_config, evaluation)
    assert step == 3
    assert ModelFolder(str(tmp_path / "out")).stored.prefix == str(tmp_path / "out/bert_model.ckpt")
    assert read_tensors(str(tmp_path / "out/bert_model.ckpt"))["global_step"] == 3
    assert evaluation.best == {"step": 1, "f1": 0.9}
    assert (tmp_path / "out/best/model.ckpt-1.index").exists()


@pytest.mark.parametrize("layers", [1, *exhaustive(None, 0, 2)])
def test_frozen_layers_stay_as_they_are(make_settings, tiny_config, layers):
    keras.utils.set_random_seed(3)
    before = weights_of(classifier_model(tiny_config, 2))
    model, _ = run(make_settings(freeze_layers=layers, num_train_epochs=0.25), tiny_config)
    unchanged = {
        re.match(r"bert/(embeddings|encoder/layer_\d)|.*", name)[0]
        for name, value in weights_of(model).items()
        if np.array_equal(value, before[name])
    }
    frozen = {"bert/embeddings", "bert/encoder/layer_0", "bert/encoder/layer_1"}
    kept = [[], ["bert/embeddings"], sorted(frozen)[:2], sorted(frozen)]
    assert unchanged & frozen == set(kept[0 if layers is None else layers + 1])


@pytest.mark.parametrize("layers", [None, 0, 1, 2])
def test_as_many_layers_are_frozen_as_are_named_and_the_embeddings(tiny_config, layers):
    model = classifier_model(tiny_config, 2)
    training.freeze(model, layers)
    parts = ["bert/embeddings", "bert/encoder/layer_0", "bert/encoder/layer_1"]
    trained = {
        part for part in parts for each in model.trainable_weights if each.path.startswith(part)
    }
    assert sorted(trained) == parts[0 if layers is None else layers + 1 :]


def test_layerwise_decay_scales_the_first_step(make_settings, still_config):
    """Adam's first step is the learning rate in size, so that rates can be read off the weights."""
    moved = {}
    for decay in (1.0, 0.5):
        settings = make_settings(layerwise_lr_decay=decay, warmup_proportion=0.0)
        keras.utils.set_random_seed(3)
        batches = open_batches(settings, still_config, make_arrays(still_config), seed=1)
        model = classifier_model(still_config, 2)
        trainer = make_trainer(settings, model, batches, 9)
        before = weights_of(model)
        trainer.train_step(next(iter(batches.iterate(0, 1))))
        after = weights_of(model)
        moved[decay] = {name: np.abs(after[name] - before[name]).max() for name in after}
    ratios = {name: moved[0.5][name] / moved[1.0][name] for name in moved[1.0]}
    for name, expected in {
        "output_weights": 1.0,
        "bert/pooler/dense/kernel": 1.0,
        "bert/encoder/layer_1/output/dense/kernel": 0.5,
        "bert/encoder/layer_0/output/dense/kernel": 0.25,
        "bert/embeddings/position_embeddings": 0.125,
    }.items():
        assert ratios[name] == pytest.approx(expected, rel=0.05), name


def test_folder_of_another_task_is_refused(make_settings, tiny_config, tmp_path, vocab_file):
    def open_folder(task=TASK, **changes):
        settings = make_settings(**changes)
        return open_output(settings, task)

    open_folder().save(tiny_config, Path(vocab_file).read_bytes(), TASK)
    open_folder()
    message = r"`labels` has 'no' only there; `labels` has 'a' only now\. Give another"
    with pytest.raises(ValueError, match=message):
        open_folder({**TASK, "labels": ("yes", "a")})
    with pytest.raises(ValueError, match=r"`labels` .* there and in another order now"):
        open_folder({**TASK, "labels": ("yes", "no")})
    with pytest.raises(ValueError, match="`max_seq_length` is 16 there and 8 now"):
        open_folder({**TASK, "max_seq_length": 8})
    # What is not named may change.
    open_folder({"kind": TASK["kind"]}, max_seq_length=8)
    wide = tmp_path / "wide.json"
    wide.write_text(change(tiny_config, hidden_size=16).to_json_string())
    with pytest.raises(ValueError, match="`hidden_size` is 8 there and 16 in"):
        open_folder(bert_config_file=str(wide))
    other = tmp_path / "other.txt"
    other.write_text(Path(vocab_file).read_text().replace("w9", "nine"))
    with pytest.raises(ValueError, match=r"its vocab\.txt differs from `vocab_file`"):
        open_folder(vocab_file=str(other))


def test_weights_are_never_random_where_nothing_is_trained(make_settings, tiny_config, tmp_path):
    model = classifier_model(tiny_config, 2)
    encoder = {v.path: v for v in model.weights if v.path.startswith("bert/")}
    saving.save_variables(str(tmp_path / "bert.ckpt"), encoder, 0)
    settings = make_settings(do_train=False, init_checkpoint=str(tmp_path / "bert.ckpt"))
    make_folder(settings.output_dir)
    source = ModelFolder.of(settings, settings, settings.output_dir)
    with pytest.raises(ValueError, match="lacks output_weights, output_bias"):
        identity.load_weights(settings, source, model, is_given=True)


def test_weights_stay_where_nothing_is_left_to_train(make_settings, tiny_config, monkeypatch):
    """Even if the run that finds so is killed at once."""
    run(make_settings(num_train_epochs=0.25), tiny_config)
    folder = make_settings().output_dir
    before = read_tensors(f"{folder}/bert_model.ckpt")
    monkeypatch.setattr(training, "_save_weights", lambda *_: sys.exit())
    with pytest.raises(SystemExit):
        run(make_settings(num_train_epochs=0.25), tiny_config)
    assert_same(read_tensors(f"{folder}/bert_model.ckpt"), before)
