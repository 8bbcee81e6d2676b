"""A student of a teacher: what its loss is, and that it learns what the teacher knows."""

import dataclasses
import json
import random
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import eagerly, spread
from helpers import tagging_runs
from helpers.classifier_runs import make_rows, settings_in, write_task, write_tsv
from helpers.opened_tasks import open_task
from scipy import special, stats

import modeling
import run_classifier
import run_ner
from bert.models.open import load
from bert.network import heads
from bert.runs import teachers
from bert.runs.plan import plan
from bert.tasks import distillation
from bert.tasks.classification import classifier
from bert.tasks.classification.examples import ClassificationTask, InputExample
from bert.tasks.options import Teacher
from bert.tasks.tagging import tagger
from bert.tasks.tagging.sentences import Sentence
from bert.tasks.tagging.tags import TagSet
from bert.weights.checkpoint import Stored
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


def test_labels_have_the_share_of_the_loss_that_the_teacher_leaves():
    teacher = classifier.ClassificationTeacher(
        answer=lambda _: logits_of(1, 3, 2), unlabeled=[InputExample("u", "a")], weight=0.25
    )
    arrays = teacher.arrays([InputExample(str(number), "a") for number in range(3)])
    np.testing.assert_array_equal(arrays["is_labeled"], [[1], [1], [0]])
    told, logits = np.array([10.0, 20.0, 30.0], np.float32), logits_of(0, 3, 2)
    found = teacher.blend()(told, logits, arrays)
    shown = np.asarray(
        distillation.soft_losses("classification", logits, arrays["teacher_logits"], 2.0)
    )
    np.testing.assert_allclose(found[:2], 0.75 * told[:2] + 0.25 * shown[:2], rtol=1e-6)
    np.testing.assert_allclose(found[2], shown[2], rtol=1e-6)
    found = dataclasses.replace(teacher, weight=0.0).blend()(told, logits, arrays)
    np.testing.assert_array_equal(found[:2], told[:2])


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with a trained teacher, and a function that makes settings of students."""
    folder = tmp_path_factory.mktemp("distillation")
    make_settings = settings_in(folder, num_hidden_layers=2)
    write_task(folder, is_warm, count=128)
    keras.utils.set_random_seed(1)
    teacher = make_settings(
        output_dir=str(folder / "teacher"), do_train=True, do_eval=True, num_train_epochs=8.0
    )
    assert run_classifier.run(teacher)["accuracy"] == 1.0
    return folder, make_settings


def test_a_student_learns_more_than_its_labels(world, log):
    folder, make_settings = world
    texts = [text for text, _ in make_rows(40, 5, is_warm)]
    nonsense = [(text, ("cold", "warm")[number % 2]) for number, text in enumerate(texts)]
    write_tsv(folder / "nonsense.tsv", nonsense)
    texts = [text for text, _ in make_rows(160, 6, is_warm)]
    # Blank lines are no examples.
    (folder / "texts.txt").write_text("".join(f"{text}\n\n" for text in texts))
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
    stored = json.loads((folder / "student/run.json").read_text())
    assert stored["told"]["examples"] == {"train": 40, "dev": 40, "unlabeled": 160}
    assert stored["made_of"]["--teacher"]["path"] == "teacher"
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


def test_the_first_examples_are_used_and_all_that_the_teacher_labels(world):
    folder, make_settings = world
    (folder / "few.txt").write_text("a warm b\nc\n")

    def train_arrays(**changes):
        settings = make_settings(
            do_train=True,
            teacher=str(folder / "teacher"),
            unlabeled_file=str(folder / "few.txt"),
            output_dir=str(folder / "first"),
            **changes,
        )
        planned = plan(run_classifier.make_recipe(settings))
        shown = {line.name: line.text for line in planned.lines}["train set"]
        (train,) = planned.inputs
        assert shown == f"{len(train.examples) - 2} examples and 2 that only the teacher labels"
        return train.arrays

    everything, few = train_arrays(), train_arrays(max_train_samples=3)
    assert [len(arrays["input_ids"]) for arrays in (everything, few)] == [130, 5]
    assert everything.keys() == few.keys()
    for name, values in everything.items():
        np.testing.assert_array_equal(few[name], np.concatenate([values[:3], values[128:]]), name)


def test_a_student_has_the_initial_weights_of_a_run_without_a_teacher(world):
    folder, make_settings = world
    settings = make_settings(do_train=True, teacher=str(folder / "teacher"))
    config = modeling.BertConfig.from_json_file(settings.bert_config_file)
    before = random.getstate()
    task = open_task(run_classifier, settings, config, FullTokenizer(settings.vocab_file))
    assert task.teacher is not None
    assert random.getstate() == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unlabeled_file": "texts.txt"}, "`unlabeled_file` needs a `teacher`"),
        ({"distill_layers": "uniform"}, "`distill_layers` needs a `teacher`"),
        ({"output_dir": "teacher"}, "`teacher` must not be the `output_dir`"),
        ({"distill_layers": "1"}, "must be uniform, or for each of the student's 2 layers"),
        ({"distill_layers": "0,2"}, r"one of the teacher's, 0 to 1, .* Received '0,2'"),
        (
            {"distill_layers": "uniform", "vocab_file": "other_vocab.txt"},
            "`distill_layers` needs a `teacher` with the vocabulary",
        ),
        ({"teacher": "nowhere"}, "`teacher` must name a checkpoint"),
        (
            {"labels": "cold,warm,hot"},
            r"`teacher` must decide the same .* cold, hot, warm\. The one",
        ),
        (
            {"task_type": "multi_label"},
            r"`teacher` must decide the same as the student, multi_label",
        ),
        (
            {"unlabeled_file": "empty.txt"},
            r"`unlabeled_file` must hold texts\. '.*empty.txt' is empty",
        ),
        (
            {"unlabeled_file": "lists.jsonl"},
            r"lists.jsonl:2: must have text as 'text_a'\. Received \['a', 'b'\]",
        ),
        (
            {"unlabeled_file": "dev.tsv", "class_weights": "balanced"},
            "`class_weights='balanced'` counts",
        ),
    ],
)
def test_teachers_that_do_not_fit_are_refused(world, monkeypatch, changes, message):
    folder, make_settings = world
    monkeypatch.chdir(folder)
    (folder / "empty.txt").write_text("")
    (folder / "lists.jsonl").write_text('{"text_a": "a"}\n{"text_a": ["a", "b"]}\n')
    words = (folder / "vocab.txt").read_text().split()
    (folder / "other_vocab.txt").write_text("\n".join([*words[:-2], words[-1], words[-2]]))
    given = {} if message.endswith("needs a `teacher`") else {"teacher": "teacher"}
    changes = {**given, **changes}
    with pytest.raises(ValueError, match=message):
        run_classifier.run(make_settings(**{"output_dir": "wrong", "do_train": True, **changes}))
    assert not (folder / "wrong").exists()


def test_order_of_labels_is_found_by_their_names():
    def task(*labels, is_pair=False):
        return ClassificationTask(
            name="custom",
            task_type="classification",
            labels=labels,
            is_pair=is_pair,
            metric="accuracy",
        )

    def order_of(ours, theirs):
        return distillation.order_of_labels(ours.decides, theirs.decides, "t")

    order = order_of(task("a", "b", "c"), task("b", "c", "a"))
    assert np.array(["b", "c", "a"])[order].tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="classification of pairs with the labels a, b"):
        order_of(task("a", "b"), task("a", "b", is_pair=True))


def test_a_file_of_blank_lines_holds_no_texts(tmp_path, tiny_config):
    path = tmp_path / "blank.txt"
    path.write_text(" \n\n")
    options = Teacher(teacher="teacher", unlabeled_file=str(path))
    tokenizer = FullTokenizer.from_vocab({"[UNK]": 0})
    given = {"name": "x", "task_type": "regression", "labels": (), "metric": "pearson"}
    for task in (
        classifier.Classification(
            tiny_config, tokenizer, 8, ClassificationTask(**given, is_pair=False)
        ),
        tagger.Tagging(tiny_config, tokenizer, 8, TagSet(labels=("O", "B-X"), scheme="iob2")),
    ):
        with pytest.raises(ValueError, match=r"`unlabeled_file` must hold texts.*are blank"):
            distillation.Teacher.of(options, None, task)


@pytest.mark.parametrize(
    ("teacher", "student", "numbers"),
    [(12, 6, [1, 3, 5, 7, 9, 11]), (4, 4, [0, 1, 2, 3]), (3, 2, [0, 2]), (2, 4, [-1, 0, 0, 1])],
)
def test_uniform_layers_are_even_and_end_with_the_last(teacher, student, numbers):
    if teacher < student:
        with pytest.raises(ValueError, match="as many layers as the student"):
            distillation._parse("uniform", teacher, student)
        return
    assert distillation._parse("uniform", teacher, student) == numbers
    assert distillation._parse(",".join(map(str, numbers)), teacher, student) == numbers


def batch_of(config, mask):
    """Returns a batch of random tokens under a mask, of a classifier."""
    mask = np.array(mask, np.int32)
    ids = np.random.RandomState(3).randint(5, config.vocab_size, mask.shape).astype(np.int32)
    return {
        "input_ids": ids,
        "input_mask": mask,
        "segment_ids": np.zeros_like(mask),
        "label_ids": np.zeros((len(mask), 1), np.int32),
        "is_real_example": np.ones((len(mask), 1), np.int32),
    }


def learning(config, numbers, dtype="float32", **changes):
    """Returns a student of a teacher's shape, or another, and its objective, with layers alone."""
    teacher = modeling.BertModel(config)
    student_config = modeling.BertConfig.from_dict({**config.to_dict(), **changes})
    inputs = modeling.encoder_inputs()
    given = teacher(inputs)["encoder_layers"]
    layers = distillation.open_layers(numbers, given, student_config)
    step = distillation.StepTeacher(keras.Model(inputs, layers), config, 3.0)
    spread(teacher, 5)
    student = heads.classifier_model(student_config, 2, dtype=dtype, gives_layers=True)
    model = step.extend(student)
    return teacher, model, step.objective(lambda _: {"loss": 1.0}, lambda *_: {"loss": 0.0})


