"""SavedModels of classifiers, which take text or features and need none of this project.

Dimension key: `B` batch, `S` sequence, `C` labels.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

import tokenization
from bert.export import saved_model
from bert.files.outputs import check_saved_model
from bert.log import logger

Tensor = Any

TASK_TYPES = ("classification", "multi_label", "regression")


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
      folder: The folder to write; a SavedModel there is replaced.
      model: The model from `input_ids`, `input_mask` and `segment_ids` to `logits`.
      tokenizer: The tokenizer that the model was trained with.
      labels: The labels in the order of the logits; empty for regression.
      task_type: One of `TASK_TYPES`.
      is_pair: Whether the task has two texts.
      max_seq_length: The maximum number of tokens of an input, specials included.

    Raises:
      ValueError: before anything is written, where labels and model do not fit together.
    """
    check_saved_model(folder)
    _check_labels(model, labels, task_type)
    exported = saved_model.ExportedModel(model, tokenizer, max_seq_length)
    with tf.device("/CPU:0"):
        exported.labels = tf.constant(list(labels), tf.string)

    def answer(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        logits = tf.cast(outputs["logits"], tf.float32)
        return {"logits": logits, **_decode(logits, exported.labels, task_type)}

    signatures = {
        "serving_default": saved_model.texts_function(
            lambda *texts: answer(exported.run_texts(*texts)), is_pair=is_pair
        ),
        "features": saved_model.features_function(lambda features: answer(exported.run(features))),
    }
    if task_type != "regression":
        signatures["labels"] = saved_model.labels_function(exported.labels)
    saved_model.save(folder, exported, signatures)


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
        logger.warning(
            "%d labels hold a comma, which also stands between several labels in `label`: %s.",
            len(with_comma),
            with_comma[:5],
        )


def _decode(logits: Tensor, labels: Tensor, task_type: str) -> dict[str, Tensor]:
    """Returns the answers of logits, float32 [B, C], as `results.decode` does."""
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
