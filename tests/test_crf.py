"""Taggers with a conditional random field: `--crf`."""

import dataclasses
import itertools
import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
from conftest import ROOT, eagerly, exhaustive
from helpers.tagging_runs import PIECES, read_tags, settings_in, write_task

import convert_checkpoint
import modeling
import run_ner
import tokenization
from bert.models.open import load
from bert.network import crf
from bert.network.heads import crf_objective, tagging_model, tagging_objective
from bert.tasks.examples import QUERIES
from bert.tasks.tagging.sentences import Sentence
from bert.tasks.tagging.tagger import Tagging
from bert.tasks.tagging.tags import TagSet
from bert.weights import checkpoint

C = 3
COUNTS = np.array([4, 1, 3, 0], np.int32)


@pytest.fixture(params=[0, 1, *exhaustive(2, 3, 4)])
def drawn(request):
    """Logits of sentences of `COUNTS` words, [4, 4, C], and transitions, [C + 2, C]."""
    rng = np.random.RandomState(request.param)
    return 2 * rng.standard_normal((4, 4, C)), rng.standard_normal((C + 2, C))


def score(logits, transitions, path):
    """Returns the score of a path of labels; logits are those of its words."""
    pairs = sum(transitions[pair] for pair in itertools.pairwise(path))
    return (
        sum(logits[word, label] for word, label in enumerate(path))
        + pairs + transitions[C, path[0]] + transitions[C + 1, path[-1]]
    )  # fmt: skip


def all_paths(logits, transitions):
    """Returns all paths and their probabilities."""
    paths = [*itertools.product(range(C), repeat=len(logits))]
    raised = np.exp([score(logits, transitions, path) for path in paths])
    return paths, raised / raised.sum()


def test_losses_paths_and_marginals_are_those_of_a_sum_over_all_paths(drawn):
    logits, transitions = drawn
    labels = np.random.RandomState(1).randint(0, C, (4, 4)).astype(np.int32)
    partial = labels.copy()
    partial[:, 1] = crf.ANY
    losses = crf.sentence_losses(logits, COUNTS, transitions, labels).numpy()
    less = crf.sentence_losses(logits, COUNTS, transitions, partial).numpy()
    best, logs = (each.numpy() for each in crf.decode_sentences(logits, COUNTS, transitions))
    assert losses[3] == less[3] == 0
    for row, count in enumerate(COUNTS[:3]):
        paths, chances = all_paths(logits[row, :count], transitions)
        gold = np.all(np.array(paths) == labels[row, :count], axis=1)
        assert losses[row] == pytest.approx(-np.log(chances[gold].sum()), abs=1e-12)
        given = partial[row, :count]
        fits = np.all((np.array(paths) == given) | (given == crf.ANY), axis=1)
        assert less[row] == pytest.approx(-np.log(chances[fits].sum()), abs=1e-12)
        assert tuple(best[row, :count]) == paths[chances.argmax()]
        for word, label in itertools.product(range(count), range(C)):
            has = np.array(paths)[:, word] == label
            assert np.exp(logs[row, word, label]) == pytest.approx(chances[has].sum(), abs=1e-12)


def test_the_code_in_the_documentation_finds_the_best_path(drawn):
    logits, transitions = drawn
    text = (ROOT / "docs/exports.md").read_text()
    [code] = re.findall("```python\n(def best_path.*?)```", text, re.DOTALL)
    namespace = {}
    exec(code, namespace)
    for row, count in enumerate(COUNTS[:3]):
        paths, chances = all_paths(logits[row, :count], transitions)
        found = namespace["best_path"](logits[row, :count], transitions)
        assert tuple(found) == paths[chances.argmax()]


def test_gradients_are_differences_of_the_loss(drawn):
    labels = np.array([[1, 0, 2, 2]] * 4, np.int32)
    variables = [tf.Variable(each) for each in drawn]

    @tf.function
    def loss():
        logits, transitions = map(tf.convert_to_tensor, variables)
        return tf.reduce_sum(crf.path_losses(logits, COUNTS, transitions, labels))

    with tf.GradientTape() as tape:
        value = loss()
    for variable, gradient in zip(variables, tape.gradient(value, variables), strict=True):
        values, found = variable.numpy(), np.zeros(variable.shape)
        for place in np.ndindex(*values.shape):
            ends = []
            for step in (1e-5, -1e-5):
                changed = values.copy()
                changed[place] += step
                variable.assign(changed)
                ends.append(float(loss()))
            found[place] = (ends[0] - ends[1]) / 2e-5
        variable.assign(values)
        np.testing.assert_allclose(gradient, found, atol=1e-8)


