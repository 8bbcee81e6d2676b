import dataclasses
import json
import re

import pytest

from bert.commands.training import EvaluatedSettings
from bert.files import owned
from bert.options import changed_options
from bert.weights import model_card, provenance

CONFIG = {"num_hidden_layers": 2, "hidden_size": 8, "vocab_size": 6000}
TASK = {
    "kind": "classification",
    "task": {"name": "custom", "labels": ["good", "so|so", "``bad``\n# no"]},
    "do_lower_case": False,
    "max_seq_length": 32,
}
SCORES = {"accuracy": 0.75, "f1": 0.5, "baseline": 0.625, "global_step": 12, "report": {"x": 1}}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(EvaluatedSettings):
    """Those of a script."""


@pytest.fixture
def folder(tmp_path):
    """A folder as a training leaves it, its card apart."""
    data = {"my data/train.tsv": 1234}
    made = ({"--seed": 1}, 12, {"data": data})
    provenance.begin(str(tmp_path), *made, begins_anew=True)
    for name, values in (
        ("bert_config.json", CONFIG),
        ("task.json", TASK),
        ("eval_results.json", SCORES),
    ):
        (tmp_path / name).write_text(json.dumps(values))
    return tmp_path


def tell(folder, **changes):
    settings = Settings(output_dir=str(folder), do_train=True, learning_rate=1e-3, **changes)
    counts = {"train": 1000, "dev": 20}
    model_card.record(
        str(folder),
        changed_options(settings),
        settings.init_checkpoint,
        kind="classification",
        counts=counts,
        metric="accuracy",
    )


def read(folder):
    model_card.update(str(folder))
    return (folder / "README.md").read_text()


def test_a_card_has_the_model_its_data_scores_and_commands(folder):
    tell(folder, init_checkpoint="google-bert/bert-base-cased", overwrite_output_dir=True)
    card = read(folder)
    head, body = card.removeprefix("---\n").split("\n---\n")
    assert head.splitlines() == [
        "library_name: tensorflow",
        "pipeline_tag: text-classification",
        "tags:",
        "- bert",
        'base_model: "google-bert/bert-base-cased"',
        "metrics:",
        "- accuracy",
        "- f1",
    ]
    assert "* Casing: cased\n* Longest input: 32 tokens\n* Shape: 2 layers of 8, 6,000 tok" in body
    assert "* Base model: `google-bert/bert-base-cased`" in body
    assert "* `my data/train.tsv`, 1,234 bytes\n* `train`: 1,000 examples" in body
    rows = [line for line in body.splitlines() if line.startswith("| `")]
    assert rows == [
        "| `accuracy` | 0.75 |",
        "| `accuracy` of always giving the same answer | 0.625 |",
        "| `f1` | 0.5 |",
    ]
    [command] = re.findall(r"```sh\n(python run_classifier.*?)\n```", body, re.DOTALL)
    assert command.replace("\\\n ", "").split() == [
        "python",
        "run_classifier.py",
        "--init_checkpoint=google-bert/bert-base-cased",
        "--do_train",
        "--learning_rate=0.001",
        "--output_dir=my_model",
    ]
    assert "python predict.py --model_dir=my_model" in body
    assert 'bert.load("my_model")' in body


def test_the_card_of_a_model_of_pairs_asks_for_pairs(folder):
    tell(folder)
    assert 'model.predict(["A text."])' in read(folder)
    task = {**TASK, "task": {**TASK["task"], "is_pair": True}}
    (folder / "task.json").write_text(json.dumps(task))
    assert 'model.predict([("A text.", "Another text.")])' in read(folder)


def test_names_of_users_are_escaped(folder):
    card = read(folder)
    assert "`good`, `so|so`, ``` ``bad`` # no ```\n" in card
    assert not re.search(r"^# no", card, re.MULTILINE)


def test_a_card_depends_on_nothing_but_the_training(folder, tmp_path):
    tell(folder, init_checkpoint=str(tmp_path / "bert_model.ckpt"))
    card = read(folder)
    assert "base_model" not in card and str(folder) + "\n" not in card
    tell(folder, init_checkpoint=str(tmp_path / "bert_model.ckpt"))
    assert read(folder) == card
    (folder / "eval_results.json").write_text(json.dumps({**SCORES, "accuracy": 0.875}))
    assert read(folder) == card.replace("| `accuracy` | 0.75 |", "| `accuracy` | 0.875 |")
    assert owned.read_names(str(folder)).count("README.md") == 1


