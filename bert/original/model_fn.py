"""Batches and models as the original's `input_fn_builder`s and `model_fn_builder`s return them.

Departs: there is no tf.estimator any more to call them, so the caller has the loop:

    for batch in input_fn({"batch_size": 32}).take(num_train_steps):
        loss = model_fn(batch, None, "train").train_op()
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import optimization
from bert.files.paths import is_file
from bert.log import logger
from bert.original import graph
from bert.original.processors import ENCODER_INPUTS
from bert.training.loop import NonFiniteLossError, Objective
from bert.training.records import Feature, Records
from bert.training.trainer import Trainer
from bert.weights.checkpoint import Stored

Tensor = Any

InputFn = Callable[[Mapping[str, Any]], tf.data.Dataset]

_LARGEST = 1 << 31
# Examples that wait in memory to be shuffled: of 128 tokens, a fifth of a gigabyte.
_MOST_SHUFFLED = 1 << 18


def integers(length: int, length_source: str) -> Feature:
    """Returns a feature of `length` integers of 32 bits; `length_source` is for messages."""
    return Feature(length, length_source, _LARGEST, "int32")


def from_records(
    input_files: Sequence[str],
    features: Mapping[str, Feature],
    scalars: Sequence[str],
    *,
    is_training: bool,
    drop_remainder: bool,
) -> InputFn:
    """Returns a function that reads the records of files in batches.

    The function takes a mapping with `batch_size`, B, and returns a dataset of dictionaries of the
    features, int32 or float32 [B, length]. In training the dataset repeats forever, each epoch in
    another order; elsewhere it has all records once, in order.

    Args:
      input_files: TFRecord files.
      features: The features of every record by name.
      scalars: Names of features of shape [B].
      is_training: Whether to shuffle and repeat.
      drop_remainder: Whether to leave out a last batch that is smaller.

    Raises:
      ValueError: by the function, where the files do not hold such records.
    """

    def input_fn(params: Mapping[str, Any]) -> tf.data.Dataset:
        batch_size = _batch_size(params)
        for path in input_files:
            if not is_file(path):
                raise ValueError(f"`input_file` must exist. Received {path!r}.")
        records = Records(list(input_files))
        records.check_first(features)
        parsed = {
            name: tf.io.FixedLenFeature([] if name in scalars else [feature.length], feature.dtype)
            for name, feature in features.items()
        }
        dataset = tf.data.TFRecordDataset(list(input_files))
        dataset = batches(dataset, len(records), batch_size, is_training, drop_remainder)
        return dataset.map(lambda record: decode(record, parsed)).prefetch(tf.data.AUTOTUNE)

    return input_fn


def from_inputs(
    input_file: str,
    seq_length: int,
    scalars: Sequence[str],
    is_training: bool,
    drop_remainder: bool,
) -> InputFn:
    """Returns a function that reads the encoder's inputs and some integers, as `from_records`."""
    lengths = {**dict.fromkeys(ENCODER_INPUTS, seq_length), **dict.fromkeys(scalars, 1)}
    features = {name: integers(length, "`seq_length`") for name, length in lengths.items()}
    return from_records(
        [input_file], features, scalars, is_training=is_training, drop_remainder=drop_remainder
    )


def decode(serialized: Tensor, features: Mapping[str, Any]) -> dict[str, Tensor]:
    """Returns the features of a record or of a batch of them, integers as int32."""
    parse = tf.io.parse_example if serialized.shape.rank else tf.io.parse_single_example
    values = parse(serialized, features)
    return {
        name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
        for name, value in values.items()
    }


def from_arrays(
    arrays: Mapping[str, np.ndarray], *, is_training: bool, drop_remainder: bool
) -> InputFn:
    """Returns a function that returns rows of arrays in batches, as `from_records` does."""

    def input_fn(params: Mapping[str, Any]) -> tf.data.Dataset:
        dataset = tf.data.Dataset.from_tensor_slices(dict(arrays))
        count = len(next(iter(arrays.values())))
        return batches(dataset, count, _batch_size(params), is_training, drop_remainder)

    return input_fn


def _batch_size(params: Mapping[str, Any]) -> int:
    batch_size = params.get("batch_size")
    if not isinstance(batch_size, int | np.integer) or batch_size < 1:
        raise ValueError(f'`params["batch_size"]` must be at least 1. Received {batch_size!r}.')
    return int(batch_size)


