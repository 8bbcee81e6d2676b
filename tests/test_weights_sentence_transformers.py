"""Folders of sentence-transformers: what they say of vectors is done, or named, or overridden."""

import json

import numpy as np
import pytest
from conftest import change, exhaustive, spread
from helpers.served_models import fetch

import bert
import convert_checkpoint
import extract_features
import modeling
import neighbours
import serve
from bert.commands.checks import WRONG, Checks
from bert.weights import saving, sentence_transformers

pytestmark = pytest.mark.usefixtures("eager")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "blue", "green", "gold", "gray"]
TEXTS = ["red blue", "green", "gold gray red blue green gold", "blue blue red"]
KEYS = {mode: key for key, mode in sentence_transformers._POOLINGS.items()}


@pytest.fixture
def model_dir(tmp_path, still_config):
    """The folder of an encoder, which says nothing of vectors."""
    folder = tmp_path / "model"
    folder.mkdir()
    sizes = {"vocab_size": len(WORDS), "type_vocab_size": 2, "num_hidden_layers": 1}
    config = change(still_config, **sizes)
    (folder / "bert_config.json").write_text(config.to_json_string())
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    encoder = modeling.BertModel(config)
    encoder.build(None)
    spread(encoder)
    tensors = {variable.path: variable.numpy() for variable in encoder.weights}
    saving.save_tensors(str(folder / "bert_model.ckpt"), tensors)
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    return folder