def test_loss_of_layers_is_the_squared_distance_over_real_tokens(still_config):
    teacher, model, (weights, losses) = learning(still_config, "1,0")
    spread(model, 6)
    batch = batch_of(still_config, [[1, 1, 1, 0], [1, 1, 0, 0]])
    inputs = {name: batch[name] for name in modeling.encoder_inputs()}

    def loss(batch):
        given = {name: batch[name] for name in inputs}
        return float(losses(model(given, training=True), batch, weights(batch))["layers"])

    ours = model.get_layer("bert")(inputs)["encoder_layers"]
    theirs = teacher(inputs)["encoder_layers"]
    real = batch["input_mask"] > 0
    distances = [
        np.square(np.asarray(one)[real] - np.asarray(other)[real]).mean()
        for one, other in zip(ours, reversed(theirs), strict=True)
    ]
    assert loss(batch) == pytest.approx(3.0 * np.mean(distances), rel=1e-4)
    # Padding changes nothing, and parts of a batch add up to it.
    padded = {
        name: np.pad(values, [(0, 0), (0, 3 if name in inputs else 0)], constant_values=0)
        for name, values in batch.items()
    }
    assert loss(padded) == pytest.approx(loss(batch), rel=1e-5)
    total = weights(batch)
    parts = []
    for row in range(2):
        part = {name: values[row : row + 1] for name, values in batch.items()}
        outputs = model({name: part[name] for name in inputs}, training=True)
        parts.append(float(losses(outputs, part, total)["layers"]))
    assert sum(parts) == pytest.approx(loss(batch), rel=1e-5)
    # A student that is its teacher has nothing to learn.
    teacher, model, (weights, losses) = learning(still_config, "uniform")
    model.get_layer("bert").set_weights(teacher.get_weights())
    assert loss(batch) == pytest.approx(0.0, abs=1e-8)


