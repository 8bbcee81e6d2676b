import numpy as np
import pytest

import bilstm

LENGTHS = np.array([7, 1, 4, 6], np.int32)


def fill(layer, seed=0):
    """Sets all weights to values of the order of 1."""
    rng = np.random.RandomState(seed)
    for variable in layer.weights:
        variable.assign(rng.standard_normal(variable.shape))
    return layer


def inputs_of(*shape, seed=1):
    return np.random.RandomState(seed).standard_normal(shape).astype(np.float32)


def test_mix_is_a_softmax_of_weights_times_a_scale():
    mix = bilstm.LayerMix()
    inputs = inputs_of(2, 3, 4, 5)
    np.testing.assert_allclose(mix(inputs), inputs.mean(axis=2), atol=1e-6)
    assert [variable.path.rpartition("/")[2] for variable in mix.weights] == [
        "layer_weights",
        "scale",
    ]
    weights = np.array([1.0, -2.0, 0.5, 0.0], np.float32)
    mix.layer_weights.assign(weights)
    mix.scale.assign(3.0)
    softmax = np.exp(weights) / np.exp(weights).sum()
    expected = 3 * np.einsum("bwld,l->bwd", inputs, softmax)
    np.testing.assert_allclose(mix(inputs), expected, atol=1e-5)


@pytest.mark.parametrize("shape", [(6,), (3, 6)])
def test_labels_depend_neither_on_padding_nor_on_other_rows(shape):
    tagger = bilstm.WordTagger(5, 4)
    tagger.build((None, None, *shape))
    fill(tagger)
    features = inputs_of(4, 7, *shape)
    whole = tagger(features, LENGTHS).numpy()
    assert whole.shape == (4, 7, 4)
    for row, length in enumerate(LENGTHS):
        alone = tagger(features[row : row + 1, :length], LENGTHS[row : row + 1])
        np.testing.assert_allclose(whole[row, :length], alone[0], atol=1e-5)
    # Both directions reach every word: the first and the last change with one another.
    for place in (0, 6):
        changed = features.copy()
        changed[0, place] += 1.0
        difference = np.abs(tagger(changed, LENGTHS).numpy()[0] - whole[0]).max(axis=-1)
        assert (difference > 1e-4).all()
