import json
import os

import numpy as np
import pytest
from conftest import GOLDEN, ROOT, change, eagerly
from helpers.feature_runs import LINES, WORDS, make_settings

import bert
import extract_features
import join_shards
import modeling
from bert.models import vectors as text_vectors
from bert.weights import checkpoint, saving
from bert.weights.variables import encoder_shapes

pytestmark = pytest.mark.usefixtures("eager")

LARGE_VOCAB = ROOT.parent / "shared" / "data" / "vocab" / "bert-base-uncased-vocab.txt"


@pytest.fixture
def settings(tmp_path, still_config):
    """A function that makes settings for a small model and a few lines."""
    return make_settings(tmp_path, change(still_config, vocab_size=len(WORDS)))


def run_jsonl(settings):
    extract_features.run(settings)
    with open(settings.output_file, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def run_npz(settings):
    extract_features.run(settings)
    with np.load(settings.output_file) as arrays:
        return {name: arrays[name] for name in arrays.files}


def strings(value):
    """Returns a parsed line with every list of numbers replaced by its length."""
    if isinstance(value, dict):
        return [(key, strings(each)) for key, each in value.items()]
    if isinstance(value, list):
        return len(value) if isinstance(value[0], float) else [strings(each) for each in value]
    return value


def numbers(line):
    return np.array([[layer["values"] for layer in token["layers"]] for token in line["features"]])


@eagerly(False)
def test_features_equal_the_original(tmp_path, golden):
    vocab_file = golden / "vocab.txt" if golden == GOLDEN else LARGE_VOCAB
    if not vocab_file.exists():
        pytest.skip(f"{vocab_file} is not there.")
    expected = [json.loads(line) for line in (golden / "features.jsonl").read_text().splitlines()]
    layers = [str(layer["index"]) for layer in expected[0]["features"][0]["layers"]]
    found = run_jsonl(
        extract_features.Settings(
            input_file=str(golden / "features_input.txt"),
            output_file=str(tmp_path / "features.jsonl"),
            bert_config_file=str(golden / "bert_config.json"),
            init_checkpoint=str(golden / "bert_model.ckpt"),
            vocab_file=str(vocab_file),
            layers=",".join(layers),
            max_seq_length=64,
        )
    )
    assert [strings(line) for line in found] == [strings(line) for line in expected]
    for mine, original in zip(found, expected, strict=True):
        np.testing.assert_allclose(numbers(mine), numbers(original), rtol=0, atol=1e-4)


def test_every_line_is_as_the_json_module_writes_it(settings):
    extract_features.run(settings())
    with open(settings().output_file, encoding="ascii") as file:
        lines = file.read().splitlines()
    assert len(lines) == len(LINES)
    assert [json.dumps(json.loads(line)) for line in lines] == lines


def test_tokens_are_those_of_the_line_cut_to_fit(settings):
    found = [[token["token"] for token in line["features"]] for line in run_jsonl(settings())]
    assert found[1] == ["[CLS]", "the", "cat", "##s", "[SEP]", "the", "mat", ".", "[SEP]"]
    assert found[2] == ["[CLS]", "[SEP]"]
    assert len(found[4]) == 16
    assert found[4][-1] == "[SEP]"


@eagerly(False)
def test_results_do_not_depend_on_batches_or_chunks(settings, monkeypatch):
    reference = run_npz(settings(format="npz", batch_size=32))
    for batch_size, chunk_values in ((1, 1), (2, 400)):
        monkeypatch.setattr(text_vectors, "CHUNK_VALUES", chunk_values)
        found = run_npz(settings(format="npz", batch_size=batch_size))
        for name, values in reference.items():
            if name == "values":
                np.testing.assert_allclose(found[name], values, atol=1e-5)
            else:
                np.testing.assert_array_equal(found[name], values)


def test_both_formats_hold_the_same(settings):
    lines = run_jsonl(settings())
    arrays = run_npz(settings(format="npz"))
    assert [len(line["features"]) for line in lines] == arrays["lengths"].tolist()
    tokens = [token["token"] for line in lines for token in line["features"]]
    assert tokens == [WORDS[index] for index in arrays["input_ids"]]
    np.testing.assert_allclose(
        np.concatenate([numbers(line) for line in lines]), arrays["values"], atol=5.1e-7
    )
    assert arrays["layers"].tolist() == ["-1", "-2"]


def test_combinations_add_up_from_single_layers(tmp_path, still_config):
    config = change(still_config, num_hidden_layers=4, vocab_size=len(WORDS))
    settings = make_settings(tmp_path, config)
    single = run_npz(settings(format="npz", layers="0,1,2,3"))["values"]
    names = "last,second_to_last,sum_last_four,sum_all,embeddings"
    named = run_npz(settings(format="npz", layers=names))["values"]
    concatenated = run_npz(settings(format="npz", layers="concat_last_four"))["values"]
    np.testing.assert_allclose(named[:, 0], single[:, 3], atol=1e-5)
    np.testing.assert_allclose(named[:, 1], single[:, 2], atol=1e-5)
    np.testing.assert_allclose(named[:, 2], single.sum(axis=1), atol=1e-5)
    np.testing.assert_allclose(named[:, 3], single.sum(axis=1), atol=1e-5)
    np.testing.assert_allclose(concatenated[:, 0], single.reshape(len(single), -1), atol=1e-5)
    assert np.abs(named[:, 4] - single[:, 0]).max() > 0.1
    with pytest.raises(ValueError, match="`layers` must all have the same number of values"):
        extract_features.run(settings(format="npz", layers="-1,concat_last_four"))


def test_pooling_is_over_the_tokens_of_a_line(settings):
    tokens = run_npz(settings(format="npz"))
    ends = np.cumsum(tokens["lengths"])
    lines = np.split(tokens["values"], ends[:-1])
    for pooling, function in {
        "cls": lambda line: line[0],
        "mean": lambda line: line.mean(axis=0),
        "max": lambda line: line.max(axis=0),
    }.items():
        pooled = run_npz(settings(format="npz", pooling=pooling))
        expected = [function(line) for line in lines]
        np.testing.assert_allclose(pooled["values"], expected, atol=1e-5)
        np.testing.assert_array_equal(pooled["lengths"], tokens["lengths"])
    objects = run_jsonl(settings(pooling="max"))
    assert {line["pooling"] for line in objects} == {"max"}
    values = [[layer["values"] for layer in line["layers"]] for line in objects]
    np.testing.assert_allclose(values, expected, atol=1e-5)


TABLES = {
    "table.csv": 'id,text\n7,"the cat, sat"\n8,on\n',
    "table.tsv": "text\tid\nthe cat, sat\t7\n\non\t8\n",
    "table.jsonl": '{"id": 7, "text": "the cat, sat"}\n{"id": 8, "text": "on"}\n',
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_gives_what_its_texts_give_and_keeps_ids(settings, tmp_path, name):
    (tmp_path / "text.txt").write_text("the cat, sat\non\n")
    expected = run_npz(settings(format="npz", pooling="mean"))
    lines = run_jsonl(settings())
    (tmp_path / name).write_text(TABLES[name])
    table = {"input_file": str(tmp_path / name), "id_column": "id"}
    found = run_npz(settings(**table, output_file=str(tmp_path / "out.npz"), pooling="mean"))
    assert found.pop("ids").tolist() == ["7", "8"]
    assert found["texts"].tolist() == ["the cat, sat", "on"]
    for array, values in expected.items():
        np.testing.assert_array_equal(found[array], values)
    with_ids = run_jsonl(settings(**table))
    assert [line.pop("id") for line in with_ids] == ["7", "8"]
    assert with_ids == lines


def test_an_archive_has_the_beginnings_of_long_texts_and_ids(settings, tmp_path):
    rows = [{"id": "x" * 1001, "text": "the cat " * 125 + "sat"}, {"id": "y", "text": "on"}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"input_file": str(tmp_path / "in.jsonl"), "id_column": "id", "pooling": "mean"}
    found = run_npz(settings(**given, output_file=str(tmp_path / "out.npz")))
    assert found["texts"].tolist() == [rows[0]["text"][:1000], "on"]
    assert found["ids"].tolist() == ["x" * 1000, "y"]


def test_a_matrix_is_that_of_the_model_in_memory_to_the_last_bit(settings, tmp_path):
    texts = ["the cat sat on the mat .", "sat", "the mats", "on", "cat"]
    (tmp_path / "text.txt").write_text("".join(f"{text}\n" for text in texts))
    path = tmp_path / "out.npy"
    extract_features.run(settings(layers=None, output_file=str(path)))
    model = bert.load(str(tmp_path), batch_size=2)
    vectors = np.load(path)
    np.testing.assert_array_equal(vectors, model.encode(texts, max_seq_length=16))
    assert np.std(np.linalg.norm(vectors, axis=1)) > 0.01
    extract_features.run(
        settings(output_file=str(path), layers="0", pooling="max", normalize=True, overwrite=True)
    )
    expected = model.encode(texts, 0, "max", normalize=True, max_seq_length=16)
    np.testing.assert_array_equal(np.load(path), expected)
    np.testing.assert_allclose(np.linalg.norm(expected, axis=1), 1, rtol=1e-6)


def test_what_looks_wrong_in_the_text_is_counted(settings, tmp_path, log):
    text = "dog\n\n" + "the cat " * 20 + "\ncaf\xe9\n\xe4\n"
    (tmp_path / "text.txt").write_text(text, encoding="latin-1")
    extract_features.run(settings())
    warnings = "\n".join(each.message for each in log.records if each.levelname == "WARNING")
    assert "1 lines were truncated" in warnings
    assert "2 lines have no token" in warnings
    assert warnings.count(f"left out of 2 lines, the first of them in {tmp_path}/text.txt") == 1
    assert "% of the tokens are [UNK]" in warnings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": "-3"}, "layers` must be at least -2.*Received '-3'"),
        ({"layers": "all"}, "layers` must list.*Received 'all'"),
        ({"max_seq_length": 17}, "at most 16.*Received 17"),
        ({"max_seq_length": 2}, "at least 3.*Received 2"),
        ({"output_file": "no/folder/out"}, "`output_file` must name files that can be written"),
        ({"format": "npy"}, "`layers` must name a single one for a matrix"),
        ({"format": "npy", "layers": "0", "pooling": "none"}, "`pooling` must be mean, max or"),
        ({"format": "npy", "layers": "0", "id_column": "a"}, "`id_column` must go with a form"),
        ({"normalize": True}, "`normalize` must go with `pooling`"),
        ({"text_column": "a"}, r"`text_column='a'` must be that of a table.*`input_format`"),
        ({"vocab_file": str(GOLDEN / "vocab.txt")}, "vocab_file` must have at most 12 tokens"),
    ],
)
def test_what_cannot_work_is_an_error_before_the_work(settings, changes, message):
    with pytest.raises(ValueError, match=message):
        extract_features.run(settings(**changes))


