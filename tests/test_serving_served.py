import contextlib
import json
import os
import re

import pytest
import tensorflow as tf
from conftest import GOLDEN, ROOT, exhaustive
from helpers.served_models import (
    TASKS,
    approximately,
    fetch,
    load_pretrained,
    make_model,
    rows_of,
    served,
)
from hypothesis import example, given
from hypothesis import strategies as st

import bert
import tokenization
from bert.models.exported import ExportedModel
from bert.models.pretrained import PretrainedModel
from bert.serving.batching import AbandonedError
from bert.serving.served import DEFAULT, find_name, find_version, serve, shorten
from bert.text.added_tokens import AddedToken
from bert.weights import saving
from bert.weights.checkpoint import Stored
from bert.weights.folder import ModelFolder
from bert.weights.sentence_transformers import TextVectors

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"a[]b,e", "un", "##aff", "##able", "##a"]
VOCAB += ["\u4e00", "\u03c3", "\u03c2", "##\u03c3", "##\u03c2", "##b", "##e", "\u0130", "##'", "'"]
TOKENIZERS = [
    tokenization.FullTokenizer.from_vocab(
        {word: number for number, word in enumerate(VOCAB)}, lower, added_tokens=added
    )
    for lower in (True, False)
    for added in ((), (AddedToken("[E 1]"),), (AddedToken("[E 1]", normalized=False),))
]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("mrpc", "mrpc"),
        ("runs/mrpc/", "mrpc"),
        ("runs/mrpc/saved_model", "mrpc"),
        ("runs/mrpc/saved_model_bfloat16", "mrpc"),
        ("runs/mrpc/onnx", "mrpc"),
        ("runs/mrpc/tflite_int8/", "mrpc"),
        ("models/reviews/17", "reviews"),
        ("models/reviews/17/", "reviews"),
        ("google-bert/bert-base-uncased", "bert-base-uncased"),
        ("gs://bucket/my model", "my_model"),
        ("./mrpc/.", "mrpc"),
        ("runs/mrpc/best", "mrpc"),
        ("17", "17"),
        ("saved_model", "saved_model"),
        (".", "model"),
    ],
)
def test_a_model_is_named_after_its_folder(path, name):
    assert find_name(path) == name


def test_of_versions_the_last_is_served(tmp_path):
    for name in ("2", "10", "9", ".hidden", "next"):
        (tmp_path / "m" / name).mkdir(parents=True)
    path = str(tmp_path / "m")
    assert find_version(path) == (os.path.join(path, "10"), 10)
    assert find_version(os.path.join(path, "9")) == (os.path.join(path, "9"), 9)
    assert find_version(os.path.join(path, "9", "")) == (os.path.join(path, "9", ""), 9)
    (tmp_path / "m" / "README.md").touch()
    assert find_version(path) == (os.path.join(path, "10"), 10)
    # A folder with files of a model is one, and so is what is not there.
    (tmp_path / "m" / "task.json").touch()
    assert find_version(path) == (path, 1)
    assert find_version("owner/model") == ("owner/model", 1)


def test_what_can_be_asked_is_what_the_model_has():
    assert sorted(serve(make_model("labels"), "m", 1).signatures) == ["encode", DEFAULT]
    offered = serve(load_pretrained(), "m", 1)
    assert sorted(offered.signatures) == ["encode", "score", DEFAULT]
    assert offered.kind == "fill_mask"
    (answer,) = offered.answer(DEFAULT, [offered.example], lambda: None)
    assert len(answer["masks"][0]) == 5


