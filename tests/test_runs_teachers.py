"""Teachers whose forward pass is a part of the training step: of answers, and of pre-training."""

import dataclasses
import json
import re
import shutil

import keras
import numpy as np
import pytest
from conftest import change, eagerly, exhaustive, pretraining_settings_in, spread
from helpers.forks import fork_python
from helpers.opened_tasks import open_task
from helpers.squad_runs import settings_in, write_task
from helpers.trainers import TRAIN_SOME_STEPS, assert_same
from scipy import special

import create_pretraining_data
import modeling
import run_pretraining
import run_squad
from bert.models.open import load
from bert.pretraining.heads import pretraining_model
from bert.runs.plan import plan
from bert.weights.checkpoint import Stored, find_trained
from bert.weights.saving import save_tensors
from tokenization import FullTokenizer

WEIGHT, TEMPERATURE = 0.25, 3.0


def mixed(logits, theirs, labels, weight=WEIGHT):
    """Returns the loss of each row as formulas have it."""
    ours = special.log_softmax(logits.astype(np.float64), axis=-1)
    soft, wanted = (
        special.log_softmax(each.astype(np.float64) / TEMPERATURE, axis=-1)
        for each in (logits, theirs)
    )
    hard = -np.take_along_axis(ours, labels[:, None], axis=-1)[:, 0]
    distance = np.sum(np.exp(wanted) * (wanted - soft), axis=-1)
    return (1 - weight) * hard + weight * TEMPERATURE**2 * distance


@pytest.fixture(scope="module")
def answering(tmp_path_factory):
    """A folder with a trained teacher, and a function that makes settings of students."""
    folder = tmp_path_factory.mktemp("answering")
    make = settings_in(folder)
    write_task(folder, count=24)
    keras.utils.set_random_seed(1)
    with eagerly():
        run_squad.run(make(output_dir=str(folder / "teacher"), do_train=True, num_train_epochs=0.4))
    return folder, make


def taught(folder, make, **changes):
    """Returns the task of a student, and a batch of windows, padding among them."""
    given = {"teacher_weight": WEIGHT, "distillation_temperature": TEMPERATURE, **changes}
    settings = make(do_train=True, teacher=str(folder / "teacher"), **given)
    config = modeling.BertConfig.from_json_file(settings.bert_config_file)
    config = change(config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    task = open_task(run_squad, settings, config, FullTokenizer(settings.vocab_file))
    examples = task.read(["train"])
    [(part, questions)] = examples.items()
    inputs = task.make_inputs(part, questions)
    features = inputs.table.features(0, len(inputs.table))
    batch = {name: np.asarray(values, np.int32) for name, values in features.items()}
    assert 0 < batch["input_mask"].mean() < 1
    return task, inputs, batch


def loss_of(task, inputs, model, batch, parts=1, name="loss"):
    """Returns a part of the loss of a batch, added up over parts of the batch."""
    objective, total = task.objective(inputs), 0.0
    weights = objective.weights(batch)
    for rows in np.array_split(np.arange(len(batch["input_ids"])), parts):
        part = {key: values[rows] for key, values in batch.items()}
        outputs = model({key: part[key] for key in modeling.encoder_inputs()}, training=True)
        total += float(objective.losses(outputs, part, weights)[name])
    return total


@pytest.mark.parametrize("weight", [0.0, WEIGHT, 1.0])
def test_loss_of_answers_mixes_labels_with_the_teachers_distribution(answering, weight):
    task, inputs, batch = taught(*answering, teacher_weight=weight)
    model = task.make_model("float32")
    spread(model)
    rows = {name: batch[name] for name in modeling.encoder_inputs()}
    theirs, ours = task.teacher.in_step.model(rows), model(rows)
    expected = []
    for end in ("start", "end"):
        for row in range(len(batch["input_ids"])):
            # Padding takes no part.
            length = batch["input_mask"][row].sum()
            logits, targets = (
                np.asarray(each[f"{end}_logits"])[row : row + 1, :length] for each in (ours, theirs)
            )
            label = batch[f"{end}_positions"][row]
            expected.append(mixed(logits, targets, label, weight)[0] / 2)
    expected = np.sum(expected) / len(batch["input_ids"])
    assert loss_of(task, inputs, model, batch) == pytest.approx(expected, rel=1e-4)
    # Padding and parts of a batch change nothing.
    assert loss_of(task, inputs, model, batch, parts=3) == pytest.approx(expected, rel=1e-4)
    names = modeling.encoder_inputs()
    longest = batch["input_mask"].sum(axis=1).max()
    short = {name: each[:, :longest] if name in names else each for name, each in batch.items()}
    assert loss_of(task, inputs, model, short) == pytest.approx(expected, rel=1e-4)


def test_a_student_that_is_its_teacher_has_nothing_to_learn_of_it(answering):
    task, inputs, batch = taught(*answering, teacher_weight=1.0, distill_layers="uniform")
    model = task.make_model("float32")
    whole = load(str(answering[0] / "teacher")).model
    model.set_weights(whole.get_weights())
    for name in ("loss", "layers"):
        assert loss_of(task, inputs, model, batch, name=name) == pytest.approx(0.0, abs=1e-5)


def test_questions_without_answers_teach_what_the_teacher_answers_alone(answering, tmp_path):
    folder, make = answering
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps({"question": "which", "context": "a b red."}) + "\n")
    task, inputs, batch = taught(folder, make, unlabeled_file=str(path))
    assert batch["is_labeled"][-1] == [0] and batch["is_labeled"][:-1].all()
    model = task.make_model("float32")
    spread(model)
    last = {name: values[-1:] for name, values in batch.items()}
    alone = dataclasses.replace(task, teacher=dataclasses.replace(task.teacher, weight=1.0))
    labeled = {**last, "is_labeled": np.array([[1]], np.int32)}
    expected = loss_of(alone, inputs, model, labeled)
    assert loss_of(task, inputs, model, last) == pytest.approx(expected, rel=1e-5)
    assert loss_of(task, inputs, model, labeled) != pytest.approx(expected, rel=1e-2)