@pytest.mark.parametrize(
    ("name", "form"), [("a.NPZ", "npz"), ("b/npy", "jsonl"), ("npy", "jsonl"), ("a.txt", "jsonl")]
)
def test_the_form_is_that_of_the_extension(settings, name, form):
    assert settings(output_file=name).written_format() == form


def test_the_checkpoint_is_opened_once(settings, tmp_path, opened):
    extract_features.run(settings())
    assert opened == [str(tmp_path / "bert_model.ckpt")]


@pytest.mark.parametrize("changes", [{}, {"shard": "1/2"}])
def test_a_file_without_lines_is_an_error(settings, tmp_path, changes):
    (tmp_path / "text.txt").write_text("")
    with pytest.raises(ValueError, match="`input_file` must hold text"):
        extract_features.run(settings(**changes))


def test_a_pair_needs_two_segments(settings, tmp_path):
    config = modeling.BertConfig.from_json_file(settings().bert_config_file)
    config = change(config, type_vocab_size=1)
    (tmp_path / "one.json").write_text(config.to_json_string())
    encoder = {name: np.zeros(shape) for name, shape in encoder_shapes(config).items()}
    saving.save_tensors(str(tmp_path / "one.ckpt"), encoder)
    files = {"bert_config_file": "one.json", "init_checkpoint": "one.ckpt"}
    files = {flag: str(tmp_path / name) for flag, name in files.items()}
    with pytest.raises(ValueError, match=r"`type_vocab_size`.*line 2"):
        extract_features.run(settings(**files))


