"""The names of the original's run_classifier.py that the script of today does not need.

They keep the original's arguments and results, and are there for code written for it, which finds
them as `run_classifier.<name>`. Those about examples are in `bert.original.processors`; here are
batches and models.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging
from keras import ops

import modeling
import optimization
from bert.files.paths import is_file
from bert.original import processors as original_processors
from bert.tasks.heads import (
    HEAD_DROPOUT_PROB,
    OutputLayer,
    classification_objective,
    classifier_model,
)
from bert.training import loop
from bert.training.batches import Feature, Records
from bert.weights.checkpoint import Stored

Tensor = Any
InputFn = Callable[[Mapping[str, Any]], tf.data.Dataset]

InputExample = original_processors.InputExample
PaddingInputExample = original_processors.PaddingInputExample
InputFeatures = original_processors.InputFeatures
DataProcessor = original_processors.DataProcessor
ColaProcessor = original_processors.ColaProcessor
MnliProcessor = original_processors.MnliProcessor
MrpcProcessor = original_processors.MrpcProcessor
XnliProcessor = original_processors.XnliProcessor
convert_single_example = original_processors.convert_single_example
convert_examples_to_features = original_processors.convert_examples_to_features
file_based_convert_examples_to_features = (
    original_processors.file_based_convert_examples_to_features
)

_ENCODER_INPUTS = original_processors.ENCODER_INPUTS

# The original's tf.estimator.ModeKeys: TRAIN, EVAL and PREDICT.
_MODES = ("train", "eval", "infer")


def file_based_input_fn_builder(
    input_file: str, seq_length: int, is_training: bool, drop_remainder: bool
) -> InputFn:
    """Returns a function that opens the records of a file as batches.

    The function takes a mapping with `batch_size`, B, and returns a dataset of dictionaries:
    `input_ids`, `input_mask` and `segment_ids`, int32 [B, S]; `label_ids` and `is_real_example`,
    int32 [B]. In training it goes on for ever, each epoch in an order of its own; elsewhere it
    gives all records once, in order.

    Args:
      input_file: What `file_based_convert_examples_to_features` wrote.
      seq_length: S, the `max_seq_length` that it was written with.
      is_training: Whether to shuffle and repeat.
      drop_remainder: Whether to leave out a last batch that is smaller.

    Raises:
      ValueError: by the function, where the file does not hold such records.
    """

    def input_fn(params: Mapping[str, Any]) -> tf.data.Dataset:
        batch_size = _batch_size(params)
        if not is_file(input_file):
            raise ValueError(f"`input_file` must exist. Received {input_file!r}.")
        records = Records([input_file])
        lengths = {**dict.fromkeys(_ENCODER_INPUTS, seq_length), "label_ids": 1}
        lengths["is_real_example"] = 1
        int32 = (1 << 31, "int32")
        records.check_first(
            {name: Feature(length, "`seq_length`", *int32) for name, length in lengths.items()}
        )
        parsed = {
            name: tf.io.FixedLenFeature([] if length == 1 else [length], tf.int64)
            for name, length in lengths.items()
        }

        def parse(serialized: Tensor) -> dict[str, Tensor]:
            features = tf.io.parse_example(serialized, parsed)
            return {name: tf.cast(values, tf.int32) for name, values in features.items()}

        dataset = tf.data.TFRecordDataset(input_file)
        batches = _batches(dataset, len(records), batch_size, is_training, drop_remainder)
        return batches.map(parse).prefetch(tf.data.AUTOTUNE)

    return input_fn


def input_fn_builder(
    features: Sequence[InputFeatures], seq_length: int, is_training: bool, drop_remainder: bool
) -> InputFn:
    """Returns a function that gives features as batches, as `file_based_input_fn_builder` does.

    Raises:
      ValueError: where there are none, or one is not of `seq_length`.
    """
    if not len(features):
        raise ValueError("`features` must hold at least one example. Received none.")
    for number, each in enumerate(features):
        lengths = {name: len(getattr(each, name)) for name in _ENCODER_INPUTS}
        if set(lengths.values()) != {seq_length}:
            raise ValueError(
                f"`features` must have `seq_length` = {seq_length} values each. Received "
                f"{lengths} for example {number}, counted from 0."
            )
    arrays = {
        name: np.array([getattr(each, name) for each in features], np.int32)
        for name in _ENCODER_INPUTS
    }
    arrays["label_ids"] = np.array([each.label_id for each in features], np.int32)
    # Departs: the original leaves this out here, so that padding would count as examples.
    arrays["is_real_example"] = np.array([each.is_real_example for each in features], np.int32)

    def input_fn(params: Mapping[str, Any]) -> tf.data.Dataset:
        dataset = tf.data.Dataset.from_tensor_slices(arrays)
        count = len(arrays["label_ids"])
        return _batches(dataset, count, _batch_size(params), is_training, drop_remainder)

    return input_fn


def _batch_size(params: Mapping[str, Any]) -> int:
    batch_size = params.get("batch_size")
    if not isinstance(batch_size, int | np.integer) or batch_size < 1:
        raise ValueError(f'`params["batch_size"]` must be at least 1. Received {batch_size!r}.')
    return int(batch_size)


def _batches(
    dataset: tf.data.Dataset, count: int, batch_size: int, is_training: bool, drop_remainder: bool
) -> tf.data.Dataset:
    if is_training:
        # Departs: the original repeats first and then shuffles 100 examples at a time, so that
        # epochs mix and what is sorted by label stays nearly so.
        dataset = dataset.shuffle(count).repeat()
    elif drop_remainder and count % batch_size:
        logging.warning(
            "`drop_remainder` leaves out %d of %d examples, which do not fill a batch of %d.",
            count % batch_size,
            count,
            batch_size,
        )
    return dataset.batch(batch_size, drop_remainder=drop_remainder)


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
    """Returns what BERT with a classifier on top gives, and its cross entropy.

    On `keras.Input` tensors, these are outputs for a functional model, whose variables have the
    original's names; on other tensors, they are those of fresh random weights. The same network as
    one model is `bert.tasks.heads.classifier_model`.

    Args:
      bert_config: The shape of the encoder.
      is_training: False for a model without dropout. On `keras.Input` tensors, a model with dropout
        drops out where Keras trains it.
      input_ids: int32 [B, S].
      input_mask: int32 [B, S], 1 for real tokens and 0 for padding.
      segment_ids: int32 [B, S].
      labels: int32 [B], or None where they are not known; there is no loss then.
      num_labels: C.
      use_one_hot_embeddings: Without effect; in the original it changes no number, either.

    Returns:
      The mean loss, []; the loss of each example, [B]; logits and probabilities, [B, C]. All are
      float32.
    """
    bert = modeling.BertModel(
        bert_config, is_training, input_ids, input_mask, segment_ids, use_one_hot_embeddings
    )
    dropout_prob = HEAD_DROPOUT_PROB if is_training else 0.0
    head = OutputLayer(bert_config, num_labels, dropout_prob, name="classifier")
    # As in `BertModel`: symbolic outputs follow the phase of the model that they become part of.
    eager = not isinstance(input_ids, keras.KerasTensor)
    logits = head(bert.get_pooled_output(), training=eager)
    probabilities = ops.softmax(logits)
    if labels is None:
        return None, None, logits, probabilities
    one_hot = ops.one_hot(ops.reshape(labels, (-1,)), num_labels, dtype="float32")
    per_example_loss = -ops.sum(one_hot * ops.log_softmax(logits), axis=-1)
    return ops.mean(per_example_loss), per_example_loss, logits, probabilities


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierSpec:
    """What a `ClassifierFn` gives for a batch; None where the mode does not ask for it.

    Attributes:
      mode: "train", "eval" or "infer".
      loss: When evaluating, the mean over the real examples, float32 [].
      predictions: When predicting, `probabilities`, float32 [B, C].
      train_op: When training, a function that takes one step on the batch and returns the loss
        before it.
      eval_metrics: When evaluating, `eval_accuracy` and `eval_loss`: a value and a weight for each
        example, float32 [B] both, as `keras.metrics.Mean.update_state` takes them. So a mean over
        batches of several sizes is one over examples.
    """

    mode: str
    loss: Tensor | None = None
    predictions: dict[str, Tensor] | None = None
    train_op: Callable[[], float] | None = None
    eval_metrics: dict[str, tuple[Tensor, Tensor]] | None = None


class ClassifierFn:
    """A classifier as a function of a batch and a mode: what `model_fn_builder` returns.

    Args:
      model: As `bert.tasks.heads.classifier_model`.
      num_labels: C.
      make_optimizer: Called before the first training step.

    Attributes:
      model: The same model in all calls; `bert.weights.checkpoint.save_variables` stores its
        weights.
      trainer: What trains it, once a batch was given for training; else None. Its `state()` is what
        `bert.weights.checkpoint.Checkpoints` saves and restores to resume.
    """

    def __init__(
        self,
        model: keras.Model,
        num_labels: int,
        make_optimizer: Callable[[], optimization.AdamWeightDecayOptimizer],
    ) -> None:
        self.model = model
        self.trainer: loop.Trainer | None = None
        self._num_labels = num_labels
        self._make_optimizer = make_optimizer
        self._logits = tf.function(lambda inputs: model(inputs)["logits"], reduce_retracing=True)

    def __call__(
        self,
        features: Mapping[str, Tensor],
        labels: Tensor | None,
        mode: str,
        params: Mapping[str, Any] | None = None,
    ) -> ClassifierSpec:
        """Returns what the mode asks for, of one batch of eager tensors.

        Args:
          features: As `input_fn_builder`'s dataset gives them; `is_real_example` may be absent, and
            so may `label_ids` to predict.
          labels: int [B], read where `features` has no `label_ids`.
          mode: "train", "eval" or "infer".
          params: Without effect, as in the original.

        Raises:
          ValueError: where a feature is missing, a label is not below C, or nothing is real in
            training.
        """
        if mode not in _MODES:
            raise ValueError(f"`mode` must be one of {list(_MODES)}. Received {mode!r}.")
        missing = [name for name in _ENCODER_INPUTS if name not in features]
        if missing:
            raise ValueError(f"`features` must have {missing}. Received {sorted(features)}.")
        inputs = {name: tf.cast(features[name], tf.int32) for name in _ENCODER_INPUTS}
        if mode == "infer":
            return ClassifierSpec(
                mode=mode, predictions={"probabilities": tf.nn.softmax(self._logits(inputs))}
            )
        batch = {**inputs, **self._labels(features, labels)}
        return self._evaluate(batch) if mode == "eval" else self._prepare_training(batch)

    def _labels(
        self, features: Mapping[str, Tensor], labels: Tensor | None
    ) -> dict[str, np.ndarray]:
        """Returns `label_ids` and `is_real_example`, int32 [B, 1]."""
        label_ids = features.get("label_ids", labels)
        if label_ids is None:
            raise ValueError(
                "`features` must have `label_ids`, or `labels` be given, to train or evaluate. "
                f"Received {sorted(features)}."
            )
        label_ids = np.asarray(label_ids).reshape(-1, 1)
        if not np.isin(label_ids, range(self._num_labels)).all():
            raise ValueError(
                f"`label_ids` must be integers from 0, less than `num_labels`, {self._num_labels}. "
                f"Received {label_ids[:, 0].tolist()}."
            )
        is_real = np.asarray(features.get("is_real_example", np.ones_like(label_ids)), np.int32)
        return {
            "label_ids": label_ids.astype(np.int32),
            "is_real_example": is_real.reshape(-1, 1),
        }

    def _evaluate(self, batch: Mapping[str, Tensor]) -> ClassifierSpec:
        logits = self._logits({name: batch[name] for name in _ENCODER_INPUTS})
        labels = batch["label_ids"][:, 0]
        weights = tf.cast(batch["is_real_example"][:, 0], tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        correct = tf.cast(tf.argmax(logits, axis=-1, output_type=tf.int32) == labels, tf.float32)
        loss = tf.math.divide_no_nan(tf.reduce_sum(losses * weights), tf.reduce_sum(weights))
        metrics = {"eval_accuracy": (correct, weights), "eval_loss": (losses, weights)}
        return ClassifierSpec(mode="eval", loss=loss, eval_metrics=metrics)

    def _prepare_training(self, batch: Mapping[str, Tensor]) -> ClassifierSpec:
        if not np.any(batch["is_real_example"]):
            raise ValueError("A batch for training must have a real example. Received padding.")
        if self.trainer is None:
            objective = loop.Objective(*classification_objective("classification"))
            self.trainer = loop.Trainer(self.model, self._make_optimizer(), objective)
        trainer = self.trainer
        tensors = {name: tf.convert_to_tensor(values) for name, values in batch.items()}

        def train_op() -> float:
            results = trainer.train_step(tensors)
            if not np.isfinite(list(results.values())).all():
                raise loop.NonFiniteLossError(
                    f"The loss must stay finite. At step {trainer.step}: {results}. Try a smaller "
                    "`learning_rate` or more `num_warmup_steps`."
                )
            return results["loss"]

        return ClassifierSpec(mode="train", train_op=train_op)


def model_fn_builder(  # noqa: PLR0913, PLR0917 (the original's arguments)
    bert_config: modeling.BertConfig,
    num_labels: int,
    init_checkpoint: str | None,
    learning_rate: float,
    num_train_steps: int | None,
    num_warmup_steps: int | None,
    use_tpu: bool,
    use_one_hot_embeddings: bool,
) -> ClassifierFn:
    """Returns a classifier that trains, evaluates and predicts one batch a call.

    Departs: there is no tf.estimator any more to call it, so the caller has the loop:

        for batch in input_fn({"batch_size": 32}).take(num_train_steps):
            loss = model_fn(batch, None, "train").train_op()

    The model is made, and its checkpoint read, at once. All calls share its weights, and training
    steps count on. Nothing is written to files.

    Args:
      bert_config: The shape of the encoder.
      num_labels: C.
      init_checkpoint: Where weights come from, as in `Stored.open`; None for random
        ones.
      learning_rate: Peak of the learning rate.
      num_train_steps: Step at which the rate reaches 0; None where nothing is trained.
      num_warmup_steps: Length of warm-up in steps.
      use_tpu: Without effect; it runs on TensorFlow's default device.
      use_one_hot_embeddings: Without effect; in the original it changes no number, either.
    """
    del use_tpu, use_one_hot_embeddings
    model = classifier_model(bert_config, num_labels)
    if init_checkpoint:
        Stored.open(init_checkpoint).assign(model.weights)

    def make_optimizer() -> optimization.AdamWeightDecayOptimizer:
        if num_train_steps is None:
            raise ValueError("`num_train_steps` must be given to train. Received None.")
        return optimization.bert_optimizer(learning_rate, num_train_steps, num_warmup_steps)

    return ClassifierFn(model, num_labels, make_optimizer)
