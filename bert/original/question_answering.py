"""Batches and models of the original's run_squad.py, with its arguments and results.

Code written for the original finds these names as `run_squad.<name>`; those about texts are in
`bert.original.squad`.
"""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

import modeling
from bert.network.heads import OutputLayer, span_model, span_objective
from bert.original import graph, model_fn
from bert.training.loop import Objective

Tensor = Any

_ENDS = ("start_positions", "end_positions")


def create_model(
    bert_config: modeling.BertConfig,
    is_training: bool,
    input_ids: Tensor,
    input_mask: Tensor,
    segment_ids: Tensor,
    use_one_hot_embeddings: bool,
) -> tuple[Tensor, Tensor]:
    """Returns the logits of each token as the start and as the end of the answer, float32 [B, S].

    Arguments and variables are as in `run_classifier.create_model`. The same network as one model
    is `bert.network.heads.span_model`.
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
) -> model_fn.InputFn:
    """Returns a function that reads the records of a `FeatureWriter` in batches.

    Batches have `unique_ids`, int32 [B]; `input_ids`, `input_mask` and `segment_ids`, int32 [B, S];
    and in training `start_positions` and `end_positions`, int32 [B]. The arguments are as in
    `run_classifier.file_based_input_fn_builder`.
    """
    scalars = ("unique_ids", *(_ENDS if is_training else ()))
    return model_fn.from_inputs(input_file, seq_length, scalars, is_training, drop_remainder)


def model_fn_builder(
    bert_config: modeling.BertConfig,
    init_checkpoint: str | None,
    learning_rate: float,
    num_train_steps: int | None,
    num_warmup_steps: int | None,
    use_tpu: bool,
    use_one_hot_embeddings: bool,
) -> model_fn.ModelFn:
    """Returns BERT for question answering, which trains and predicts one batch a call.

    Predictions are `unique_ids` [B], `start_logits` and `end_logits`, [B, S]; a `RawResult` holds
    a row of each. The arguments are as in `run_classifier.model_fn_builder`.
    """
    del use_tpu, use_one_hot_embeddings
    ways = model_fn.Ways(targets=_targets, objective=Objective(*span_objective()), predict=_predict)
    schedule = (learning_rate, num_train_steps, num_warmup_steps)
    return model_fn.build(lambda: span_model(bert_config), ways, init_checkpoint, *schedule)


def _targets(features: Mapping[str, Tensor], labels: Tensor | None) -> dict[str, Tensor]:
    del labels
    return {name: model_fn.column(features, name) for name in _ENDS}


def _predict(outputs: Mapping[str, Tensor], features: Mapping[str, Tensor]) -> dict[str, Tensor]:
    model_fn.check_features(features, ["unique_ids"])
    return {"unique_ids": tf.convert_to_tensor(features["unique_ids"]), **outputs}
