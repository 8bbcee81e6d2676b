import numpy as np
import pytest

import modeling
import tokenization
from bert.models import vectors as text_vectors
from bert.models.vectors import Index, TextEncoder, unit_length


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


def test_fewer_vectors_than_requested_are_found_and_zeros_are_near_nothing():
    scores, numbers = Index(np.array([[0, 0], [1, 1]], np.float32), center=False).nearest(
        np.array([[2, 2]], np.float32), 9
    )
    assert numbers.tolist() == [[1, 0]]
    np.testing.assert_allclose(scores, [[1, 0]], rtol=0, atol=1e-6)


def test_vectors_that_overflow_are_refused(still_config):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "cat"]
    tokenizer = tokenization.FullTokenizer.from_vocab({word: i for i, word in enumerate(words)})
    bert = modeling.BertModel(still_config)
    encoder = TextEncoder(bert, tokenizer)
    assert np.isfinite(encoder.encode("cat")).all()
    bert.weights[0].assign(np.asarray(bert.weights[0]) + np.inf)
    with pytest.raises(ValueError, match="must be finite"):
        encoder.encode("cat")
