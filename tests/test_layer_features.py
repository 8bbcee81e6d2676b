import numpy as np
import pytest
from conftest import change

import layer_features


@pytest.fixture
def encoded():
    """Layers of ones, tens, hundreds and so on, [1, 2, 3]; the embeddings are halves."""
    layers = [np.full((1, 2, 3), 10.0**power, np.float32) for power in range(5)]
    return {"embedding_output": np.full((1, 2, 3), 0.5, np.float32), "encoder_layers": layers}


@pytest.mark.parametrize(
    ("layer", "value"),
    [
        (0, 1),
        (-2, 1000),
        ("embeddings", 0.5),
        ("last", 10000),
        ("second_to_last", 1000),
        ("sum_last_four", 11110),
        ("sum_all", 11111),
    ],
)
def test_a_layer_is_what_its_name_says(encoded, layer, value):
    features = np.asarray(layer_features.combine(encoded, layer))
    np.testing.assert_array_equal(features, np.full((1, 2, 3), value, np.float32))


def test_concatenated_layers_stand_in_order(encoded, tiny_config):
    features = np.asarray(layer_features.combine(encoded, "concat_last_four"))
    assert features[0, 0].tolist() == [10] * 3 + [100] * 3 + [1000] * 3 + [10000] * 3
    assert layer_features.width("concat_last_four", tiny_config) == 4 * tiny_config.hidden_size
    assert layer_features.width(-1, tiny_config) == tiny_config.hidden_size


def test_layers_are_read_in_the_order_of_the_flag(tiny_config):
    config = change(tiny_config, num_hidden_layers=4)
    parsed = layer_features.parse_layers("-1, sum_all,0,3,-4,concat_last_four", config, flag="x")
    assert parsed == [-1, "sum_all", 0, 3, -4, "concat_last_four"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-1,-3", "`--x` must be at least -2 and less than 2.*Received -3"),
        ("2", "Received 2"),
        ("lst", "names among .*'last'.*Received 'lst'"),
        ("-1,", "Received ''"),
        ("sum_last_four", "'sum_last_four' needs 4 layers, and `num_hidden_layers` is 2"),
    ],
)
def test_a_layer_that_the_model_lacks_is_an_error(text, message, tiny_config):
    with pytest.raises(ValueError, match=message):
        layer_features.parse_layers(text, tiny_config, flag="x")
