"""Models for LiteRT, which runs on phones and small machines, and fast on large ones."""

import tempfile

import keras
import numpy as np
import tensorflow as tf

from bert.export.graph import Runtime, function_of, hushed
from bert.files.paths import read_file
from bert.files.processes import usable_cores


def convert(model: keras.Model, precision: str) -> bytes:
    """Returns the file of a model, with one signature of the names of its inputs and outputs.

    Args:
      model: Of float32; its inputs are int32, of any number of rows and any length.
      precision: "float32"; or "int8": weights of 8 bits, and products of theirs with activations
        that are rounded to 8 bits as they come (LiteRT's dynamic range).
    """
    module = tf.Module()
    module.weights = [weight.value for weight in model.weights]
    signatures = {"serving_default": function_of(model).get_concrete_function()}
    with tempfile.TemporaryDirectory(prefix="bert-tflite-") as folder, hushed():
        tf.saved_model.save(module, folder, signatures)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        if precision == "int8":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        return converter.convert()


def open_file(path: str) -> Runtime:
    """Returns what runs a model.

    Raises:
      ValueError: where the file is none.
    """
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 (an extra)

    try:
        with hushed():
            interpreter = Interpreter(model_content=read_file(path), num_threads=usable_cores())
            run = interpreter.get_signature_runner()
            shapes = {name: each["shape"] for name, each in run.get_input_details().items()}
            # It tells of itself when it is first used.
            run(**{name: np.ones(shape, np.int32) for name, shape in shapes.items()})
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"{path!r} must be a model for LiteRT. {error}") from error

    return lambda inputs: run(**{name: inputs[name] for name in shapes})
