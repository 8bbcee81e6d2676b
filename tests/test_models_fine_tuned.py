import csv
import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
from conftest import change, exhaustive
from helpers.forks import fork_python
from helpers.huggingface_models import tensors as tensors  # noqa: PLC0414 (a fixture)
from helpers.huggingface_models import write
from helpers.served_models import save_model
from helpers.tokenizer_files import CONFIG
from tensorflow.core.protobuf import saved_model_pb2

import bert
import convert_checkpoint
import predict
import tokenization
from bert.files import parquet
from bert.models.exported import ExportedModel
from bert.models.fine_tuned import find_architecture, open_stored_task, read_task
from bert.models.options import Overrides
from bert.tasks.classification.classifier import Classification
from bert.tasks.classification.examples import ClassificationTask
from bert.tasks.squad.options import DecodingOptions
from bert.tasks.squad.question_answering import QuestionAnswering
from bert.tasks.swag.multiple_choice import MultipleChoice
from bert.tasks.tagging.tagger import Tagging
from bert.tasks.tagging.tags import TagSet
from bert.weights import checkpoint, saving
from bert.weights.folder import ModelFolder

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "blue", "green", "round", "square"]
KINDS = ("classification", "question_answering", "tagging", "multiple_choice")
LABELS = ("no", "maybe", "yes")
INPUTS = {
    "classification": ["red round", "blue"],
    "question_answering": [("red", "round red square"), ("blue", "green")],
    "tagging": ["red round", "blue"],
    "multiple_choice": [("red", ["round", "blue square"])],
}


# By kind, the labels and scheme of a tagger.
TAGGERS = {
    "tagging": (("O", "B-X", "I-X"), "iob2"),
    "parts_of_speech": (("NOUN", "VERB", "O"), "none"),
    "words": (("B", "M", "E", "S"), "bmes"),
}


def make_task(kind, config, vocab_file):
    model = (config, tokenization.FullTokenizer(vocab_file), 32)
    if kind == "classification":
        task = ClassificationTask(
            name="custom",
            task_type="classification",
            labels=LABELS,
            is_pair=False,
            metric="accuracy",
        )
        return Classification(*model, task)
    if kind == "question_answering":
        return QuestionAnswering(*model[:2], 384, 128, 64, DecodingOptions())
    if kind in TAGGERS:
        labels, scheme = TAGGERS[kind]
        return Tagging(*model, TagSet(labels=labels, scheme=scheme))
    return MultipleChoice(*model)


