"""Batches and models of the original's run_classifier.py and run_classifier_with_tfhub.py.

Arguments and results are the original's. Code written for it finds these names as
`run_classifier.<name>`; those about examples are in `bert.original.processors`.
"""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

import modeling
from bert.network.heads import (
    HEAD_DROPOUT_PROB,
    OutputLayer,
    classification_objective,
    classifier_model,
)
from bert.original import graph, model_fn
from bert.original.processors import ENCODER_INPUTS, InputFeatures
from bert.training.loop import Objective
from bert.weights import tf_hub
from bert.weights.checkpoint import Stored

Tensor = Any


_SCALARS = ("label_ids", "is_real_example")


def file_based_input_fn_builder(
    input_file: str, seq_length: int, is_training: bool, drop_remainder: bool
) -> model_fn.InputFn:
    """Returns a function that reads the records of a file in batches.

    The function takes a mapping with `batch_size`, B, and returns a dataset of dictionaries:
    `input_ids`, `input_mask` and `segment_ids`, int32 [B, S]; `label_ids` and `is_real_example`,
    int32 [B]. In training the dataset repeats forever, each epoch in another order; elsewhere it
    has all records once, in order.

    Args:
      input_file: A file of `file_based_convert_examples_to_features`.
      seq_length: S, the `max_seq_length` of the records.
      is_training: Whether to shuffle and repeat.
      drop_remainder: Whether to leave out a last batch that is smaller.

    Raises:
      ValueError: by the function, where the file does not hold such records.
    """
    return model_fn.from_inputs(input_file, seq_length, _SCALARS, is_training, drop_remainder)


def input_fn_builder(
    features: Sequence[InputFeatures], seq_length: int, is_training: bool, drop_remainder: bool
) -> model_fn.InputFn:
    """Returns a function that returns features in batches, as `file_based_input_fn_builder` does.

    Raises:
      ValueError: where there are none, or one is not of `seq_length`.
    """
    arrays = model_fn.stack_inputs(features, ENCODER_INPUTS, seq_length)
    arrays["label_ids"] = np.array([example.label_id for example in features], np.int32)
    # Departs: the original leaves this out here, so that padding would count as examples.
    is_real = [getattr(example, "is_real_example", True) for example in features]
    arrays["is_real_example"] = np.array(is_real, np.int32)
    return model_fn.from_arrays(arrays, is_training=is_training, drop_remainder=drop_remainder)


def create_model(  # noqa: PLR0913, PLR0917 (the original's arguments)
    bert_config: modeling.BertConfig,
    is_training: bool,
    input_ids: Tensor,
    input_mask: Tensor,
    segment_ids: Tensor,
    labels: Tensor | None,
    num_labels: int,
    use_one_hot_embeddings: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the cross entropy and the outputs of BERT with a classifier on top.

    On `keras.Input` tensors, the results are outputs for a functional model, whose variables have
    the original's names; in a graph of `tf.compat.v1`, the variables are in its scopes; on other
    tensors, the weights are fresh random ones. The same network as one model is
    `bert.network.heads.classifier_model`.

    Args:
      bert_config: The shape of the encoder.
      is_training: False for a model without dropout. On `keras.Input` tensors, dropout is applied
        where Keras trains the model.
      input_ids: int32 [B, S].
      input_mask: int32 [B, S], 1 for real tokens and 0 for padding.
      segment_ids: int32 [B, S].
      labels: int32 [B], or None for no loss.
      num_labels: C.
      use_one_hot_embeddings: Ignored; in the original it changes no number, either.

    Returns:
      The mean loss, []; the loss of each example, [B]; logits and probabilities, [B, C]. All are
      float32.
    """
    bert = modeling.BertModel(
        bert_config, is_training, input_ids, input_mask, segment_ids, use_one_hot_embeddings
    )
    return classify(bert, bert_config, is_training, input_ids, labels, num_labels)


def classify(
    bert: modeling.BertModel,
    bert_config: modeling.BertConfig,
    is_training: bool,
    input_ids: Tensor,
    labels: Tensor | None,
    num_labels: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the results of `create_model` for an encoder that was called on the inputs."""
    dropout_prob = HEAD_DROPOUT_PROB if is_training else 0.0
    logits = graph.call_layer(
        lambda: OutputLayer(bert_config, num_labels, dropout_prob, name="classifier"),
        bert.get_pooled_output(),
        # As in `BertModel`: symbolic outputs follow the phase of the model they become part of.
        training=not isinstance(input_ids, keras.KerasTensor),
    )
    probabilities = ops.softmax(logits)
    if labels is None:
        return None, None, logits, probabilities
    one_hot = ops.one_hot(ops.reshape(labels, (-1,)), num_labels, dtype="float32")
    per_example_loss = -ops.sum(one_hot * ops.log_softmax(logits), axis=-1)
    return ops.mean(per_example_loss), per_example_loss, logits, probabilities


def _targets(
    num_labels: int, features: Mapping[str, Tensor], labels: Tensor | None
) -> dict[str, Tensor]:
    """Returns `label_ids` and `is_real_example`, int32 [B, 1]."""
    label_ids = features.get("label_ids", labels)
    if label_ids is None:
        raise ValueError(
            "`features` must have `label_ids`, or `labels` be given, to train or evaluate. "
            f"Received {sorted(features)}."
        )
    label_ids = np.asarray(label_ids).reshape(-1, 1)
    if not np.isin(label_ids, range(num_labels)).all():
        raise ValueError(
            f"`label_ids` must be integers from 0, less than `num_labels`, {num_labels}. "
            f"Received {label_ids[:, 0].tolist()}."
        )
    is_real = np.asarray(features.get("is_real_example", np.ones_like(label_ids)), np.int32)
    return {"label_ids": label_ids.astype(np.int32), "is_real_example": is_real.reshape(-1, 1)}


def _evaluate(
    outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]
) -> tuple[Tensor, model_fn.Metrics]:
    """Returns the mean loss over the real examples, and `eval_accuracy` and `eval_loss`."""
    logits = outputs["logits"]
    labels = batch["label_ids"][:, 0]
    weights = tf.cast(batch["is_real_example"][:, 0], tf.float32)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    correct = tf.cast(tf.argmax(logits, axis=-1, output_type=tf.int32) == labels, tf.float32)
    loss = tf.math.divide_no_nan(tf.reduce_sum(losses * weights), tf.reduce_sum(weights))
    return loss, {"eval_accuracy": (correct, weights), "eval_loss": (losses, weights)}


