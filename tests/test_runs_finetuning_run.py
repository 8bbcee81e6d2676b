import numpy as np
import pytest

import tokenization
from bert.runs.finetuning_run import show_examples
from bert.tasks.classification.examples import InputExample
from bert.tasks.examples import Inputs, Part

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b"]


class Reading:
    def __init__(self, folder):
        (folder / "vocab.txt").write_text("\n".join(WORDS))
        self.tokenizer = tokenization.FullTokenizer(str(folder / "vocab.txt"))


def make_inputs(examples, rows=30, length=6):
    ids = np.array([[2, 4, 5, 3, 0, 0][:length]] * rows)
    return Inputs(Part("train"), examples, {"input_ids": ids, "input_mask": (ids > 0) * 1})


def test_the_first_examples_are_logged(tmp_path, log):
    examples = [InputExample(f"train-{row}", "a b", None, "yes") for row in range(30)]
    show_examples(Reading(tmp_path), make_inputs(examples))
    assert log.messages == [
        f"Example train-{row}: [CLS] a b [SEP] | label: yes" for row in range(2)
    ]


@pytest.mark.parametrize(("level", "count"), [("INFO", 2), ("DEBUG", 20)])
def test_rows_of_longer_examples_have_numbers(tmp_path, log, level, count):
    log.set_level(level, logger="bert")
    show_examples(Reading(tmp_path), make_inputs(["one question"]))
    assert log.messages == [f"Example train-{row}: [CLS] a b [SEP]" for row in range(1, count + 1)]


def test_long_examples_are_shortened(tmp_path, log):
    ids = np.full([1, 70], 4)
    inputs = Inputs(Part("dev"), ["one"], {"input_ids": ids, "input_mask": ids * 0 + 1})
    show_examples(Reading(tmp_path), inputs)
    assert log.messages == ["Example dev-1: " + " ".join("a" * 60) + " … and 10 more"]
