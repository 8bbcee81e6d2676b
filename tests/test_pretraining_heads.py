import math

import numpy as np
import pytest
from conftest import change

from bert.pretraining import heads as pretraining_heads

ACTIVATIONS = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "gelu": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "gelu_erf": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_masked_lm_transform_has_the_activation_of_the_configuration(tiny_config, name):
    """A dense layer, the activation, LayerNorm; then the table and a bias (paper, section 3.1)."""
    config = change(tiny_config, hidden_act=name)
    head = pretraining_heads.MaskedLanguageModel(config, name="predictions")
    head.build(None)
    rng = np.random.RandomState(0)
    for variable in head.weights:
        variable.assign(rng.standard_normal(variable.shape))
    weight = {each.path.removeprefix("predictions/"): each.numpy() for each in head.weights}
    x = rng.standard_normal((2, 3, config.hidden_size)).astype(np.float32)
    table = rng.standard_normal((config.vocab_size, config.hidden_size)).astype(np.float32)
    hidden = x @ weight["transform/dense/kernel"] + weight["transform/dense/bias"]
    hidden = ACTIVATIONS[name](hidden)
    hidden -= hidden.mean(-1, keepdims=True)
    hidden /= np.sqrt((hidden**2).mean(-1, keepdims=True) + 1e-12)
    hidden = hidden * weight["transform/LayerNorm/gamma"] + weight["transform/LayerNorm/beta"]
    expected = hidden @ table.T + weight["output_bias"]
    np.testing.assert_allclose(head(x, table), expected, rtol=0, atol=1e-4)
