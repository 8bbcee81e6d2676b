"""Models for other runtimes: ONNX Runtime, and LiteRT, which runs on phones and small machines.

A folder of such a model has `model.tflite` or `model.onnx`, from ids to logits, with `vocab.txt`,
`bert_config.json` and `task.json`, as the folder of the training has them.
"""

import contextlib
import logging
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert.export.formats import MODEL_FILES, Runtime, check_installed
from bert.files.durable import make_folders, replace_files
from bert.files.machine import usable_cores
from bert.files.paths import read_file
from bert.files.process import Shared, hidden_stderr

Tensor = Any
Arrays = Mapping[str, np.ndarray]


# Those of the converters that write lines while they work.
_LOGGERS = ("", "tf2onnx")

FILES = {form: name for form, name in MODEL_FILES.items() if form != "saved_model"}


def write(
    folder: str, form: str, precision: str, model: keras.Model, beside: Mapping[str, bytes]
) -> None:
    """Writes a model into a new folder.

    Args:
      folder: The folder.
      form: One of `FILES`.
      precision: "float32"; or "int8" for weights of 8 bits.
      model: Of float32.
      beside: By name, the files to write beside it.
    """
    make_folders(folder)
    files = {FILES[form]: convert(model, form, precision), **beside}
    for name, content in files.items():
        with replace_files([os.path.join(folder, name)]) as (file,):
            file.write(content)


def open_runtime(folder: str, form: str, what: Any = "The model") -> Runtime:
    """Returns what runs the model of a folder: from its inputs to its outputs, by name.

    Args:
      folder: The folder.
      form: One of `FILES`.
      what: What needs the runtime, an option or a text, to begin a message.

    Raises:
      ValueError: where a package is missing, or the file is damaged.
    """
    check_installed(form, what)
    path = os.path.join(folder, FILES[form])
    return make_runtime(read_file(path), form, path)


def make_runtime(content: bytes, form: str, path: str) -> Runtime:
    """Returns what runs the content of a model's file.

    Args:
      content: The content.
      form: One of `FILES`, whose packages are there.
      path: The file, for messages.

    Raises:
      ValueError: where the content is damaged.
    """
    return (_make_tflite if form == "tflite" else _make_onnx)(content, path)


def convert(model: keras.Model, form: str, precision: str) -> bytes:
    """Returns the file of a model, with the names of its inputs and outputs.

    Args:
      model: Of float32; its inputs are int32, of any number of rows and any length.
      form: One of `FILES`.
      precision: "float32"; or "int8": weights of 8 bits, and products of theirs with activations
        that are rounded to 8 bits as they come (LiteRT's dynamic range, ONNX Runtime's dynamic
        quantization).
    """
    return (_to_tflite if form == "tflite" else _to_onnx)(model, precision)


def function_of(model: keras.Model) -> Any:
    """Returns a `tf.function` of a model's inputs, of any size, in the order of their names.

    Args:
      model: Its inputs and outputs are dictionaries.
    """

    def call(*tensors: Tensor) -> dict[str, Tensor]:
        return model(dict(zip(model.input, tensors, strict=True)), training=False)

    specs = [tf.TensorSpec([None] * len(x.shape), x.dtype, name=n) for n, x in model.input.items()]
    return tf.function(call, input_signature=specs, autograph=False)


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """Keeps what converters tell of their work from standard error; errors are raised all the same.

    TF_CPP_MIN_LOG_LEVEL=0 in the environment brings it back, as in `import_tensorflow`.
    """
    # MLIR writes to the file descriptor.
    with hidden_stderr() as is_hidden, _quiet_loggers() if is_hidden else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def _raise_levels() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


_quiet_loggers = Shared(_raise_levels)


# tf2onnx knows none above it; ONNX Runtime fuses what it has no operation for.
_OPSET = 18


def _to_onnx(model: keras.Model, precision: str) -> bytes:
    """Returns what `convert` does for ONNX Runtime."""
    import tf2onnx  # noqa: PLC0415 (an extra)

    variables = [*model.trainable_variables, *model.non_trainable_variables]
    weights = {f"weight_{number}": each for number, each in enumerate(variables)}
    function = _function_of_weights(model, weights)
    with hushed(), _kept_reshapes():
        converted, _ = tf2onnx.convert.from_function(
            function,
            input_signature=function.input_signature,
            opset=_OPSET,
            custom_op_handlers={"Erfc": (_convert_erfc, [])},
        )
    _fill_in(converted.graph, weights)
    _put_in_order(converted.graph)
    _name_sizes(converted.graph)
    content = converted.SerializeToString(deterministic=True)
    return content if precision == "float32" else quantize(content)