def test_no_gradient_reaches_the_teacher_and_narrow_students_learn_a_projection(still_config):
    teacher, model, (weights, losses) = learning(
        still_config, "1", num_hidden_layers=1, hidden_size=4, num_attention_heads=2
    )
    batch = batch_of(still_config, [[1, 1, 1, 0]])
    with tf.GradientTape() as tape:
        inputs = {name: batch[name] for name in modeling.encoder_inputs()}
        loss = losses(model(inputs, training=True), batch, weights(batch))["layers"]
    (kernel,) = model.get_layer("distillation_0").weights
    assert tuple(kernel.shape) == (4, 8)
    found = tape.gradient(loss, [kernel.value, *(each.value for each in teacher.weights)])
    assert np.abs(found[0]).max() > 0
    assert found[1:] == [None] * len(teacher.weights)
    # Who asks the student gets its answers alone, which are those of any classifier.
    assert set(model(inputs, training=False)) == {"logits"}


def test_layers_of_half_precision_are_compared_in_float32(still_config):
    """As wide as the teacher's, they have no projection that casts them."""
    _, model, (weights, losses) = learning(still_config, "1,0", "mixed_bfloat16")
    batch = batch_of(still_config, [[1, 1, 1, 0]])
    inputs = {name: batch[name] for name in modeling.encoder_inputs()}
    loss = losses(model(inputs, training=True), batch, weights(batch))["layers"]
    assert loss.dtype == "float32" and 0 < loss < np.inf