def test_a_readme_of_somebody_else_stays(folder, log):
    (folder / "README.md").write_text("Mine.")
    assert read(folder) == "Mine."
    assert any("was not written by a run here" in each for each in log.messages)
    assert "README.md" not in owned.read_names(str(folder))


def test_a_folder_in_which_nothing_was_trained_gets_no_card(tmp_path):
    model_card.update(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("eval_results.txt", "\n***** Eval results *****\naccuracy: 0.9\nloss = None\n"),
        ("eval_results.json", "[1, 2]"),
        ("eval_results.json", '{"accuracy": '),
        ("test_results.json", "null"),
        ("test_results.txt", b"\xff\xfe"),
    ],
)
def test_scores_in_a_form_of_another_program_are_left_out(tmp_path, name, content):
    expected = model_card.make(str(tmp_path))
    content = content if isinstance(content, bytes) else content.encode()
    (tmp_path / name).write_bytes(content)
    assert model_card.make(str(tmp_path)) == expected
    if name.endswith("txt"):
        (tmp_path / name).write_bytes(content + b"\nf1 = 0.5\n")
        assert "| `f1` | 0.5 |" in model_card.make(str(tmp_path))


def test_a_pre_trained_model_fills_masks(folder):
    (folder / "task.json").unlink()
    (folder / "eval_results.json").unlink()
    (folder / "eval_results.txt").write_text("global_step = 4\nmasked_lm_accuracy = 0.25\n")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    card = read(folder)
    assert "pipeline_tag: fill-mask" in card and "| `masked_lm_accuracy` | 0.25 |" in card
    assert "* Casing: uncased" in card and "python fill_mask.py --checkpoint=my_model" in card


@pytest.mark.parametrize(
    ("config", "title"),
    [
        ({"is_decoder": True}, "reads from left to right"),
        ({"encoder_type": "bilstm"}, "language model of LSTMs"),
    ],
)
def test_a_model_that_fills_no_masks_gives_vectors(folder, config, title):
    (folder / "task.json").unlink()
    (folder / "bert_config.json").write_text(json.dumps({**CONFIG, **config}))
    card = read(folder)
    assert "pipeline_tag: feature-extraction" in card and title in card
    assert "fill" not in card and "MASK" not in card
    assert "python extract_features.py --init_checkpoint=my_model" in card
    assert 'print(model.encode(["A text."]))' in card
    (folder / "bert_config.json").unlink()
    for name in ("BertModel", "BertForNextSentencePrediction"):
        (folder / "config.json").write_text(json.dumps({**CONFIG, "architectures": [name]}))
        assert "pipeline_tag: feature-extraction" in read(folder)
    # A fine-tuned one does what it was tuned for.
    (folder / "task.json").write_text(json.dumps(TASK))
    assert "pipeline_tag: text-classification" in read(folder)


def test_the_card_of_a_conversion_names_the_other_library(folder):
    card = model_card.make(str(folder), library="transformers")
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert 'pipeline("text-classification", model="my_model")' in card
    # The source may leave out what is a default.
    (folder / "bert_config.json").write_text('{"vocab_size": 6000}')
    files = {"config.json": CONFIG, "task.json": TASK}
    files = {name: json.dumps(values).encode() for name, values in files.items()}
    assert model_card.make(str(folder), library="transformers", files=files) == card
    # Of a part of the model, it says what that part does.
    del files["task.json"]
    how = {"library": "onnx", "files": files}
    card = model_card.make(str(folder), architecture="BertModel", **how)
    assert 'pipeline("feature-extraction", "my_model"' in card
    assert not any(each in card for each in ("accuracy", "`good`", "classif"))
    whole = model_card.make(str(folder), architecture="BertForSequenceClassification", **how)
    assert all(each in whole for each in ("accuracy", "`good`", "BERT that classifies"))
