import numpy as np
import pytest
from conftest import PREDICTIONS, make_examples, model_inputs

from bert.pretraining import heads as pretraining_heads
from bert.pretraining.options import GOALS
from bert.pretraining.outcome import guess
from bert.reports.page import Mark
from bert.reports.pretraining import make_sections

TOKENS = dict(enumerate(["[PAD]", "[CLS]", "[SEP]", "[MASK]", "play", "##ing", "cats", "sat", "."]))
IDS = {token: number for number, token in TOKENS.items()}


def record():
    """`[CLS] cats play##ing [SEP] sat . [SEP]`, in which "##ing" and "sat" are to be guessed."""
    words = ["[CLS]", "cats", "play", "[MASK]", "[SEP]", "cats", ".", "[SEP]", "[PAD]"]
    guesses = [["##ing", "sat"], ["cats", "sat"], ["[PAD]", "[PAD]"]]
    chances = [[0.5, 0.25], [0.6, 0.2], [0.9, 0.1]]
    return {
        "input_ids": np.array([[IDS[word] for word in words]]),
        "input_mask": np.array([[1] * 8 + [0]]),
        "segment_ids": np.array([[0] * 5 + [1] * 3 + [0]]),
        "masked_lm_positions": np.array([[3, 5, 0]]),
        "masked_lm_ids": np.array([[IDS["##ing"], IDS["sat"], 0]]),
        "masked_lm_weights": np.array([[1.0, 1.0, 0.0]]),
        "next_sentence_labels": np.array([[1]]),
        "guesses": np.array([[[IDS[token] for token in row] for row in guesses]]),
        "guess_probabilities": np.array([chances]),
        "log_probabilities": np.log([[0.5, 0.2, 0.9]]),
        "next_sentence_probabilities": np.array([[0.75, 0.25]]),
    }


def test_what_was_masked_stands_in_its_place_with_the_guesses():
    matrix, section = make_sections(record(), TOKENS)
    assert matrix.counts == [[0, 0], [1, 0]]
    # The greatest loss among these is not that of all.
    assert "the first 1 records" in matrix.note and "the first 1 records" in section.note
    [example] = section.examples
    assert example.rank == pytest.approx(-np.log([0.5, 0.2]).mean())
    assert (example.right, example.said) == (["is random"], ["follows"])
    assert example.facts[1] == "1 of 2 guessed"
    a, b, places = example.blocks
    assert a.pieces == ["cats play", Mark("ing", "right")]
    assert b.pieces == [Mark("sat", "missed", "cats"), " ."]
    first, second = places.places
    assert (first.text, first.probability, first.note) == ("##ing", 0.5, "")
    assert [(bar.text, bar.probability, bar.is_right) for bar in second.guesses] == [
        *(("cats", 0.6, False), ("sat", 0.2, True))
    ]
    assert second.note == "the model saw cats"
    # In whatever order a record has them, guesses are in that of the text.
    swapped = record()
    for name, values in swapped.items():
        if name.startswith(("masked_lm", "guess", "log")):
            swapped[name] = values[:, [1, 0, 2]]
    assert make_sections(swapped, TOKENS)[1].examples[0].blocks == example.blocks


@pytest.mark.parametrize("name", ["left_to_right", "bilstm_lm"])
def test_what_a_language_model_guessed_stands_where_it_was_not_seen(name):
    """The token behind each position is guessed from those up to it, or the one before it."""
    words = ["[CLS]", "cats", "play", "[SEP]"]
    golds, best = words[1:], ["cats", "sat", "[SEP]"]
    positions, is_both = [0, 1, 2], name == "bilstm_lm"
    if is_both:
        golds, best = golds + words[:-1], [*best, "[CLS]", "cats", "sat"]
        positions = [*positions, 1, 2, 3]
    count = len(golds)
    read = {
        "input_ids": np.array([[IDS[word] for word in words]]),
        "input_mask": np.ones((1, 4), int),
        "segment_ids": np.zeros((1, 4), int),
        "masked_lm_positions": np.array([positions]),
        "masked_lm_ids": np.array([[IDS[word] for word in golds]]),
        "masked_lm_weights": np.ones((1, count)),
        "guesses": np.array([[[IDS[word]] for word in best]]),
        "guess_probabilities": np.full((1, count, 1), 0.5),
        "log_probabilities": np.zeros((1, count)),
    }
    [section] = make_sections(read, TOKENS, GOALS[name])
    blocks = section.examples[0].blocks
    names = ["A, forward", "A, backward"] if is_both else ["A"]
    assert [block.name for block in blocks[::2]] == names
    for text in blocks[::2]:
        assert text.pieces == [Mark("cats", "right"), " ", Mark("play", "missed", "sat")]
    places = [place for block in blocks[1::2] for place in block.places]
    assert [place.text for place in places] == golds
    assert not any(place.note for place in places)


def test_without_a_vocabulary_tokens_are_numbers_and_the_page_says_so():
    _, section = make_sections(record(), None)
    assert section.examples[0].blocks[0].pieces[0] == f"[{IDS['cats']}] [{IDS['play']}] "
    assert "Without a vocabulary" in section.note


def test_guesses_are_the_likeliest_tokens_of_the_first_records(tiny_config, make_batches):
    examples = make_examples(tiny_config, 10)
    model = pretraining_heads.pretraining_model(tiny_config)
    asked = guess(model, make_batches(4, None, examples=examples), 6)
    outputs = model.predict_on_batch(model_inputs(examples))
    logits = outputs["masked_lm_logits"][:6].astype(np.float64)
    chances = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    best = np.argsort(-chances, axis=-1)[..., :5]
    np.testing.assert_array_equal(asked["guesses"], best)
    # Computed in float32.
    tolerance = {"rtol": 1e-4}
    np.testing.assert_allclose(
        asked["guess_probabilities"], np.take_along_axis(chances, best, axis=-1), **tolerance
    )
    gold = examples["masked_lm_ids"][:6, :, None]
    np.testing.assert_allclose(
        np.exp(asked["log_probabilities"]),
        np.take_along_axis(chances, gold, axis=-1)[..., 0],
        **tolerance,
    )
    assert asked["guesses"].shape == (6, PREDICTIONS, 5)
    np.testing.assert_array_equal(asked["input_ids"], examples["input_ids"][:6])
    np.testing.assert_allclose(asked["next_sentence_probabilities"].sum(axis=1), 1, rtol=1e-5)