def objective_loss(logits, transitions, batch, objective=crf_objective):
    weights, losses = objective()
    rows = np.broadcast_to(transitions, (len(logits), *transitions.shape))
    outputs = {"logits": tf.constant(logits), "transitions": tf.constant(rows)}
    return float(losses(outputs, batch, weights(batch))["loss"])


def make_batch(rng, length=9):
    """Returns tokens of which some are words, none in the last row."""
    mask = (rng.uniform(size=(5, length)) < 0.6).astype(np.int32)
    mask[-1] = 0
    labels = rng.randint(0, C, mask.shape).astype(np.int32)
    logits = rng.standard_normal((*mask.shape, C)).astype(np.float32)
    return {"label_mask": mask, "label_ids": labels}, logits


def test_the_loss_depends_on_the_words_of_a_row_alone(drawn):
    rng = np.random.RandomState(2)
    batch, logits = make_batch(rng)
    transitions = drawn[1].astype(np.float32)
    expected = objective_loss(logits, transitions, batch)
    sums = [
        -np.log(dict(zip(*all_paths(words, transitions), strict=True))[tuple(labels)])
        for words, labels in (
            (logits[row][mask], batch["label_ids"][row][mask])
            for row, mask in enumerate(batch["label_mask"][:-1] > 0)
        )
    ]
    assert expected == pytest.approx(sum(sums) / batch["label_mask"].sum(), rel=1e-5)
    # Tokens that are no words, and padding, have any logits and labels.
    others = batch["label_mask"] == 0
    changed = {**batch, "label_ids": np.where(others, 1, batch["label_ids"])}
    assert objective_loss(
        np.where(others[..., None], np.float32(50), logits), transitions, changed
    ) == pytest.approx(expected, rel=1e-6)
    padded = {name: np.pad(each, ((0, 0), (0, 4))) for name, each in batch.items()}
    assert objective_loss(
        np.pad(logits, ((0, 0), (0, 4), (0, 0)), constant_values=7), transitions, padded
    ) == pytest.approx(expected, rel=1e-6)
    # A part of a batch may have no words.
    _, losses = crf_objective()
    part = {name: each[-1:] for name, each in batch.items()}
    outputs = {"logits": logits[-1:], "transitions": transitions[None]}
    assert float(losses(outputs, part, {"loss": 1.0})["loss"]) == 0


def test_a_new_crf_has_the_loss_of_a_tagger_without_it(tiny_config):
    model = tagging_model(tiny_config, C, add_crf=True, dtype="mixed_bfloat16")
    names = {name: np.ones((2, 5), np.int32) for name in model.input}
    transitions = model(names)["transitions"]
    assert transitions.dtype == tf.float32
    np.testing.assert_array_equal(transitions, np.zeros((2, C + 2, C)))
    for weight in model.get_layer("crf").weights:
        weight.assign(np.random.RandomState(len(weight.shape)).standard_normal(weight.shape))
    rows = model(names)["transitions"].numpy()
    found = {path.path: path.numpy() for path in model.get_layer("crf").weights}
    for row in rows:
        np.testing.assert_array_equal(row[:C], found["crf/transitions"])
        np.testing.assert_array_equal(row[C], found["crf/start_transitions"])
        np.testing.assert_array_equal(row[C + 1], found["crf/end_transitions"])
    batch, logits = make_batch(np.random.RandomState(3))
    none = np.zeros((C + 2, C), np.float32)
    expected = objective_loss(logits, none, batch, tagging_objective)
    assert objective_loss(logits, none, batch) == pytest.approx(expected, rel=1e-6)


