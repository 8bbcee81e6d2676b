"""Constants of a frozen graph, in each way in which TensorFlow stores their numbers."""

import numpy as np
import pytest
import tensorflow as tf

from bert.weights.formats import FormatError
from bert.weights.frozen_graphs import read_frozen_graph

VALUES = np.arange(6).reshape(2, 3) - 2.5


def write(path, constants):
    graph = tf.compat.v1.GraphDef()
    graph.node.add(name="inputs", op="Placeholder")
    for name, tensor in constants.items():
        node = graph.node.add(name=name, op="Const")
        node.attr["value"].tensor.CopyFrom(tensor)
    graph.versions.producer = 27
    path.write_bytes(graph.SerializeToString())
    return str(path)


def test_numbers_are_read_of_each_type_and_as_one_for_all(tmp_path):
    expected = {kind: VALUES.astype(kind) for kind in ("float16", "float32", "float64")}
    constants = {name: tf.make_tensor_proto(values) for name, values in expected.items()}
    constants["filled"] = tf.make_tensor_proto(0.5, tf.float32, [4, 2])
    expected["filled"] = np.full([4, 2], 0.5, np.float32)
    # These are no weights.
    constants["number"] = tf.make_tensor_proto(1.0)
    constants["ids"] = tf.make_tensor_proto([1, 2, 3])
    found = read_frozen_graph(write(tmp_path / "x.pb", constants))
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].shape == values.shape
        np.testing.assert_array_equal(found[name].read(), values)


@pytest.mark.parametrize("size", [1, 5, 7])
def test_a_constant_of_another_size_than_its_shape_is_refused(tmp_path, size):
    tensor = tf.make_tensor_proto(VALUES.astype(np.float32))
    tensor.tensor_content = np.zeros(size, np.float32).tobytes()
    found = read_frozen_graph(write(tmp_path / "x.pb", {"a": tensor}))
    with pytest.raises(FormatError, match="other numbers than its shape says"):
        found["a"].read()


def test_a_graph_without_weights_is_refused(tmp_path):
    with pytest.raises(FormatError, match="no constants of numbers"):
        read_frozen_graph(write(tmp_path / "x.pb", {"ids": tf.make_tensor_proto([1, 2])}))
