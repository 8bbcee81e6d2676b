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

from bert.files.huggingface import FINE_TUNED
from bert.files.paths import is_file
from bert.files.weight_names import KERAS_ENDING, KERAS_FILE, WEIGHTS
from bert.weights.checkpoint import Stored, save_tensors, weight_files
from bert.weights.folder import ModelFolder

# Makes a model of an architecture, a configuration and a number of outputs.
Maker = Callable[[str, Any, int], keras.Model]

# One with more heads comes before one that would pass them over.
_ARCHITECTURES = ("BertForPreTraining", *FINE_TUNED.values(), "BertModel")


def find(path: str) -> str | None:
    """Returns the file of Keras weights that a path names, or that its folder has and no other."""
    if path.endswith(KERAS_ENDING):
        return path if is_file(path) else None
    file = os.path.join(path, KERAS_FILE)
    return file if is_file(file) and not weight_files(path) else None


def open_folder(file: str, make: Maker, architecture: str | None, **given: Any) -> ModelFolder:
    """Returns the folder of a file, with its weights, which become a checkpoint elsewhere.

    Args:
      file: The weights.
      make: Makes models.
      architecture: What the model is, one of `bert.files.huggingface.ARCHITECTURES`; None for what
        fits.
      **given: As for `ModelFolder`: what is not to be taken from the folder.

    Raises:
      ValueError: where they are those of no model that is known.
    """
    path = os.path.dirname(file) or "."
    folder = ModelFolder(path, "input", **given)
    model = _load(file, folder, make, architecture)
    place = tempfile.TemporaryDirectory(prefix="bert-keras-")
    prefix = os.path.join(place.name, WEIGHTS)
    save_tensors(prefix, {variable.path: variable.numpy() for variable in model.weights})
    folder = ModelFolder(path, "input", Stored(prefix, "input", file), **given)
    weakref.finalize(folder, place.cleanup)
    folder.check_casing()
    return folder


def _load(file: str, folder: ModelFolder, make: Maker, architecture: str | None) -> keras.Model:
    """Returns the first model all of whose variables the file has, with their values."""
    architecture = architecture or FINE_TUNED.get(folder.task.get("kind", ""))
    num_outputs = _num_outputs(file)
    problem = ""
    for each in (architecture,) if architecture else _ARCHITECTURES:
        model = make(each, folder.config, num_outputs)
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
        problem = problem or f"for {each}, it has no numbers for {lacking[0]!r}."
    raise ValueError(
        "`--input` must hold Keras weights of a model of `make_model`, in the shape that the "
        f"configuration tells. {file!r} does not fit: {problem} Give the `--bert_config_file` and "
        "the `--architecture` that it was made with."
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
        raise ValueError(
            f"`--input` must be a whole file of Keras weights. {file!r} cannot be read: {error}."
        ) from error
    return sizes[-1]
