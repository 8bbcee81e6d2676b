import json

import numpy as np
import pytest
from conftest import GOLDEN

import extract_features
import modeling
import tokenization


@pytest.fixture(scope="module")
def tokenizer():
    return tokenization.FullTokenizer(str(GOLDEN / "vocab.txt"))


@pytest.fixture(scope="module")
def config():
    return modeling.BertConfig.from_json_file(str(GOLDEN / "bert_config.json"))


def test_features_are_the_original_ones(config, tokenizer):
    expected = [json.loads(line) for line in (GOLDEN / "features.jsonl").read_text().splitlines()]
    indexes = [layer["index"] for layer in expected[0]["features"][0]["layers"]]
    examples = extract_features.read_examples(str(GOLDEN / "features_input.txt"))
    features = extract_features.convert_examples_to_features(examples, 64, tokenizer)
    input_fn = extract_features.input_fn_builder(features, 64)
    model_fn = extract_features.model_fn_builder(
        config,
        str(GOLDEN / "bert_model.ckpt"),
        indexes,
        use_tpu=False,
        use_one_hot_embeddings=False,
    )
    found = {}
    for batch in input_fn({"batch_size": 3}):
        predictions = model_fn(batch, None, "infer", {}).predictions
        for row, unique_id in enumerate(predictions["unique_id"].numpy().tolist()):
            found[unique_id] = [
                predictions[f"layer_output_{n}"].numpy()[row] for n in range(len(indexes))
            ]
    assert list(found) == [line["linex_index"] for line in expected]
    for line, feature in zip(expected, features, strict=True):
        assert [token["token"] for token in line["features"]] == feature.tokens
        for place, token in enumerate(line["features"]):
            for n, layer in enumerate(token["layers"]):
                # The original's are rounded to 6 decimals.
                np.testing.assert_allclose(
                    found[feature.unique_id][n][place], layer["values"], rtol=0, atol=1e-4
                )


def test_lines_are_texts_or_pairs_with_their_numbers(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("one text\n\n first ||| second \r\n")
    example = extract_features.InputExample
    assert extract_features.read_examples(str(path)) == [
        example(0, "one text", None),
        example(1, "", None),
        example(2, "first", "second"),
    ]


def test_features_are_padded_and_cut(tokenizer):
    examples = [
        extract_features.InputExample(7, "never", None),
        extract_features.InputExample(9, "always never always", "never never"),
    ]
    one, other = extract_features.convert_examples_to_features(examples, 7, tokenizer)
    assert one.tokens == ["[CLS]", "never", "[SEP]"] and one.unique_id == 7
    assert one.input_mask == [1, 1, 1, 0, 0, 0, 0] == [int(i > 0) for i in one.input_ids]
    assert one.input_type_ids == [0] * 7
    assert other.tokens == ["[CLS]", "always", "never", "[SEP]", "never", "never", "[SEP]"]
    assert other.input_type_ids == [0, 0, 0, 0, 1, 1, 1]
    with pytest.raises(ValueError, match=r"`seq_length` must be at least 3.*Received 2"):
        extract_features.convert_examples_to_features(examples, 2, tokenizer)
    with pytest.raises(ValueError, match="`seq_length` = 8 values each"):
        extract_features.input_fn_builder([one], 8)


@pytest.mark.parametrize("indexes", [[2], [-3]])
def test_layers_must_be_there(config, indexes):
    with pytest.raises(ValueError, match="`layers` must be at least -2 and less than 2"):
        extract_features.model_fn_builder(config, None, indexes, False, False)


def test_features_without_numbers_are_refused(config):
    model_fn = extract_features.model_fn_builder(config, None, [-1], False, False)
    ids = np.ones((1, 3), np.int32)
    batch = {"input_ids": ids, "input_mask": ids, "input_type_ids": ids * 0}
    with pytest.raises(ValueError, match=r"`features` must have \['unique_ids'\]"):
        model_fn(batch, None, "infer")
    with pytest.raises(ValueError, match=r"one of \['infer'\]\. Received 'train'"):
        model_fn(batch, None, "train")


def test_pairs_are_cut_in_place_the_longer_one_first():
    for a, b, budget, cut in (
        ("abcd", "xy", 4, ("ab", "xy")),
        ("ab", "xyz", 4, ("ab", "xy")),
        ("abc", "xyz", 5, ("abc", "xy")),
        ("a", "x", 9, ("a", "x")),
    ):
        tokens_a, tokens_b = list(a), list(b)
        assert extract_features._truncate_seq_pair(tokens_a, tokens_b, budget) is None
        assert ("".join(tokens_a), "".join(tokens_b)) == cut