def batches(
    dataset: tf.data.Dataset, count: int, batch_size: int, is_training: bool, drop_remainder: bool
) -> tf.data.Dataset:
    """Returns `count` examples in batches; in training, repeated, each time in another order.

    Of more than 262,144 examples, each is shuffled among so many.
    """
    if is_training:
        # Departs: the original repeats first and then shuffles 100 examples at a time, so that
        # epochs mix and data sorted by label stay nearly sorted.
        dataset = dataset.shuffle(min(count, _MOST_SHUFFLED)).repeat()
    elif drop_remainder and count % batch_size:
        logger.warning(
            "`drop_remainder` leaves out %d of %d examples, which do not fill a batch of %d.",
            count % batch_size,
            count,
            batch_size,
        )
    return dataset.batch(batch_size, drop_remainder=drop_remainder)


def stack_inputs(
    features: Sequence[Any], names: Sequence[str], seq_length: int
) -> dict[str, np.ndarray]:
    """Returns the attributes of features as arrays, int32 [B, S].

    Raises:
      ValueError: where there are no features, or not all are of `seq_length`.
    """
    if not len(features):
        raise ValueError("`features` must hold at least one example. Received none.")
    for number, example in enumerate(features):
        lengths = {name: len(getattr(example, name)) for name in names}
        if set(lengths.values()) != {seq_length}:
            raise ValueError(
                f"`features` must have `seq_length` = {seq_length} values each. Received "
                f"{lengths} for example {number}, counted from 0."
            )
    return {name: np.array([getattr(row, name) for row in features], np.int32) for name in names}


Features = Mapping[str, Tensor]
Metrics = dict[str, tuple[Tensor, Tensor]]

