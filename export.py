"""SavedModels of fine-tuned models, which take text or features and need none of this project.

A SavedModel holds the tokenizer, the vocabulary and the labels within its graph. Whoever loads it
imports tensorflow and tensorflow_text, whose operations it uses.

Dimension key: `B` batch, `S` sequence, `C` labels.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
from absl import logging

import tokenization
from bert.files.paths import is_remote
from graph_tokenizer import GraphTokenizer

Tensor = Any

TASK_TYPES = ("classification", "multi_label", "regression")
FEATURES = ("input_ids", "input_mask", "segment_ids")

# Sequences that go through the model together where there may be any number of them.
BATCH_SIZE = 32

# Without this file, a folder is none of ours to replace.
_GRAPH_FILE = "saved_model.pb"


def check_folder(folder: str) -> str:
    """Returns the place of `folder`, links followed, if a SavedModel may be written there.

    Raises:
      ValueError: where there is something else than a SavedModel.
    """
    place = folder if is_remote(folder) else os.path.realpath(folder)
    place = place.rstrip("/")
    if tf.io.gfile.exists(place) and not tf.io.gfile.exists(os.path.join(place, _GRAPH_FILE)):
        if tf.io.gfile.isdir(place) and not tf.io.gfile.listdir(place):
            return place
        raise ValueError(
            f"A SavedModel must be written to a new folder, or replace another SavedModel. "
            f"Received {folder!r}, which holds no {_GRAPH_FILE!r}. Give another folder, or remove "
            "that one."
        )
    return place


def save(folder: str, module: tf.Module, signatures: Mapping[str, Any]) -> None:
    """Writes a SavedModel, which appears at `folder` only when whole.

    It takes the place of a SavedModel that is there already. A folder cannot be replaced in one
    step, so for a moment there is none; a process that is killed then leaves both beside, under
    the names `<folder>.old` and `<folder>.partial`.

    Args:
      folder: Any path that `tf.io.gfile` writes.
      module: What tracks the variables that the signatures use.
      signatures: `tf.function`s with an input signature, by name.

    Raises:
      ValueError: where `folder` is something else than a SavedModel.
    """
    place = check_folder(folder)
    partial, old = f"{place}.partial", f"{place}.old"
    _remove(partial)
    try:
        tf.saved_model.save(
            module,
            partial,
            {name: function.get_concrete_function() for name, function in signatures.items()},
        )
        _exchange(partial, place, old)
    except BaseException:
        _remove(partial)
        raise
    _remove(old)


def _exchange(partial: str, place: str, old: str) -> None:
    """Renames `partial` to `place` and what is there to `old`; or nothing, if it fails."""
    if not tf.io.gfile.exists(place):
        tf.io.gfile.rename(partial, place)
        return
    _remove(old)
    tf.io.gfile.rename(place, old)
    try:
        tf.io.gfile.rename(partial, place)
    except BaseException:
        tf.io.gfile.rename(old, place)
        raise


def _remove(folder: str) -> None:
    if tf.io.gfile.exists(folder):
        tf.io.gfile.rmtree(folder)


class ExportedModel(tf.Module):
    """A functional model and its tokenizer, as a SavedModel needs them: nothing of Keras is kept.

    Args:
      model: From a dictionary, int32 [..., S] each, to a dictionary of outputs. Its inputs are
        `FEATURES`, or others, too, which whoever calls `run` then gives.
      tokenizer: Whose vocabulary and casing the model was trained with.
      max_seq_length: Where texts are cut, in tokens, with specials.
    """

    def __init__(
        self, model: keras.Model, tokenizer: tokenization.FullTokenizer, max_seq_length: int
    ) -> None:
        super().__init__()
        _check_table(model, "position_embeddings", max_seq_length, "`max_seq_length`")
        largest = max(tokenizer.vocab.values())
        _check_table(model, "word_embeddings", largest + 1, "The size of the vocabulary")
        # Only variables are tracked: a model would bring its optimizer along.
        self.weights = [weight.value for weight in model.weights]
        self.tokenizer = GraphTokenizer(tokenizer)
        self.max_seq_length = max_seq_length
        self.inputs = tuple(model.input)
        self._call = lambda features: model(features, training=False)
        self._outputs = dict(model.output)

    def run(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the model's outputs."""
        return self._call({name: features[name] for name in self.inputs})

    def run_in_batches(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns what `run` does, of `BATCH_SIZE` rows at a time: the memory needed is bounded."""
        count = tf.shape(features["input_ids"])[0]

        def run(first: Tensor) -> dict[str, Tensor]:
            return self.run({n: each[first : first + BATCH_SIZE] for n, each in features.items()})

        # The model sees an empty batch where there is nothing, to give its outputs their shape.
        firsts = tf.range(0, tf.maximum(count, 1), BATCH_SIZE)
        specs = {
            name: tf.RaggedTensorSpec([None, *each.shape[1:]], tf.float32, ragged_rank=0)
            for name, each in self._outputs.items()
        }
        outputs = tf.map_fn(run, firsts, fn_output_signature=specs, parallel_iterations=1)
        return {name: each.values for name, each in outputs.items()}

    def run_texts(self, *texts: Tensor) -> dict[str, Tensor]:
        """Returns the model's outputs for texts, string [B], or for pairs of texts."""
        count = tf.size(texts[0])
        for other in texts[1:]:
            tf.debugging.assert_equal(
                tf.size(other), count, "`text_a` and `text_b` must be equally many."
            )
        # All at once, since small batches take hardly less time than large ones.
        ids = self.tokenizer.tokenize(tf.concat(texts, 0))
        each = [ids[:count], ids[count:]][: len(texts)]
        features = self.tokenizer.pack(*each, max_seq_length=self.max_seq_length)
        return self.run(features)


def _check_table(model: keras.Model, name: str, size: int, what: str) -> None:
    """Checks that the model's table of that name has rows enough."""
    for weight in model.weights:
        if weight.path.endswith(f"/{name}") and weight.shape[0] < size:
            raise ValueError(
                f"{what} must be at most {weight.shape[0]}, the rows of `{weight.path}`. Received "
                f"{size}."
            )


def features_function(
    run: Callable[[Mapping[str, Tensor]], dict[str, Tensor]],
    *,
    rank: int = 2,
    names: Sequence[str] = FEATURES,
) -> Any:
    """Returns the signature that takes a model's inputs: int32 [B, S], or [B, E, S] of rank 3."""

    def features(*tensors: Tensor) -> dict[str, Tensor]:
        return run(dict(zip(names, tensors, strict=True)))

    specs = [tf.TensorSpec([None] * rank, tf.int32, name=name) for name in names]
    return tf.function(features, input_signature=specs, autograph=False)


def texts_function(run: Callable[..., dict[str, Tensor]], *, is_pair: bool) -> Any:
    """Returns the signature that takes `text_a`, string [B], and for pairs `text_b`."""

    def single(text_a: Tensor) -> dict[str, Tensor]:
        return run(text_a)

    def pair(text_a: Tensor, text_b: Tensor) -> dict[str, Tensor]:
        return run(text_a, text_b)

    names = ["text_a", "text_b"] if is_pair else ["text_a"]
    specs = [tf.TensorSpec([None], tf.string, name=name) for name in names]
    return tf.function(pair if is_pair else single, input_signature=specs, autograph=False)


def export_classifier(
    folder: str,
    model: keras.Model,
    tokenizer: tokenization.FullTokenizer,
    *,
    labels: Sequence[str],
    task_type: str,
    is_pair: bool,
    max_seq_length: int,
) -> None:
    """Writes a SavedModel of a classifier with these signatures.

    `serving_default` takes `text_a`, string [B], and `text_b` for pairs; `features` takes
    `input_ids`, `input_mask` and `segment_ids`, int32 [B, S]. Both give `logits`, float32 [B, C],
    and for regression `score`, float32 [B]; for the other tasks `probabilities`, float32 [B, C],
    and `label`, string [B], where several are joined with commas. `labels` takes nothing and gives
    `labels`, string [C], in the order of the probabilities; regression has none.

    Args:
      folder: Where to write; a SavedModel that is there already is replaced.
      model: From `input_ids`, `input_mask` and `segment_ids` to `logits`.
      tokenizer: Whose vocabulary and casing the model was trained with.
      labels: In the order of the logits; none for regression.
      task_type: One of `TASK_TYPES`.
      is_pair: For tasks of two texts.
      max_seq_length: Where texts are cut, in tokens, with specials.

    Raises:
      ValueError: before anything is written, where these do not fit together.
    """
    check_folder(folder)
    _check_labels(model, labels, task_type)
    exported = ExportedModel(model, tokenizer, max_seq_length)
    with tf.device("/CPU:0"):
        exported.labels = tf.constant(list(labels), tf.string)

    def answer(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        logits = tf.cast(outputs["logits"], tf.float32)
        return {"logits": logits, **_decode(logits, exported.labels, task_type)}

    signatures = {
        "serving_default": texts_function(
            lambda *texts: answer(exported.run_texts(*texts)), is_pair=is_pair
        ),
        "features": features_function(lambda features: answer(exported.run(features))),
    }
    if task_type != "regression":
        signatures["labels"] = tf.function(
            lambda: {"labels": tf.identity(exported.labels)}, input_signature=[], autograph=False
        )
    save(folder, exported, signatures)
    logging.info("Wrote a SavedModel with the signatures %s: %s", sorted(signatures), folder)


def _check_labels(model: keras.Model, labels: Sequence[str], task_type: str) -> None:
    if task_type not in TASK_TYPES:
        raise ValueError(f"`task_type` must be one of {TASK_TYPES}. Received {task_type!r}.")
    count = model.output["logits"].shape[-1]
    is_regression = task_type == "regression"
    if len(labels) != (0 if is_regression else count) or (is_regression and count != 1):
        raise ValueError(
            f"`labels` must name each of the model's {count} outputs; for regression there must be "
            f"none, and one output. Received {list(labels)} for {task_type}."
        )
    with_comma = [label for label in labels if "," in label]
    if task_type == "multi_label" and with_comma:
        logging.warning(
            "%d labels hold a comma, which also stands between several labels in `label`: %s.",
            len(with_comma),
            with_comma[:5],
        )


def _decode(logits: Tensor, labels: Tensor, task_type: str) -> dict[str, Tensor]:
    """Returns what logits, float32 [B, C], say, as `classification.decode` reads them."""
    if task_type == "regression":
        return {"score": logits[:, 0]}
    if task_type == "classification":
        with tf.device("/CPU:0"):
            label = tf.gather(labels, tf.argmax(logits, axis=-1))
        return {"probabilities": tf.nn.softmax(logits), "label": label}
    with tf.device("/CPU:0"):
        chosen = tf.ragged.boolean_mask(tf.broadcast_to(labels, tf.shape(logits)), logits > 0)
        label = tf.strings.reduce_join(chosen, axis=-1, separator=",")
    return {"probabilities": tf.sigmoid(logits), "label": label}