def write_model(folder, kind, config):
    """Writes the folder of a model of a kind, as a run of this project does, and returns it."""
    folder.mkdir()
    config = change(
        config,
        vocab_size=len(WORDS),
        max_position_embeddings=512,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    vocabulary = "".join(f"{word}\n" for word in WORDS).encode()
    (folder / "vocab.txt").write_bytes(vocabulary)
    task = make_task(kind, config, str(folder / "vocab.txt"))
    ModelFolder(str(folder)).save(config, vocabulary, task.stored())
    rng = np.random.RandomState(0)
    weights = {
        v.path: rng.normal(size=v.shape).astype(np.float32)
        for v in task.make_model("float32").weights
    }
    saving.save_tensors(str(folder / "bert_model.ckpt"), weights)
    return folder


@pytest.fixture(scope="module")
def tiny_config(tiny_config):
    """One layer: what a model is for does not depend on their number."""
    return change(tiny_config, num_hidden_layers=1)


@pytest.fixture
def model_dir(tmp_path, tiny_config):
    """A function that writes the folder of a model of a kind."""
    return lambda kind: write_model(tmp_path / kind, kind, tiny_config)


@pytest.fixture(scope="module")
def chooser(tmp_path_factory, tiny_config):
    """The folder of a model that chooses an ending, with its SavedModel; no test changes it."""
    folder = write_model(tmp_path_factory.mktemp("model") / "chooser", KINDS[-1], tiny_config)
    model = bert.load(str(folder))
    model.task.export(str(folder / "saved_model"), model.model)
    return folder


def convert(folder):
    output = folder.parent / "huggingface"
    settings = convert_checkpoint.Settings(
        input=str(folder), output=str(output), format="huggingface", verify=False
    )
    convert_checkpoint.run(settings)
    return output


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_transformers_predicts_as_its_source(model_dir, kind, log):
    folder = model_dir(kind)
    model = bert.load(str(folder))
    expected = model.predict(INPUTS[kind])
    assert [tuple(answer) for answer in expected] == [model.task.answer_names] * len(expected)
    converted = convert(folder)
    assert bert.load(str(converted)).predict(INPUTS[kind]) == expected
    # As others write it.
    (converted / "task.json").unlink()
    assert bert.load(str(converted)).predict(INPUTS[kind]) == expected
    assert predict.load(str(converted)).task.max_seq_length == (
        384 if kind == "question_answering" else 512
    )
    told = "Nothing says whether" in log.text
    assert told == (kind in ("classification", "question_answering"))


def test_a_named_task_does_not_give_outputs_the_names_of_others(model_dir, log):
    converted = convert(model_dir("classification"))
    (converted / "task.json").unlink()
    path = converted / "config.json"
    config = json.loads(path.read_text())
    labels = ("entailment", "neutral", "contradiction")
    path.write_text(json.dumps({**config, "id2label": dict(enumerate(labels))}))
    with pytest.raises(ValueError, match=r"the order of the model's outputs.*'entailment', 'neu"):
        bert.load(str(converted), task_name="mnli")
    # What has no names gets those of the task.
    unnamed = {number: f"LABEL_{number}" for number in range(3)}
    path.write_text(json.dumps({**config, "id2label": unnamed}))
    assert bert.load(str(converted), task_name="mnli").task.task.labels[0] == "contradiction"


@pytest.mark.usefixtures("eager")
def test_a_question_may_have_no_answer_on_request(model_dir, tmp_path, log):
    converted, asked = convert(model_dir("question_answering")), INPUTS["question_answering"][:1]
    (converted / "task.json").unlink()
    [always] = bert.load(str(converted)).predict(asked)
    assert "give `version_2_with_negative=True`" in log.text and "null_odds" not in always
    log.clear()
    told = {"version_2_with_negative": True}
    [answer] = bert.load(str(converted), **told).predict(asked)
    odds = answer.pop("null_odds")
    assert "Nothing says whether" not in log.text
    assert answer["answer"] == ("" if odds > 0 else always["answer"])
    # What was told when it was converted is known from then on; to ask for another is no training.
    settings = {"input": str(converted), "output": str(tmp_path / "tf"), "format": "tf", **told}
    convert_checkpoint.run(
        convert_checkpoint.Settings(**settings, null_score_diff_threshold=odds + 1, verify=False)
    )
    [found] = bert.load(str(tmp_path / "tf")).predict(asked)
    assert (found["answer"], found["null_odds"]) == (always["answer"], odds)
    (tmp_path / "in.tsv").write_text("question\tcontext\n" + "\t".join(asked[0]) + "\n")
    files = {"input_file": str(tmp_path / "in.tsv"), "output_file": str(tmp_path / "out.jsonl")}
    predict.run(
        predict.Settings(
            model_dir=str(tmp_path / "tf"), **files, null_score_diff_threshold=odds - 1
        )
    )
    found = json.loads((tmp_path / "out.jsonl").read_text())
    assert (found["answer"], found["start"], found["null_odds"]) == ("", None, odds)


@pytest.mark.parametrize("has_task", [True, False])
def test_options_of_questions_apply_or_are_refused(model_dir, has_task):
    # A number of NumPy, as scores have them, is a number.
    told = Overrides(version_2_with_negative=True, null_score_diff_threshold=np.float64(-2))
    path, others = model_dir("question_answering"), model_dir("classification")
    given = {"do_lower_case": True}
    if not has_task:
        (path / "task.json").unlink()
        (others / "task.json").unlink()
    task = read_task(ModelFolder(str(path), **given), told)
    assert (task["version_2_with_negative"], task["null_score_diff_threshold"]) == (True, -2)
    assert json.loads(json.dumps(task)) == task
    before = read_task(ModelFolder(str(path), **given), Overrides())
    assert before == {
        **task,
        "version_2_with_negative": False,
        "null_score_diff_threshold": 0.0,
    }
    with pytest.raises(ValueError, match=r"^`null_score.*` needs `version_2_with_n.* -2\.0"):
        read_task(ModelFolder(str(path), **given), Overrides(null_score_diff_threshold=-2))
    labels = {} if has_task else {"labels": "a,b,c"}
    with pytest.raises(ValueError, match=r"^`version_2.* answers no questions\. Rec.* False"):
        read_task(
            ModelFolder(str(others), **given), Overrides(version_2_with_negative=False, **labels)
        )


@pytest.fixture
def original(model_dir):
    """A folder as the original's run_classifier.py leaves it: nothing but a checkpoint."""
    folder = model_dir("classification")
    tensors = checkpoint.Stored.open(str(folder / "bert_model.ckpt")).read()
    left = folder.parent / "left"
    left.mkdir()
    step = {"global_step": np.asarray(7, np.int64)}
    saving.save_tensors(str(left / "model.ckpt-7"), {**tensors, **step})
    (left / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"\n')
    return left


@pytest.mark.usefixtures("eager")
def test_options_complete_a_folder_of_the_original(original, log):
    folder = original.parent / "classification"
    expected = bert.load(str(folder)).predict(INPUTS["classification"])
    files = {"bert_config_file": str(folder / "bert_config.json")}
    files["vocab_file"] = str(folder / "vocab.txt")
    told = {**files, "do_lower_case": True, "labels": "no,maybe, yes"}
    for labels in (told["labels"], ("no", "maybe", " yes"), np.array(["no", "maybe", "yes"])):
        model = bert.load(str(original), **{**told, "labels": labels})
        assert model.predict(INPUTS["classification"]) == expected
    folder = ModelFolder(str(original), **files, do_lower_case=True)
    log.clear()
    # `predict.py` reads it before the data and before the weights.
    for _ in range(2):
        numbers = read_task(folder, Overrides(labels=[0, 1, 2]))
        assert numbers["task"]["labels"] == ["0", "1", "2"]
    for assumed in ("a classifier is assumed", "one is assumed"):
        assert log.text.count(assumed) == 1
    model = bert.load(str(original), **files, do_lower_case=True, task_name="MNLI")
    assert model.fields == ("text_a", "text_b")
    assert model.task.task.labels == ("contradiction", "entailment", "neutral")
    with pytest.raises(ValueError, match="must name each of the model's 3 outputs"):
        bert.load(str(original), **files, do_lower_case=True, task_name="mrpc")
    tagger = {"architecture": "BertForTokenClassification", "labels": "O,B-X"}
    with pytest.raises(ValueError, match="must name each of the model's 3 outputs"):
        bert.load(str(original), **{**told, **tagger})
    # Whatever else would be without effect.
    for other in ({"labels": "no,maybe,yes"}, {"is_pair": False}):
        with pytest.raises(ValueError, match="beside `task_name='MNLI'`, which sets it"):
            bert.load(str(original), **files, do_lower_case=True, task_name="MNLI", **other)
    with pytest.raises(ValueError, match=r"`is_pair` must not .* a BertForTokenClassification"):
        bert.load(
            str(original), **{**told, "architecture": "BertForTokenClassification"}, is_pair=True
        )
    config = {"problem_type": "regression", "id2label": {"0": "a", "1": "b", "2": "c"}}
    (original / "config.json").write_text(json.dumps(config))
    for labels in ({}, {"labels": "no,maybe,yes"}):
        with pytest.raises(ValueError, match=r"regression must have one output\. '.*left' has 3"):
            bert.load(str(original), **files, do_lower_case=True, **labels)
    (original / "config.json").unlink()
    # Of one output, the model is a regression.
    tensors = checkpoint.Stored.open(str(original)).read()
    head = {name: tensors[name][:1] for name in ("output_weights", "output_bias")}
    saving.save_tensors(str(original / "model.ckpt-7"), {**tensors, **head})
    with pytest.raises(ValueError, match="`labels` must not be given for a regression"):
        bert.load(str(original), **{**told, "labels": "yes"})


def test_all_missing_options_are_named_at_once(original):
    folder = original.parent / "classification"
    with pytest.raises(ValueError, match="bert_config_file` must be given"):
        predict.load(str(original))
    files = {"bert_config_file": str(folder / "bert_config.json")}
    files["vocab_file"] = str(folder / "vocab.txt")
    with pytest.raises(ValueError, match=r"Give `do_lower_case` .*; and `labels`, 3 names .*mrpc"):
        predict.load(str(original), **files)
    with pytest.raises(ValueError, match=r"`labels` must not be given for a model whose task"):
        predict.load(str(folder), labels="a,b,c")
    assert predict.load(str(folder), max_seq_length=9).task.max_seq_length == 9


def test_vectors_of_a_fine_tuned_model_are_pooled_as_its_folder_says(model_dir):
    folder, texts = model_dir("classification"), ["red blue", "green"]
    plain = bert.load(str(folder))
    by_default, first = plain.encode(texts), plain.encode(texts, pooling="cls")
    assert np.abs(by_default - first).max() > 1e-3
    steps = [("", "Transformer"), ("1_Pooling", "Pooling")]
    modules = [{"path": path, "type": f"sentence_transformers.models.{n}"} for path, n in steps]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    modes = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    np.testing.assert_allclose(bert.load(str(folder)).encode(texts), first, rtol=0, atol=1e-6)


@pytest.mark.parametrize("has_task", [True, False])
def test_questions_have_the_length_that_is_given_if_there_is_room_for_them(model_dir, has_task):
    folder = model_dir("question_answering")
    kind = {}
    if not has_task:
        (folder / "task.json").unlink()
        kind = {"architecture": "BertForQuestionAnswering"}
    model = ModelFolder(str(folder), do_lower_case=True)

    def open_task(length):
        task = read_task(model, Overrides(max_seq_length=length, **kind))
        return open_stored_task(model, task)

    for given, length in ((None, 384), (68, 68), (400, 400)):
        assert open_task(given).max_seq_length == length
    with pytest.raises(ValueError, match=r"^`max_seq_length` must be greater than 67.* 67\.$"):
        open_task(67)


@pytest.mark.parametrize("has_task", [True, False])
def test_a_length_is_checked_as_an_option(model_dir, has_task):
    folder = model_dir("classification")
    path = folder / "task.json"
    stored = json.loads(path.read_text())
    given = {} if has_task else {"labels": LABELS}

    def open_task(length, **changes):
        if has_task:
            path.write_text(json.dumps({**stored, **changes}))
        model = ModelFolder(str(folder), do_lower_case=True)
        task = read_task(model, Overrides(max_seq_length=length, **given))
        return open_stored_task(model, task)

    if not has_task:
        path.unlink()
    length = open_task(np.int64(8)).max_seq_length
    assert (type(length), length) == (int, 8)
    for wrong, message in (
        *((each, f"at least 3. Received {each}") for each in (0, 2)),
        *((each, f"a whole number. Received {each!r}") for each in (True, 8.0, "8")),
        (513, "at most 512, .* Received 513"),
    ):
        with pytest.raises(ValueError, match=f"^`max_seq_length` must be {message}"):
            open_task(wrong)
    pair = {"task": {**stored["task"], "is_pair": True}}
    given |= {} if has_task else {"is_pair": True}
    assert open_task(5, **pair).fields == ("text_a", "text_b")
    with pytest.raises(ValueError, match=r"^`max_seq_length` must be at least 5\. Rec.* 4"):
        open_task(4, **pair)
    if has_task:
        windows = {"doc_stride": 5}
        with pytest.raises(ValueError, match=r"^`doc_stride` must be less than 5, .*=7`"):
            open_task(7, **windows)
        assert open_task(8, **windows).long_texts.doc_stride == 5
        # The file's own errors are not those of the option.
        with pytest.raises(ValueError, match=r"task\.json' must be as .*: `doc_stride` must be a"):
            open_task(7, doc_stride="5")
        with pytest.raises(ValueError, match=r"task\.json' must be .*: `doc_stride` must be less"):
            open_task(None, doc_stride=50)


@pytest.mark.parametrize("load", [bert.load, predict.load])
def test_an_unknown_argument_is_an_error_of_the_called_function(load):
    with pytest.raises(TypeError, match=r"^load.*\(\) got an unexpected .* 'nonsense'"):
        load("out", nonsense=1)


def test_a_pre_trained_model_is_no_model_to_predict_with(original):
    folder = original.parent / "classification"
    tensors = checkpoint.Stored.open(str(original)).read()
    tensors = {name: value for name, value in tensors.items() if name.startswith("bert/")}
    plain = original.parent / "plain"
    plain.mkdir()
    saving.save_tensors(str(plain / "bert_model.ckpt"), tensors)
    for name in ("vocab.txt", "bert_config.json"):
        shutil.copy(folder / name, plain)
    with pytest.raises(ValueError, match=r"has no task\.json.*fill_mask"):
        predict.load(str(plain))
    assert bert.load(str(plain)).encode(["red"]).shape == (1, 8)


@pytest.mark.parametrize("ending", ["jsonl", *exhaustive("csv")])
def test_the_columns_of_swag_are_inputs(chooser, tmp_path, ending):
    row = {"": "0", "sent1": "red", "sent2": "A", "ending0": "round", "ending1": "blue square"}
    other = {**row, "": "1", "sent1": "green"}
    if ending == "csv":
        lines = [",".join(row), *(",".join(each.values()) for each in (row, other))]
    else:
        lines = [json.dumps(each) for each in (row, other)]
    (tmp_path / f"in.{ending}").write_text("".join(f"{line}\n" for line in lines))
    asked = [(each["sent1"], ["A round", "A blue square"]) for each in (row, other)]
    expected = bert.load(str(chooser)).predict(asked)
    for path in (chooser, chooser / "saved_model"):
        output = tmp_path / f"{path.name}.jsonl"
        files = {"input_file": str(tmp_path / f"in.{ending}"), "output_file": str(output)}
        predict.run(predict.Settings(model_dir=str(path), **files))
        found = [json.loads(line) for line in output.read_text().splitlines()]
        assert [{name: each[name] for name in row} for each in found] == [row, other]
        assert [each["ending"] for each in found] == [each["ending"] for each in expected]


@pytest.mark.exhaustive
def test_an_export_names_malformed_choices_in_one_line(chooser, tmp_path):
    wrong = {
        "round": "must have a list of texts as 'endings'. Received 'round'.",
        ("round", 7): "must have a list of texts as 'endings'. Received ['round', 7].",
        ("round",): "must have at least two endings",
        (): "must have at least two endings",
        ("round", " "): "ending",
    }
    good = {"context": "red", "endings": ["round", "blue square"]}
    rows = [good, *({"context": "red", "endings": endings} for endings in wrong), good]
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for path in (chooser, chooser / "saved_model"):
        output = tmp_path / f"{path.name}.jsonl"
        files = {"input_file": str(tmp_path / "in.jsonl"), "output_file": str(output)}
        predict.run(predict.Settings(model_dir=str(path), on_error="skip", **files))
        first, *refused, last = [json.loads(line) for line in output.read_text().splitlines()]
        assert first["ending"] == last["ending"]
        for each, message in zip(refused, wrong.values(), strict=True):
            assert message in each["error"] and "\n" not in each["error"]
            assert "Graph" not in each["error"]
    # Blank ones are padding to the graph, as in a column of TensorFlow Serving.
    exported = bert.load(str(chooser / "saved_model"))
    padded = exported.predict([("red", ["round", "", "blue square"])])
    [answer] = bert.load(str(chooser)).predict([("red", ["round", "blue square"])])
    assert padded[0]["ending"] == answer["ending"]


def test_choices_go_through_a_model_in_batches_of_sequences(chooser):
    one = bert.load(str(chooser), batch_size=4)
    many = [" ".join(WORDS[-4:][:number]) for number in range(1, 5)]
    many += [f"red {each}" for each in many] + ["red", "red red"]
    rows = [("red", many), ("blue", ["square", "red"]), ("red", many[:3])]
    calls = []
    together = one.predict(rows, between=lambda: calls.append(0))
    # Of 15 sequences, whoever they belong to.
    assert len(calls) == 4
    for row, answer in zip(rows, together, strict=True):
        assert round_all(one.predict([row])) == round_all([answer])
        assert len(answer["probabilities"]) == len(row[1])
        assert sum(answer["probabilities"]) == pytest.approx(1)
    exported = bert.load(str(chooser / "saved_model"), batch_size=6)
    del calls[:]
    found = exported.predict([*rows, rows[1]], between=lambda: calls.append(0))
    # A row stays whole: of 10; of 2 and 3; of 2.
    assert len(calls) == 3
    assert round_all(found[:3]) == round_all(together)


def test_an_export_may_be_in_a_folder_with_the_characters_of_a_pattern(chooser, tmp_path):
    path = shutil.copytree(chooser / "saved_model", tmp_path / "of [ab]*")
    rows, usual = INPUTS[KINDS[-1]], bert.load(str(chooser / "saved_model"))
    assert ExportedModel(str(path), runs=False).fields == usual.fields
    assert bert.load(str(path)).predict(rows) == usual.predict(rows)


RARELY = exhaustive(*KINDS[:-1], "parts_of_speech", "words")


@pytest.mark.parametrize("kind", [KINDS[-1], *RARELY])
def test_an_export_answers_as_its_model(chooser, model_dir, kind):
    folder = chooser if kind == KINDS[-1] else model_dir(kind)
    model = bert.load(str(folder))
    if folder != chooser:
        model.task.export(str(folder / "saved_model"), model.model)
    exported = bert.load(str(folder / "saved_model"))
    assert exported.fields == model.fields and exported.kind == model.task.kind
    inputs = INPUTS[exported.kind]
    for mine, theirs in zip(exported.predict(inputs), model.predict(inputs), strict=True):
        # The graph of questions has the best answer alone.
        kept = {name: theirs[name] for name in exported.answer_names}
        assert json.dumps(round_all(mine)) == json.dumps(round_all(kept))
    for wrong in (b"red", 3, [inputs[0], 7], [{}], [("a", 7)]):
        refusals = []
        for each in (model, exported):
            with pytest.raises(ValueError, match="must") as caught:
                each.predict(wrong)
            refusals.append(str(caught.value))
        assert refusals[0] == refusals[1] and "\n" not in refusals[0]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("ending", ["csv", *exhaustive("parquet")])
def test_words_are_written_to_tables(model_dir, tmp_path, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    folder, output = model_dir("parts_of_speech"), tmp_path / f"out.{ending}"
    (tmp_path / "in.csv").write_text("text\nred round\nblue\n")
    files = {"input_file": str(tmp_path / "in.csv"), "output_file": str(output)}
    predict.run(predict.Settings(model_dir=str(folder), **files))
    if ending == "parquet":
        found = [*parquet.read_parquet(str(output))]
    else:
        with open(output, encoding="utf-8", newline="") as file:
            found = [*csv.DictReader(file)]
    expected = bert.load(str(folder)).predict(INPUTS["tagging"])
    assert [round_all(json.loads(row["words"])) for row in found] == [
        round_all(answer["words"]) for answer in expected
    ]
    assert all(len(answer["words"]) for answer in expected)


def test_an_export_with_unknown_operations_says_what_to_install(tmp_path):
    module, path = tf.Module(), tmp_path / "saved_model.pb"
    text = tf.TensorSpec([None], tf.string, name="text")

    def serve(text):
        return {"num_entities": tf.strings.strip(text)}

    module.serve = tf.function(serve, input_signature=[text], autograph=False)
    tf.saved_model.save(module, str(tmp_path), {"serving_default": module.serve})
    saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    (graph,) = (each.graph_def for each in saved.meta_graphs)
    for node in (node for each in graph.library.function for node in each.node_def):
        node.op = node.op.replace("StringStrip", "FastWordpieceTokenizeWithOffsets")
    path.write_bytes(saved.SerializeToString())
    # In a process that has not loaded the operation for another test.
    code = f"sys.modules['tensorflow_text'] = None; import bert; bert.load({str(tmp_path)!r})"
    errors = fork_python("-c", f"import sys; {code}", check=False).stderr.splitlines()
    assert re.search("TokenizeWithOffsets'. .*`pip install tensorflow-text`", errors[-1])


@pytest.mark.parametrize("listed", [{"a": 1}, [[1]], [3], "BertModel", [], None])
def test_an_unknown_architecture_in_a_file_is_ignored(tmp_path, listed):
    folder = save_model("labels", tmp_path / "model")
    (tmp_path / "model/config.json").write_text(json.dumps({"architectures": listed}))
    (tmp_path / "model/task.json").unlink()
    assert find_architecture(ModelFolder.open(folder)) == "BertForSequenceClassification"


def test_a_class_that_is_pre_trained_needs_its_heads(tmp_path, tensors):
    def find(named, heads):
        kept = {name: value for name, value in tensors.items() if name.startswith(heads)}
        config = {**CONFIG, "architectures": [named]}
        return find_architecture(ModelFolder.open(write(tmp_path, kept, config=config)))

    for named in ("BertForMaskedLM", "BertForPreTraining"):
        assert find(named, ("bert/", "cls/")) == named
        assert find(named, "bert/") == "BertModel"
    with pytest.raises(ValueError, match=r"'BertForQuestionAnswering', as config\.json says"):
        find("BertForQuestionAnswering", ("bert/", "cls/"))


def round_all(value):
    if isinstance(value, dict):
        return {name: round_all(each) for name, each in value.items()}
    if isinstance(value, list):
        return [round_all(each) for each in value]
    return round(value, 3) if isinstance(value, float) else value


@pytest.mark.parametrize(
    ("name", "found"), [("text_a", r"\['text_a'\] and gives \['strip'\]"), ("x", r"takes \['x'\]")]
)
def test_a_saved_model_of_another_program_is_refused(tmp_path, name, found):
    module, text = tf.Module(), tf.TensorSpec([None], tf.string, name=name)
    module.serve = tf.function(lambda each: {"strip": tf.strings.strip(each)}, [text])
    tf.saved_model.save(module, str(tmp_path), {"serving_default": module.serve})
    with pytest.raises(ValueError, match=rf"must be a SavedModel that `do_export=True`.*{found}"):
        bert.load(str(tmp_path))