# The original's tf.estimator.ModeKeys.
TRAIN, EVAL, PREDICT = "train", "eval", "infer"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The result of a `ModelFn` for a batch; an attribute is None in other modes than its own.

    Attributes:
      mode: "train", "eval" or "infer".
      loss: When evaluating, the weighted mean of the losses, float32 [].
      predictions: When predicting, tensors by name, each of B rows.
      train_op: When training, a function that takes one step on the batch and returns the loss
        before it.
      eval_metrics: When evaluating, values and their weights by name, as
        `keras.metrics.Mean.update_state` takes them, so that a mean over batches of several sizes
        is one over examples.
    """

    mode: str
    loss: Tensor | None = None
    predictions: dict[str, Tensor] | None = None
    train_op: Callable[[], float] | None = None
    eval_metrics: Metrics | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ways:
    """The functions of a task; a mode whose function is None is refused.

    Attributes:
      targets: Takes features and labels; returns the tensors of a batch besides the inputs.
      objective: The loss to minimize.
      evaluate: Takes the model's outputs and the batch; returns the loss and the metrics.
      predict: Takes the outputs and the features; returns the predictions.
      input_names: By the name of an input, the name of its feature where that differs.
    """

    targets: Callable[[Features, Tensor | None], dict[str, Tensor]] | None = None
    objective: Objective | None = None
    evaluate: Callable[[Features, Features], tuple[Tensor, Metrics]] | None = None
    predict: Callable[[Features, Features], dict[str, Tensor]] | None = None
    input_names: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def modes(self) -> list[str]:
        """Returns the modes that there are."""
        given = ((TRAIN, self.objective), (EVAL, self.evaluate), (PREDICT, self.predict))
        return [mode for mode, way in given if way is not None]


class ModelFn:
    """A model as a function of a batch and a mode.

    Args:
      model: A model whose inputs are features, by the names in `ways`.
      ways: The functions of the task.
      make_optimizer: Called before the first training step.

    Attributes:
      model: The same model in all calls; `bert.weights.saving.save_variables` stores its
        weights.
      trainer: The trainer, None before the first batch for training. To resume, save and restore
        its `state()` with `bert.weights.saving.Checkpoints`.
    """

    def __init__(
        self,
        model: keras.Model,
        ways: Ways,
        make_optimizer: Callable[[], optimization.AdamWeightDecayOptimizer],
    ) -> None:
        self.model = model
        self.trainer: Trainer | None = None
        self._ways = ways
        self._make_optimizer = make_optimizer
        self._outputs = tf.function(model, reduce_retracing=True)

    def __call__(
        self,
        features: Features,
        labels: Tensor | None,
        mode: str,
        params: Mapping[str, Any] | None = None,
    ) -> ModelSpec:
        """Returns the result of a mode for one batch of eager tensors.

        Args:
          features: A batch of the dataset of the `input_fn`.
          labels: Labels that are not among the features, if any.
          mode: "train", "eval" or "infer".
          params: Ignored, as in the original.

        Raises:
          ValueError: where a feature is missing or cannot be, or the task has no such mode.
        """
        ways = self._ways
        if mode not in ways.modes():
            raise ValueError(f"`mode` must be one of {ways.modes()}. Received {mode!r}.")
        names = {name: ways.input_names.get(name, name) for name in self.model.input}
        check_features(features, names.values())
        inputs = {name: tf.cast(features[given], tf.int32) for name, given in names.items()}
        if mode == PREDICT:
            assert ways.predict is not None
            predictions = ways.predict(self._outputs(inputs), features)
            return ModelSpec(mode=mode, predictions=predictions)
        assert ways.targets is not None
        batch = {**inputs, **ways.targets(features, labels)}
        if mode == TRAIN:
            return self._prepare_training(batch)
        assert ways.evaluate is not None
        loss, metrics = ways.evaluate(self._outputs(inputs), batch)
        return ModelSpec(mode=mode, loss=loss, eval_metrics=metrics)

    def _prepare_training(self, batch: Features) -> ModelSpec:
        objective = self._ways.objective
        assert objective is not None
        if not any(float(weight) for weight in objective.weights(batch).values()):
            raise ValueError("A batch for training must have a real example. Received padding.")
        if self.trainer is None:
            self.trainer = Trainer(self.model, self._make_optimizer(), objective)
        trainer = self.trainer
        tensors = {name: tf.convert_to_tensor(values) for name, values in batch.items()}

        def train_op() -> float:
            results = trainer.train_step(tensors)
            if not np.isfinite(list(results.values())).all():
                raise NonFiniteLossError(
                    f"The loss must stay finite. At step {trainer.step}: {results}. Try a smaller "
                    "`learning_rate` or more `num_warmup_steps`."
                )
            return results["loss"]

        return ModelSpec(mode=TRAIN, train_op=train_op)


def build(
    make_model: Callable[[], keras.Model],
    ways: Ways,
    init_checkpoint: str | None,
    learning_rate: float = 0.0,
    num_train_steps: int | None = None,
    num_warmup_steps: int | None = None,
) -> ModelFn:
    """Returns the function of a model, which is created now, with the weights of a checkpoint.

    All calls share the weights and the count of training steps. Nothing is written to files.

    Args:
      make_model: Returns the model; called once.
      ways: The functions of the task.
      init_checkpoint: The checkpoint, as in `Stored.open`; None for random weights.
      learning_rate: Peak of the learning rate.
      num_train_steps: Step at which the rate reaches 0; None without training.
      num_warmup_steps: Length of warm-up in steps.
    """
    if graph.in_graph():
        raise ValueError(
            "`model_fn_builder` must be called where TensorFlow runs eagerly, as there is no "
            "tf.estimator any more to run its graph. Received a graph of `tf.compat.v1`; build it "
            "there with `create_model` and `optimization.create_optimizer`."
        )
    model = make_model()
    if init_checkpoint:
        Stored.open(init_checkpoint).assign(model.weights)

    def make_optimizer() -> optimization.AdamWeightDecayOptimizer:
        if num_train_steps is None:
            raise ValueError("`num_train_steps` must be given to train. Received None.")
        return optimization.bert_optimizer(learning_rate, num_train_steps, num_warmup_steps)

    return ModelFn(model, ways, make_optimizer)


def check_features(features: Features, names: Iterable[str]) -> None:
    """Checks that a batch has the features of these names."""
    if missing := [name for name in names if name not in features]:
        raise ValueError(f"`features` must have {missing}. Received {sorted(features)}.")


def column(features: Features, name: str) -> np.ndarray:
    """Returns a feature with one integer for each example, as int32 [B, 1]."""
    check_features(features, [name])
    return np.asarray(features[name], np.int32).reshape(-1, 1)