def other_vocabulary(folder):
    words = (folder / "vocab.txt").read_text().split()
    (folder / "other.txt").write_text("\n".join([*words[:-2], words[-1], words[-2]]))
    return {"vocab_file": str(folder / "other.txt")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (other_vocabulary, "`teacher` must have the vocabulary, the casing"),
        (lambda _: {"do_lower_case": False}, "`teacher` must have the vocabulary, the casing"),
        (
            lambda _: {"version_2_with_negative": True},
            "`teacher` must be trained with `version_2_with_negative=True`",
        ),
        (lambda _: {"distill_layers": "7"}, "one of the teacher's, 0 to 0"),
        (lambda _: {"teacher": None, "distill_layers": "uniform"}, "`distill_layers` needs"),
    ],
)
def test_teachers_that_do_not_fit_a_student_of_answers_are_refused(answering, changes, message):
    folder, make = answering
    given = {"teacher": str(folder / "teacher"), "output_dir": str(folder / "wrong")}
    with pytest.raises(ValueError, match=message):
        run_squad.run(make(do_train=True, **{**given, **changes(folder)}))
    assert not (folder / "wrong").exists()


def weights_in(folder):
    return Stored.open(str(folder)).read()


def assert_resumes(train, folder, step):
    """Checks that a run whose later checkpoints are deleted gives the same weights again."""
    train("complete")
    shutil.copytree(folder / "complete", folder / "resumed")
    for path in (folder / "resumed").glob("*.ckpt*"):
        if f"ckpt-{step}." not in path.name:
            path.unlink()
    assert find_trained(str(folder / "resumed")) == str(folder / f"resumed/model.ckpt-{step}")
    log = (folder / "resumed/train_log.jsonl").read_text().splitlines()
    train("resumed")
    # Nothing up to that step is trained again.
    again = (folder / "resumed/train_log.jsonl").read_text().splitlines()
    kept = [line for line in log if json.loads(line)["step"] <= step]
    assert kept and again[: len(kept)] == kept
    complete = weights_in(folder / "complete")
    assert_same(complete, weights_in(folder / "resumed"))
    return complete


