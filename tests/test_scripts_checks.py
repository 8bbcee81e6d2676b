"""What `--check` shows of scripts that do not train is what they refuse."""

import shutil

import pytest
from conftest import copy_golden, eagerly
from helpers import classifier_runs
from helpers.checked_runs import assert_check_and_run_agree, assert_refused, content

import convert_checkpoint
import create_pretraining_data
import create_vocab
import create_word_vectors
import extend_vocab
import extract_features
import fill_mask
import neighbours
import predict
import run_classifier
import split_sentences

MODEL = {
    "init_checkpoint": "model/bert_model.ckpt",
    "bert_config_file": "model/bert_config.json",
    "vocab_file": "model/vocab.txt",
}
TEXT = {"input_file": "text.txt", "output_file": "out"}
# Script, settings that work, and changes that do not.
SCRIPTS = [
    (
        create_vocab,
        {**TEXT, "vocab_size": 200},
        [
            {"vocab_size": 9},
            {"input_file": "nowhere"},
            {"output_file": "nowhere/vocab.txt"},
        ],
    ),
    (
        create_pretraining_data,
        {**TEXT, "vocab_file": "model/vocab.txt", "max_seq_length": 32},
        [
            {"vocab_file": "nowhere"},
            {"vocab_file": "text.txt"},
            {"input_file": "text.txt,nowhere"},
            {"output_file": "out,out"},
        ],
    ),
    (
        extract_features,
        {**MODEL, **TEXT, "layers": "-1", "max_seq_length": 32},
        [
            {"layers": "99"},
            {"init_checkpoint": "nowhere"},
            {"bert_config_file": "nowhere"},
            {"vocab_file": "nowhere"},
            {"max_seq_length": 100_000},
        ],
    ),
    (
        extend_vocab,
        {**MODEL, "new_words": "qwertz", "output_dir": "extended"},
        [
            {"new_words": "a b,the"},
            {"vocab_file": "text.txt"},
            {"init_checkpoint": "nowhere"},
            {"output_dir": "model"},
            {"output_dir": "text.txt/extended"},
        ],
    ),
    (
        convert_checkpoint,
        {"input": "model", "output": "converted", "format": "tf", "do_lower_case": True},
        [
            {"input": "nowhere"},
            {"output": "model"},
            {"output": "x.safetensors"},
            {"architecture": "BertForQuestionAnswering"},
        ],
    ),
    (
        neighbours,
        {**MODEL, **TEXT, "query": "the second", "max_seq_length": 32},
        [
            {"input_file": "nowhere"},
            {"input_file": "text.txt", "text_column": "a"},
            {"context": "the second"},
            {"layer": "99"},
            {"init_checkpoint": "nowhere"},
            {"max_seq_length": 100_000},
        ],
    ),
    (
        create_word_vectors,
        {"init_checkpoint": "model", "vector_size": 3, "output_file": "out"},
        [
            {"init_checkpoint": "nowhere"},
            {"vector_size": 10_000},
        ],
    ),
    (
        fill_mask,
        {"checkpoint": "model", **TEXT},
        [
            {"checkpoint": "nowhere"},
            {"vocab_file": "text.txt"},
            {"input_file": "nowhere"},
            {"output_file": "nowhere/out"},
        ],
    ),
]
CASES = [
    pytest.param(script, settings, changes, id=f"{script.__name__}-{number}")
    for script, settings, wrong in SCRIPTS
    for number, changes in enumerate([{}, *wrong])
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    copy_golden(tmp_path / "model")
    (tmp_path / "text.txt").write_text("The first [MASK].\nThe second [MASK].\n\nThe [MASK].\n" * 9)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# How a folder or a file that cannot be made is told is the system's own.
OTHER_WORDS = ("nowhere/vocab.txt", "nowhere/out", "text.txt/extended")


@pytest.mark.parametrize(("script", "settings", "changes"), CASES)
def test_check_shows_what_a_script_refuses(folder, script, settings, changes):
    values = {**settings, **changes}
    same_words = not any(value in OTHER_WORDS for value in changes.values())
    assert_check_and_run_agree(script, script.Settings(**values), folder, same_words=same_words)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    make = classifier_runs.settings_in(folder)
    classifier_runs.write_task(folder, lambda color: color)
    with eagerly():
        run_classifier.run(make(do_train=True, num_train_epochs=0.2))
    return folder / "out"


# The scripts that write one file of their own form; records may be replaced by the same command.
WRITERS = [
    *((script, given) for script, given, _ in SCRIPTS if "output_file" in given),
    (split_sentences, TEXT),
    (predict, {"model_dir": "model", **TEXT}),
]


@pytest.mark.parametrize(("script", "given"), WRITERS, ids=[each.__name__ for each, _ in WRITERS])
def test_no_file_is_replaced_unless_it_may_be_and_no_input_or_model_at_all(
    folder, trained, script, given
):
    if script is predict:
        shutil.copytree(trained, folder / "model", dirs_exist_ok=True)
    (folder / "out").write_text("mine")
    settings = script.Settings(**given)
    assert_refused(script, settings, folder, "`output_file` must name a new file.*`overwrite=True`")
    read = ["text.txt"] if "input_file" in given else []
    for name in [*read, "model/vocab.txt", "model/bert_config.json"]:
        settings = script.Settings(**{**given, "output_file": name, "overwrite": True})
        assert_refused(script, settings, folder, "`output_file` must not name")
    assert (folder / "out").read_text() == "mine"
    files = content(folder / "model")
    script.run(script.Settings(**given, overwrite=True))
    assert b"mine" not in (folder / "out").read_bytes()
    assert content(folder / "model") == files


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("red\n", {}),
        ("", {}),
        ("red\n", {"columns": "a,b"}),
        ("red\n", {"input_format": "jsonl"}),
        ("red\n", {"input_format": "tsv"}),
        ("red\n", {"model_dir": "nowhere"}),
        ("red\n", {"input_file": "nowhere"}),
        ("red\n", {"output_file": "x.txt"}),
    ],
)
def test_check_shows_what_prediction_refuses(tmp_path, monkeypatch, trained, text, changes):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.txt").write_text(text)
    values = {"model_dir": str(trained), "input_file": "x.txt", "output_file": "out", **changes}
    assert_check_and_run_agree(predict, predict.Settings(**values), tmp_path)
