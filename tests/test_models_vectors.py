import numpy as np
import pytest
from conftest import change, spread

import modeling
import tokenization
from bert.models import vectors as text_vectors
from bert.models.vectors import Encoding, Index, group_words, unit_length
from bert.options import OptionError


@pytest.mark.parametrize("block_values", [1, 40, 1 << 22])
@pytest.mark.parametrize("center", [False, True])
def test_the_nearest_are_those_of_a_full_sort_in_blocks_of_any_size(
    monkeypatch, block_values, center
):
    monkeypatch.setattr(text_vectors, "_BLOCK_VALUES", block_values)
    rng = np.random.RandomState(0)
    vectors = rng.randn(50, 8).astype(np.float32) + 3
    vectors[20] = vectors[30]
    queries = rng.randn(4, 8).astype(np.float32) + 3
    mean = vectors.mean(axis=0) * center
    cosines = unit_length(queries - mean) @ unit_length(vectors - mean).T
    expected = np.argsort(-cosines, axis=1, kind="stable")[:, :7]
    scores, numbers = Index(vectors, center=center).nearest(queries, 7)
    np.testing.assert_allclose(
        scores, np.take_along_axis(cosines, expected, axis=1), rtol=0, atol=1e-6
    )
    np.testing.assert_array_equal(numbers, expected)
    same = Index(vectors, center=center).nearest(vectors[30:31], 2)[1]
    assert same.tolist() == [[20, 30]]


def test_the_mean_of_many_vectors_far_from_zero_is_exact():
    rng = np.random.RandomState(0)
    vectors = (1000 + rng.randn(1 << 17, 2)).astype(np.float32)
    centered = vectors[:3] - vectors.mean(axis=0, dtype=np.float64)
    expected = unit_length(centered)[:2] @ unit_length(centered)[2]
    index = Index(vectors, center=True)
    scores, numbers = index.nearest(vectors[2:3], len(vectors))
    found = [scores[0][numbers[0] == number].item() for number in range(2)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)


def test_fewer_vectors_than_requested_are_found_and_zeros_are_near_nothing():
    scores, numbers = Index(np.array([[0, 0], [1, 1]], np.float32), center=False).nearest(
        np.array([[2, 2]], np.float32), 9
    )
    assert numbers.tolist() == [[1, 0]]
    np.testing.assert_allclose(scores, [[1, 0]], rtol=0, atol=1e-6)


def test_vectors_of_any_length_become_those_of_length_1():
    vectors = np.array([[3, 4], [3e-20, 4e-20], [3e17, 4e17], [0, 0]], np.float32)
    expected = [[0.6, 0.8], [0.6, 0.8], [0.6, 0.8], [0, 0]]
    np.testing.assert_allclose(unit_length(vectors), expected, rtol=1e-6)


def test_a_piece_goes_on_a_word_that_ends_right_before_it():
    tokens = ["[CLS]", "a", "##b", "##c", "d", "[SEP]", "##e", "##f", "[SEP]"]
    assert group_words(tokens) == [("abc", [1, 2, 3]), ("d", [4]), ("##ef", [6, 7])]


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "cat"]
TOKENIZER = tokenization.FullTokenizer.from_vocab({word: i for i, word in enumerate(WORDS)})


def make_encoder(bert):
    encoder = Encoding()
    encoder.encoder, encoder.tokenizer, encoder.batch_size = bert, TOKENIZER, 32
    return encoder


@pytest.mark.usefixtures("eager")
def test_the_length_that_is_given_goes_before_that_of_the_model(still_config):
    encoder = make_encoder(modeling.BertModel(still_config))
    texts = [" ".join(["cat"] * count) for count in (1, 3, 14)]
    encoder.encode(texts)
    spread(encoder.encoder)
    longest = still_config.max_position_embeddings
    for own, given, length in ((None, None, longest), (5, None, 5), (5, 4, 4), (None, 4, 4)):
        encoder.max_seq_length = own
        assert encoder.inputs(texts, given)["input_mask"].sum(axis=1).max() == length
        cut = [" ".join(text.split()[: length - 2]) for text in texts]
        found = encoder.encode(texts, max_seq_length=given)
        np.testing.assert_allclose(found, encoder.encode(cut, max_seq_length=longest), atol=1e-5)
    for name, value in (("max_seq_length", "4"), ("max_seq_length", 4.0), ("normalize", "False")):
        with pytest.raises(OptionError, match=f"`{name}` must be .* Received {value!r}"):
            encoder.encode(texts, **{name: value})


@pytest.mark.usefixtures("eager")
def test_a_model_of_one_segment_encodes_no_pairs(still_config):
    encoder = make_encoder(modeling.BertModel(change(still_config, type_vocab_size=1)))
    assert encoder.encode(["cat", ("cat", "")]).shape == (2, still_config.hidden_size)
    for method in (encoder.encode, encoder.inputs):
        with pytest.raises(ValueError, match="`type_vocab_size` of the model must be at least 2"):
            method(["cat", ("cat", "cat")])


def test_vectors_that_overflow_are_refused(still_config):
    bert = modeling.BertModel(still_config)
    encoder = make_encoder(bert)
    assert np.isfinite(encoder.encode("cat")).all()
    bert.weights[0].assign(np.asarray(bert.weights[0]) + np.inf)
    with pytest.raises(ValueError, match="must be finite"):
        encoder.encode("cat")