@pytest.mark.usefixtures("eager")
def test_a_student_of_answers_resumes_and_is_exported_without_its_teacher(answering, tmp_path):
    folder, make = answering
    config = json.loads((folder / "config.json").read_text())
    small = {**config, "num_hidden_layers": 1, "hidden_size": 16}
    (tmp_path / "small.json").write_text(json.dumps(small))

    def train(name, **changes):
        keras.utils.set_random_seed(1)
        given = {"teacher": str(folder / "teacher"), "distill_layers": "0", **changes}
        settings = make(
            output_dir=str(tmp_path / name), bert_config_file=str(tmp_path / "small.json"),
            do_train=True, do_predict=True, num_train_epochs=0.7, save_checkpoints_steps=1, **given,
        )  # fmt: skip
        run_squad.run(settings)

    complete = assert_resumes(train, tmp_path, 1)
    assert "distillation_0/kernel" in complete
    made_of = json.loads((tmp_path / "complete/run.json").read_text())["made_of"]
    assert made_of["--teacher"]["path"] == "teacher"
    # The folder of an earlier version says nothing of teachers, since there was none.
    run_file = tmp_path / "complete/run.json"
    others = {name: value for name, value in made_of.items() if "teacher" not in name}
    run_file.write_text(json.dumps({**json.loads(run_file.read_text()), "made_of": others}))
    with pytest.raises(ValueError, match="--teacher is absent there and teacher now"):
        train("complete")
    with pytest.raises(ValueError, match="--teacher is teacher there and absent now"):
        train("resumed", teacher=None, distill_layers=None)
    (answer,) = load(str(tmp_path / "resumed")).predict([{"question": "which", "context": "a b"}])
    assert set(answer) >= {"answer", "score"}


def test_a_teacher_is_the_checkpoint_that_is_named(answering):
    folder, make = answering
    stored = Stored.open(str(folder / "teacher"))
    values = {name: value + 0.5 for name, value in stored.read().items()}
    save_tensors(str(folder / "teacher/other.ckpt"), values)
    found = []
    for name in ("teacher", "teacher/other.ckpt"):
        settings = make(do_train=True, teacher=str(folder / name), output_dir=str(folder / "new"))
        made = plan(run_squad.make_recipe(settings))
        (bias,) = (
            variable.numpy()
            for variable in made.task.teacher.in_step.model.weights
            if variable.path == "cls/squad/output_bias"
        )
        found.append((bias, made.task.teacher.weights["path"]))
    (first, _), (second, path) = found
    np.testing.assert_allclose(second, first + 0.5, rtol=1e-6)
    assert path == "other.ckpt"