def test_an_encoder_alone_gives_vectors(tmp_path):
    for name in ("bert_config.json", "vocab.txt"):
        (tmp_path / name).write_bytes((GOLDEN / name).read_bytes())
    tensors = Stored.open(str(GOLDEN)).read()
    encoder = {name: value for name, value in tensors.items() if name.startswith("bert/")}
    saving.save_tensors(str(tmp_path / "bert_model.ckpt"), encoder)
    model = PretrainedModel(ModelFolder.open(str(tmp_path), "model", do_lower_case=True))
    offered = serve(model, "m", 1)
    assert sorted(offered.signatures) == ["encode", DEFAULT]
    assert offered.kind == "encoder"
    offered.warm_up()
    (answer,) = offered.answer(DEFAULT, [{"text_a": "the", "text_b": "end"}], lambda: None)
    assert answer == {"vector": model.encode([("the", "end")])[0].tolist(), "num_tokens": 5}


def test_vectors_that_cannot_be_made_are_not_offered_beside_answers(log):
    model = load_pretrained()
    model.text_vectors = TextVectors("a/modules.json", "mean", False, 16, ("the module 'D'",), ())
    assert sorted(serve(model, "m", 1).signatures) == ["score", DEFAULT]
    assert any("`pooling` must be given" in message for message in log.messages)
    offered = serve(model, "m", 1, pooling="max")
    (answer,) = offered.answer("encode", [{"text_a": "the end"}], lambda: None)
    assert answer["vector"] == model.encode(["the end"], pooling="max")[0].tolist()


@pytest.mark.parametrize("name", ["pairs", *exhaustive("answers")])
def test_an_exported_model_answers_the_same(name, tmp_path):
    model = make_model(name)
    model.task.export(str(tmp_path / "1"), model.model)
    path, version = find_version(str(tmp_path))
    offered = serve(ExportedModel(path), "m", version)
    assert (offered.version, offered.kind) == (1, model.task.kind)
    rows = rows_of(model.fields)
    with served(offered) as server:
        told = fetch(server, "/v1/models/m:predict", {"instances": rows}).body["predictions"]
    for one, other in zip(told, model.predict(rows), strict=True):
        assert one == approximately({key: other[key] for key in one})
    # A dry run does not know the labels, but whether it answers about pairs.
    is_paired = name == "pairs"
    refusal = pytest.raises(ValueError, match="`rerank_label` must be a label of")
    with contextlib.nullcontext() if is_paired else refusal:
        serve(ExportedModel(path, runs=False), "m", version, rerank_label="yes")


def test_a_long_text_is_not_read_on_when_nobody_waits_for_it():
    model = make_model("answers")
    offered = serve(model, "m", 1)
    row = {"question": "red ?", "context": "a b red c " * 500}
    calls = []

    def check():
        calls.append(len(calls))
        if len(calls) == 3:
            raise AbandonedError

    with pytest.raises(AbandonedError):
        offered.answer(DEFAULT, [row], check)
    assert len(calls) == 3
    del calls[:]
    (answer,) = offered.answer(DEFAULT, [row], lambda: calls.append(0))
    assert answer == offered.answer(DEFAULT, [row], lambda: None)[0]
    # Somebody who waits gets the answer of the whole text.
    batches = []
    (expected,) = model.predict([row], between=lambda: batches.append(0))
    assert len(calls) == len(batches) > 20
    assert answer == expected