def test_a_sentence_of_several_windows_has_the_best_path_of_all_its_words(drawn):
    vocab = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *PIECES])}
    tokenizer = tokenization.FullTokenizer.from_vocab(vocab, do_lower_case=False)
    tag_set = TagSet(labels=("O", "B-X", "I-X"), scheme="iob2")
    task = Tagging(modeling.BertConfig(len(vocab)), tokenizer, 8, tag_set, add_crf=True)
    sentences = [
        Sentence(["Lind", "Ada", "Oslo", "Bo", "Rome"] * 4, ["O", "B-X", "I-X", "O", "B-X"] * 4),
        Sentence([], []),
        Sentence(["Ada", "Bo"], ["O", "B-X"]),
    ]
    inputs = task.make_inputs(QUERIES, sentences)
    assert inputs.num_rows > 3
    rng, transitions = np.random.RandomState(4), drawn[1].astype(np.float32)
    words = rng.standard_normal((22, C)).astype(np.float32)
    logits = words[inputs.arrays["word_ids"]]
    rows = np.repeat(transitions[None], len(logits), axis=0)
    outputs = [
        (numbers, {"logits": logits[numbers], "transitions": rows[numbers]})
        for numbers in np.array_split(rng.permutation(len(logits)), 2)
    ]
    found = task.decode(inputs, outputs)
    total = 0.0
    for index, part in ((0, words[:20]), (2, words[20:])):
        gold = np.array([[tag_set.labels.index(tag) for tag in sentences[index].tags]], np.int32)
        given = [np.float64(part[None]), np.int32([len(part)]), np.float64(transitions)]
        (path,), (logs,) = (each.numpy() for each in crf.decode_sentences(*given))
        assert found.sentences[index].tags == [tag_set.labels[label] for label in path]
        chances = np.exp(logs[np.arange(len(part)), path])
        np.testing.assert_allclose(found.sentences[index].probabilities, chances, rtol=1e-9)
        total += float(np.sum(crf.sentence_losses(*given, gold)))
    assert found.sentences[1].tags == []
    assert found.loss == pytest.approx(total / 22)


def test_words_with_unknown_tags_count_in_no_loss():
    """Where no tag makes another likelier, the loss is that of the words, each by itself."""
    vocab = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *PIECES])}
    tokenizer = tokenization.FullTokenizer.from_vocab(vocab, do_lower_case=False)
    tag_set = TagSet(labels=("NN", "PRP", "VB"), scheme="none")
    task = Tagging(modeling.BertConfig(len(vocab)), tokenizer, 8, tag_set, add_crf=True)
    inputs = task.make_inputs(QUERIES, [Sentence(["Ada", "Bo", "Rome"], ["VB", "new", "NN"])])
    logits = np.random.RandomState(5).standard_normal((1, 8, C)).astype(np.float32)
    outputs = {"logits": logits, "transitions": np.zeros((1, C + 2, C), np.float32)}
    with_crf, without = (
        dataclasses.replace(task, add_crf=add_crf).decode(inputs, [(np.arange(1), outputs)])
        for add_crf in (True, False)
    )
    assert with_crf.loss == pytest.approx(without.loss, rel=1e-6)


TEXTS = ["Ada Falkner saw Bo Lind in New York .", "", "Rome . " + "Ada in Oslo quickly " * 12]