def model_fn_builder(  # noqa: PLR0913, PLR0917 (the original's arguments)
    bert_config: modeling.BertConfig,
    num_labels: int,
    init_checkpoint: str | None,
    learning_rate: float,
    num_train_steps: int | None,
    num_warmup_steps: int | None,
    use_tpu: bool,
    use_one_hot_embeddings: bool,
) -> model_fn.ModelFn:
    """Returns a classifier that trains, evaluates and predicts one batch a call.

    Features are as in the dataset of an `input_fn`; `is_real_example` may be absent, and so may
    `label_ids` to predict, or where `labels` are given, int [B]. Training needs at least one real
    example. Predictions are `probabilities`, float32 [B, C].

    Args:
      bert_config: The shape of the encoder.
      num_labels: C.
      init_checkpoint: The checkpoint, as in `Stored.open`; None for random weights.
      learning_rate: Peak of the learning rate.
      num_train_steps: Step at which the rate reaches 0; None without training.
      num_warmup_steps: Length of warm-up in steps.
      use_tpu: Ignored; the model runs on TensorFlow's default device.
      use_one_hot_embeddings: Ignored; in the original it changes no number, either.
    """
    del use_tpu, use_one_hot_embeddings
    ways = model_fn.Ways(
        targets=functools.partial(_targets, num_labels),
        objective=Objective(*classification_objective("classification")),
        evaluate=_evaluate,
        predict=lambda outputs, _: {"probabilities": tf.nn.softmax(outputs["logits"])},
    )
    make_model = functools.partial(classifier_model, bert_config, num_labels)
    schedule = (learning_rate, num_train_steps, num_warmup_steps)
    return model_fn.build(make_model, ways, init_checkpoint, *schedule)


def create_hub_model(
    is_training: bool,
    input_ids: Tensor,
    input_mask: Tensor,
    segment_ids: Tensor,
    labels: Tensor | None,
    num_labels: int,
    bert_hub_module_handle: str | os.PathLike[str],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the results of `run_classifier.create_model` with the encoder of a module.

    In a graph of `tf.compat.v1`, the encoder's variables are in the scope `module`, and their
    initializers give the weights of the module.

    Raises:
      ValueError: where the folder is no such module.
    """
    module = tf_hub.Module(bert_hub_module_handle)
    inputs = (module.config, is_training, input_ids, input_mask, segment_ids)

    def get_variable(getter: Callable[..., Any], name: str, **kwargs: Any) -> Any:
        stored_name = name.removeprefix(f"{scope.name}/")
        if stored_name in module.stored.shapes:
            kwargs["initializer"] = functools.partial(_read_initial, module.stored, stored_name)
        return getter(name, **kwargs)

    if graph.in_graph():
        module.stored.check_fit(module.config)
        with tf.compat.v1.variable_scope(None, "module", custom_getter=get_variable) as scope:
            bert = modeling.BertModel(*inputs, scope="bert")
    else:
        bert = modeling.BertModel(*inputs)
        module.stored.assign(bert.weights)
    return classify(bert, module.config, is_training, input_ids, labels, num_labels)


def _read_initial(stored: Stored, name: str, shape: Sequence[int], dtype: tf.DType) -> Tensor:
    """Returns a tensor of a checkpoint, which is read when the initializer runs."""
    # The original's operation that restores a variable knows neither other names nor layouts.
    return tf.ensure_shape(tf.numpy_function(lambda: stored.read([name])[name], [], dtype), shape)