@pytest.mark.exhaustive
def test_layers_are_learned_and_training_resumes(world, tmp_path):
    folder, make_settings = world
    config = json.loads((folder / "config.json").read_text())
    small = {**config, "num_hidden_layers": 1, "hidden_size": 16}
    (folder / "small.json").write_text(json.dumps(small))

    def train(name, **changes):
        keras.utils.set_random_seed(1)
        settings = make_settings(
            output_dir=str(tmp_path / name), bert_config_file=str(folder / "small.json"),
            do_train=True, do_eval=True, teacher=str(folder / "teacher"),
            distill_layers="1", num_train_epochs=1.0, log_every_steps=1, save_checkpoints_steps=8,
            **changes,
        )  # fmt: skip
        run_classifier.run(settings)
        lines = (tmp_path / name / "train_log.jsonl").read_text().splitlines()
        parts = [json.loads(line)["layers"] for line in lines if '"layers"' in line]
        return Stored.open(str(tmp_path / name)).read(), parts

    weights, parts = train("whole", do_export=True)
    # What is exported behind a training gives no layers, either.
    (answer,) = load(str(tmp_path / "whole")).predict(["red a b"])
    (exported,) = load(str(tmp_path / "whole/saved_model")).predict(["red a b"])
    assert exported["label"] == answer["label"] in ("warm", "cold")
    assert exported["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-5)
    shutil.rmtree(tmp_path / "whole/saved_model")
    assert np.mean(parts[-4:]) < np.mean(parts[:4])
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    for path in (tmp_path / "parts").glob("*.ckpt*"):
        if "ckpt-8." not in path.name:
            path.unlink()
    again, _ = train("parts")
    assert weights.keys() == again.keys() >= {"distillation_0/kernel"}
    for name, values in weights.items():
        np.testing.assert_array_equal(values, again[name])


@pytest.mark.exhaustive
def test_several_students_load_their_teacher_once(world):
    folder, make_settings = world
    settings = make_settings(do_train=True, teacher=str(folder / "teacher"))
    config = modeling.BertConfig.from_json_file(settings.bert_config_file)
    teachers._load_teacher.cache_clear()
    for _ in range(2):
        open_task(run_classifier, settings, config, FullTokenizer(settings.vocab_file))
    assert teachers._load_teacher.cache_info()[:2] == (1, 1)


@pytest.fixture(scope="module")
def tagging(tmp_path_factory):
    """A folder with a tagger that has hardly learned, and a function of settings of students."""
    folder = tmp_path_factory.mktemp("tagging")
    make_settings = tagging_runs.settings_in(folder, num_hidden_layers=2)
    tagging_runs.write_task(folder)
    with eagerly():
        teach(make_settings, folder / "teacher", 0.25)
    return folder, make_settings


def teach(make_settings, folder, num_epochs):
    keras.utils.set_random_seed(1)
    run_ner.run(make_settings(do_train=True, output_dir=str(folder), num_train_epochs=num_epochs))


@pytest.mark.exhaustive
def test_a_tagger_learns_more_than_its_tags(tagging, log):
    folder, make_settings = tagging
    teach(make_settings, folder / "good_teacher", 12.0)
    sentences = tagging_runs.make_sentences(24, 5)
    # All tags are of the wrong types, and the order of labels is another.
    wrong = [
        [
            (word, tag.replace("PER", "X").replace("LOC", "PER").replace("X", "LOC"))
            for word, tag in s
        ]
        for s in sentences
    ]
    tagging_runs.write_conll(folder / "wrong.txt", wrong)
    texts = [" ".join(word for word, _ in s) for s in tagging_runs.make_sentences(64, 6)]
    (folder / "texts.txt").write_text("\n".join(["", *texts]))
    settings = make_settings(
        output_dir=str(folder / "student"), train_file=str(folder / "wrong.txt"),
        do_train=True, do_eval=True, num_train_epochs=10.0, teacher=str(folder / "good_teacher"),
        unlabeled_file=str(folder / "texts.txt"), teacher_weight=1.0, distill_layers="uniform",
    )  # fmt: skip
    keras.utils.set_random_seed(1)
    assert run_ner.run(settings)["f1"] > 0.95
    assert "Read 64 sentences that the teacher tags." in log.messages


def test_a_tagger_that_has_learned_layers_is_used_without_them(tagging):
    folder, make_settings = tagging
    settings = make_settings(
        do_train=True, teacher=str(folder / "teacher"), distill_layers="uniform"
    )
    config = modeling.BertConfig.from_json_file(settings.bert_config_file)
    tokenizer = FullTokenizer(settings.vocab_file, do_lower_case=False)
    task = open_task(run_ner, settings, config, tokenizer)
    # Layers of the same texts are learned, not of texts that are cut in another way.
    other = FullTokenizer(settings.vocab_file, do_lower_case=False, strip_accents=True)
    with pytest.raises(ValueError, match="the other options of the student's tokenizer"):
        open_task(run_ner, settings, config, other)
    model = task.make_model("float32")
    spread(model)
    whole = task.whole_model(model)
    batch = batch_of(config, [[1, 1, 1, 0]])
    inputs = {name: batch[name] for name in modeling.encoder_inputs()}
    outputs = whole(inputs, training=False)
    assert {*model.output} > {"logits"} == {*whole(inputs, training=True)}
    np.testing.assert_array_equal(outputs["logits"], model(inputs, training=False)["logits"])


def test_a_text_without_tags_is_a_document_by_itself(tiny_config):
    tag_set = TagSet(labels=("O", "B-X"), scheme="iob2")
    task = tagger.Tagging(tiny_config, None, 8, tag_set, document_context=True)
    found = task.parse_unlabeled({1: {"text": "a b"}, 2: {"text": " "}, 5: {"text": "c"}})
    assert [[*each.words] for each in found] == [["a", "b"], ["c"]]
    # Those of a file count from 0.
    assert all(each.document < 0 for each in found) and found[0].document != found[1].document


def test_words_have_the_teachers_logits_in_any_window():
    sentences = [Sentence(["a", "b"], ["O", "O"]), Sentence(["c", "d", "e"])]
    word_ids = np.array([[-1, 1, 0, -1], [2, -1, 4, 3]])
    logits = np.arange(10.0).reshape(5, 2)
    teacher = tagger.TaggingTeacher(answer=lambda _: logits, unlabeled=sentences[1:], weight=0.25)
    arrays = teacher.arrays(sentences, {"word_ids": word_ids})
    assert arrays["is_labeled"].tolist() == [[0, 1, 1, 0], [0, 0, 0, 0]]
    assert arrays["teacher_logits"][:, 0].tolist() == [[0, 2, 0, 0], [4, 0, 8, 6]]
    assert arrays["teacher_logits"][:, 1].tolist() == [[0, 3, 1, 0], [5, 0, 9, 7]]
    told, ours = np.arange(8, dtype=np.float32), logits_of(0, 8, 2)
    found = np.asarray(teacher.blend()(told, ours, arrays))
    theirs = arrays["teacher_logits"].transpose(0, 2, 1).reshape(8, 2)
    shown = np.asarray(distillation.soft_losses("classification", ours, theirs, 2.0))
    share = np.where(arrays["is_labeled"].reshape(-1) > 0, 0.75, 0.0)
    np.testing.assert_allclose(found, share * told + (1 - share) * shown, rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheme": "iobes"}, r"must decide the same as the student, tags of the scheme iobes"),
        ({"feature_based": True}, "must not be given with `feature_based`"),
        (
            {
                "feature_based": True,
                "do_train": False,
                "do_eval": True,
                "init_checkpoint": "teacher",
            },
            "must not be given with `feature_based`",
        ),
        ({"distill_layers": "5,6"}, "`distill_layers` must be uniform"),
    ],
)
def test_teachers_that_do_not_fit_a_tagger_are_refused(tagging, monkeypatch, changes, message):
    folder, make_settings = tagging
    monkeypatch.chdir(folder)
    given = {"output_dir": "wrong", "teacher": "teacher", "do_train": True, **changes}
    if "feature_based" in changes:
        given["feature_layers"] = "last"
    with pytest.raises(ValueError, match=message):
        run_ner.run(make_settings(**given))
    assert not (folder / "wrong").exists()


def test_a_tagger_teaches_no_classifier(world, tagging):
    folder, make_settings = world
    given = {"teacher": str(tagging[0] / "teacher"), "output_dir": str(folder / "wrong")}
    with pytest.raises(ValueError, match=r"must be a model of classification.* one of tagging"):
        run_classifier.run(make_settings(do_train=True, **given))