def answers_of(path):
    """Returns the answers of a model for `TEXTS`, with scores apart."""
    answers = load(str(path)).predict(TEXTS)
    scores = [entity.pop("score") for answer in answers for entity in answer["entities"]]
    return answers, scores


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a tagger with a CRF, which is exported, and one without; and its settings."""
    folder = tmp_path_factory.mktemp("crf")
    make = settings_in(folder)
    write_task(folder, count=32)
    kwargs = {"do_train": True, "num_train_epochs": 3.0}
    with eagerly():
        run_ner.run(make(**{**kwargs, "num_train_epochs": 0.5}, output_dir=str(folder / "plain")))
    scores = run_ner.run(make(**kwargs, crf=True, do_eval=True, do_predict=True, do_export=True))
    return folder, make, scores


def test_the_folder_says_that_there_is_a_crf(trained):
    folder, make, scores = trained
    assert scores["f1"] > 0.5
    assert json.loads((folder / "out/task.json").read_text())["crf"] is True
    assert "crf" not in json.loads((folder / "plain/task.json").read_text())
    before = read_tags(folder / "out/predictions.txt")
    again = run_ner.run(make(do_eval=True, do_predict=True, eval_batch_size=5, max_seq_length=61))
    assert again["types"] == scores["types"]
    assert again["loss"] == pytest.approx(scores["loss"], abs=1e-5)
    assert read_tags(folder / "out/predictions.txt") == before


def test_an_export_answers_as_the_model_does(trained):
    folder = trained[0]
    (ours, scores), (theirs, others) = map(answers_of, (folder / "out", folder / "out/saved_model"))
    assert ours == theirs
    assert sum(len(answer["entities"]) for answer in ours) > 5
    np.testing.assert_allclose(scores, others, atol=1e-5)


@pytest.mark.usefixtures("eager")
def test_a_training_run_resumes_with_the_crf_alone(trained, tmp_path):
    folder, make, _ = trained
    out = shutil.copytree(folder / "out", tmp_path / "out")
    given = {"do_train": True, "num_train_epochs": 3.0, "output_dir": str(out)}
    # What is trained already is only read, with the flag or without it.
    for crf_given in ({}, {"crf": True}):
        run_ner.run(make(**given, **crf_given))
    for changes in ({"do_train": True}, {"do_train": False, "do_predict": True}):
        wanted = {**given, **changes}
        with pytest.raises(ValueError, match=r"`crf` must be True for a model .* with it.*False"):
            run_ner.run(make(**wanted, crf=False))
        with pytest.raises(ValueError, match=r"`crf` must be False for .* without it.*True"):
            run_ner.run(make(**{**wanted, "output_dir": str(folder / "plain")}, crf=True))
    # Another model may be trained in its place, also from the weights of the first one.
    plain = {"init_checkpoint": str(folder / "plain"), "overwrite_output_dir": True}
    run_ner.run(make(**{**given, "num_train_epochs": 0.5}, **plain, crf=False))
    assert "crf" not in json.loads((out / "task.json").read_text())


@pytest.mark.usefixtures("eager")
def test_transitions_have_a_learning_rate_of_their_own(trained, tmp_path):
    folder, make, _ = trained
    given = {"init_checkpoint": str(folder / "out"), "do_train": True, "num_train_epochs": 1.0}
    run_ner.run(make(**given, crf=True, learning_rate=1e-7, output_dir=str(tmp_path / "again")))
    before, after = (
        checkpoint.Stored.open(str(path)).read(["crf/transitions", "output_weights"])
        for path in (folder / "out", tmp_path / "again")
    )
    moved = {name: np.abs(after[name] - before[name]) for name in before}
    assert moved["crf/transitions"].min() > 1e-4
    assert moved["output_weights"].max() < 1e-5


def test_a_student_without_a_crf_learns_the_marginals_of_a_teacher(trained, tmp_path):
    folder, make, _ = trained
    student = {
        "teacher": str(folder / "out"), "do_train": True, "num_train_epochs": 1.0,
        "output_dir": str(tmp_path / "student"),
    }  # fmt: skip
    with pytest.raises(ValueError, match="`teacher` must not be given with `crf`"):
        run_ner.run(make(**student, crf=True))
    assert not (tmp_path / "student").exists()
    run_ner.run(make(**student))
    teacher = load(str(folder / "out"))
    texts = teacher.task.parse([{"text": text} for text in TEXTS])
    words, labels, _ = teacher.task.decode_words(*teacher.compute(texts))
    np.testing.assert_allclose(np.exp(words).sum(axis=1), 1.0)
    found = teacher.decide(texts)[1].sentences
    chances = np.exp(words[np.arange(len(words)), labels])
    np.testing.assert_allclose([p for each in found for p in each.probabilities], chances)


def test_other_programs_have_no_place_for_a_crf(trained, tmp_path):
    wanted = convert_checkpoint.Settings(
        input=str(trained[0] / "out"), output=str(tmp_path / "hf"), format="huggingface"
    )
    with pytest.raises(ValueError, match="CRF on it"):
        convert_checkpoint.run(wanted)


@pytest.mark.exhaustive
def test_lstms_on_features_may_have_a_crf(tmp_path):
    make = settings_in(tmp_path)
    write_task(tmp_path)
    flags = {"feature_based": True, "feature_layers": "last", "lstm_size": 12, "crf": True}
    scores = run_ner.run(
        make(**flags, do_train=True, do_eval=True, num_train_epochs=6.0, do_export=True)
    )
    assert scores["f1"] > 0.5
    again = run_ner.run(make(do_eval=True))
    assert again["loss"] == pytest.approx(scores["loss"], abs=1e-5)
    (ours, _), (theirs, _) = map(answers_of, (tmp_path / "out", tmp_path / "out/saved_model"))
    assert ours == theirs