@contextlib.contextmanager
def _keep_reshapes() -> Iterator[None]:
    from tf2onnx.optimizer import back_to_back_optimizer  # noqa: PLC0415 (an extra)

    optimizers = back_to_back_optimizer._func_map
    merge = optimizers["Reshape",]

    def merge_without_zeros(graph: Any, node: Any, consumers: Sequence[Any]) -> list[str]:
        shapes = [each.inputs[1] for each in consumers if each.type == "Reshape"]
        has_zero = any(each.is_const() and 0 in each.get_tensor_value() for each in shapes)
        return [] if has_zero else merge(graph, node, consumers)

    optimizers["Reshape",] = merge_without_zeros
    try:
        yield
    finally:
        optimizers["Reshape",] = merge


# tf2onnx removes a reshape before another one, even where the shape of the latter has a 0, as with
# one attention head: it copies a dimension of what the former returns.
_kept_reshapes = Shared(_keep_reshapes)


def quantize(content: bytes) -> bytes:
    """Returns an ONNX model with weights of 8 bits, as `convert` does for "int8"."""
    import onnx  # noqa: PLC0415 (an extra)
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415 (an extra)

    with tempfile.TemporaryDirectory(prefix="bert-onnx-") as folder, hushed():
        path = os.path.join(folder, "model.onnx")
        model = onnx.load_model_from_string(content)
        quantize_dynamic(model, path, weight_type=QuantType.QInt8, per_channel=True)
        return read_file(path)


def _function_of_weights(model: keras.Model, weights: Mapping[str, keras.Variable]) -> Any:
    """Returns a `tf.function` of a model's inputs and, behind them, its weights.

    tf2onnx copies the weights that it finds in a graph dozens of times.
    """
    names, count = list(model.input), len(model.trainable_variables)

    def call(*tensors: Any) -> dict[str, Any]:
        inputs, values = tensors[: len(names)], tensors[len(names) :]
        outputs, _ = model.stateless_call(
            values[:count], values[count:], dict(zip(names, inputs, strict=True)), training=False
        )
        return outputs

    specs = [
        *function_of(model).input_signature,
        *(tf.TensorSpec(each.shape, each.dtype, name=name) for name, each in weights.items()),
    ]
    return tf.function(call, input_signature=specs, autograph=False)


def _fill_in(graph: Any, weights: Mapping[str, keras.Variable]) -> None:
    """Makes constants of those inputs of a graph that are weights."""
    from onnx import numpy_helper  # noqa: PLC0415 (an extra)

    inputs = [each for each in graph.input if each.name not in weights]
    read = {name for node in graph.node for name in node.input}
    for each in graph.input:
        if each.name in weights and each.name in read:
            values = np.asarray(weights[each.name].value)
            graph.initializer.append(numpy_helper.from_array(values, each.name))
    del graph.input[:]
    graph.input.extend(inputs)


def _convert_erfc(graph: Any, node: Any, *_: Any) -> None:
    """Writes what the exact GELU has, 1 - erf(x), of which tf2onnx does not know."""
    [inputs], [output] = node.input, node.output
    one = graph.make_const(f"{node.name}/one", np.float32(1.0)).output[0]
    shapes, dtypes = [graph.get_shape(output)], [graph.get_dtype(output)]
    graph.remove_node(node.name)
    erf = graph.make_node("Erf", [inputs], shapes=shapes, dtypes=dtypes).output[0]
    graph.make_node("Sub", [one, erf], outputs=[output], shapes=shapes, dtypes=dtypes)


