import itertools
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import prediction
import prediction_models
import turns


def products(hidden, layers, length):
    """Yields the shapes of all products that an answer on one text needs, one by one."""
    for layer in range(layers):
        queries = length if layer < layers - 1 else 1
        yield from [(length, hidden, hidden)] * 2  # keys, values
        yield from [(queries, hidden, hidden)] * 2  # query, output
        yield from [(queries, hidden, length), (queries, length, hidden)]  # of all heads
        yield from [(queries, hidden, 4 * hidden), (queries, 4 * hidden, hidden)]
    yield (1, hidden, hidden)  # the pooler


def test_flops_are_those_of_each_product_that_an_answer_needs():
    size = prediction_models.Size(hidden_size=8, num_layers=3, num_heads=2)
    lengths = [5, 2]
    counted = sum(2 * a * b * c for length in lengths for a, b, c in products(8, 3, length))
    assert size.flops(lengths) == counted


def test_a_ratio_is_of_the_same_round():
    # The machine was half as fast in the second round, and the first program equally ahead.
    assert turns.median_ratio([30.0, 15.0, 30.0], [10.0, 5.0, 10.0]) == 3.0


def test_speeds_are_of_rounds_and_latencies_of_all_calls():
    figures = prediction.Figures([[0.1, 0.3], [0.2, 0.2, 0.2]])
    assert figures.speeds(batch=8) == pytest.approx([8 * 2 / 0.4, 8 * 3 / 0.6])
    assert figures.milliseconds() == pytest.approx((200, 300))
    hundred = prediction.Figures([[number / 1000 for number in range(1, 101)]])
    assert hundred.milliseconds() == pytest.approx((50.5, 95))


def test_systems_are_chosen_by_name_program_and_side():
    def chosen(*names):
        return [each.name for each in prediction_models.choose_systems(names)]

    assert chosen() == ["torch/float32"]
    assert chosen("openvino/bfloat16") == ["torch/float32", "openvino/bfloat16"]
    ours = ("saved_model", "our_tflite", "our_onnx", "load", "load_litert", "load_onnx")
    assert chosen(*ours) == [prediction_models.REFERENCE, *chosen("ours")[1:]]
    assert chosen("ours", "peers") == [each.name for each in prediction_models.SYSTEMS]


def test_batches_of_all_sizes_hold_the_same_texts(tmp_path):
    texts = ["the bread was warm", "the sea", "nobody wanted to help and it rained"] * 4
    vocab_file = prediction.fill_vocabulary(turns.SAMPLE_VOCABULARY, tmp_path, 30522)
    with open(vocab_file, encoding="utf-8") as file:
        assert len(file.readlines()) == 30522
    cases, lengths = prediction.make_cases(texts, vocab_file, prediction_models.FORMS, [1, 8])
    for size in (1, 8):
        asked = cases[f"texts/mixed/{size}"]
        assert list(itertools.chain.from_iterable(asked)) == texts
        assert {len(batch) for batch in asked[:-1]} == {size}
        rows = [row for batch in cases[f"ids/mixed/{size}"] for row in batch["input_mask"]]
        assert list(map(sum, rows)) == lengths
        [full] = cases[f"ids/full/{size}"]
        assert [len(row) for row in full["input_ids"]] == [prediction.LENGTH] * size
        # As many words as the length has tokens, so that texts of the full length are cut.
        [full] = cases[f"texts/full/{size}"]
        assert [len(text.split()) for text in full] == [prediction.LENGTH] * size
    longest = max(len(row) for row in cases["ids/mixed/8"][0]["input_ids"])
    assert longest == max(lengths[:8])


def test_a_table_is_one_in_markdown_and_to_the_eye():
    assert turns.format_table(["name", "ms"], [["a", "1.5"], ["long name", "12.25"]]) == (
        "| name      |    ms |\n"
        "| --------- | ----: |\n"
        "| a         |   1.5 |\n"
        "| long name | 12.25 |\n"
    )


def test_a_worker_that_fails_is_told_with_its_own_words():
    with (
        turns.Worker(sys.executable, "peak.py", {"no": "size"}) as worker,
        pytest.raises(ValueError, match=r"(?s)must answer\. It said:.*KeyError: 'hidden_size'"),
    ):
        worker.ask("float32")
