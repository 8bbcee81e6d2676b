"""SavedModels of classifiers, which take text or features and need none of this project.

Dimension key: `B` batch, `S` sequence, `C` labels.
"""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from bert.export import saved_model
from bert.export.tokenizer import GraphTokenizer
from bert.log import logger
from bert.tasks.classification.examples import ClassificationTask
from bert.tasks.classification.long_texts import CUT_AT_ENDS, LongTexts

Tensor = Any


def export_classifier(
    folder: str,
    model: keras.Model,
    tokenizer: GraphTokenizer,
    task: ClassificationTask,
    max_seq_length: int,
    temperature: float = 1.0,
    long_texts: LongTexts = CUT_AT_ENDS,
) -> None:
    """Writes a SavedModel of a classifier with these signatures.

    `serving_default` takes `text_a`, string [B], and `text_b` for pairs; `features` takes
    `input_ids`, `input_mask` and `segment_ids`, int32 [B, S], of texts or of windows. Both give
    `logits`, float32 [B, C], and for regression `score`, float32 [B]; for the other tasks
    `probabilities`, float32 [B, C], and `label`, string [B], where several are joined with commas.
    `labels` takes nothing and gives `labels`, string [C], in the order of the probabilities, and
    `task_type`, string [1]; regression has neither.

    Args:
      folder: The folder to write; a SavedModel there is replaced.
      model: The model from `input_ids`, `input_mask` and `segment_ids` to `logits`.
      tokenizer: The tokenizer that the model was trained with, as a graph.
      task: The task, with the labels in the order of the logits.
      max_seq_length: The maximum number of tokens of an input, specials included.
      temperature: The number by which logits are divided for probabilities.
      long_texts: What `serving_default` reads of longer texts.

    Raises:
      ValueError: before anything is written, where tokenizer or length are too large for the model.
    """
    exported = saved_model.ExportedModel(model, tokenizer, max_seq_length)
    with tf.device("/CPU:0"):
        exported.labels = tf.constant(task.labels, tf.string, [len(task.labels)])
    with_comma = [label for label in task.labels if "," in label]
    if task.task_type == "multi_label" and with_comma:
        logger.warning(
            "%d labels hold a comma, which also separates the labels in `label`: %s.",
            len(with_comma),
            with_comma[:5],
        )

    def answer(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        logits = tf.cast(outputs["logits"], tf.float32)
        scaled = logits if temperature == 1.0 else logits / temperature
        return {"logits": logits, **_decode(scaled, exported.labels, task.task_type)}

    def run_texts(*texts: Tensor) -> dict[str, Tensor]:
        if long_texts == CUT_AT_ENDS:
            return exported.run_texts(*texts)
        return _run_long(exported, texts[0], long_texts)

    signatures = {
        "serving_default": saved_model.texts_function(
            lambda *texts: answer(run_texts(*texts)), is_pair=task.is_pair
        ),
        "features": saved_model.features_function(lambda features: answer(exported.run(features))),
    }
    if task.task_type != "regression":
        signatures["labels"] = saved_model.labels_function(exported.labels)
        signatures["task_type"] = tf.function(
            lambda: {"task_type": tf.constant([task.task_type])},
            input_signature=[],
            autograph=False,
        )
    saved_model.save(folder, exported, signatures)


def _run_long(
    exported: saved_model.ExportedModel, texts: Tensor, long_texts: LongTexts
) -> dict[str, Tensor]:
    """Returns the logits of texts, string [B], as `inputs` and `pool_windows` define them."""
    room = exported.max_seq_length - 2
    ids = exported.tokenizer.tokenize(texts)
    if long_texts.doc_stride is None:
        head, tail = long_texts.num_kept(room)
        parts = tf.concat([ids[:, :head], *[ids[:, head:][:, -tail:]] * (tail > 0)], 1)
        features = exported.tokenizer.pack(parts, max_seq_length=exported.max_seq_length)
        return exported.run_in_batches(features)
    with tf.device("/CPU:0"):
        spare = tf.cast(tf.maximum(ids.row_lengths() - room, 0), tf.int64)
        counts = 1 - (-spare // long_texts.doc_stride)
        if long_texts.max_windows is not None:
            counts = tf.minimum(counts, long_texts.max_windows)
        number = tf.ragged.range(counts)
        rows = number.value_rowids()
        starts = number.values * long_texts.doc_stride
        lengths = tf.cast(tf.gather(ids.row_lengths(), rows), tf.int64) - starts
        starts += tf.cast(tf.gather(ids.row_starts(), rows), tf.int64)
        parts = tf.ragged.range(starts, starts + tf.minimum(lengths, room))
        parts = parts.with_values(tf.gather(ids.values, parts.values))
        features = exported.tokenizer.pack(parts, max_seq_length=exported.max_seq_length)
    logits, num_texts = exported.run_in_batches(features)["logits"], tf.size(texts)
    if long_texts.window_pooling == "max":
        return {"logits": tf.math.unsorted_segment_max(logits, rows, num_texts)}
    sums = tf.math.unsorted_segment_sum(tf.cast(logits, tf.float64), rows, num_texts)
    return {"logits": tf.cast(sums / tf.cast(counts, tf.float64)[:, None], tf.float32)}


def _decode(logits: Tensor, labels: Tensor, task_type: str) -> dict[str, Tensor]:
    """Returns the answers of logits, float32 [B, C], as `decisions.decode` does."""
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