@pytest.fixture(scope="module")
def pretraining(tiny_config, tmp_path_factory):
    """A folder with a teacher of two layers without dropout, and the configuration of a student."""
    folder = tmp_path_factory.mktemp("pretraining")
    config = change(tiny_config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    make = pretraining_settings_in(folder, config)
    with eagerly():
        run_pretraining.run(make(output_dir=str(folder / "teacher"), num_train_steps=2))
    small = change(config, num_hidden_layers=1, hidden_size=4, num_attention_heads=2)
    (folder / "small.json").write_text(small.to_json_string())
    return folder


@pytest.fixture
def pretrained(pretraining, pretraining_run, tmp_path):
    """A function that makes settings of students in a folder of their own."""
    shutil.copytree(pretraining, tmp_path, dirs_exist_ok=True)

    def make(**changes):
        return pretraining_run(
            **{
                "bert_config_file": str(tmp_path / "small.json"),
                "teacher": str(tmp_path / "teacher"),
                "output_dir": str(tmp_path / "student"),
                **changes,
            }
        )

    return make


def planned(settings):
    """Returns the plan of a student with spread weights, its model and its first batch."""
    made = plan(run_pretraining.make_recipe(settings))
    model = made.make_model()
    spread(model)
    return made, model, next(iter(made.train_batches.iterate(0, 1)))


def parts_of_loss(made, model, batch, parts=1):
    """Returns the parts of the loss of a batch, added up over parts of the batch."""
    objective, totals = made.objective(), {}
    weights = objective.weights(batch)
    for rows in np.array_split(np.arange(len(batch["input_ids"])), parts):
        part = {name: np.asarray(values)[rows] for name, values in batch.items()}
        outputs = model({name: part[name] for name in model.input}, training=True)
        for name, loss in objective.losses(outputs, part, weights).items():
            totals[name] = totals.get(name, 0.0) + float(loss)
    return totals


@pytest.mark.parametrize(
    ("weight", "layers"),
    [(0.0, None), (WEIGHT, "1"), (1.0, None), *exhaustive((0.0, "1"), (WEIGHT, None), (1.0, "1"))],
)
def test_loss_of_masked_tokens_mixes_tokens_with_the_teachers_distribution(
    pretrained, weight, layers
):
    given = {"teacher_weight": weight, "distillation_temperature": TEMPERATURE}
    made, model, batch = planned(pretrained(**given, distill_layers=layers))
    rows = {name: batch[name] for name in model.input}
    ours, theirs = model(rows, training=False), made.teacher.in_step.model(rows)
    assert ours.keys() == {"masked_lm_logits", "next_sentence_logits"}
    logits, targets = (np.asarray(each["masked_lm_logits"]) for each in (ours, theirs))
    masked = np.asarray(batch["masked_lm_weights"]) > 0
    labels = np.asarray(batch["masked_lm_ids"])[masked]
    expected = mixed(logits[masked], targets[masked], labels, weight).mean()
    found = parts_of_loss(made, model, batch)
    assert found["masked_lm_loss"] == pytest.approx(expected, rel=1e-4)
    assert ("layers" in found) == (layers is not None)
    # The next sentence is learned as without a teacher, and parts of a batch add up.
    plain, model_alone, _ = planned(pretrained(teacher=None))
    values = {variable.path: variable.numpy() for variable in model.weights}
    for variable in model_alone.weights:
        variable.assign(values[variable.path])
    alone = parts_of_loss(plain, model_alone, batch)
    assert found["next_sentence_loss"] == pytest.approx(alone["next_sentence_loss"], rel=1e-4)
    assert parts_of_loss(made, model, batch, parts=3) == pytest.approx(found, rel=1e-4)


def test_the_teacher_of_masked_tokens_is_the_model_of_its_folder(pretrained, tmp_path):
    given = {"bert_config_file": str(tmp_path / "bert_config.json"), "teacher_weight": 1.0}
    made, model, batch = planned(pretrained(**given, distill_layers="uniform"))
    Stored.open(str(tmp_path / "teacher")).assign(model.weights)
    found = parts_of_loss(made, model, batch)
    assert found["masked_lm_loss"] == pytest.approx(0.0, abs=1e-5)
    assert found["layers"] == pytest.approx(0.0, abs=1e-5)


@pytest.mark.usefixtures("eager")
def test_a_pretrained_student_resumes_in_any_parts(pretrained, tmp_path):
    def train(name, **changes):
        given = {"distill_layers": "1", "save_checkpoints_steps": 1, "eval_batch_size": 20}
        given |= {"do_eval": True, "num_train_steps": 2, **changes}
        run_pretraining.run(pretrained(output_dir=str(tmp_path / name), **given))

    complete = assert_resumes(train, tmp_path, 1)
    assert "distillation_0/kernel" in complete
    train("accumulated", gradient_accumulation_steps=2)
    for name, values in weights_in(tmp_path / "accumulated").items():
        np.testing.assert_allclose(values, complete[name], atol=2e-5, err_msg=name)
    made_of = json.loads((tmp_path / "complete/run.json").read_text())["made_of"]
    assert made_of["--teacher"]["path"] == "teacher"
    with pytest.raises(ValueError, match="--teacher is teacher there and absent now"):
        train("complete", teacher=None, distill_layers=None)


@pytest.mark.slow
def test_two_replicas_teach_as_one_device_does(pretrained, tmp_path):
    def settings(name, **changes):
        given = {"distill_layers": "1", "num_train_steps": 2, **changes}
        return pretrained(output_dir=str(tmp_path / name), **given)

    with eagerly():
        run_pretraining.run(settings("one"))
    # A second model in the same process sends tensors of other shapes.
    two = [settings("two", strategy="mirrored"), settings("alone", strategy="mirrored")]
    two[1] = dataclasses.replace(two[1], teacher=None, distill_layers=None)
    given = {"devices": 2, "settings": [dataclasses.asdict(each) for each in two]}
    fork_python("-c", TRAIN_SOME_STEPS, json.dumps(given))
    one, other = weights_in(tmp_path / "one"), weights_in(tmp_path / "two")
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_allclose(values, other[name], atol=2e-5, err_msg=name)
    assert "distillation_0/kernel" not in weights_in(tmp_path / "alone")


def other_teacher(pattern="", **sizes):
    """Prepares a folder of another teacher, which has the tensors of a pattern."""

    def prepare(folder):
        config = modeling.BertConfig.from_json_file(str(folder / "bert_config.json"))
        other = change(config, **sizes)
        (folder / "other").mkdir()
        (folder / "other/bert_config.json").write_text(other.to_json_string())
        weights = pretraining_model(other).weights
        tensors = {each.path: each.numpy() for each in weights if re.match(pattern, each.path)}
        save_tensors(str(folder / "other/bert_model.ckpt"), tensors)
        return {"teacher": str(folder / "other")}

    return prepare


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (other_teacher("bert/"), "`teacher` must have the masked-LM head of pre-training"),
        (
            other_teacher("bert/|cls/predictions/output_bias"),
            "`teacher` must have the masked-LM head .* lacks .*transform",
        ),
        (lambda _: {"objective": "left_to_right"}, "`teacher` must predict the tokens that `obj"),
        (other_teacher(vocab_size=28), "`teacher` must have a `vocab_size` of .* Received 28"),
        (other_teacher(type_vocab_size=2), "`teacher` must have at least 3 types of segments"),
        (other_teacher(max_position_embeddings=8), "must be at most 8, .* of `teacher="),
        (lambda folder: {"output_dir": str(folder / "teacher")}, "`teacher` must not be the"),
        (lambda _: {"distill_layers": "5"}, "one of the teacher's, 0 to 1"),
    ],
)
def test_teachers_that_do_not_fit_a_pretrained_student_are_refused(
    pretrained, tmp_path, changes, message
):
    with pytest.raises(ValueError, match=message):
        run_pretraining.run(pretrained(**changes(tmp_path)))
    assert not (tmp_path / "student").exists()


