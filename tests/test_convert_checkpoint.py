import contextlib
import json
import os
import re
import shutil

import keras
import numpy as np
import onnxruntime
import pytest
import safetensors.numpy
import tensorflow as tf
import tokenizers
from conftest import GOLDEN, ROOT, change, exhaustive, make_examples, model_inputs
from helpers.huggingface_models import CONFIG, stored_in, write
from helpers.huggingface_models import tensors as tensors  # noqa: PLC0414 (a fixture)
from helpers.tf1_checkpoints import save_by_tf1

import convert_checkpoint
import modeling
from bert.models import conversion
from bert.models.open import load
from bert.models.options import FORMATS
from bert.network.heads import classifier_model, tagging_model
from bert.options import OptionError
from bert.weights import checkpoint, huggingface_weights, saving
from bert.weights.options import ARCHITECTURES
from bert.weights.variables import find_variables

pytestmark = pytest.mark.usefixtures("eager")

# The index of a real release, and its configuration; its weights are not there.
RELEASE = ROOT.parent / "shared/data/weights/chinese_L-12_H-768_A-12-meta-only"


def convert(source, output, kind, **changes):
    settings = {"input": str(source), "output": str(output), "format": kind, **changes}
    return convert_checkpoint.run(convert_checkpoint.Settings(**settings))


def read(path):
    return checkpoint.Stored.open(str(path)).read()


