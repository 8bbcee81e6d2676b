"""Keras models by their architecture, and inputs for them."""

import difflib
import os
from collections.abc import Callable

import keras
import numpy as np

import modeling
from bert.network.blank import blank_variables
from bert.network.heads import choice_model, classifier_model, span_model, tagging_model
from bert.options import OptionError, typed_value
from bert.pretraining.heads import pretraining_model
from bert.weights.folder import ModelFolder
from bert.weights.options import ARCHITECTURES


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
    architecture = typed_value("architecture", architecture, str)
    if num_outputs is not None:
        num_outputs = typed_value("num_outputs", num_outputs, int, lower_bound=1)
    if architecture not in ARCHITECTURES:
        near = difflib.get_close_matches(architecture.removeprefix("TF"), ARCHITECTURES, n=1)
        remedy = f"Did you mean {near[0]!r}?" if near else ""
        raise OptionError("architecture", f"be one of {list(ARCHITECTURES)}", architecture, remedy)
    if not isinstance(config, modeling.BertConfig):
        folder = ModelFolder.open(typed_value("config", config, str))
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