def write_modules(folder, pooling=None, kinds=("Transformer", "Pooling"), **files):
    """Writes what sentence-transformers does; a pooling is a mode, or a whole configuration."""
    listed = [
        {
            "idx": n,
            "name": str(n),
            "path": f"{n}_{kind}" if n else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for n, kind in enumerate(kinds)
    ]
    if isinstance(pooling, str):
        pooling = {key: mode == pooling for mode, key in KEYS.items()}
    texts = {"modules.json": listed, **files}
    if pooling is not None:
        place = f"{kinds.index('Pooling')}_Pooling"
        (folder / place).mkdir(exist_ok=True)
        texts[f"{place}/config.json"] = pooling
    for name, values in texts.items():
        (folder / name).write_text(json.dumps(values))


def length(value):
    return {"sentence_bert_config.json": {"max_seq_length": value, "do_lower_case": False}}


def encode(folder, **given):
    return bert.load(folder, do_lower_case=True).encode(TEXTS, **given)


def serve_settings(folder, **given):
    return serve.Settings(model_dir=str(folder), port=0, do_lower_case=True, **given)


def ask(folder, **given):
    """Returns the vectors of a server."""
    with serve.open_server(serve_settings(folder, **given)) as server:
        told = fetch(server, "/v1/models/model:predict", {"inputs": TEXTS})
    return told.body["outputs"]["vector"]


def extract(folder, **given):
    out = folder.parent / "out.npy"
    extract_features.run(
        extract_features.Settings(
            input_file=str(folder.parent / "texts.txt"),
            output_file=str(out),
            init_checkpoint=str(folder),
            do_lower_case=True,
            overwrite=True,
            **given,
        )
    )
    return np.load(out)


def cosines(folder, query=TEXTS[0], **given):
    """Returns how near the texts are to the first one."""
    out = folder.parent / "near"
    neighbours.run(
        neighbours.Settings(
            input_file=str(folder.parent / "texts.txt"),
            output_file=str(out),
            init_checkpoint=str(folder),
            do_lower_case=True,
            query=query,
            overwrite=True,
            **given,
        )
    )
    (line,) = out.read_text().splitlines()
    near = {each["text"]: each["cosine"] for each in json.loads(line)["neighbours"]}
    return [near[text] for text in TEXTS]


@pytest.mark.parametrize(
    ("pooling", "is_scaled", "max_seq_length"),
    [("cls", True, 4), ("mean", False, 5), *exhaustive(("max", True, None))],
)
def test_all_scripts_that_compute_vectors_follow_the_folder(
    model_dir, log, pooling, is_scaled, max_seq_length
):
    plain = {"pooling": pooling, "normalize": is_scaled, "max_seq_length": max_seq_length or 16}
    expected = encode(model_dir, **plain)
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    kinds = ("Transformer", "Pooling", *["Normalize"] * is_scaled)
    write_modules(model_dir, pooling, kinds, **length(max_seq_length))
    log.clear()
    np.testing.assert_array_equal(encode(model_dir), expected)
    said = f"pooling {pooling}, normalize {is_scaled}, max_seq_length {max_seq_length or 16}"
    assert any(said in message for message in log.messages)
    for found in (extract(model_dir), encode(model_dir)):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(cosines(model_dir), unit @ unit[0], rtol=0, atol=1e-5)


def test_what_is_given_overrides_the_folder(model_dir):
    given = {"pooling": "mean", "normalize": False, "max_seq_length": 16}
    expected = encode(model_dir, **given)
    near = cosines(model_dir, pooling="mean", max_seq_length=16)
    write_modules(model_dir, "cls", ("Transformer", "Pooling", "Normalize"), **length(4))
    model = bert.load(model_dir, do_lower_case=True)
    for name, value in given.items():
        rest = {key: each for key, each in given.items() if key != name}
        assert np.abs(model.encode(TEXTS, **rest) - expected).max() > 1e-3, name
        one = model.encode(TEXTS, **{name: value})
        assert np.abs(one - model.encode(TEXTS)).max() > 1e-3, name
        np.testing.assert_allclose(extract(model_dir, **{name: value}), one, rtol=0, atol=1e-5)
    for found in (model.encode(TEXTS, **given), extract(model_dir, **given)):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    found = cosines(model_dir, pooling="mean", max_seq_length=16)
    np.testing.assert_allclose(found, near, rtol=0, atol=1e-5)
    model = bert.load(model_dir, do_lower_case=True, max_seq_length=16)
    np.testing.assert_allclose(
        model.encode(TEXTS, pooling="mean", normalize=False), expected, rtol=0, atol=1e-5
    )


def test_tokens_are_pooled_only_on_request(model_dir):
    """The lines of JSON hold every token, as the original's do."""
    write_modules(model_dir, "cls", ("Transformer", "Pooling", "Normalize"), **length(4))
    out = model_dir.parent / "out.jsonl"
    settings = extract_features.Settings(
        input_file=str(model_dir.parent / "texts.txt"),
        output_file=str(out),
        init_checkpoint=str(model_dir),
        do_lower_case=True,
        layers="-1",
    )
    extract_features.run(settings)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [len(line["features"]) for line in lines] == [4, 3, 4, 4]
    norms = [np.linalg.norm(each["layers"][0]["values"]) for each in lines[0]["features"]]
    assert max(norms) > 1.1


@pytest.mark.parametrize(
    ("pooling", "kinds", "named"),
    [
        ("mean", ("Transformer", "Pooling", "Dense"), "the module 'Dense'"),
        ("mean", ("Transformer", "WeightedLayerPooling", "Pooling"), "'WeightedLayerPooling'"),
        ({KEYS["cls"]: True, KEYS["mean"]: True}, ("Transformer", "Pooling"), "'mean', 'cls'"),
        ({"pooling_mode_lasttoken": True}, ("Transformer", "Pooling"), "'mean', 'lasttoken'"),
        ({"pooling_mode": "weightedmean"}, ("Transformer", "Pooling"), r"\['weightedmean'\]"),
        (None, ("Transformer",), "no module 'Pooling'"),
    ],
)
def test_unsupported_modules_are_named(tmp_path, pooling, kinds, named):
    write_modules(tmp_path, pooling, kinds)
    vectors = sentence_transformers.read(str(tmp_path), 16)
    with pytest.raises(ValueError, match=f"`pooling` must be given for this model.*{named}"):
        vectors.fill({"pooling": None})
    assert vectors.fill({"pooling": "max"}) == {}


def test_a_model_with_another_module_is_refused_until_a_pooling_is_given(model_dir, log):
    expected = encode(model_dir, pooling="max")
    write_modules(model_dir, "mean", ("Transformer", "Pooling", "Dense"))
    for make in (encode, extract, cosines, ask):
        with pytest.raises(ValueError, match=r"`pooling` must be given for this model.*'Dense'"):
            make(model_dir)
        log.clear()
        make(model_dir, pooling="max")
        assert any("left out" in message for message in log.messages)
    np.testing.assert_array_equal(encode(model_dir, pooling="max"), expected)
    np.testing.assert_allclose(ask(model_dir, pooling="max"), expected, rtol=1e-5, atol=1e-6)
    checks = Checks()
    serve.check(serve_settings(model_dir), checks)
    assert len(checks.faults) == 1
    checks = Checks()
    settings = extract_features.Settings(
        input_file=str(model_dir.parent / "texts.txt"),
        output_file=str(model_dir.parent / "other.npy"),
        init_checkpoint=str(model_dir),
    )
    extract_features.check(settings, checks)
    assert [each.name for each in checks.lines if each.mark == WRONG] == ["layers"]


@pytest.mark.parametrize(
    ("files", "is_uncased", "named"),
    [
        ({"config_sentence_transformers.json": {"prompts": {"q": "query: "},
          "default_prompt_name": "q"}}, True, "'query: ' before each text"),
        ({"sentence_bert_config.json": {"do_lower_case": True}}, False, "texts in lower case"),
    ],
)  # fmt: skip
def test_unsupported_changes_of_texts_are_named(model_dir, log, files, is_uncased, named):
    write_modules(model_dir, "cls", **files)
    (model_dir / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": is_uncased}))
    bert.load(model_dir)
    assert any(named in message for message in log.messages)


def test_a_converted_model_makes_the_same_vectors(model_dir, tmp_path):
    write_modules(model_dir, "cls", ("Transformer", "Pooling", "Normalize"), **length(4))
    convert_checkpoint.run(
        convert_checkpoint.Settings(
            input=str(model_dir),
            output=str(tmp_path / "converted"),
            format="huggingface",
            do_lower_case=True,
        )
    )
    np.testing.assert_array_equal(encode(tmp_path / "converted"), encode(model_dir))


@pytest.mark.parametrize("kind", ["Dense", "Dropout"])
def test_modules_that_are_not_copied_are_refused_before_anything_is_written(
    model_dir, tmp_path, kind
):
    write_modules(model_dir, "cls", ("Transformer", "Pooling", kind, "Normalize"))
    settings = convert_checkpoint.Settings(
        input=str(model_dir),
        output=str(tmp_path / "converted"),
        format="sentence_transformers",
        do_lower_case=True,
    )
    with pytest.raises(ValueError, match=rf"`input` must have no modules .*\['{kind}'\]"):
        convert_checkpoint.run(settings)
    assert not (tmp_path / "converted").exists()


def test_a_pooling_without_its_file_is_named(model_dir):
    write_modules(model_dir, kinds=("Transformer", "Pooling", "Normalize"))
    with pytest.raises(ValueError, match=r"must have the file .*1_Pooling/config\.json"):
        bert.load(model_dir, do_lower_case=True)


@pytest.mark.parametrize("mode", ["cls", "mean", ["max"]])
def test_newer_files_name_the_pooling(model_dir, mode):
    write_modules(model_dir, {"pooling_mode": mode}, ("Transformer", "Pooling", "Dropout"))
    (model_dir / "tokenizer_config.json").write_text('{"model_max_length": 7}')
    vectors = sentence_transformers.read(str(model_dir), 16)
    assert (vectors.pooling, vectors.unknown) == (mode if mode != ["max"] else "max", ())
    assert (vectors.normalize, vectors.max_seq_length) == (False, 7)


def tokenizer(most):
    return {"tokenizer_config.json": {"model_max_length": most}}


@pytest.mark.parametrize(
    ("files", "longest"),
    [
        ({}, 16),
        (length(512), 16),
        (length(5), 5),
        ({**length(5), **tokenizer(9)}, 5),
        ({**length(None), **tokenizer(9)}, 9),
        # As transformers writes it for a tokenizer without a limit.
        (tokenizer(10**30), 16),
    ],
)
def test_a_text_has_at_most_the_tokens_that_the_model_takes(tmp_path, files, longest):
    write_modules(tmp_path, "mean", **files)
    assert sentence_transformers.read(str(tmp_path), 16).max_seq_length == longest


@pytest.mark.parametrize("kinds", [("Normalize",), ("Normalize", "Dropout")])
def test_vectors_are_scaled_whatever_follows_that(tmp_path, kinds):
    write_modules(tmp_path, "mean", ("Transformer", "Pooling", *kinds))
    vectors = sentence_transformers.read(str(tmp_path), 16)
    assert (vectors.normalize, vectors.unknown) == (True, ())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("modules.json", "["),
        ("modules.json", '{"0": "Transformer"}'),
        ("modules.json", '[{"type": "sentence_transformers.models.Transformer"}]'),
        ("1_Pooling/config.json", "[1]"),
        ("sentence_bert_config.json", '{"max_seq_length": 2}'),
        ("sentence_bert_config.json", '{"max_seq_length": "many"}'),
    ],
)
def test_damaged_files_are_named(model_dir, name, text):
    write_modules(model_dir, "cls")
    (model_dir / name).write_text(text)
    with pytest.raises(ValueError, match=f"{name}.* must "):
        bert.load(model_dir, do_lower_case=True)