def assert_same_bytes(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.dtype == other[name].dtype, name
        assert value.tobytes() == other[name].tobytes(), name


def save(folder, tensors, config, *, casing=True, **task):
    """Writes a folder as this project does."""
    folder.mkdir()
    (folder / "bert_config.json").write_text(config.to_json_string())
    tokens = ["[UNK]", *map(str, range(1, config.vocab_size))]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    if task:
        (folder / "task.json").write_text(json.dumps({"do_lower_case": casing, **task}))
    saving.save_tensors(str(folder / "bert_model.ckpt"), tensors)
    return folder


@pytest.fixture
def flat_config(still_config):
    """One layer, where their names and order are not what is compared."""
    return change(still_config, num_hidden_layers=1)


@pytest.fixture
def classifier(tmp_path, flat_config):
    """A folder of a classifier of three labels, as run_classifier.py leaves it."""
    model = classifier_model(flat_config, 3)
    rng = np.random.RandomState(4)
    tensors = {v.path: rng.normal(size=v.shape).astype(np.float32) for v in model.weights}
    task = {
        "name": "custom",
        "task_type": "classification",
        "labels": ["bad", "so so", "good"],
        "is_pair": False,
        "metric": "accuracy",
    }
    folder = save(
        tmp_path / "classifier",
        {**tensors, "global_step": np.asarray(12, np.int64)},
        flat_config,
        kind="classification",
        task=task,
        max_seq_length=8,
    )
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens += [f"w{number}" for number in range(len(tokens), flat_config.vocab_size)]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    return folder


def test_there_and_back_gives_every_byte(tmp_path, log):
    report = convert(GOLDEN, tmp_path / "hf", "huggingface", do_lower_case=True)
    before = read(GOLDEN)
    assert report.converted == sorted(before)
    assert (report.left_out, report.missing, report.num_slots) == ([], [], 0)
    assert report.difference == 0
    assert "Verified: on the same input, outputs differ by 0.0e+00 at most." in log.messages
    assert {path.name for path in (tmp_path / "hf").iterdir()} == {
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer_config.json",
        "vocab.txt",
    }
    convert(tmp_path / "hf", tmp_path / "tf", "tf", verify=False)
    after = read(tmp_path / "tf")
    assert_same_bytes(after, {**before, "global_step": after["global_step"]})
    for name in ("vocab.txt", "bert_config.json"):
        old, new = (GOLDEN / name).read_bytes(), (tmp_path / "tf" / name).read_bytes()
        assert json.loads(old) == json.loads(new) if name.endswith(".json") else old == new


def test_a_next_sentence_head_that_has_learned_nothing_does_not_come_along(
    tmp_path, still_config, tensors, log
):
    slots = {f"{name}/adam_m": value for name, value in tensors.items()}
    source = save(tmp_path / "source", {**tensors, **slots}, still_config)
    (source / "run.json").write_text(json.dumps({"made_of": {"--objective": "masked_lm"}}))
    head = {name for name in tensors if name.startswith("cls/seq_relationship/")}
    convert(source, tmp_path / "tf", "tf", verify=False)
    lost = {*head, *(f"{name}/adam_m" for name in head)}
    assert {**tensors, **slots}.keys() - read(tmp_path / "tf").keys() == lost
    assert f"Left out: {min(head)}" in log.messages
    assert not any("Missing in the input" in message for message in log.messages)
    convert(source, tmp_path / "hf", "huggingface", do_lower_case=False)
    assert tensors.keys() - read(tmp_path / "hf").keys() == head
    config = json.loads((tmp_path / "hf/config.json").read_text())
    assert config["architectures"] == ["BertForMaskedLM"]
    with pytest.raises(ValueError, match="By its heads, the model is a BertForMaskedLM"):
        convert(source, tmp_path / "out", "tf", architecture="BertForPreTraining")


def test_a_fine_tuned_folder_survives_the_way_there_and_back(tmp_path, classifier):
    convert(classifier, tmp_path / "hf", "huggingface", verify=False)
    config = json.loads((tmp_path / "hf/config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["id2label"] == {"0": "bad", "1": "so so", "2": "good"}
    assert config["label2id"] == {"bad": 0, "so so": 1, "good": 2}
    assert config["problem_type"] == "single_label_classification"
    tokenizer = json.loads((tmp_path / "hf/tokenizer_config.json").read_text())
    assert (tokenizer["do_lower_case"], tokenizer["model_max_length"]) == (True, 16)
    convert(tmp_path / "hf", tmp_path / "back", "tf", verify=False)
    assert_same_bytes(read(tmp_path / "back"), read(classifier))
    texts = ["w7 w9", "w8"]
    answers = [load(str(each)).predict(texts) for each in (classifier, tmp_path / "back")]
    assert answers[0] == answers[1]
    assert {answer["label"] for answer in answers[0]} <= {"bad", "so so", "good"}


@pytest.mark.parametrize(
    "form", ["huggingface", "sentence_transformers", *exhaustive("tf", "onnx")]
)
def test_a_temperature_that_others_do_not_know_is_told(tmp_path, classifier, form, log):
    path = classifier / "task.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "temperature": 2.5}))
    convert(classifier, tmp_path / "out", form, verify=False)
    told = any("divide logits by 2.5" in message for message in log.messages)
    assert told == (form in ("huggingface", "onnx"))


def test_a_foreign_classifier_becomes_one_that_predicts(tmp_path, classifier):
    hf = tmp_path / "hf"
    convert(classifier, hf, "huggingface", verify=False)
    (hf / "task.json").unlink()
    convert(hf, tmp_path / "back", "tf", verify=False)
    stored = json.loads((tmp_path / "back/task.json").read_text())
    before = json.loads((classifier / "task.json").read_text())
    assert stored.pop("files").keys() == {"bert_config.json", "vocab.txt"}
    assert stored == {**before, "max_seq_length": 16}
    answer = load(str(tmp_path / "back")).predict(["w7 w9"])
    assert answer == load(str(classifier)).predict(["w7 w9"])
    convert(hf, tmp_path / "pairs", "tf", is_pair=True, verify=False)
    assert load(str(tmp_path / "pairs")).fields == ("text_a", "text_b")
    # What has been decided is not told once more, nor what nothing keeps.
    with pytest.raises(ValueError, match="`is_pair` must not be given for a model whose task"):
        convert(tmp_path / "back", tmp_path / "again", "tf", is_pair=True)
    (hf / "tokenizer_config.json").unlink()
    with pytest.raises(ValueError, match=r"`is_pair` and the like to be saved.*SequenceClass"):
        convert(hf, tmp_path / "again", "tf", is_pair=True)
    with pytest.raises(ValueError, match="`is_pair` must not be given for a BertForPreTraining"):
        convert(GOLDEN, tmp_path / "again", "tf", is_pair=True, do_lower_case=True)
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("form", ["huggingface", "onnx"])
def test_labels_that_do_not_exclude_each_other_stay_so_for_others(tmp_path, classifier, form):
    hf = tmp_path / "hf"
    convert(classifier, hf, "huggingface")
    (hf / "task.json").unlink()
    config = json.loads((hf / "config.json").read_text())
    config["problem_type"] = "multi_label_classification"
    (hf / "config.json").write_text(json.dumps(config))
    convert(hf, tmp_path / "out", form)
    assert json.loads((tmp_path / "out/config.json").read_text()) == config
    # No file there has the task, but the class of the model tells what it is for.
    card = (tmp_path / "out/README.md").read_text()
    assert "pipeline_tag: text-classification" in card and "MASK" not in card


@pytest.mark.parametrize(
    ("labels", "scheme"),
    [
        (["NOUN", "VERB", "O", "B-NP"], "words"),
        (["O", "I-PER", "I-LOC", "I"], "iob1"),
        *exhaustive(
            (["LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3"], "words"),
            (["O", "S-PER", "B-PER", "E-PER"], "iobes"),
            (["O", "B-PER", "I-PER", "B-LOC"], "iob2"),
        ),
    ],
)
def test_a_foreign_tagger_of_any_labels_stays_one(tmp_path, still_config, labels, scheme):
    model = tagging_model(still_config, len(labels))
    rng = np.random.RandomState(4)
    tensors = {v.path: rng.normal(size=v.shape).astype(np.float32) for v in model.weights}
    # What these bytes mean to a run of ours is told by the file of transformers alone.
    source = save(tmp_path / "source", tensors, still_config)
    hf, back = tmp_path / "hf", tmp_path / "back"
    kind = "BertForTokenClassification"
    convert(source, hf, "huggingface", architecture=kind, do_lower_case=True, verify=False)
    config = json.loads((hf / "config.json").read_text())
    config["id2label"] = {str(number): label for number, label in enumerate(labels)}
    (hf / "config.json").write_text(json.dumps(config))
    (hf / "vocab.txt").write_text("".join(f"{w}\n" for w in ["[UNK]", "[CLS]", "[SEP]", "a", "b"]))
    convert(hf, back, "tf", verify=False)
    stored = json.loads((back / "task.json").read_text())
    assert stored["task"] == {"labels": labels, "scheme": scheme, "unit": "word"}
    answers = load(str(back)).predict(["a b c", "b a"])
    types = {entity["type"] for answer in answers for entity in answer["entities"]}
    assert types <= (set(labels) if scheme == "words" else {"PER", "LOC", ""})
    assert types or scheme != "words"
    convert(back, tmp_path / "again", "huggingface", verify=False)
    again = json.loads((tmp_path / "again/config.json").read_text())
    assert again["architectures"] == [kind]
    assert again["id2label"] == config["id2label"]


@pytest.mark.parametrize(
    "architecture", ["BertForPreTraining", *exhaustive("BertForQuestionAnswering")]
)
def test_keras_weights_fit_the_model_that_is_made_and_come_back(
    tmp_path, flat_config, architecture
):
    keras.utils.clear_session()
    model = convert_checkpoint.make_model(architecture, flat_config)
    rng = np.random.RandomState(0)
    tensors = {v.path: rng.normal(size=v.shape).astype(np.float32) for v in model.weights}
    source = save(tmp_path / "tf", tensors, flat_config)
    convert(source, tmp_path / "keras", "keras", do_lower_case=False)
    assert convert(tmp_path / "keras", tmp_path / "back", "tf", verify=False).missing == []
    found = read(tmp_path / "back")
    assert_same_bytes({name: found[name] for name in tensors}, tensors)
    model.load_weights(tmp_path / "keras/bert_model.weights.h5")
    assert_same_bytes({v.path: v.numpy() for v in model.weights}, tensors)
    wrong = json.loads((tmp_path / "keras/bert_config.json").read_text())
    (tmp_path / "wrong.json").write_text(json.dumps({**wrong, "hidden_size": 16}))
    file = tmp_path / "keras/bert_model.weights.h5"
    with pytest.raises(ValueError, match=r"bert_model\.weights\.h5' must have the shapes"):
        convert(file, tmp_path / "no", "tf", bert_config_file=str(tmp_path / "wrong.json"))
    file.write_bytes(b"no")
    with pytest.raises(ValueError, match="must name weights in a format that is read here"):
        convert(file, tmp_path / "no", "tf")


def test_keras_weights_that_fit_has_trained_come_back_with_their_labels(tmp_path, flat_config):
    keras.utils.clear_session()
    model = convert_checkpoint.make_model("BertForSequenceClassification", flat_config, 3)
    model.compile("adam")
    # The file has the optimizer's variables, too.
    model.optimizer.build(model.trainable_variables)
    folder = save(tmp_path / "source", {"unused": np.zeros(1, np.float32)}, flat_config)
    model.save_weights(tmp_path / "fitted.weights.h5")
    names = {"bert_config_file": "bert_config.json", "vocab_file": "vocab.txt"}
    given = {option: str(folder / name) for option, name in names.items()}
    # Keras saves the weights anywhere, also beside the vocabulary of another model.
    (tmp_path / "vocab.txt").write_text("".join(f"other{n}\n" for n in range(9)) + "[UNK]\n")
    with pytest.raises(ValueError, match="another model's, put the weights in a folder of their"):
        convert(tmp_path / "fitted.weights.h5", tmp_path / "back", "tf", **given)
    (tmp_path / "own").mkdir()
    (tmp_path / "fitted.weights.h5").rename(tmp_path / "own" / "fitted.weights.h5")
    report = convert(tmp_path / "own" / "fitted.weights.h5", tmp_path / "back", "tf", **given)
    assert report.difference == 0
    assert read(tmp_path / "back")["output_weights"].shape == (3, 8)


@pytest.mark.parametrize("layer", ["crf", "add_bilstm"])
def test_a_layer_that_others_lack_is_not_lost(tmp_path, classifier, layer):
    path = classifier / "task.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), layer: True}))
    assert len(FORMATS) > 4
    for form in FORMATS:
        with (
            contextlib.nullcontext()
            if form == "tf"
            else pytest.raises(ValueError, match=f"`format` must be tf for .* Received '{form}'")
        ):
            convert(classifier, tmp_path / form, form, verify=False)


def test_a_model_of_a_folder_has_its_outputs_unless_others_are_given(classifier):
    kind = "BertForSequenceClassification"
    for given, count in ((None, 3), (4, 4)):
        model = convert_checkpoint.make_model(kind, str(classifier), given)
        assert model.outputs[0].shape[-1] == count
    for given in (0, -1, "4", 4.0):
        with pytest.raises(ValueError, match=r"`num_outputs` must be .* Received"):
            convert_checkpoint.make_model(kind, str(classifier), given)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind", ["huggingface", *exhaustive("keras")])
def test_every_architecture_is_verified(tmp_path, flat_config, architecture, kind):
    keras.utils.clear_session()
    model = convert_checkpoint.make_model(architecture, flat_config, 4)
    rng = np.random.RandomState(0)
    tensors = {v.path: rng.normal(size=v.shape).astype(np.float32) for v in model.weights}
    source = save(tmp_path / "tf", tensors, flat_config)
    report = convert(source, tmp_path / "out", kind, architecture=architecture, do_lower_case=False)
    assert report.difference == 0
    assert sorted(report.converted) == sorted(tensors)


def test_a_folder_of_sentence_transformers_has_the_encoder_and_gives_the_same_vectors(
    tmp_path, classifier
):
    report = convert(classifier, tmp_path / "out", "sentence_transformers")
    assert report.left_out == ["output_bias", "output_weights"]
    assert report.difference == 0
    stored = safetensors.numpy.load_file(tmp_path / "out" / "model.safetensors")
    assert {name.partition(".")[0] for name in stored} == {"embeddings", "encoder", "pooler"}
    texts = ["w5 w6 [MASK]", "w7"]
    source, model = load(str(classifier)), load(str(tmp_path / "out"))
    vectors = source.encode(texts[1:], max_seq_length=8)
    np.testing.assert_array_equal(model.encode(texts[1:], max_seq_length=8), vectors)
    assert (model.text_vectors.pooling, model.text_vectors.max_seq_length) == ("mean", 16)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architectures"] == ["BertModel"] and "id2label" not in config
    card = (tmp_path / "out" / "README.md").read_text()
    assert "pipeline_tag: feature-extraction" in card and "predict" not in card
    # What the library `tokenizers` reads gives the ids of the tokenizer here.
    file = tokenizers.Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    inputs = model.tokenizer(texts, ["w8", "[SEP] W9 é"])
    found = [file.encode(*pair) for pair in zip(texts, ["w8", "[SEP] W9 é"], strict=True)]
    for number, row in enumerate(found):
        assert inputs["input_ids"][number, : len(row.ids)].tolist() == row.ids
        assert inputs["segment_ids"][number, : len(row.ids)].tolist() == row.type_ids
    with pytest.raises(OptionError, match="`architecture` must be BertModel"):
        convert(
            classifier,
            tmp_path / "other",
            "sentence_transformers",
            architecture="BertForSequenceClassification",
        )


@pytest.mark.parametrize(
    ("source", "outputs"),
    [
        ("BertForPreTraining", {"logits": "masked_lm_logits"}),
        *exhaustive(
            ("BertModel", {"last_hidden_state": "sequence_output"}),
            ("BertForNextSentencePrediction", {"logits": "next_sentence_logits"}),
            ("BertForSequenceClassification", {"logits": "logits"}),
            ("BertForMultipleChoice", {"logits": "logits"}),
            (
                "BertForQuestionAnswering",
                {"start_logits": "start_logits", "end_logits": "end_logits"},
            ),
        ),
    ],
)
def test_onnx_in_the_layout_of_hugging_face_computes_the_same(
    tmp_path, flat_config, source, outputs
):
    model = convert_checkpoint.make_model(source, flat_config, 3)
    rng = np.random.RandomState(2)
    tensors = {v.path: rng.normal(0, 0.3, v.shape).astype(np.float32) for v in model.weights}
    for variable in model.weights:
        variable.assign(tensors[variable.path])
    folder = save(tmp_path / "source", tensors, flat_config)
    (folder / "vocab.txt").write_text("\n".join(["[UNK]", "[CLS]", "[SEP]", *map(str, range(26))]))
    changes = {"architecture": source, "do_lower_case": False}
    (tmp_path / "out" / "onnx").mkdir(parents=True)
    (tmp_path / "out" / "onnx" / "model_quantized.onnx").touch()
    with pytest.raises(OptionError, match="not hold other files"):
        convert(folder, tmp_path / "out", "onnx", **changes)
    (tmp_path / "out" / "onnx" / "model_quantized.onnx").unlink()
    report = convert(folder, tmp_path / "out", "onnx", **changes)
    assert report.difference < 1e-4
    other_heads = {"BertForPreTraining": "seq_re", "BertForNextSentencePrediction": "predic"}
    assert {name[4:10] for name in report.left_out} == {other_heads.get(source)} - {None}
    size = (2, 3, 7) if source == "BertForMultipleChoice" else (2, 7)
    inputs = {
        "input_ids": rng.randint(0, 29, size),
        "input_mask": np.ones(size, int),
        "segment_ids": rng.randint(0, 2, size),
    }
    inputs["input_mask"][-1, ..., 4:] = 0
    names = ("input_ids", "attention_mask", "token_type_ids")
    given = dict(zip(names, inputs.values(), strict=True))
    if "masked_lm_positions" in model.input:
        inputs["masked_lm_positions"] = np.tile(np.arange(7), (2, 1))
    expected = model(inputs)
    for file, tolerance in (("model.onnx", 1e-5), ("model_quantized.onnx", 0.5)):
        session = onnxruntime.InferenceSession(tmp_path / "out" / "onnx" / file)
        assert [value.name for value in session.get_outputs()] == [*outputs]
        found = session.run([*outputs], given)
        for values, name in zip(found, outputs.values(), strict=True):
            np.testing.assert_allclose(values, expected[name], rtol=0, atol=tolerance)


@pytest.mark.parametrize("form", ["huggingface", "sentence_transformers"])
def test_weights_are_written_beside_a_folder_of_onnx(tmp_path, classifier, form):
    (tmp_path / "out" / "onnx").mkdir(parents=True)
    for name in ("model.onnx", "model_quantized.onnx"):
        (tmp_path / "out" / "onnx" / name).touch()
    assert convert(classifier, tmp_path / "out", form).difference == 0
    assert (tmp_path / "out" / "model.safetensors").exists()


def test_optimizer_slots_can_be_left_out(tmp_path, still_config, tensors):
    name = "bert/pooler/dense/kernel"
    slots = {f"{name}/{slot}": np.ones((8, 8), np.float32) for slot in ("adam_m", "adam_v")}
    stored = {**tensors, **slots, "global_step": np.asarray(9, np.int64)}
    source = save(tmp_path / "tf", stored, still_config)
    assert convert(source, tmp_path / "all", "tf", verify=False).num_slots == 0
    assert_same_bytes(read(tmp_path / "all"), stored)
    report = convert(source, tmp_path / "weights", "tf", weights_only=True, verify=False)
    assert (report.num_slots, report.left_out) == (2, [])
    without = {name: value for name, value in stored.items() if name not in slots}
    assert_same_bytes(read(tmp_path / "weights"), without)
    changes = {"do_lower_case": True, "verify": False}
    assert convert(source, tmp_path / "hf", "huggingface", **changes).num_slots == 2
    assert_same_bytes(read(tmp_path / "hf"), without)


@pytest.mark.parametrize(
    ("form", "architecture", "is_random"),
    [
        ("keras", "BertForPreTraining", True),
        ("huggingface", "BertForPreTraining", False),
        ("onnx", "BertForMaskedLM", False),
        ("onnx", "BertForNextSentencePrediction", True),
    ],
)
def test_a_pooler_of_random_numbers_is_warned_of(
    tmp_path, still_config, tensors, log, form, architecture, is_random
):
    tensors = {n: v for n, v in tensors.items() if not n.startswith("bert/pooler")}
    source = save(tmp_path / "tf", tensors, still_config)
    words = ["[UNK]", "[CLS]", "[SEP]", *map(str, range(still_config.vocab_size - 3))]
    (source / "vocab.txt").write_text("\n".join(words))
    convert(source, tmp_path / "out", form, architecture=architecture, do_lower_case=True)
    warned = [text for text in log.messages if "lacks bert/pooler, which the output has" in text]
    assert len(warned) == is_random


def test_report_names_what_is_left_out_and_what_is_missing(tmp_path, still_config, tensors, log):
    tensors = {n: v for n, v in tensors.items() if not n.startswith("bert/pooler")}
    stored = {**tensors, "my/own": np.ones(3, np.float32)}
    source = save(tmp_path / "tf", stored, still_config)
    report = convert(source, tmp_path / "hf", "huggingface", do_lower_case=True)
    assert report.left_out == ["my/own"]
    assert f"Found {len(stored)} tensors, converted {len(tensors)}." in log.messages
    assert sorted(report.missing) == ["bert/pooler/dense/bias", "bert/pooler/dense/kernel"]
    assert "Left out: my/own" in log.messages
    assert "Missing in the input: bert/pooler/dense/kernel" in log.messages
    assert_same_bytes(read(tmp_path / "hf"), tensors)


def test_the_card_of_an_encoder_fills_no_masks(tmp_path, still_config, tensors):
    encoder = {name: value for name, value in tensors.items() if name.startswith("bert/")}
    source = save(tmp_path / "source", encoder, still_config)
    convert(source, tmp_path / "out", "tf", verify=False)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "pipeline_tag: feature-extraction" in card and "MASK" not in card


def test_input_and_result_are_opened_once(tmp_path, still_config, tensors, opened):
    source = save(tmp_path / "tf", tensors, still_config)
    convert(source, tmp_path / "out", "tf")
    written = opened.pop()
    assert opened == [str(source / "bert_model.ckpt")]
    assert written.startswith(f"{tmp_path}/out/convert.partial")


def test_files_are_on_the_disk_before_they_have_their_names(
    tmp_path, still_config, tensors, monkeypatch
):
    synced, named = [], []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(descriptor):
        fsync(descriptor)
        synced.append(os.fstat(descriptor).st_ino)

    def watched_replace(old, new):
        if os.path.dirname(new) == str(tmp_path / "out"):
            assert os.stat(old).st_ino in synced
            # So that of names that follow each other, the later one does not last alone.
            assert not named or synced[-1] == os.stat(tmp_path / "out").st_ino
            named.append(os.path.basename(new))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    convert(save(tmp_path / "in", tensors, still_config), tmp_path / "out", "tf", verify=False)
    assert synced[-1] == os.stat(tmp_path / "out").st_ino
    assert sorted(named) == sorted(os.listdir(tmp_path / "out"))
    assert named[-1] == "bert_model.ckpt.index"


def test_a_file_alone_can_be_written(tmp_path, still_config, tensors):
    source = save(tmp_path / "tf", tensors, still_config)
    (tmp_path / "out").mkdir()
    convert(source, tmp_path / "out/a.safetensors", "huggingface")
    convert(source, tmp_path / "out/b.ckpt", "tf", verify=False)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "a.safetensors",
        "b.ckpt.data-00000-of-00001",
        "b.ckpt.index",
        "b.ckpt.meta",
    }
    assert_same_bytes(read(tmp_path / "out/a.safetensors"), tensors)


def test_sharded_models_without_vocab_txt_are_converted(tmp_path, tensors):
    hf = tmp_path / "hf"
    write(hf, tensors)
    # TensorFlow 1 has no variables of such names.
    others = {name: np.ones(2, np.float32) for name in ("_extra.weight", "log vars@0")}
    stored = {**stored_in(hf), **others}
    (hf / "model.safetensors").unlink()
    names = sorted(stored)
    files = {name: f"part-{number % 2}.safetensors" for number, name in enumerate(names)}
    for file in ("part-0.safetensors", "part-1.safetensors"):
        part = {name: stored[name] for name in names if files[name] == file}
        safetensors.numpy.save_file(part, hf / file)
    (hf / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    vocab = {"[UNK]": 0, **{f"t{number}": number for number in range(1, 29)}}
    model = {"type": "WordPiece", "vocab": vocab}
    (hf / "tokenizer.json").write_text(json.dumps({"model": model}))
    convert(hf, tmp_path / "tf", "tf", verify=False)
    after = read(tmp_path / "tf")
    assert_same_bytes(after, {**tensors, **others, "global_step": after["global_step"]})
    assert (tmp_path / "tf/vocab.txt").read_text().split() == list(vocab)
    config = modeling.BertConfig.from_json_file(str(tmp_path / "tf/bert_config.json"))
    assert config == modeling.BertConfig.from_dict(CONFIG)
    assert config.hidden_act == "gelu_erf"


def test_tensorflow_1_loads_what_is_written_under_the_names_of_a_release(tmp_path, tensors):
    """All but the number of layers and the widths is as in the release."""
    if not RELEASE.exists():
        pytest.skip(f"{RELEASE} is not there.")
    index = RELEASE / "bert_model.ckpt.index"
    listed = tf.compat.v1.train.NewCheckpointReader(str(index.with_suffix("")))
    shapes = listed.get_variable_to_shape_map()
    names = {n for n in shapes if not re.search(r"layer_([2-9]|1\d)/", n)}
    write(tmp_path / "hf", tensors)
    convert(tmp_path / "hf", tmp_path / "tf", "tf", without_vocabulary=True, verify=False)
    assert names == tensors.keys()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = {
            name: tf.compat.v1.get_variable(name, tensors[name].shape, use_resource=False)
            for name in names
        }
        tf.compat.v1.train.Saver(variables).restore(session, str(tmp_path / "tf/bert_model.ckpt"))
        assert_same_bytes(session.run(variables), tensors)
    assert huggingface_weights.find_known(shapes).keys() == shapes.keys()
    # The same names lead back.
    table = find_variables(shapes)
    assert table.keys() >= shapes.keys()
    assert len({variable.theirs for variable in table.values()}) == len(table)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input": "nowhere"}, "input` must name a checkpoint.*'nowhere'"),
        ({"output": "x.safetensors"}, "must be a folder or end in '.ckpt' for `format=.tf.`"),
        ({"output": "gs://x/y"}, "`output` must be a local path"),
        ({"output": str(ROOT / "README.md")}, "`output` must be a folder that can be written"),
        ({"architecture": "BertForQuestionAnswering"}, r"BertForQ.* needs \['cls/squad/output_w"),
        ({"bert_config_file": "nowhere.json"}, "'nowhere.json'"),
        ({"vocab_file": "nowhere.txt"}, "nowhere.txt"),
        ({"format": "huggingface"}, "do_lower_case` must be given"),
        ({"vocab_file": str(ROOT / "sample/vocab.txt")}, "vocab_file` must"),
    ],
)
def test_impossible_conversions_are_refused_and_leave_nothing(tmp_path, changes, message):
    settings = {"input": str(GOLDEN), "output": str(tmp_path / "out"), "format": "tf", **changes}
    with pytest.raises((ValueError, OSError), match=message):
        convert_checkpoint.run(convert_checkpoint.Settings(**settings))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_a_vocabulary_is_only_written_on_request(tmp_path, still_config, tensors):
    source = save(tmp_path / "tf", tensors, still_config)
    (source / "vocab.txt").unlink()
    with pytest.raises(ValueError, match=r"vocab_file` must be given.*`without_vocabulary`"):
        convert(source, tmp_path / "out", "huggingface", do_lower_case=True)
    convert(source, tmp_path / "weights.safetensors", "huggingface", verify=False)
    convert(source, tmp_path / "out", "huggingface", without_vocabulary=True, verify=False)
    assert not (tmp_path / "out/vocab.txt").exists()


def test_what_is_there_is_not_replaced(tmp_path, still_config, tensors):
    source = save(tmp_path / "tf", tensors, still_config)
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    with pytest.raises(ValueError, match=r"has \['bert_model.ckpt.index'\]"):
        convert(source, source, "tf")
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before
    # What is the same may be there, and the other kind lies beside.
    convert(source, source, "huggingface", do_lower_case=False, verify=False)
    assert before.keys() < {path.name for path in source.iterdir()}
    assert {name: (source / name).read_bytes() for name in before} == before


def test_a_checkpoint_of_another_shape_is_refused(tmp_path, still_config, tensors):
    source = save(tmp_path / "tf", tensors, change(still_config, intermediate_size=16))
    with pytest.raises(ValueError, match="`intermediate_size` should be 12"):
        convert(source, tmp_path / "out", "tf")


def test_a_head_of_another_shape_is_refused(tmp_path, classifier):
    tensors = read(classifier)
    other = {**tensors, "output_bias": np.ones(4, np.float32)}
    saving.save_tensors(str(classifier / "bert_model.ckpt"), other)
    with pytest.raises(ValueError, match=r"`output_bias` is \[4\] there and \[3\].*other labels"):
        convert(classifier, tmp_path / "out", "huggingface", do_lower_case=True)


def test_a_result_that_computes_something_else_is_not_kept(tmp_path, still_config, tensors):
    source = save(tmp_path / "tf", tensors, still_config)
    wrong = {**tensors, "cls/seq_relationship/output_bias": np.ones(2, np.float32)}
    saving.save_tensors(str(tmp_path / "wrong.ckpt"), wrong)
    options = convert_checkpoint.Settings(input=str(source), output="out", format="tf")
    opened = conversion.open_source(options, "tf")
    model = convert_checkpoint.make_model("BertForPreTraining", still_config)
    for variable in model.weights:
        variable.assign(tensors[variable.path])
    assert model(model_inputs(make_examples(still_config, 1))) is not None
    with pytest.raises(ArithmeticError, match="outputs differ by"):
        conversion.verify(opened, "BertForPreTraining", model, [], str(tmp_path / "wrong.ckpt"))


@pytest.mark.parametrize("value", [np.nan, *exhaustive(np.inf, -np.inf)])
def test_what_is_no_number_is_never_verified(tmp_path, still_config, tensors, value, monkeypatch):
    """Wherever it comes out: comparisons with it are false, and maxima may pass over it."""
    names = ("bert/embeddings/LayerNorm/beta", "cls/predictions/output_bias")
    for name in (*names, "cls/seq_relationship/output_bias"):
        ruined = {**tensors, name: np.full_like(tensors[name], value)}
        with monkeypatch.context() as patch:
            # As others write it.
            patch.setattr(saving, "find_not_finite", lambda _: None)
            source = save(tmp_path / name.replace("/", "."), ruined, still_config)
        out = tmp_path / "out"
        with pytest.raises((ValueError, ArithmeticError)):
            convert(source, out, "huggingface", do_lower_case=False)
        assert not out.exists() or not list(out.iterdir())


def test_outputs_that_are_no_numbers_are_never_verified(tmp_path, still_config, tensors):
    """Weights may be finite whose products are not."""
    huge = {
        name: np.float32(1.8e19) * np.sign(value) if "/self/" in name else value
        for name, value in tensors.items()
    }
    source = save(tmp_path / "huge", huge, still_config)
    with pytest.raises(ArithmeticError, match="outputs differ by nan"):
        convert(source, tmp_path / "out", "huggingface", do_lower_case=False)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_the_first_format_of_tensorflow_is_converted_and_loaded(tmp_path, still_config, tensors):
    source = save(tmp_path / "second", tensors, still_config)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(24))]
    (source / "vocab.txt").write_text("\n".join(tokens))
    first = shutil.copytree(source, tmp_path / "first", ignore=shutil.ignore_patterns("*.ckpt.*"))
    version = tf.compat.v1.train.SaverDef.V1
    save_by_tf1(str(first / "bert_model.ckpt"), tensors, version)
    assert not list(first.glob("*.index"))
    changes = {"do_lower_case": False, "verify": False}
    convert(first / "bert_model.ckpt", tmp_path / "out", "huggingface", **changes)
    assert_same_bytes(read(tmp_path / "out"), read(source))
    one, other = (load(folder, do_lower_case=False) for folder in (first, source))
    np.testing.assert_array_equal(*(each.encode(["1 2 3"]) for each in (one, other)))