@pytest.mark.parametrize(
    ("signature", "rows"),
    [
        # Each of a text's tokens is a sequence of its own.
        ("score", [{"text_a": "the end of it, the end"}]),
        ("encode", [{"text_a": "the end"}] * 7),
        (DEFAULT, [{"text_a": "the [MASK]"}] * 7),
    ],
)
def test_a_pre_trained_model_ends_between_batches_when_nobody_waits(signature, rows):
    model = bert.load(str(GOLDEN), do_lower_case=True, batch_size=2)
    offered = serve(model, "m", 1)
    calls = []

    def check():
        calls.append(0)
        if len(calls) == 2:
            raise AbandonedError

    with pytest.raises(AbandonedError):
        offered.answer(signature, rows, check)
    assert len(calls) == 2
    del calls[:]
    answers = offered.answer(signature, rows, lambda: calls.append(0))
    num_sequences = sum(each["num_tokens"] if signature == "score" else 1 for each in answers)
    assert len(calls) == -(-num_sequences // 2) > 2


def bodies():
    text = (ROOT / "docs/serving.md").read_text(encoding="utf-8")
    return [json.loads(body) for body in re.findall(r"^```json\n(.*?)^```", text, re.M | re.S)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TASKS)
def test_exported_signatures_take_rows_and_columns_as_the_page_on_serving_has_them(name, tmp_path):
    """As TensorFlow Serving does: a tensor of each column, strings alone, `""` as padding."""
    model = make_model(name)
    model.task.export(str(tmp_path / "1"), model.model)
    signature = tf.saved_model.load(str(tmp_path / "1")).signatures[DEFAULT]
    rows = [{"context": "a", "endings": ["b", "c", ""]}] if name == "choices" else None
    rows = rows or rows_of(model.fields)[:2]
    if model.fields == ("text_a",):
        by_rows, by_columns = bodies()
        rows = by_rows["instances"]
        assert by_columns["inputs"] == {"text_a": [row["text_a"] for row in rows]}
    columns = {field: tf.constant([row[field] for row in rows]) for field in model.fields}
    assert {each.dtype for each in columns.values()} == {tf.string}
    answers = signature(**columns)
    assert {len(each) for each in answers.values()} == {len(rows)}
    page = (ROOT / "docs/serving.md").read_text(encoding="utf-8")
    assert [each for each in answers if f"`{each}`" not in page] == []
    assert [each for each in model.fields if f'"{each}": ' not in page] == []


# Runs of what is split in ways of its own: signs, words, what is dropped, letters of several forms,
# an added token with a space in it.
RUNS = ["[", "a", "ab ", " ", "\u4e00", "e\u0301", "\u0301", "\x00", "\u03a3", "\u03a3'", "\u0130",
        "[E 1]", "[E", " 1]", "\uac00", "unaffable, ", "\u200d"]  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from(RUNS), st.sampled_from([1, 2, 7, 300, 3000])), max_size=6),
    st.integers(1, 40),
    st.sampled_from(TOKENIZERS),
)
@example([("a\u03a3", 1), ("'", 30_000), ("a", 1)], 2, TOKENIZERS[0])
@example([(" ", 20_000), ("[", 200_000)], 1, TOKENIZERS[0])
def test_of_a_shortened_text_the_model_reads_the_same_tokens(runs, num_tokens, tokenizer):
    text = "".join(run * count for run, count in runs)
    part = shorten(text, tokenizer, num_tokens)
    assert text.startswith(part)
    assert tokenizer.tokenize(part)[:num_tokens] == tokenizer.tokenize(text)[:num_tokens]
    if text.isascii() and "[E 1]" not in text and len(tokenizer.tokenize(text)) > 9000:
        assert len(part) < len(text)


@pytest.mark.parametrize("name", ["labels", "pairs", "answers", "choices", "encode"])
def test_a_long_text_is_answered_as_by_predict_of_its_beginning(name, monkeypatch):
    model = make_model("labels" if name == "encode" else name)
    offered = serve(model, "m", 1)
    signature = "encode" if name == "encode" else DEFAULT
    long = "red [" * 20_000
    row = dict.fromkeys(offered.signatures[signature].required, long)
    if name == "answers":
        row["context"] = "a red b"
    if name == "choices":
        row["endings"] = [f"{long}{number}" for number in range(3)]
    expected = model.encode([long]).tolist() if name == "encode" else model.predict([row])
    # What the model is given.
    seen, method = [], "encode" if name == "encode" else "predict"
    whole = getattr(model, method)
    monkeypatch.setattr(
        model, method, lambda texts, **how: seen.append(texts) or whole(texts, **how), raising=False
    )
    (answer,) = offered.answer(signature, [row], lambda: None)
    expected = {"vector": expected[0], "num_tokens": 32} if name == "encode" else expected[0]
    assert answer == approximately(expected)
    assert 0 < len(repr(seen)) < 50_000 < len(long)
