import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import modeling
from bert.network import heads, kernels
from bert.network.kernels import infer


def as_graph(model, run=infer):
    """Returns what runs a model in a graph of unknown sizes, as predictions and exports do."""
    signature = {name: tf.TensorSpec([None, None], tf.int32) for name in model.input}
    return tf.function(lambda inputs: run(model, inputs), input_signature=[signature])


def executed(function, inputs):
    """Returns the names of the operations that ran, after TensorFlow's optimizer of graphs."""
    context.context().enable_run_metadata()
    try:
        function(inputs)
        metadata = context.context().export_run_metadata()
    finally:
        context.context().disable_run_metadata()
    graphs = [graph for each in metadata.function_graphs for graph in each.partition_graphs]
    return [node.op for graph in graphs for node in graph.node]


def make_inputs(config, rows=3, length=9):
    rng = np.random.default_rng(0)
    mask = (np.arange(length) < rng.integers(2, length, (rows, 1))).astype(np.int32)
    ids = rng.integers(5, config.vocab_size, (rows, length)).astype(np.int32)
    return {"input_ids": ids * mask, "input_mask": mask, "segment_ids": mask * 0}


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "bfloat16", "mixed_float16"])
def test_inference_gives_what_the_model_gives(tiny_config, dtype):
    keras.utils.set_random_seed(1)
    model = heads.tagging_model(tiny_config, 3, dtype)
    for weight in model.weights:
        if weight.path.endswith(("gamma", "beta")):
            weight.assign(keras.random.normal(weight.shape, 1.0, 0.3))
    inputs = make_inputs(tiny_config)
    expected = model(inputs, training=False)["logits"]
    found = as_graph(model)(inputs)["logits"]
    assert found.dtype == tf.float32
    tolerance = 1e-5 if dtype == "float32" else 0.01
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
    assert np.ptp(expected) > 0.1
    empty = {name: values[:0] for name, values in inputs.items()}
    assert as_graph(model)(empty)["logits"].shape == (0, 9, 3)


@pytest.mark.usefixtures("optimized")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_each_layer_normalization_is_one_operation(tiny_config, dtype):
    model = heads.classifier_model(tiny_config, 2, dtype)
    inputs = make_inputs(tiny_config)
    plainly = as_graph(model, lambda model, inputs: model(inputs, training=False))
    if "_MklSoftmax" not in executed(plainly, inputs):
        pytest.skip("This TensorFlow has no oneDNN.")
    operations = executed(as_graph(model), inputs)
    assert operations.count("_MklLayerNorm") == 1 + 2 * tiny_config.num_hidden_layers
    assert not {"Rsqrt", "FusedBatchNormV3"} & set(operations)


def test_without_that_kernel_layers_normalize_as_those_of_keras(tiny_config, monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    kernels._has_kernel.cache_clear()
    try:
        model = heads.classifier_model(tiny_config, 2)
        inputs = make_inputs(tiny_config)
        assert "_MklLayerNorm" not in executed(as_graph(model), inputs)
    finally:
        kernels._has_kernel.cache_clear()


def test_elsewhere_layers_normalize_as_those_of_keras():
    values = keras.random.normal((4, 6))
    layers = (modeling.LayerNorm, keras.layers.LayerNormalization)
    one, other = (layer(epsilon=modeling.LAYER_NORM_EPSILON)(values) for layer in layers)
    np.testing.assert_array_equal(one, other)
