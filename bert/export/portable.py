"""The folder of a model for another runtime: its file, and what makes its inputs of text.

It holds `model.tflite` or `model.onnx`, from ids to logits, with `vocab.txt`, `bert_config.json`
and `task.json`, as the folder of the training has them.
"""

import os
from collections.abc import Mapping

import keras

from bert.export.formats import MODEL_FILES, check_installed
from bert.export.graph import Runtime
from bert.files.durable import make_folders, replace_files

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
    if form == "tflite":
        from bert.export.tflite import convert  # noqa: PLC0415
    else:
        from bert.export.onnx import convert  # noqa: PLC0415
    files = {FILES[form]: convert(model, precision), **beside}
    for name, content in files.items():
        with replace_files([os.path.join(folder, name)]) as (file,):
            file.write(content)


def open_runtime(folder: str, form: str, what: str = "The model") -> Runtime:
    """Returns what runs the model of a folder: from its inputs to its outputs, by name.

    Args:
      folder: The folder.
      form: One of `FILES`.
      what: What needs the runtime, to begin a message.

    Raises:
      ValueError: where a package is missing, or the file is damaged.
    """
    check_installed(form, what)
    if form == "tflite":
        from bert.export.tflite import open_file  # noqa: PLC0415
    else:
        from bert.export.onnx import open_file  # noqa: PLC0415
    return open_file(os.path.join(folder, FILES[form]))
