"""Functions of the original's run_pretraining.py, with its arguments and results.

Code written for the original finds these names as `run_pretraining.<name>`; the script of today
does not need them. Variables are created as `bert.original.modeling` describes.
"""

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

import modeling
from bert.original import graph, model_fn
from bert.original.processors import ENCODER_INPUTS
from bert.pretraining import heads as pretraining_heads
from bert.training.loop import Objective
from bert.training.records import Feature

Tensor = Any


def gather_indexes(sequence_tensor: Tensor, positions: Tensor) -> Tensor:
    """Returns the vectors of [B, S, H] at the positions, int [B, P], of each row: [B·P, H]."""
    indices = ops.expand_dims(ops.cast(positions, "int32"), 2)
    rows = ops.take_along_axis(sequence_tensor, indices, axis=1)  # [B, P, H]
    return ops.reshape(rows, (-1, ops.shape(sequence_tensor)[-1]))


def get_masked_lm_output(
    bert_config: modeling.BertConfig,
    input_tensor: Tensor,
    output_weights: Tensor,
    positions: Tensor,
    label_ids: Tensor,
    label_weights: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the loss and the outputs of the masked-LM head under "cls/predictions".

    Args:
      bert_config: The shape of the model.
      input_tensor: `get_sequence_output()`, [B, S, H].
      output_weights: `get_embedding_table()`, [V, H].
      positions: int [B, P].
      label_ids: int [B, P].
      label_weights: float [B, P], 0 for padding.

    Returns:
      The mean loss over the masked tokens, []; the loss of each token, [B·P]; and the logarithms
      of the probabilities, [B·P, V].
    """
    gathered = gather_indexes(input_tensor, positions)
    with _scope("cls"):
        logits = graph.call_layer(
            lambda: pretraining_heads.MaskedLanguageModel(bert_config, name="predictions"),
            ops.expand_dims(gathered, 0),
            output_weights,
            initializer_range=bert_config.initializer_range,
        )
    log_probs = ops.log_softmax(ops.reshape(logits, (-1, bert_config.vocab_size)))
    per_example_loss = _cross_entropy(log_probs, label_ids)
    weights = ops.cast(ops.reshape(label_weights, (-1,)), "float32")
    # Faithful: the original guards a batch without masked tokens by 1e-5.
    loss = ops.sum(weights * per_example_loss) / (ops.sum(weights) + 1e-5)
    return loss, per_example_loss, log_probs


def get_next_sentence_output(
    bert_config: modeling.BertConfig, input_tensor: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the loss and the outputs of the next-sentence head under "cls/seq_relationship".

    Args:
      bert_config: The shape of the model.
      input_tensor: `get_pooled_output()`, [B, H].
      labels: int [B] or [B, 1], 0 where segment B follows A.

    Returns:
      The mean loss, []; the loss of each pair, [B]; and the logarithms of the probabilities,
      [B, 2].
    """
    with _scope("cls"):
        logits = graph.call_layer(
            lambda: pretraining_heads.NextSentence(bert_config, name="seq_relationship"),
            input_tensor,
            initializer_range=bert_config.initializer_range,
        )
    log_probs = ops.log_softmax(logits)
    per_example_loss = _cross_entropy(log_probs, labels)
    return ops.mean(per_example_loss), per_example_loss, log_probs


@contextlib.contextmanager
def _scope(name: str) -> Iterator[None]:
    scope = tf.compat.v1.variable_scope if graph.in_graph() else keras.name_scope
    with scope(name):
        yield


def _cross_entropy(log_probs: Tensor, labels: Tensor) -> Tensor:
    one_hot = ops.one_hot(ops.reshape(labels, (-1,)), log_probs.shape[-1], dtype="float32")
    return -ops.sum(log_probs * one_hot, axis=-1)


def decode_record(record: Tensor, name_to_features: Mapping[str, Any]) -> dict[str, Tensor]:
    """Returns the features of a record, integers as int32."""
    return model_fn.decode(record, name_to_features)


def input_fn_builder(
    input_files: Sequence[str],
    max_seq_length: int,
    max_predictions_per_seq: int,
    is_training: bool,
    num_cpu_threads: int = 4,
) -> model_fn.InputFn:
    """Returns a function that reads the records of create_pretraining_data.py in full batches.

    Args:
      input_files: Paths.
      max_seq_length: S, with which the records were written.
      max_predictions_per_seq: P, with which the records were written.
      is_training: Whether to shuffle and repeat.
      num_cpu_threads: Ignored.
    """
    del num_cpu_threads
    tokens = (max_seq_length, "`max_seq_length`")
    masked = (max_predictions_per_seq, "`max_predictions_per_seq`")
    features = {
        **{name: model_fn.integers(*tokens) for name in ENCODER_INPUTS},
        **{name: model_fn.integers(*masked) for name in ("masked_lm_positions", "masked_lm_ids")},
        "masked_lm_weights": Feature(*masked),
        "next_sentence_labels": model_fn.integers(1, "next-sentence prediction"),
    }
    return model_fn.from_records(
        input_files, features, (), is_training=is_training, drop_remainder=True
    )


def model_fn_builder(
    bert_config: modeling.BertConfig,
    init_checkpoint: str | None,
    learning_rate: float,
    num_train_steps: int | None,
    num_warmup_steps: int | None,
    use_tpu: bool,
    use_one_hot_embeddings: bool,
) -> model_fn.ModelFn:
    """Returns BERT with both heads, which trains and evaluates one batch a call.

    Metrics are `masked_lm_accuracy`, `masked_lm_loss`, `next_sentence_accuracy` and
    `next_sentence_loss`. The arguments are as in `run_classifier.model_fn_builder`.
    """
    del use_tpu, use_one_hot_embeddings
    ways = model_fn.Ways(
        targets=_targets,
        objective=Objective(pretraining_heads.loss_weights, pretraining_heads.losses),
        evaluate=_evaluate,
    )
    make_model = functools.partial(pretraining_heads.pretraining_model, bert_config)
    schedule = (learning_rate, num_train_steps, num_warmup_steps)
    return model_fn.build(make_model, ways, init_checkpoint, *schedule)


def _targets(features: Mapping[str, Tensor], labels: Tensor | None) -> dict[str, Tensor]:
    del labels
    model_fn.check_features(features, ("masked_lm_ids", "masked_lm_weights"))
    return {
        "masked_lm_ids": np.asarray(features["masked_lm_ids"], np.int32),
        "masked_lm_weights": np.asarray(features["masked_lm_weights"], np.float32),
        "next_sentence_labels": model_fn.column(features, "next_sentence_labels"),
    }


def _evaluate(
    outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]
) -> tuple[Tensor, model_fn.Metrics]:
    sums = pretraining_heads.metrics(outputs, batch)
    means = {
        name: (tf.math.divide_no_nan(total, weight), weight)
        for name, (total, weight) in sums.items()
    }
    losses = pretraining_heads.losses(outputs, batch, pretraining_heads.loss_weights(batch))
    return sum(losses.values()), means
