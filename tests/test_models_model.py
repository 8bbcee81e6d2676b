import json
import os
import subprocess
import sys

import mypy.api
import numpy as np
import pytest
from conftest import GOLDEN, ROOT, exhaustive
from helpers.forks import fork_python
from helpers.served_models import CONFIG, TASKS, TOKENIZER, make_model, save_model

import bert
from bert.models.fine_tuned import LoadedModel
from bert.models.model import VARIABLE, assume_frozen_weights
from bert.tasks.classification.classifier import Classification
from bert.tasks.classification.examples import ClassificationTask
from bert.tasks.task import at_precision


@pytest.fixture(scope="module")
def pretrained():
    return bert.load(GOLDEN, do_lower_case=True)


@pytest.fixture(scope="module")
def classifier():
    task = ClassificationTask(
        name="custom", task_type="classification", labels=("no", "yes"), is_pair=True, metric="f1"
    )
    columns = {"text_a_column": "title", "text_b_column": "text", "separator": ","}
    data = Classification(CONFIG, TOKENIZER, 16, task, columns=columns)
    return LoadedModel(data, data.make_model("float32"))


def test_one_text_is_a_list_of_one(pretrained):
    masked = "the [MASK] of it"
    assert pretrained.fill_mask(masked, top_k=2) == pretrained.fill_mask([masked], top_k=2)
    assert pretrained.score("the end") == pretrained.score(["the end"])
    np.testing.assert_array_equal(pretrained.encode("the end"), pretrained.encode(["the end"]))
    model = LoadedModel(TASKS["labels"], TASKS["labels"].make_model("float32"))
    assert model.predict("a red") == model.predict(["a red"]) == model.predict({"text_a": "a red"})


def test_an_input_may_have_the_columns_of_the_training_files(classifier):
    expected = classifier.predict([("a", "b c")])
    assert classifier.predict({"title": "a", "text": "b c", "id": 3}) == expected
    assert classifier.predict([{"text_a": "a", "text_b": "b c"}]) == expected
    with pytest.raises(ValueError, match=r"Input 0, .* must have 'text_a', 'text_b'"):
        classifier.predict({"title": "a", "text_b": "b c"})


def test_a_method_that_a_model_lacks_is_refused_with_those_it_has(pretrained, classifier):
    with pytest.raises(ValueError, match=r"`predict` needs a fine-tuned .*fill_mask, score, next_"):
        pretrained.predict(["a"])
    for method in ("fill_mask", "score", "next_sentence"):
        message = rf"`{method}` needs a pre-trained model.*methods: predict, encode, inputs>"
        with pytest.raises(ValueError, match=message):
            getattr(classifier, method)(["a"])


def test_a_model_shows_its_kind_its_labels_and_its_methods(pretrained, classifier):
    methods = "predict, encode, inputs"
    assert repr(classifier) == f"<LoadedModel: classification, labels no, yes; methods: {methods}>"
    assert repr(pretrained).startswith("<PretrainedModel: pre-trained; methods: fill_mask, score")
    assert (classifier.labels, pretrained.labels) == (["no", "yes"], [])
    many = LoadedModel(TASKS["labels"], TASKS["labels"].make_model("float32"))
    many.labels = [f"label_{number}" for number in range(10)]
    assert "label_8 …;" in repr(many) and "label_9" not in repr(many)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"precision": "half"}, "`precision` must be one of float32, .* Received 'half'"),
        ({"architecture": "Bert"}, "`architecture` must be one of BertForSeq.* Received 'Bert'"),
    ],
)
def test_an_argument_without_such_a_value_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        bert.load(GOLDEN, **arguments)


