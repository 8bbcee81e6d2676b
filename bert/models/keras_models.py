"""Keras models by their architecture: made, compared, and loaded from weights that Keras saved."""

import difflib
import os
import tempfile
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import h5py
import keras
import numpy as np

import modeling
from bert.files.paths import is_file
from bert.files.stored_models import KERAS_ENDING, KERAS_FILE, WEIGHTS
from bert.network.blank import blank_variables
from bert.network.heads import choice_model, classifier_model, span_model, tagging_model
from bert.options import Message, Option, OptionError
from bert.pretraining.heads import pretraining_model
from bert.weights.checkpoint import Stored, weight_files
from bert.weights.folder import ModelFolder
from bert.weights.options import ARCHITECTURES, FINE_TUNED
from bert.weights.saving import save_tensors

# An architecture with more heads comes before one that would pass over some of them.
_ARCHITECTURES = ("BertForPreTraining", *FINE_TUNED.values(), "BertModel")


def make_model(
    architecture: str,
    config: "modeling.BertConfig | str | os.PathLike[str]",
    num_outputs: int | None = None,
) -> keras.Model:
    """Returns a Keras model of an architecture, to be trained with `fit`.

    Args:
      architecture: One of `bert.weights.options.ARCHITECTURES`.
      config: The shape of the encoder; or the folder or name of a model whose weights the new model
        takes. A head that it lacks starts at random.
      num_outputs: The outputs of a classifier or tagger; by default those of the folder, or else 2.

    Raises:
      ValueError: where there is no such architecture, or the weights do not fit the model.
    """
    if architecture not in ARCHITECTURES:
        near = difflib.get_close_matches(architecture.removeprefix("TF"), ARCHITECTURES, n=1)
        remedy = f"Did you mean {near[0]!r}?" if near else ""
        raise OptionError("architecture", f"be one of {list(ARCHITECTURES)}", architecture, remedy)
    if not isinstance(config, modeling.BertConfig):
        folder = ModelFolder.open(os.fspath(config))
        num_outputs = num_outputs or folder.stored.shapes.get("output_weights", [2])[0]
        with blank_variables() as blank:
            model = make_model(architecture, folder.config, num_outputs)
        blank.fill(but=folder.stored.assign(model.weights))
        return model
    num_outputs = num_outputs or 2
    if architecture == "BertModel":
        inputs = modeling.encoder_inputs()
        encoded = modeling.BertModel(config)(inputs)
        names = ("sequence_output", "pooled_output")
        return keras.Model(inputs, {name: encoded[name] for name in names})
    makers: dict[str, Callable[[], keras.Model]] = {
        "BertForSequenceClassification": lambda: classifier_model(config, num_outputs),
        "BertForTokenClassification": lambda: tagging_model(config, num_outputs),
        "BertForQuestionAnswering": lambda: span_model(config),
        "BertForMultipleChoice": lambda: choice_model(config),
    }
    return makers.get(architecture, lambda: pretraining_model(config))()


def find(path: str) -> str | None:
    """Returns the file of Keras weights that a path names, or the only weights in a folder."""
    if path.endswith(KERAS_ENDING):
        return path if is_file(path) and not _is_of_others(path) else None
    file = os.path.join(path, KERAS_FILE)
    return file if is_file(file) and not weight_files(path) else None


def _is_of_others(file: str) -> bool:
    """Returns whether a library wrote a file of weights; its names are enough to read it."""
    try:
        with h5py.File(file) as opened:
            layers = opened.get("layers", {})
            return "bert_backbone" in layers or "reversible_embedding" in layers
    except OSError:
        return False


def open_folder(file: str, architecture: str | None, **given: Any) -> ModelFolder:
    """Returns the folder of a file of weights, which become a checkpoint elsewhere.

    Args:
      file: The weights.
      architecture: One of `ARCHITECTURES`; None for the first that fits.
      **given: Keyword arguments of `ModelFolder`.

    Raises:
      ValueError: where the weights fit no known model.
    """
    path = os.path.dirname(file) or "."
    folder = ModelFolder(path, "input", **given)
    model = _load(file, folder, architecture)
    temporary = tempfile.TemporaryDirectory(prefix="bert-keras-")
    prefix = os.path.join(temporary.name, WEIGHTS)
    save_tensors(prefix, {variable.path: variable.numpy() for variable in model.weights})
    folder = ModelFolder(path, "input", Stored(prefix, "input", file), **given)
    weakref.finalize(folder, temporary.cleanup)
    folder.check_casing()
    return folder


def _load(file: str, folder: ModelFolder, architecture: str | None) -> keras.Model:
    """Returns the first model all of whose variables the file has, with their values."""
    architecture = architecture or FINE_TUNED.get(folder.task.get("kind", ""))
    num_outputs = _num_outputs(file)
    problem = ""
    for candidate in (architecture,) if architecture else _ARCHITECTURES:
        model = make_model(candidate, folder.config, num_outputs)
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
        is_head = not name.startswith(("layers/bert_model/", "optimizer/"))
        if is_head and len(getattr(item, "shape", ())) == 1:
            sizes.append(item.shape[0])

    try:
        with h5py.File(file) as opened:
            opened.visititems(look)
    except OSError as error:
        remedy = f"{file!r} cannot be read: {error}."
        raise OptionError("input", "be a whole file of Keras weights", remedy=remedy) from error
    return sizes[-1]


def find_difference(one: keras.Model, other: keras.Model, config: modeling.BertConfig) -> float:
    """Returns how far outputs of two models are apart at most on the same random input.

    Where one of them is not a number, neither is the difference.

    Args:
      one: A functional model whose inputs and outputs are dictionaries.
      other: Another of the same inputs and outputs.
      config: The shape of their encoders.
    """
    inputs = random_inputs(config, one)
    ours, others = (model(inputs, training=False) for model in (one, other))
    # `max` of Python would pass over what is not a number, unless it came first.
    return float(np.max([np.abs(ours[name] - others[name]).max() for name in ours]))


def random_inputs(config: modeling.BertConfig, model: keras.Model) -> dict[str, np.ndarray]:
    """Returns two rows of random ids, the second one with padding."""
    rng = np.random.RandomState(0)
    length = min(16, config.max_position_embeddings)
    mask = np.arange(length) < np.array([[length], [(length + 1) // 2]])
    inputs = {
        "input_ids": rng.randint(0, config.vocab_size, (2, length)),
        "input_mask": mask,
        "segment_ids": rng.randint(0, min(config.type_vocab_size, 2), (2, length)),
    }
    if "masked_lm_positions" in model.input:
        inputs["masked_lm_positions"] = np.array([[0], [length // 2 - 1]]).clip(0)
    inputs = {name: values.astype(np.int32) for name, values in inputs.items()}
    if len(model.input["input_ids"].shape) == 3:
        return {name: values[None] for name, values in inputs.items()}
    return inputs
