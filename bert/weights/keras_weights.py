"""Reads the weights that Keras has saved of a model of this project."""

import os
import tempfile
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import h5py
import keras
import numpy as np

from bert.files.paths import is_file
from bert.files.weight_names import KERAS_ENDING, KERAS_FILE, WEIGHTS
from bert.options import Message, Option, OptionError
from bert.weights.checkpoint import Stored, weight_files
from bert.weights.folder import ModelFolder
from bert.weights.huggingface_files import FINE_TUNED
from bert.weights.saving import save_tensors

# From an architecture, a configuration and a number of outputs to a model.
Maker = Callable[[str, Any, int], keras.Model]

# An architecture with more heads comes before one that would pass over some of them.
_ARCHITECTURES = ("BertForPreTraining", *FINE_TUNED.values(), "BertModel")


def find(path: str) -> str | None:
    """Returns the file of Keras weights that a path names, or the only weights in a folder."""
    if path.endswith(KERAS_ENDING):
        return path if is_file(path) else None
    file = os.path.join(path, KERAS_FILE)
    return file if is_file(file) and not weight_files(path) else None


def open_folder(file: str, make: Maker, architecture: str | None, **given: Any) -> ModelFolder:
    """Returns the folder of a file of weights, which become a checkpoint elsewhere.

    Args:
      file: The weights.
      make: Makes models.
      architecture: One of `ARCHITECTURES`; None for the first that fits.
      **given: Keyword arguments of `ModelFolder`.

    Raises:
      ValueError: where the weights fit no known model.
    """
    path = os.path.dirname(file) or "."
    folder = ModelFolder(path, "input", **given)
    model = _load(file, folder, make, architecture)
    temporary = tempfile.TemporaryDirectory(prefix="bert-keras-")
    prefix = os.path.join(temporary.name, WEIGHTS)
    save_tensors(prefix, {variable.path: variable.numpy() for variable in model.weights})
    folder = ModelFolder(path, "input", Stored(prefix, "input", file), **given)
    weakref.finalize(folder, temporary.cleanup)
    folder.check_casing()
    return folder


def _load(file: str, folder: ModelFolder, make: Maker, architecture: str | None) -> keras.Model:
    """Returns the first model all of whose variables the file has, with their values."""
    architecture = architecture or FINE_TUNED.get(folder.task.get("kind", ""))
    num_outputs = _num_outputs(file)
    problem = ""
    for candidate in (architecture,) if architecture else _ARCHITECTURES:
        model = make(candidate, folder.config, num_outputs)
        # Keras passes over what a file lacks, with a warning at most.
        for variable in model.weights:
            variable.assign(np.full(variable.shape, np.nan, np.float32))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                model.load_weights(file)
        except (ValueError, KeyError) as error:
            problem = problem or str(error).splitlines()[0]
            continue
        lacking = [v.path for v in model.weights if np.isnan(v.numpy()).any()]
        if not lacking:
            return model
        problem = problem or f"for {candidate}, it has no numbers for {lacking[0]!r}."
    raise OptionError(
        "input",
        "hold Keras weights of a model of `make_model`, in the shape of the configuration",
        remedy=Message(
            "%r does not fit: %s Give the %s and the %s of the model.",
            *(file, problem, Option("bert_config_file"), Option("architecture")),
        ),
    )


def _num_outputs(file: str) -> int:
    """Returns how many outputs the head in a file has, if it is a classifier's."""
    sizes = [2]

    def look(name: str, item: Any) -> None:
        if not name.startswith("layers/bert_model/") and len(getattr(item, "shape", ())) == 1:
            sizes.append(item.shape[0])

    try:
        with h5py.File(file) as opened:
            opened.visititems(look)
    except OSError as error:
        remedy = f"{file!r} cannot be read: {error}."
        raise OptionError("input", "be a whole file of Keras weights", remedy=remedy) from error
    return sizes[-1]
