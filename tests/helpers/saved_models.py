"""What tests of several modules share of `classification_saved_model`."""

import json
import os
import subprocess
import sys

from bert.export.operations import read_graph

# Is run where nothing of this project can be imported.
LOAD_AND_CALL = """
import json, sys
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

# No other package brings operations along.
known = set(dir(tf.raw_ops))

def operations(folder):
    with open(folder + "/saved_model.pb", "rb") as file:
        [meta_graph] = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs
    graph = meta_graph.graph_def
    functions = [node for each in graph.library.function for node in each.node_def]
    # A node may also call a function of the graph itself.
    own = {each.signature.name for each in graph.library.function}
    return {node.op for node in [*graph.node, *functions]} - own

def encode(value):
    if isinstance(value, list):
        return [encode(each) for each in value]
    return value.encode("utf-8", "surrogateescape")

folder, requests = sys.argv[1], json.load(sys.stdin)
loaded = tf.saved_model.load(folder)
answers = []
for name, inputs in requests:
    signature = loaded.signatures[name]
    specs = signature.structured_input_signature[1]
    tensors = {}
    for key, values in inputs.items():
        if specs[key].dtype == tf.string:
            values = encode(values)
        tensors[key] = tf.constant(values, specs[key].dtype, shape=np.shape(values) or [0])
    outputs = signature(**tensors)
    answers.append({key: value.numpy().tolist() for key, value in outputs.items()})
projects_own = [name for name in sys.modules if name in ("modeling", "tokenization", "export")]
foreign = sorted(operations(folder) - known)
print(json.dumps([answers, projects_own, foreign], default=bytes.decode))
"""


def call_elsewhere(folder, requests, tmp_path, python=None):
    """Returns a signature's answers for each request, from a process without the project.

    It may be started by the `python` of a folder; else it imports TensorFlow itself.
    """
    empty = tmp_path / "elsewhere"
    empty.mkdir(exist_ok=True)
    (empty / "call.py").write_text(LOAD_AND_CALL)
    command = [python / "python"] if python else [sys.executable, "-I"]
    result = subprocess.run(
        [*command, "call.py", str(folder)],
        cwd=empty,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    answers, projects_own, foreign_operations = json.loads(result.stdout.splitlines()[-1])
    assert projects_own == []
    assert foreign_operations == []
    assert read_graph(str(folder), "model").signature_def.keys() >= {"serving_default"}
    return answers


def as_lists(features):
    return {name: values.tolist() for name, values in features.items()}