def _put_in_order(graph: Any) -> None:
    """Orders and names what is in a graph by how its outputs are made of its inputs.

    As it comes, it depends on what the process has done before, and so would the file's bytes.
    """
    if any(attribute.HasField("g") for node in graph.node for attribute in node.attribute):
        # Loops have graphs of their own, which name values of this one.
        return
    names = {each: each for each in ("", *(value.name for value in (*graph.input, *graph.output)))}
    nodes = _sorted_nodes([each.name for each in graph.output], graph.node)
    for number, node in enumerate(nodes):
        node.name = f"{node.op_type}_{number}"
        for value in (*node.input, *node.output):
            names.setdefault(value, f"value_{len(names)}")
        node.input[:] = [names[value] for value in node.input]
        node.output[:] = [names[value] for value in node.output]
    places = {node.name: number for number, node in enumerate(nodes)}
    graph.node.sort(key=lambda node: places[node.name])
    for each in graph.initializer:
        each.name = names[each.name]
    graph.initializer.sort(key=lambda each: each.name)
    del graph.value_info[:]
    graph.doc_string = ""


def _sorted_nodes(outputs: Sequence[str], nodes: Sequence[Any]) -> list[Any]:
    """Returns nodes, each after those whose outputs it reads, found from the graph's outputs on."""
    makers = {output: node for node in nodes for output in node.output}
    ordered: dict[str, Any] = {}
    seen = set()
    waiting = [makers[each] for each in reversed(outputs)]
    while waiting:
        node = waiting.pop()
        if node.name in seen:
            # For the second time, with all that it reads.
            ordered.setdefault(node.name, node)
            continue
        seen.add(node.name)
        waiting.append(node)
        waiting += [makers[each] for each in reversed(node.input) if each in makers]
    return [*ordered.values()]


def _name_sizes(graph: Any) -> None:
    """Tells readers of the file what may be of any size: rows first, tokens last."""
    sizes = {1: ["batch"], 2: ["batch", "length"], 3: ["batch", "choices", "length"]}
    for each in graph.input:
        dims = each.type.tensor_type.shape.dim
        for dim, name in zip(dims, sizes[len(dims)], strict=True):
            dim.dim_param = name
    for each in graph.output:
        # The name of a dimension of unknown size would be wrong.
        for dim in each.type.tensor_type.shape.dim:
            if not dim.HasField("dim_value"):
                dim.Clear()


def _make_onnx(content: bytes, path: str) -> Runtime:
    import onnxruntime  # noqa: PLC0415 (an extra)
    from onnxruntime.capi import onnxruntime_pybind11_state as errors  # noqa: PLC0415

    damages = (errors.InvalidProtobuf, errors.InvalidArgument, errors.InvalidGraph, errors.Fail)
    try:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    except (*damages, errors.NotImplemented) as error:
        raise ValueError(f"{path!r} must be a model for ONNX Runtime. {error}") from error
    ranks = {each.name: len(each.shape) for each in session.get_inputs()}
    outputs = [each.name for each in session.get_outputs()]

    def run(inputs: Arrays) -> dict[str, np.ndarray]:
        given = {name: inputs[name] for name in ranks}
        return dict(zip(outputs, session.run(None, given), strict=True))

    # This operation rounds the activations of a batch by their common range.
    return Runtime(run, ranks, mixes_rows=b"DynamicQuantizeLinear" in content)


def _to_tflite(model: keras.Model, precision: str) -> bytes:
    """Returns what `convert` does for LiteRT; the file has one signature."""
    module = tf.Module()
    module.weights = [weight.value for weight in model.weights]
    signatures = {"serving_default": function_of(model).get_concrete_function()}
    with tempfile.TemporaryDirectory(prefix="bert-tflite-") as folder, hushed():
        tf.saved_model.save(module, folder, signatures)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        if precision == "int8":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        return converter.convert()


def _make_tflite(content: bytes, path: str) -> Runtime:
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 (an extra)

    try:
        with hushed():
            interpreter = Interpreter(model_content=content, num_threads=usable_cores())
            run = interpreter.get_signature_runner()
            shapes = {name: each["shape"] for name, each in run.get_input_details().items()}
            # The runtime logs a line when it is first used.
            run(**{name: np.ones(shape, np.int32) for name, shape in shapes.items()})
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"{path!r} must be a model for LiteRT. {error}") from error

    ranks = {name: len(shape) for name, shape in shapes.items()}
    # An interpreter has one set of buffers.
    lock = threading.Lock()

    def run_alone(inputs: Arrays) -> dict[str, np.ndarray]:
        with lock:
            return run(**{name: inputs[name] for name in shapes})

    return Runtime(run_alone, ranks)