def test_a_teacher_that_is_not_there_is_one_fault(pretrained):
    with pytest.raises(ValueError, match="`teacher` must name a checkpoint") as caught:
        plan(run_pretraining.make_recipe(pretrained(teacher="nowhere")), limit=10)
    assert str(caught.value).count("`teacher`") == 1


@pytest.mark.usefixtures("eager")
def test_a_teacher_of_another_vocabulary_than_the_records_is_refused(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    (tmp_path / "other.txt").write_text("\n".join([*words[:-2], words[-1], words[-2]]))
    (tmp_path / "text.txt").write_text("a b c d\ne f g a\n\nb c d\ne f g\n")
    config = modeling.BertConfig(12, 8, 1, 2, 8, max_position_embeddings=16)
    (tmp_path / "config.json").write_text(config.to_json_string())

    def settings(vocab, **changes):
        file = str(tmp_path / f"{vocab}.tfrecord")
        create_pretraining_data.run(
            create_pretraining_data.Settings(
                input_file=str(tmp_path / "text.txt"), output_file=file,
                vocab_file=str(tmp_path / f"{vocab}.txt"), max_seq_length=16,
                max_predictions_per_seq=3,
            )
        )  # fmt: skip
        return run_pretraining.Settings(
            bert_config_file=str(tmp_path / "config.json"), input_file=file, do_train=True,
            output_dir=str(tmp_path / f"of_{vocab}"), num_train_steps=2, num_warmup_steps=1,
            train_batch_size=2, **changes,
        )  # fmt: skip

    run_pretraining.run(settings("vocab"))
    teacher = str(tmp_path / "of_vocab")
    with pytest.raises(ValueError, match="`teacher` must have the vocabulary of the student's"):
        run_pretraining.run(settings("other", teacher=teacher))
    same = settings("vocab", teacher=teacher)
    run_pretraining.run(dataclasses.replace(same, output_dir=str(tmp_path / "student")))