def test_the_version_is_that_of_the_package():
    assert 'version = {attr = "bert.__version__"}\n' in (ROOT / "pyproject.toml").read_text()
    command = [sys.executable, "-m", "bert", "--version"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert shown.stdout == f"bert {bert.__version__}\n"


PROGRAM = """
import bert

model = bert.load("my_remarks", batch_size=8)
for answer in model.predict(["The bread was warm.", "It was old."]):
    print(answer["label"])
guesses = bert.load("my_bert").fill_mask("The baker opens the [MASK].", top_k=3)
reveal_type(model.predict({"text": "It was old."}))
reveal_type(guesses[0][0][0].token)
reveal_type(model.encode("It was old."))
reveal_type(model.labels)
reveal_type(bert.__version__)
model.predikt("It was old.")
bert.load("my_bert", batch_sise=8)
"""


@pytest.mark.slow
def test_a_type_checker_sees_what_load_returns(tmp_path, monkeypatch):
    assert (ROOT / "bert/py.typed").exists()
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    configuration = ["--config-file", str(ROOT / "pyproject.toml")]
    # That of `make test-types`, where it has run.
    cache = ["--cache-dir", str(ROOT / ".mypy_cache")]
    shown, errors, _ = mypy.api.run([*configuration, *cache, str(tmp_path / "program.py")])
    lines = [line for line in shown.splitlines() if "program.py" in line]
    for line, expected in zip(
        lines,
        [
            '"list[dict[str, Any]]"',
            '"str"',
            '"numpy.ndarray[',
            '"list[str]"',
            '"str"',
            '"Model" has no attribute "predikt"',
            'Unexpected keyword argument "batch_sise" for "load"',
            '"load" defined in',
        ],
        strict=True,
    ):
        assert expected in line, (line, errors)


# Each model runs in one graph for batches of all sizes, whose weights are kept from the first one.
MODELS = """
import keras, numpy as np, tensorflow as tf
import modeling
from bert.network import heads
from bert.pretraining.heads import pretraining_model
from bert.network.kernels import infer

config = modeling.BertConfig(
    vocab_size=29, hidden_size=8, num_hidden_layers=2, num_attention_heads=4,
    intermediate_size=12, max_position_embeddings=80, type_vocab_size=3)
rng = np.random.default_rng(0)
kinds = {{
    "classifier": heads.classifier_model,
    "tags": heads.tagging_model,
    "spans": lambda config, _, dtype: heads.span_model(config, dtype),
    "tokens": lambda config, _, dtype: pretraining_model(config, dtype),
}}
for name, kind in kinds.items():
    keras.utils.set_random_seed(1)
    model = kind(config, 3, "{dtype}")
    signature = {{name: tf.TensorSpec([None, None], tf.int32) for name in model.input}}
    run = tf.function(lambda inputs: infer(model, inputs), input_signature=[signature])
    for rows, length in [(1, 5), (4, 70), (9, 33), (1, 5)]:
        inputs = {{
            name: rng.integers(0, 3, (rows, length)).astype(np.int32) for name in model.input}}
        expected, found = model(inputs, training=False), run(inputs)
        for each in expected:
            np.testing.assert_allclose(
                np.asarray(found[each], np.float32), np.asarray(expected[each], np.float32),
                rtol=0, atol={tolerance}, err_msg=f"{{name}} {{each}} {{rows}} {{length}}")
    print(name)
"""


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [*exhaustive(("float32", 1e-5)), ("bfloat16", 0.03)]
)
def test_frozen_weights_give_the_outputs_of_the_model(dtype, tolerance):
    code = MODELS.format(dtype=dtype, tolerance=tolerance)
    found = fork_python("-c", code, **{VARIABLE: "1"})
    assert found.stdout.split() == ["classifier", "tags", "spans", "tokens"], found.stderr


def test_a_program_that_may_train_is_left_alone():
    assume_frozen_weights("bfloat16")
    assert VARIABLE not in os.environ


# The promise is made for a process: each case has one of its own.
PROMISES = """
import json, os, sys
from bert.commands import console
from bert.models.model import assume_frozen_weights
cases = json.loads(sys.argv.pop())
def main(_):
    assume_frozen_weights(precision)
    print(os.environ.get(name))
for precision, name, before in cases:
    if not os.fork():
        os.environ |= before
        console.run_script(main)
    os.wait()
"""


def test_a_script_promises_it_where_one_order_serves_all_sizes():
    cases = [
        *(("bfloat16", {}, "1"), ("mixed_bfloat16", {}, "1"), ("float32", {}, "None")),
        ("bfloat16", {VARIABLE: "0"}, "0"),
    ]
    given = [(precision, VARIABLE, before) for precision, before, _ in cases]
    found = fork_python("-c", PROMISES, json.dumps(given)).stdout.split()
    assert found == [after for *_, after in cases]


@pytest.mark.parametrize(
    ("model", "flags", "promised"),
    [
        ("folder", ["--precision=bfloat16"], "1"),
        ("folder", [], "None"),
        *exhaustive(("float32", [], "None")),
        ("bfloat16", [], "1"),
    ],
)
def test_predicting_goes_by_the_precision_of_a_model(tmp_path, model, flags, promised):
    folder = save_model("labels", tmp_path / "folder")
    if model != "folder":
        loaded = make_model("labels")
        folder = str(tmp_path / "saved_model")
        loaded.task.export(folder, at_precision(loaded.task, loaded.model, model))
    code = f"""
import atexit, os, runpy, sys
sys.argv[0] = "predict.py"
atexit.register(lambda: print(os.environ.get("{VARIABLE}")))
runpy.run_path("predict.py", run_name="__main__")
"""
    (tmp_path / "in.jsonl").write_text('{"text_a": "a b c"}\n')
    paths = [f"--input_file={tmp_path}/in.jsonl", f"--output_file={tmp_path}/out.jsonl"]
    found = fork_python("-c", code, f"--model_dir={folder}", *paths, *flags)
    assert found.stdout.split() == [promised]
    assert (tmp_path / "out.jsonl").read_text().count("label") == 1
