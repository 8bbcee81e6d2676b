import dataclasses
import errno
import json
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import ROOT, read_report
from helpers.classifier_runs import make_rows, settings_in, write_task, write_tsv

import bert
import modeling
import run_classifier
from bert.export import portable
from bert.export.formats import Export, read_exports
from bert.export.portable import open_runtime
from bert.models.exported import ExportedModel
from bert.network import heads
from bert.runs import exports
from bert.runs.exports import Parity, find_refusal

FEATURES = {
    "input_ids": [[2, 4, 8, 9, 3, 0], [2, 7, 3, 0, 0, 0]],
    "input_mask": [[1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0]],
    "segment_ids": [[0] * 6] * 2,
}


def features() -> dict[str, np.ndarray]:
    return {name: np.array(values, np.int32) for name, values in FEATURES.items()}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A folder of a run that has exported all, but what is refused."""
    for package in ("tf2onnx", "onnxruntime", "ai_edge_litert"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("exported")
    write_task(folder, lambda color: color)
    make = settings_in(folder)
    keras.utils.set_random_seed(3)
    settings = make(do_train=True, do_eval=True, do_export=True, num_train_epochs=1.0)
    run_classifier.run(settings)
    settings = make(
        do_eval=True,
        do_export=True,
        export_format="onnx,tflite",
        export_precision="float32,int8",
        max_score_loss=1.0,
    )
    run_classifier.run(settings)
    return folder / "out"


def logits_of_saved_model(folder) -> np.ndarray:
    signature = tf.saved_model.load(str(folder / "saved_model")).signatures["features"]
    return signature(**{n: tf.constant(v) for n, v in features().items()})["logits"].numpy()


def test_other_runtimes_give_the_numbers_of_the_saved_model(exported):
    expected = logits_of_saved_model(exported)
    for name, tolerance in (("onnx", 1e-5), ("onnx_int8", 0.1)):
        session = sys.modules["onnxruntime"].InferenceSession(str(exported / name / "model.onnx"))
        [logits] = session.run(["logits"], features())
        np.testing.assert_allclose(logits, expected, rtol=0, atol=tolerance)
    for name, tolerance in (("tflite", 1e-5), ("tflite_int8", 0.1)):
        run = open_runtime(str(exported / name), "tflite")
        # Any number of rows of any length, and no output changes with the next call.
        one = {key: each[:1, :5] for key, each in features().items()}
        outputs = [run(each)["logits"] for each in (features(), one, features())]
        for logits, wanted in zip(outputs, (expected, expected[:1], expected), strict=True):
            np.testing.assert_allclose(logits, wanted, rtol=0, atol=tolerance)
        np.testing.assert_array_equal(outputs[0], outputs[2])


def test_a_saved_model_is_opened_in_any_folder(exported, tmp_path):
    folder = str(tmp_path / "we[1]rd st*r")
    shutil.copytree(exported / "saved_model", folder)
    outputs = exports._open(folder, Export("saved_model", "float32"))(features())
    np.testing.assert_array_equal(outputs["logits"], logits_of_saved_model(exported))
    texts = ["a red b", "green"]
    expected = bert.load(str(exported / "saved_model")).predict(texts)
    assert bert.load(folder).predict(texts) == expected
    assert ExportedModel(folder, runs=False).kind == "classification"


@pytest.mark.parametrize("name", ["onnx", "tflite", "tflite_int8"])
def test_an_export_answers_as_the_folder_of_its_training(exported, name):
    """In batches of any size, from Python as from the command."""
    texts = ["a red b", "green", "red " * 20, "c", "black a"] * 3
    model = bert.load(str(exported / name), batch_size=4)
    assert (model.kind, model.methods) == ("classification", ("predict",))
    expected = bert.load(str(exported)).predict(texts)
    for answer, wanted in zip(model.predict(texts), expected, strict=True):
        tolerance = 0.1 if "int8" in name else 1e-5
        assert answer["probabilities"] == pytest.approx(wanted["probabilities"], abs=tolerance)
        assert answer["label"] == wanted["label"] or "int8" in name
    with pytest.raises(ValueError, match="`encode` needs a model with an encoder"):
        model.encode(texts)
    with pytest.raises(ValueError, match="`max_seq_length` must not be given for an exported"):
        bert.load(str(exported / name), max_seq_length=16)


def test_eight_bits_are_smaller(exported):
    for form, file in (("onnx", "model.onnx"), ("tflite", "model.tflite")):
        large, small = (exported / name / file for name in (form, f"{form}_int8"))
        assert small.stat().st_size < large.stat().st_size, file


def test_a_report_shows_the_comparison(exported):
    scores = json.loads((exported / "eval_results.json").read_text())
    for name in ("saved_model", "onnx", "onnx_int8", "tflite", "tflite_int8"):
        parity = json.loads((exported / name / "parity.json").read_text())
        assert parity["examples"] == 40
        assert parity["float32_score"] == scores["accuracy"]
        assert parity["score_loss"] == parity["float32_score"] - parity["score"]
        files = [path for path in (exported / name).rglob("*") if path.is_file()]
        assert parity["bytes"] == sum(
            path.stat().st_size for path in files if path.name != "parity.json"
        )
        is_exact = not name.endswith("int8")
        assert (parity["largest_difference"] < 1e-5) == is_exact
        assert parity["score"] == scores["accuracy"] or not is_exact
    assert '"onnx_int8"' in (exported / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["onnx_int8", "tflite_int8"])
def test_an_answer_of_eight_bits_does_not_depend_on_the_texts_beside_it(exported, name):
    texts = ["a red b", "green", "red " * 20, "c", "black a"] * 3
    model = bert.load(str(exported / name))
    answers = [answer for text in texts for answer in model.predict([text])]
    for answer, alone in zip(model.predict(texts), answers, strict=True):
        assert answer["probabilities"] == pytest.approx(alone["probabilities"], abs=1e-6)


@pytest.mark.parametrize("name", ["onnx", "tflite_int8"])
def test_the_example_answers_as_the_page_says(exported, name):
    command = [sys.executable, ROOT / "sample/ask_portable.py", exported / name, "a red b", "green"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = result.stdout.splitlines()
    assert [line.partition(": ")[2] for line in lines] == ["a red b", "green"]
    assert all("% sure" in line for line in lines)


@pytest.mark.parametrize(
    ("example", "stored", "arguments", "said"),
    [
        ("portable", None, ["a red b"], "must be the folder of an export"),
        ("portable", {}, [], "Texts must"),
        ("portable", {"kind": "squad"}, ["a red b"], "asks classifiers of single texts"),
        ("portable", {"task": {"tags": ["O"]}}, ["a red b"], "asks classifiers of single texts"),
        ("saved_model", None, [], "and texts. Received"),
    ],
)
def test_the_examples_name_what_is_missing_in_a_line(tmp_path, example, stored, arguments, said):
    if stored is not None:
        (tmp_path / "task.json").write_text(json.dumps(stored))
    command = [sys.executable, ROOT / f"sample/ask_{example}.py", tmp_path, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1 and said in result.stderr


def rows_of_exports(folder) -> dict[str, list]:
    """Returns what a page shows of exports, by their names."""
    shown = read_report(folder)["sections"].get("Exports", {"rows": []})
    return {row[0]: row[1:] for row in shown["rows"]}


@pytest.mark.exhaustive
def test_an_export_that_loses_too_much_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("ai_edge_litert")
    # What the model says itself is right, so that any difference is a loss.
    rows = [(text, number) for number, (text, _) in enumerate(make_rows(30, 5, str))]
    write_tsv(tmp_path / "train.tsv", rows)
    write_tsv(tmp_path / "dev.tsv", rows)
    make = settings_in(tmp_path)
    numbers = {"task_type": "regression", "do_eval": True}
    run_classifier.run(make(**numbers, do_train=True, num_train_epochs=1.0))
    said = (tmp_path / "out/dev_predictions.tsv").read_text().splitlines()
    place = said[0].split("\t").index("predicted_score")
    own = [(text, line.split("\t")[place]) for (text, _), line in zip(rows, said[1:], strict=True)]
    write_tsv(tmp_path / "dev.tsv", own)
    # The page of an evaluation is there whatever becomes of the exports.
    out = tmp_path / "out"
    (out / "report.html").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(tf.saved_model, "save", fail_for_want_of_space)
        with pytest.raises(OSError, match="No space"):
            run_classifier.run(make(**numbers, do_export=True))
    assert not rows_of_exports(out) and not (out / "saved_model").exists()
    small = {"do_export": True, "export_format": "tflite", "export_precision": "float32,int8"}
    with pytest.raises(ValueError, match=r"Received 0, but tflite_int8 loses .* of pearson"):
        run_classifier.run(make(**numbers, **small, max_score_loss=0.0))
    # The last digits of what computes in float32 do not count.
    assert [path.name for path in out.glob("tflite*")] == ["tflite"]
    told = {name: row[-1] for name, row in rows_of_exports(out).items()}
    assert told == {"tflite": "", "tflite_int8": "refused"}
    run_classifier.run(make(**numbers, **small, max_score_loss=0.5))
    assert (out / "tflite_int8/parity.json").exists()
    assert [row[-1] for row in rows_of_exports(out).values()] == ["", ""]


def fail_for_want_of_space(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_weights_are_in_no_graph_that_tf2onnx_takes_apart(monkeypatch):
    tf2onnx = pytest.importorskip("tf2onnx")

    sizes = []
    load = tf2onnx.tf_loader.from_function

    def load_and_weigh(*arguments, **options):
        graph = load(*arguments, **options)
        sizes.append(graph.ByteSize())
        return graph

    monkeypatch.setattr(tf2onnx.tf_loader, "from_function", load_and_weigh)
    found = []
    for vocab_size in (20, 20_000):
        config = modeling.BertConfig(
            vocab_size=vocab_size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=24, max_position_embeddings=16,
        )  # fmt: skip
        found.append(len(portable.convert(heads.classifier_model(config, 2), "onnx", "float32")))
    # 16 numbers of 4 bytes a token.
    assert found[1] - found[0] > 19_980 * 64
    assert abs(sizes[1] - sizes[0]) < 1000


def test_the_order_of_weights_changes_no_file():
    pytest.importorskip("tf2onnx")

    config = modeling.BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=16,
    )  # fmt: skip
    model = heads.classifier_model(config, 2)
    file = portable.convert(model, "onnx", "float32")
    # Weights that are not trained come last.
    model.get_layer("bert").trainable = False
    assert portable.convert(model, "onnx", "float32") == file


@pytest.mark.exhaustive
def test_equal_models_make_equal_files(tmp_path):
    pytest.importorskip("tf2onnx")

    files = []
    for _ in range(2):
        keras.utils.clear_session()
        keras.utils.set_random_seed(1)
        config = modeling.BertConfig(
            vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=24, max_position_embeddings=16, hidden_act="gelu_erf",
        )  # fmt: skip
        model = heads.choice_model(config)
        inputs = {name: np.stack([each, each]) for name, each in features().items()}
        expected = model(inputs)["logits"].numpy()
        files.append(
            (portable.convert(model, "onnx", "float32"), portable.convert(model, "tflite", "int8"))
        )
        path = tmp_path / "model.onnx"
        path.write_bytes(files[-1][0])
        logits = portable.open_runtime(str(path.parent), "onnx")(inputs)["logits"]
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-6)
    assert files[0] == files[1]


def settings(**changes) -> run_classifier.Settings:
    return run_classifier.Settings(output_dir="out", do_export=True, **changes)


def test_formats_and_precisions_are_combined():
    read = read_exports(settings(export_format="onnx, tflite", export_precision="float32,int8"))
    assert [each.name for each in read] == ["onnx", "onnx_int8", "tflite", "tflite_int8"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"export_format": "onxx"}, "must be among saved_model, tflite, onnx"),
        ({"export_format": "onnx,onnx"}, "each once"),
        ({"export_precision": "float16"}, "must be among float32, bfloat16, int8"),
        ({"export_precision": "int8"}, "'int8', which tflite and onnx can have"),
        (
            {"export_format": "onnx", "export_precision": "bfloat16"},
            "float32, int8 for onnx.*which saved_model can have",
        ),
        (
            {"export_format": "onnx,tflite", "export_tokenizer": "tensorflow_text"},
            "must hold saved_model for `.*'onnx,tflite'. The other formats take ids",
        ),
    ],
)
def test_impossible_exports_are_refused_at_once(changes, message):
    with pytest.raises(ValueError, match=message):
        run_classifier.run(settings(**changes))


def test_formats_need_an_export():
    for given in ({"export_format": "tflite"}, {"export_tokenizer": "tensorflow_text"}):
        changed = dataclasses.replace(settings(**given), do_export=False, do_eval=True)
        with pytest.raises(ValueError, match=r"need `.*do_export`"):
            run_classifier.run(changed)


@pytest.mark.parametrize(
    ("option", "value", "package", "name", "extra"),
    [
        ("export_format", "onnx", "tf2onnx", "tf2onnx", "onnx"),
        ("export_tokenizer", "tensorflow_text", "tensorflow_text", "tensorflow-text", "text"),
    ],
)
def test_missing_packages_are_reported_first(monkeypatch, option, value, package, name, extra):
    monkeypatch.setitem(sys.modules, package, None)
    message = rf"`.*{option}='?{value}'?` needs .*pip install {name}`.*pip install '.\[{extra}\]'"
    with pytest.raises(ValueError, match=message):
        run_classifier.run(settings(**{option: value}))


def test_a_score_of_nan_is_refused():
    parity = Parity(
        export=Export("onnx", "int8"),
        metric="f1",
        **{"examples": 3, "score": float("nan"), "float32_score": 0.5, "bytes": 9},
        max_score_loss=0.01,
    )
    assert parity.is_refused
    assert not dataclasses.replace(parity, score=0.5).is_refused
    assert not dataclasses.replace(parity, score=None).is_refused
    counted = dataclasses.replace(parity, counts_examples=True)
    assert counted.is_refused and "examples" not in counted.describe_loss()


@pytest.mark.parametrize(
    ("lost", "examples", "allowed", "is_refused", "said"),
    [
        (1, 80, 0.01, False, "1 of 80 examples, where 1 would be allowed"),
        (2, 80, 0.01, True, "2 of 80 examples, where 1 would be allowed"),
        (2, 200, 0.01, False, "2 of 200 examples, where 2 would be allowed"),
        (3, 200, 0.01, True, "3 of 200 examples, where 2 would be allowed"),
        (1, 80, 0.0, True, "1 of 80 examples, where none is allowed"),
        (0, 80, 0.0, False, "0 of 80"),
        (-4, 80, 0.01, False, "-4 of 80"),
    ],
)
def test_a_score_that_counts_examples_may_lose_one(lost, examples, allowed, is_refused, said):
    score = 0.75 - lost / examples
    parity = Parity(
        export=Export("onnx", "int8"),
        metric="accuracy",
        **{"examples": examples, "score": score, "float32_score": 0.75, "bytes": 9},
        **{"largest_difference": 0.1, "max_score_loss": allowed, "counts_examples": True},
    )
    assert parity.is_refused == is_refused
    assert said in parity.describe_loss()
    assert ("examples lost" in parity.describe()) == (lost > 0)
    assert "counts_examples" not in parity.to_dict()
    refusal = find_refusal([parity])
    assert said in str(refusal) if is_refused else refusal is None
    # Of a score that is a part of nothing, the threshold alone counts.
    assert dataclasses.replace(parity, counts_examples=False).is_refused == (
        lost / examples > allowed + 1e-6
    )
