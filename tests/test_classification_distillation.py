"""A student of a teacher: what its loss is, and that it learns what the teacher knows."""

import dataclasses
import json
import random
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import special, stats
from test_run_classifier import make_rows, settings_in, write_task, write_tsv

import modeling
import run_classifier
from bert.tasks.classification import distillation
from bert.tasks.classification.examples import InputExample, Task
from tokenization import FullTokenizer


def is_warm(color):
    return "warm" if color == "red" else "cold"


def logits_of(seed, *shape):
    return 3 * np.random.RandomState(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_loss_is_the_divergence_of_the_probabilities(temperature):
    ours, theirs = logits_of(0, 5, 3), logits_of(1, 5, 3)
    found = distillation.soft_losses("classification", ours, theirs, temperature)
    expected = [
        temperature**2
        * stats.entropy(special.softmax(t / temperature), special.softmax(o / temperature))
        for o, t in zip(ours, theirs, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    found = distillation.soft_losses("multi_label", ours, theirs, temperature)
    chances = [
        np.stack([special.expit(each / temperature), special.expit(-each / temperature)])
        for each in (ours, theirs)
    ]
    expected = temperature**2 * stats.entropy(chances[1], chances[0]).mean(axis=-1)
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-6)
    for kind in ("classification", "multi_label"):
        same = distillation.soft_losses(kind, theirs, theirs, temperature)
        np.testing.assert_allclose(same, np.zeros(5), atol=1e-6)


def test_gradients_are_of_one_size_at_high_temperatures():
    ours, theirs = tf.constant(logits_of(0, 4, 3)), logits_of(1, 4, 3)
    sizes = []
    for temperature in (50.0, 500.0):
        with tf.GradientTape() as tape:
            tape.watch(ours)
            loss = distillation.soft_losses("classification", ours, theirs, temperature)
        sizes.append(np.linalg.norm(tape.gradient(loss, ours)))
    assert sizes[0] == pytest.approx(sizes[1], rel=0.1)


def test_loss_of_numbers_is_the_squared_difference():
    found = distillation.soft_losses(
        "regression", np.array([[1.0], [2.0]]), np.array([[3.0], [2.0]]), 9.0
    )
    np.testing.assert_allclose(found, [4.0, 0.0])


def test_labels_count_for_what_the_teacher_leaves_of_those_that_have_one():
    teacher = distillation.Teacher(
        lambda _: logits_of(1, 3, 2), [InputExample("u", "a")], weight=0.25
    )
    arrays = teacher.arrays([InputExample(str(number), "a") for number in range(3)])
    np.testing.assert_array_equal(arrays["is_labeled"], [[1], [1], [0]])
    told, logits = np.array([10.0, 20.0, 30.0], np.float32), logits_of(0, 3, 2)
    found = teacher.blend("classification")(told, logits, arrays)
    shown = np.asarray(
        distillation.soft_losses("classification", logits, arrays["teacher_logits"], 2.0)
    )
    np.testing.assert_allclose(found[:2], 0.75 * told[:2] + 0.25 * shown[:2], rtol=1e-6)
    np.testing.assert_allclose(found[2], shown[2], rtol=1e-6)
    mute = dataclasses.replace(teacher, weight=0.0)
    found = mute.blend("classification")(told, logits, arrays)
    np.testing.assert_array_equal(found[:2], told[:2])


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with a trained teacher, and a function that makes settings of students."""
    folder = tmp_path_factory.mktemp("distillation")
    make_settings = settings_in(folder)
    write_task(folder, is_warm, count=128)
    keras.utils.set_random_seed(1)
    teacher = make_settings(
        output_dir=str(folder / "teacher"), do_train=True, do_eval=True, num_train_epochs=8.0
    )
    assert run_classifier.run(teacher)["accuracy"] == 1.0
    return folder, make_settings


def test_a_student_learns_what_its_labels_do_not_tell(world, log):
    folder, make_settings = world
    texts = [text for text, _ in make_rows(40, 5, is_warm)]
    nonsense = [(text, ("cold", "warm")[number % 2]) for number, text in enumerate(texts)]
    write_tsv(folder / "nonsense.tsv", nonsense)
    texts = [text for text, _ in make_rows(160, 6, is_warm)]
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    keras.utils.set_random_seed(1)
    student = make_settings(
        output_dir=str(folder / "student"),
        train_file=str(folder / "nonsense.tsv"),
        dev_file=str(folder / "dev.tsv"),
        # In another order than the teacher has them.
        labels="warm,cold",
        do_train=True,
        do_eval=True,
        num_train_epochs=8.0,
        teacher=str(folder / "teacher"),
        unlabeled_file=str(folder / "texts.txt"),
        teacher_weight=1.0,
    )
    assert run_classifier.run(student)["accuracy"] == 1.0
    assert "Read 160 examples that the teacher labels." in log.messages
    made_of = json.loads((folder / "student/run.json").read_text())["made_of"]
    assert made_of["--teacher"]["path"] == "teacher"
    # The same teacher may lie elsewhere, but another one in its place is another training.
    (folder / "teacher").rename(folder / "moved")
    moved = dataclasses.replace(student, teacher=str(folder / "moved"))
    run_classifier.run(moved)
    shutil.copytree(folder / "student", folder / "impostor")
    impostor = dataclasses.replace(student, teacher=str(folder / "impostor"))
    with pytest.raises(ValueError, match="--teacher is teacher there and impostor now"):
        run_classifier.run(impostor)
    (folder / "moved").rename(folder / "teacher")
    # What answers needs no teacher.
    assert "teacher" not in (folder / "student/task.json").read_text()


def test_a_student_begins_as_it_would_without_a_teacher(world):
    folder, make_settings = world
    settings = make_settings(do_train=True, teacher=str(folder / "teacher"))
    config = modeling.BertConfig.from_json_file(settings.bert_config_file)
    before = random.getstate()
    task = run_classifier.open_task(settings, config, FullTokenizer(settings.vocab_file))
    assert task.teacher is not None
    assert random.getstate() == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unlabeled_file": "texts.txt"}, "`--unlabeled_file` needs a `--teacher`"),
        ({"teacher": "nowhere"}, "`--teacher` must name a checkpoint"),
        (
            {"labels": "cold,warm,hot"},
            r"`--teacher` must decide the same .* cold, hot, warm\. The one",
        ),
        (
            {"task_type": "multi_label"},
            r"`--teacher` must decide the same as the student, multi_label",
        ),
        (
            {"unlabeled_file": "empty.txt"},
            r"`--unlabeled_file` must hold texts\. '.*empty.txt' is empty",
        ),
        (
            {"unlabeled_file": "dev.tsv", "class_weights": "balanced"},
            "`--class_weights=balanced` counts",
        ),
    ],
)
def test_teachers_that_do_not_fit_are_refused(world, monkeypatch, changes, message):
    folder, make_settings = world
    monkeypatch.chdir(folder)
    (folder / "empty.txt").write_text("")
    given = {} if "needs" in message else {"teacher": "teacher"}
    changes = {**given, **changes}
    with pytest.raises(ValueError, match=message):
        run_classifier.run(make_settings(output_dir="wrong", do_train=True, **changes))
    assert not (folder / "wrong").exists()


def test_order_of_labels_is_found_by_their_names():
    def task(*labels, is_pair=False):
        return Task(
            name="custom",
            task_type="classification",
            labels=labels,
            is_pair=is_pair,
            metric="accuracy",
        )

    order = distillation.order_of_labels(task("a", "b", "c"), task("b", "c", "a"), "t")
    assert np.array(["b", "c", "a"])[order].tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="classification of pairs with the labels a, b"):
        distillation.order_of_labels(task("a", "b"), task("a", "b", is_pair=True), "t")
