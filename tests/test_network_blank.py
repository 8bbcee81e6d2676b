"""Models are made without the initial values that their checkpoint replaces."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import change

from bert.network.blank import blank_variables
from bert.network.heads import classifier_model, tagging_model


def drawn(config):
    keras.utils.set_random_seed(5)
    return classifier_model(config, 3, add_bilstm=True)


def test_what_no_checkpoint_has_begins_as_without_it(tiny_config):
    expected = drawn(tiny_config)
    after = np.random.random()
    with blank_variables() as blank:
        model = drawn(tiny_config)
    assert np.random.random() == after
    found, others = model.weights[::2], model.weights[1::2]
    assert not any(np.any(variable.numpy()) for variable in model.weights if variable.trainable)
    for variable in found:
        variable.assign(tf.fill(variable.shape, 7.0))
    blank.fill(but=found)
    for variable, other in zip(others, expected.weights[1::2], strict=True):
        np.testing.assert_array_equal(variable.numpy(), other.numpy())
    assert all(np.all(variable.numpy() == 7) for variable in found)
    # Masks of dropout begin as they do.
    seeds = [
        [v.numpy().tolist() for v in each.variables if not any(v is w for w in each.weights)]
        for each in (model, expected)
    ]
    assert seeds[0] == seeds[1] != []


def test_variables_that_share_their_zeros_change_alone(tiny_config):
    with blank_variables():
        model = tagging_model(change(tiny_config, num_hidden_layers=2), 3)
    first, second, *_ = (v for v in model.weights if v.path.endswith("query/kernel"))
    first.value.assign_add(tf.ones(first.shape))
    first.value.scatter_nd_update([[0, 0]], [5.0])
    assert not np.any(second.numpy())
    assert first.numpy()[0, 0] == 5 and first.numpy()[-1, -1] == 1


def test_variables_made_elsewhere_have_their_values(tiny_config):
    with blank_variables():
        pass
    assert np.any(drawn(tiny_config).weights[0].numpy())
    with pytest.raises(ZeroDivisionError), blank_variables():
        raise ZeroDivisionError
    assert np.any(drawn(tiny_config).weights[0].numpy())
