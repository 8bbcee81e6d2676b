import numpy as np
import pytest

from bert.reports.swag import make_sections
from bert.tasks.swag import examples as swag_examples
from bert.tasks.swag.examples import Example


def test_endings_have_their_probabilities_and_the_right_and_the_chosen_one_are_told():
    examples = [
        Example("x", "She sat", ("down.", "up.", "in."), 1),
        Example("y", "He", ("a", "b"), 0),
    ]
    arrays = {
        "choice_mask": np.array([[1, 1, 1], [1, 1, 0]]),
        "label_ids": np.array([[1], [0]]),
    }
    logits = np.array([[2.0, 1.0, 0.0], [1.0, 0.0, 9.0]])
    [section] = make_sections("dev", examples, arrays, logits)
    wrong, right = section.examples
    assert (wrong.facts[1], wrong.is_right, right.is_right) == ("x", False, True)
    loss = swag_examples.score(arrays, logits)["loss"]
    assert np.mean([wrong.rank, right.rank]) == pytest.approx(loss)
    text, bars = wrong.blocks
    assert text.text == "She sat"
    assert [(bar.text, bar.is_right, bar.is_said) for bar in bars.bars] == [
        *(("down.", False, True), ("up.", True, False), ("in.", False, False))
    ]
    assert sum(bar.probability for bar in bars.bars) == pytest.approx(1)
    # The third ending of the second example is not there.
    assert [bar.text for bar in right.blocks[1].bars] == ["a", "b"]


def test_what_has_no_label_is_neither_right_nor_wrong():
    examples = [Example("x", "He", ("a", "b"), None), Example("y", "He", ("a", "b"), 1)]
    arrays = {"choice_mask": np.ones((2, 2), int), "label_ids": np.array([[0], [1]])}
    [section] = make_sections("test", examples, arrays, np.array([[0.0, 9.0], [0.0, 1.0]]))
    known, unknown = section.examples
    assert (known.number, known.is_right) == (1, True)
    assert (unknown.number, unknown.is_right, unknown.facts) == (0, None, ["x"])
    assert "1 of 2 have no label" in section.note
