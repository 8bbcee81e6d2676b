import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import change, make_examples

import modeling
import optimization
from bert.network import kernels
from bert.pretraining import heads as pretraining_heads
from bert.pretraining.objectives import OBJECTIVE
from bert.training.trainer import Trainer

ROWS, WIDTH = 512, 128


def gradients_of(function, tensors):
    sources = [tensor for tensor in tensors if tensor.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        output = function(*tensors)
        loss = tf.reduce_sum(output * weights_like(output))
    return [output, *tape.gradient(loss, sources)]


def weights_like(tensor):
    weights = tf.range(tf.size(tensor)) % 7 - 3
    return tf.cast(tf.reshape(weights, tensor.shape), tensor.dtype)


def chains(dtype):
    """Yields each chain of the network, the compiled chain, and arguments."""
    rng = np.random.default_rng(0)
    inputs = tf.cast(tf.constant(rng.normal(size=(ROWS, WIDTH)), tf.float32), dtype)
    numbers = tf.constant(rng.integers(-(2**15), 2**15, (ROWS, WIDTH)), tf.int16)
    yield modeling.gelu, kernels.fused_gelu, [inputs]
    yield modeling.gelu_erf, kernels.fused_gelu_erf, [inputs]
    drops = (functools.partial(drop, rate=0.1) for drop in (modeling.drop, kernels.fused_drop))
    yield *drops, [inputs, numbers]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_compiled_chains_are_as_exact_as_single_operations(dtype):
    for chain, compiled, tensors in chains(dtype):
        exact = gradients_of(
            chain, [tf.cast(each, tf.float64) if each.dtype == dtype else each for each in tensors]
        )
        apart = gradients_of(chain, tensors)
        fused = gradients_of(tf.function(compiled, autograph=False), tensors)
        for truth, *both in zip(exact, apart, fused, strict=True):
            errors = [np.abs(truth - tf.cast(each, tf.float64)).max() for each in both]
            assert errors[1] <= 1.5 * errors[0]


def test_dropout_by_a_compiled_chain_is_the_same_bit_for_bit():
    layer = modeling.Dropout(0.1)
    inputs = tf.random.normal((ROWS, WIDTH))

    def drop():
        with modeling.dropout_seed(tf.constant([3, 4])):
            return layer(inputs, training=True).numpy()

    with kernels.fused_chains(layer):
        fused = drop()
    np.testing.assert_array_equal(fused, drop())


@pytest.mark.parametrize(
    ("shape", "count"), [([ROWS, WIDTH], 1), ([None, WIDTH], 0), ([2, WIDTH], 0)]
)
def test_only_large_tensors_of_known_shape_are_compiled(shape, count):
    function = tf.function(kernels.fused_gelu, autograph=False)
    graph = function.get_concrete_function(tf.TensorSpec(shape)).graph
    assert sum("_XlaMustCompile" in op.node_def.attr for op in graph.get_operations()) == count


def test_kernels_are_shared_by_all_layers():
    inputs, numbers = tf.ones((ROWS, WIDTH)), tf.ones((ROWS, WIDTH), tf.int16)
    before = kernels._compiled.cache_info().misses
    for _ in range(3):
        kernels.fused_drop(inputs, numbers, rate=0.25)
    assert kernels._compiled.cache_info().misses == before + 1


def test_a_step_of_compiled_chains_is_that_of_single_operations(tiny_config, monkeypatch):
    config = change(tiny_config, num_hidden_layers=1)
    batch = {name: tf.constant(values) for name, values in make_examples(config, 8).items()}

    def results(smallest):
        monkeypatch.setattr(kernels, "_SMALLEST", smallest)
        keras.utils.set_random_seed(0)
        model = pretraining_heads.pretraining_model(config)
        optimizer = optimization.bert_optimizer(1e-3, 10, 0)
        trainer = Trainer(model, optimizer, OBJECTIVE, seed=5)
        return [trainer.train_step(batch) for _ in range(2)]

    for one, other in zip(results(1), results(2**30), strict=True):
        assert one == pytest.approx(other, rel=1e-5)