def test_features_that_are_not_finite_name_their_line_and_leave_no_file(
    settings, tmp_path, monkeypatch
):
    # Such weights are refused; numbers that grow beyond all bounds on the way are not seen there.
    for module in (saving, checkpoint):
        monkeypatch.setattr(module, "find_not_finite", lambda _: None)
    weights = checkpoint.Stored.open(str(tmp_path / "bert_model.ckpt")).read()
    weights["bert/embeddings/word_embeddings"][WORDS.index("on")] = np.nan
    saving.save_tensors(str(tmp_path / "bert_model.ckpt"), weights)
    (tmp_path / "text.txt").write_text("sat\nthe cat\nsat on\n")
    monkeypatch.setattr(text_vectors, "CHUNK_LINES", 1)
    for form, shard in (("jsonl", ""), ("npz", "2/2")):
        with pytest.raises(ArithmeticError, match="line 3 of"):
            extract_features.run(settings(format=form, shard=shard))
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("out")]


@pytest.mark.parametrize(
    ("ending", "pooling", "count", "given"),
    [
        ("jsonl", "none", 2, {"id_column": "id"}),
        ("npz", "mean", 6, {"id_column": "id"}),
        ("npy", "mean", 2, {"layers": "-1"}),
        pytest.param("npz", "none", 3, {}, marks=pytest.mark.exhaustive),
    ],
)
def test_shards_joined_are_what_a_single_run_writes(
    settings, tmp_path, monkeypatch, ending, pooling, count, given
):
    monkeypatch.setattr(text_vectors, "CHUNK_VALUES", 400 if pooling == "none" else 1 << 25)
    monkeypatch.setattr(text_vectors, "CHUNK_LINES", 3)
    rows = [{"id": f"{number}" * number, "text": LINES[number % 5]} for number in range(13)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"input_file": str(tmp_path / "in.jsonl"), "pooling": pooling, **given}
    numbers = range(1, count + 1)
    shards = {str(tmp_path / f"part-{k}.{ending}"): f"{k}/{count}" for k in numbers}
    for path, shard in {str(tmp_path / f"whole.{ending}"): "", **shards}.items():
        extract_features.run(settings(output_file=path, shard=shard, **given))
    join_shards.run(
        join_shards.Settings(
            input_file=str(tmp_path / f"part-*.{ending}"),
            output_file=str(tmp_path / f"joined.{ending}"),
        )
    )
    joined, whole = ((tmp_path / f"{name}.{ending}").read_bytes() for name in ("joined", "whole"))
    assert joined == whole
    assert max(map(os.path.getsize, shards)) < len(whole)


def test_shards_of_different_models_or_texts_are_not_joined(settings, tmp_path):
    prefix, text = str(tmp_path / "bert_model.ckpt"), tmp_path / "text.txt"
    given = {"output_file": str(tmp_path / "part-1.npy"), "layers": "-1", "overwrite": True}
    extract_features.run(settings(**given, shard="1/2"))
    weights = checkpoint.Stored.open(prefix).read()
    weights["bert/embeddings/word_embeddings"] += 1
    content = text.read_bytes()
    for changed, written, said in (
        ({}, content + b"\n", "the input is another one"),
        (weights, content, "the model is another one"),
    ):
        text.write_bytes(written)
        if changed:
            saving.save_tensors(prefix, changed)
        given["output_file"] = str(tmp_path / "part-2.npy")
        extract_features.run(settings(**given, shard="2/2"))
        asked = join_shards.Settings(
            input_file=str(tmp_path / "part-*.npy"), output_file=str(tmp_path / "joined.npy")
        )
        with pytest.raises(ValueError, match=said):
            join_shards.run(asked)
