import collections
import contextlib
import io
import json
import os
import re
import shutil
import sys

import numpy as np
import pytest
from conftest import GOLDEN
from helpers.forks import ROOT

import bert
import fill_mask
import modeling
from bert.commands.checks import WRONG, Checks
from bert.models.pretrained import PretrainedModel
from bert.weights import checkpoint, provenance, saving
from bert.weights.folder import ModelFolder

TEXT = "the old [MASK] told a [MASK] ||| who heard it?"


@pytest.fixture
def settings(tmp_path):
    """A function that makes settings for the original's small model."""

    def make(**changes):
        return fill_mask.Settings(
            **{
                "checkpoint": str(GOLDEN / "bert_model.ckpt"),
                "output_file": str(tmp_path / "out"),
                "format": "jsonl",
                "overwrite": True,
                **changes,
            }
        )

    return make


def run_jsonl(settings, texts=()):
    fill_mask.run(settings, texts)
    with open(settings.output_file, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_guesses_equal_those_of_the_model(settings):
    [answer] = run_jsonl(settings(top_k=3), [TEXT])
    model = PretrainedModel(ModelFolder.open(str(GOLDEN)))
    [masks] = model.fill_mask([model.read_text(TEXT)], top_k=3)
    assert answer["text"] == TEXT
    assert answer["masks"] == [
        [{"token": guess.token, "probability": guess.probability} for guess in guesses]
        for guesses in masks
    ]
    assert [len(guesses) for guesses in masks] == [3, 3]


def test_a_text_that_is_not_utf_8_is_written_as_json_has_it(settings):
    text = os.fsdecode(b"the [MASK] \xff")
    [answer] = run_jsonl(settings(), [text])
    assert answer["text"] == text


def test_scores_come_from_files_and_add_up(settings, tmp_path, log):
    (tmp_path / "text.txt").write_text("the old man\n\nthe man told a story ||| who heard?\r\n")
    answers = run_jsonl(settings(score=True, input_file=str(tmp_path / "text.txt")))
    assert [answer["text"] for answer in answers] == [
        "the old man",
        "the man told a story ||| who heard?",
    ]
    total = sum(answer["pseudo_log_likelihood"] for answer in answers)
    tokens = sum(answer["num_tokens"] for answer in answers)
    for answer in answers:
        mean = answer["pseudo_log_likelihood"] / answer["num_tokens"]
        assert answer["perplexity"] == pytest.approx(np.exp(-mean))
    assert f"In all, 2 texts: perplexity {np.exp(-total / tokens):.6g}" in log.messages[-1]
    assert any(": skipped 1 blank line." in message for message in log.messages)


def test_pairs_are_told_and_nothing_else_beside(settings):
    pairs = ["the old man ||| who heard it?", "the man told ||| a story"]
    answers = run_jsonl(settings(next_sentence=True), pairs)
    model = bert.load(str(GOLDEN))
    expected = model.next_sentence([tuple(pair.split(" ||| ")) for pair in pairs])
    assert [answer["text"] for answer in answers] == pairs
    assert [answer["is_next"] for answer in answers] == pytest.approx(expected, abs=1e-6)
    with pytest.raises(ValueError, match="Only one of `score` and `next_sentence`"):
        fill_mask.run(settings(next_sentence=True, score=True), pairs)


def test_a_head_that_nothing_has_trained_does_not_answer(settings, tmp_path):
    """Without next sentences, pre-training leaves that head as it began."""
    for path in GOLDEN.iterdir():
        if path.name.startswith(("bert_", "vocab")):
            shutil.copy(path, tmp_path)
    pair, given = "the old man ||| who heard it?", {"checkpoint": str(tmp_path)}
    for objective, is_trained in (("masked_lm_nsp", True), ("masked_lm", False)):
        made_of = {"--objective": objective}
        provenance.begin(str(tmp_path), made_of, 1, {}, begins_anew=True)
        provenance.end(str(tmp_path))
        assert run_jsonl(settings(**given), [TEXT]) == run_jsonl(settings(), [TEXT])
        with (
            contextlib.nullcontext()
            if is_trained
            else pytest.raises(ValueError, match="must have the next-sentence head")
        ):
            fill_mask.run(settings(**given, next_sentence=True), [pair])


def test_texts_come_from_the_standard_input_when_nowhere_else(settings, monkeypatch):
    lines = io.TextIOWrapper(io.BytesIO("the [MASK]\nold [MASK] é\n".encode()))
    monkeypatch.setattr(sys, "stdin", lines)
    answers = run_jsonl(settings())
    assert [answer["text"] for answer in answers] == ["the [MASK]", "old [MASK] é"]
    lines = io.TextIOWrapper(io.BytesIO("the [MASK]\nold [MASK] é\n".encode("latin-1")))
    monkeypatch.setattr(sys, "stdin", lines)
    with pytest.raises(ValueError, match=r"^standard input:2: text must be UTF-8"):
        fill_mask.run(settings(output_file="-"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the [MASK]\nold\n")))
    with pytest.raises(ValueError, match=r"^standard input:2: the text must have \[MASK\]"):
        fill_mask.run(settings(output_file="-"))


def test_a_pattern_names_one_file(settings, tmp_path):
    (tmp_path / "a.txt").write_text("the [MASK]\n")
    made = settings(input_file=str(tmp_path / "[ab].txt"))
    assert [answer["text"] for answer in run_jsonl(made)] == ["the [MASK]"]
    (tmp_path / "b.txt").write_text("old [MASK]\n")
    with pytest.raises(ValueError, match="`input_file` must name a single file"):
        fill_mask.run(made)


def test_a_folder_of_pretraining_has_its_configuration(settings, tmp_path):
    config = modeling.BertConfig.from_json_file(str(GOLDEN / "bert_config.json"))
    weights = checkpoint.Stored.open(str(GOLDEN / "bert_model.ckpt")).read()
    folder = tmp_path / "pretrained"
    folder.mkdir()
    ModelFolder(str(folder)).save(config)
    saving.save_tensors(str(folder / "model.ckpt-7"), weights)
    vocab_file = str(GOLDEN / "vocab.txt")
    with pytest.raises(ValueError, match=r"vocab_file` must be given.*vocab.txt"):
        fill_mask.run(settings(checkpoint=str(folder)), [TEXT])
    answers = run_jsonl(settings(checkpoint=str(folder), vocab_file=vocab_file), [TEXT])
    assert answers == run_jsonl(settings(), [TEXT])
    (folder / "bert_config.json").unlink()
    with pytest.raises(ValueError, match=r"bert_config_file` must be given.*bert_config.json"):
        fill_mask.run(settings(checkpoint=str(folder), vocab_file=vocab_file), [TEXT])


def test_the_checkpoint_is_opened_once(settings, opened):
    run_jsonl(settings(), [TEXT])
    assert opened == [str(GOLDEN / "bert_model.ckpt")]


def test_a_checkpoint_without_the_head_is_an_error(settings):
    parts = {
        "bert_config_file": str(GOLDEN / "bert_config.json"),
        "vocab_file": str(GOLDEN / "vocab.txt"),
    }
    fine_tuned = str(GOLDEN / "classifier_cola" / "model.ckpt")
    with pytest.raises(ValueError, match=r"masked-LM head.*lacks.*cls/predictions"):
        fill_mask.run(settings(checkpoint=fine_tuned, **parts), [TEXT])


@pytest.mark.parametrize(
    ("changes", "texts", "message"),
    [
        ({"checkpoint": "nowhere"}, [TEXT], r"checkpoint` must name a checkpoint.*'nowhere'"),
        ({"input_file": "nowhere.txt"}, [], r"`input_file`.*'nowhere.txt'"),
        ({"input_file": "x.txt"}, [TEXT], r"`input_file` must not be given beside texts"),
        ({"vocab_file": "nowhere.txt"}, [TEXT], r"`vocab_file`.*'nowhere.txt'"),
        ({}, [TEXT, "no mask"], r"Argument 2 must have \[MASK\].*Received 'no mask'"),
        ({"score": True}, [TEXT], r"Argument 1 must not have \[MASK\]"),
        ({"score": True}, [" "], r"Argument 1 must have at least one token"),
        ({"next_sentence": True}, ["the old man"], r"Argument 1 must be a pair"),
        ({"input_file": "blank.txt"}, [], r"There must be a text"),
    ],
)
def test_what_cannot_work_is_an_error_also_of_a_check_and_leaves_no_file(
    settings, tmp_path, monkeypatch, changes, texts, message
):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "blank.txt").write_text(" \n\n")
    monkeypatch.chdir(tmp_path / "texts")
    given = settings(**changes)
    with pytest.raises(ValueError, match=message):
        fill_mask.run(given, texts)
    checks = Checks()
    fill_mask.check(given, checks, texts)
    assert [line.mark for line in checks.lines].count(WRONG) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["texts"]


def test_a_line_that_is_too_long_is_named(settings, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the old man\n" + "the " * 600 + "\n")
    given = settings(score=True, input_file=str(path))
    with pytest.raises(ValueError, match=r"text.txt:2: the text must have at most"):
        fill_mask.run(given)
    checks = Checks()
    fill_mask.check(given, checks)
    assert [line.name for line in checks.lines if line.mark == WRONG] == ["texts"]


@pytest.mark.parametrize(
    ("changes", "lines", "message"),
    [
        ({}, ["[MASK] a", "a b"], r"text.txt:31: the text must have \[MASK\]"),
        ({"score": True}, ["a b", "[MASK] a"], r"text.txt:31: the text must not have"),
        ({"next_sentence": True}, ["a ||| b", "a b"], r"text.txt:31: the text must be a pair"),
    ],
)
def test_all_lines_are_looked_at_before_the_first_is_answered(
    settings, tmp_path, monkeypatch, changes, lines, message
):
    path, (right, wrong) = tmp_path / "text.txt", lines
    # More than are answered together.
    path.write_text(f"{right}\n" * 30 + f"{wrong}\n")
    # A model that answered would find no room.
    monkeypatch.setattr(PretrainedModel, "_batches", None)
    with pytest.raises(ValueError, match=message):
        fill_mask.run(settings(input_file=str(path), batch_size=1, **changes))


def test_guesses_are_below_their_text_and_each_of_several_masks_has_a_number(settings, tmp_path):
    fill_mask.run(settings(format="text", top_k=2), ["the old [MASK]", "a [MASK] and [MASK]"])
    lines = (tmp_path / "out").read_text().splitlines()
    assert [line for line in lines if "[MASK]" in line] == [
        "the old [MASK]",
        "a [MASK] and [MASK]",
        "[MASK] 1",
        "[MASK] 2",
    ]
    vocab = (GOLDEN / "vocab.txt").read_text(encoding="utf-8").split("\n")
    guesses = [line.split() for line in lines if line.startswith("  0.")]
    assert len(guesses) == 6
    assert all(token in vocab for _, token in guesses)


@pytest.mark.parametrize("what", ["fill", "score", "next_sentence"])
def test_a_text_is_shown_in_a_line_that_no_terminal_obeys(settings, tmp_path, what):
    text = "the\x1b[2J\nold man ||| who heard it?"
    if what == "fill":
        text += " [MASK]"
        changes = {"top_k": 2}
    else:
        changes = {what: True}
    fill_mask.run(settings(format="text", **changes), [text])
    shown = (tmp_path / "out").read_text()
    assert r"the\x1b[2J\nold man" in shown
    assert "\x1b" not in shown
    assert len(shown.split("\n")) == (5 if what == "fill" else 2)


def test_pairs_of_the_sample_differ_in_little_and_none_is_there_twice():
    lines = (ROOT / "sample/minimal_pairs.tsv").read_text(encoding="utf-8").splitlines()
    head, *rows = [line.split("\t") for line in lines]
    assert head == ["good", "bad", "phenomenon"]
    kinds = collections.Counter(phenomenon for _, _, phenomenon in rows)
    assert len(kinds) == 12 and set(kinds.values()) == {25}
    sentences = [sentence for good, bad, _ in rows for sentence in (good, bad)]
    assert len(set(map(str.lower, sentences))) == 600
    for good, bad, phenomenon in rows:
        one, other = (collections.Counter(re.findall(r"\w+", text.lower())) for text in (good, bad))
        changed = max((one - other).total(), (other - one).total())
        assert changed == 0 or phenomenon != "word_order", good
        assert changed <= 2 and good[-1] == bad[-1], good
