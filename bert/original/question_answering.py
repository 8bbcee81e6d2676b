"""Batches and models of the original's run_squad.py; `bert.original.squad` has what is of text.

They keep the original's arguments and results, and are there for code written for it, which finds
them as `run_squad.<name>`.
"""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

import modeling
from bert.network.heads import OutputLayer, span_model, span_objective
from bert.original import graph, input_fn, model_fn
from bert.training.objective import Objective

Tensor = Any

_ENCODER_INPUTS = ("input_ids", "input_mask", "segment_ids")
_ENDS = ("start_positions", "end_positions")


def create_model(
    bert_config: modeling.BertConfig,
    is_training: bool,
    input_ids: Tensor,
    input_mask: Tensor,
    segment_ids: Tensor,
    use_one_hot_embeddings: bool,
) -> tuple[Tensor, Tensor]:
    """Returns the logits, float32 [B, S] both, of each token to begin and to end the answer.

    On `keras.Input` tensors, these are outputs for a functional model, whose variables have the
    original's names; in a graph of `tf.compat.v1`, they have variables of its scopes; on other
    tensors, they are those of fresh random weights. The same network as one model is
    `bert.network.heads.span_model`. The arguments are as in `run_classifier.create_model`.
    """
    bert = modeling.BertModel(
        bert_config, is_training, input_ids, input_mask, segment_ids, use_one_hot_embeddings
    )
    logits = graph.call_layer(
        lambda: OutputLayer(bert_config, 2, scopes=("cls", "squad"), name="span"),
        bert.get_sequence_output(),
        training=not isinstance(input_ids, keras.KerasTensor),
    )
    return logits[:, :, 0], logits[:, :, 1]


def input_fn_builder(
    input_file: str, seq_length: int, is_training: bool, drop_remainder: bool
) -> input_fn.InputFn:
    """Returns a function that opens what a `FeatureWriter` wrote as batches.

    These have `unique_ids`, int32 [B]; `input_ids`, `input_mask` and `segment_ids`, int32 [B, S];
    and in training `start_positions` and `end_positions`, int32 [B]. The arguments are as in
    `run_classifier.file_based_input_fn_builder`.
    """
    scalars = ("unique_ids", *(_ENDS if is_training else ()))
    lengths = {**dict.fromkeys(_ENCODER_INPUTS, seq_length), **dict.fromkeys(scalars, 1)}
    return input_fn.from_records(
        [input_file],
        {name: input_fn.integers(length, "`seq_length`") for name, length in lengths.items()},
        scalars,
        is_training=is_training,
        drop_remainder=drop_remainder,
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
    """Returns BERT for questions, that trains and predicts one batch a call.

    Its predictions are `unique_ids` [B], `start_logits` and `end_logits`, [B, S], whose rows are
    what a `RawResult` holds. The arguments are as in `run_classifier.model_fn_builder`.
    """
    del use_tpu, use_one_hot_embeddings
    ways = model_fn.Ways(targets=_targets, objective=Objective(*span_objective()), predict=_predict)
    return model_fn.build(
        lambda: span_model(bert_config),
        ways,
        init_checkpoint,
        learning_rate,
        num_train_steps,
        num_warmup_steps,
    )


def _targets(features: Mapping[str, Tensor], labels: Tensor | None) -> dict[str, Tensor]:
    del labels
    return {name: model_fn.column(features, name) for name in _ENDS}


def _predict(outputs: Mapping[str, Tensor], features: Mapping[str, Tensor]) -> dict[str, Tensor]:
    if "unique_ids" not in features:
        raise ValueError(f"`features` must have ['unique_ids']. Received {sorted(features)}.")
    return {"unique_ids": tf.convert_to_tensor(features["unique_ids"]), **outputs}
