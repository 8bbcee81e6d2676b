"""The fine-tuning models: BERT with one layer on top, and what they minimize (paper, section 4).

Dimension key and conventions as in `modeling.py`; also `C` labels and `E` choices. LSTMs
and CRFs, which few models have, are loaded by their names when they are made.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
from keras import ops

import modeling
from bert import names

Tensor = Any
Batch = Mapping[str, Tensor]
Weights = Callable[[Batch], dict[str, Tensor]]
Losses = Callable[[Mapping[str, Tensor], Batch, Mapping[str, Tensor]], dict[str, Tensor]]
Blend = Callable[[Tensor, Tensor, Batch], Tensor]

# Faithful: the original drops out the pooled output at this rate, whatever the configuration says
# (original: run_classifier.py, create_model).
HEAD_DROPOUT_PROB = 0.1


@keras.saving.register_keras_serializable("bert")
class OutputLayer(modeling.ConfiguredLayer):
    """Multiplies by output weights and adds a bias: [..., H] to float32 [..., C].

    Args:
      config: The shape of the model.
      num_outputs: C.
      dropout_prob: Dropout of the inputs.
      scopes: What comes before `output_weights` and `output_bias` in their names; the layer's own
        name does not, as the original's classifier has its variables at the top.
      **kwargs: Keras' arguments of every layer.
    """

    def __init__(
        self,
        config: modeling.BertConfig,
        num_outputs: int,
        dropout_prob: float = 0.0,
        scopes: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        self.num_outputs = num_outputs
        self.dropout_prob = dropout_prob
        self.scopes = tuple(scopes)
        self.dropout = self.new_dropout(dropout_prob)
        # Made here rather than in `build`, which would put the layer's name before theirs.
        # Faithful: heads start with a deviation of 0.02 under any configuration.
        with contextlib.ExitStack() as stack:
            for scope in self.scopes:
                stack.enter_context(keras.name_scope(scope))
            self.output_weights = keras.Variable(
                modeling.create_initializer(),
                shape=(num_outputs, config.hidden_size),
                dtype=self.variable_dtype,
                name="output_weights",
            )
            self.output_bias = keras.Variable(
                keras.initializers.Zeros(),
                shape=(num_outputs,),
                dtype=self.variable_dtype,
                name="output_bias",
                autocast=False,
            )

    def build(self, *_: Any) -> None:
        self.dropout.build(None)

    def call(self, inputs: Tensor, training: bool | None = False) -> Tensor:
        inputs = self.dropout(inputs, training=training)
        logits = ops.matmul(inputs, ops.transpose(self.output_weights))
        return ops.cast(logits, "float32") + ops.cast(self.output_bias, "float32")

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_outputs": self.num_outputs,
            "dropout_prob": self.dropout_prob,
            "scopes": self.scopes,
        }


def layer_name(number: int | str) -> str:
    """Returns the name of the output of a layer, in models that give their layers."""
    return f"layer_{number}"


def named_layers(encoded: Mapping[str, Any]) -> dict[str, Tensor]:
    """Returns the layers among the outputs of an encoder by `layer_name`."""
    return {layer_name(number): each for number, each in enumerate(encoded["encoder_layers"])}


def pooled_positions(config: modeling.BertConfig, input_mask: Tensor) -> Tensor:
    """Returns the positions of the tokens that represent a sequence: int32 [B, `num_pooled`].

    Args:
      config: The configuration of the model.
      input_mask: [B, S], 1 for real tokens, which come before padding.
    """
    if config.is_bilstm:
        return end_positions(input_mask)
    first = ops.zeros_like(input_mask[:, :1])
    return end_positions(input_mask)[:, :1] if config.is_decoder else first


def num_pooled(config: modeling.BertConfig) -> int:
    """Returns the number of tokens that represent a sequence."""
    return 2 if config.is_bilstm else 1


def end_positions(input_mask: Tensor) -> Tensor:
    """Returns the position of each row's last real token, and that of its first: int32 [B, 2]."""
    first = ops.zeros_like(input_mask[:, :1])
    last = ops.maximum(ops.sum(input_mask, axis=1, keepdims=True) - 1, first)
    return ops.concatenate([last, first], axis=1)


def classifier_model(
    config: modeling.BertConfig,
    num_outputs: int,
    dtype: str = "float32",
    *,
    gives_layers: bool = False,
    add_bilstm: bool = False,
) -> keras.Model:
    """Returns a model of `encoder_inputs` with `logits`, float32 [B, C], from the [CLS] token.

    Args:
      config: The shape of the encoder.
      num_outputs: C, the number of labels; 1 for regression.
      dtype: Name of a dtype policy, such as "mixed_bfloat16".
      gives_layers: Whether the outputs have all layers of the encoder, too, [B, S, H] each, by
        `layer_name`. The logits are the same.
      add_bilstm: Whether an `AddedBilstm` stands between, of which the text is read.
    """
    inputs = modeling.encoder_inputs()
    layers: dict[str, Tensor] = {}
    if gives_layers:
        if add_bilstm:
            encoded = _encode_tokens(config, inputs, dtype, add_bilstm=True)
        else:
            encoded = modeling.BertModel(config, dtype=dtype)(inputs)
        pooled, layers = encoded["pooled_output"], named_layers(encoded)
    else:
        pooled = _encode_text(config, inputs, dtype, add_bilstm=add_bilstm)
    layer = OutputLayer(config, num_outputs, HEAD_DROPOUT_PROB, name="classifier", dtype=dtype)
    return keras.Model(inputs, {"logits": layer(pooled), **layers}, name="classification")


def _encode_text(
    config: modeling.BertConfig, inputs: Batch, dtype: str, *, add_bilstm: bool
) -> Tensor:
    """Returns the pooled encoding, [B, H]; the last layer computes no other token.

    With a BiLSTM it computes all, and the pooler, which would read the encoder, is left as it is.
    """
    if add_bilstm:
        return _encode_tokens(config, inputs, dtype, add_bilstm=True)["pooled_output"]
    positions = pooled_positions(config, inputs["input_mask"])
    return modeling.BertModel(config, dtype=dtype)(inputs, positions=positions)["pooled_output"]


def _encode_tokens(
    config: modeling.BertConfig, inputs: Batch, dtype: str, *, add_bilstm: bool = False
) -> dict[str, Any]:
    """Returns what the encoder gives of all tokens, for a model that leaves the pooler as it is.

    The pooler stays among the weights, as in the original's checkpoints, but no loss depends on it.
    With a BiLSTM on the encoder, `sequence_output` and `pooled_output` are those of `AddedBilstm`.
    """
    bert = modeling.BertModel(config, dtype=dtype)
    bert.pooler.trainable = False
    encoded: dict[str, Any] = bert(inputs)
    if not add_bilstm:
        return encoded
    layer = names.load("bert.network.lstm", "AddedBilstm")(config, name="bilstm", dtype=dtype)
    layer.build(None)
    return {**encoded, **layer(encoded["sequence_output"], inputs["input_mask"])}


def span_model(
    config: modeling.BertConfig,
    dtype: str = "float32",
    *,
    gives_layers: bool = False,
    add_bilstm: bool = False,
) -> keras.Model:
    """Returns a model of `encoder_inputs` with `start_logits` and `end_logits`, float32 [B, S].

    Padding has logits, too, and competes with them in prediction, as in the original (original:
    run_squad.py, create_model). Arguments are as for `classifier_model`.
    """
    inputs = modeling.encoder_inputs()
    encoded = _encode_tokens(config, inputs, dtype, add_bilstm=add_bilstm)
    layer = OutputLayer(config, 2, scopes=("cls", "squad"), name="span", dtype=dtype)
    logits = layer(encoded["sequence_output"])
    outputs = {"start_logits": logits[:, :, 0], "end_logits": logits[:, :, 1]}
    outputs |= named_layers(encoded) if gives_layers else {}
    return keras.Model(inputs, outputs, name="question_answering")


def tagging_model(
    config: modeling.BertConfig,
    num_labels: int,
    dtype: str = "float32",
    *,
    gives_layers: bool = False,
    add_bilstm: bool = False,
    add_crf: bool = False,
) -> keras.Model:
    """Returns a model of `encoder_inputs` with `logits`, float32 [B, S, C] (paper, section 5.3).

    Args:
      config: The shape of the encoder.
      num_labels: C.
      dtype: Name of a dtype policy.
      gives_layers: As for `classifier_model`.
      add_bilstm: Likewise.
      add_crf: Whether the outputs have the `transitions` of a `Crf`, too.
    """
    inputs = modeling.encoder_inputs()
    encoded = _encode_tokens(config, inputs, dtype, add_bilstm=add_bilstm)
    layer = OutputLayer(config, num_labels, HEAD_DROPOUT_PROB, name="tagger", dtype=dtype)
    outputs = {"logits": layer(encoded["sequence_output"])}
    if add_crf:
        layer = names.load("bert.network.crf", "Crf")(name="crf", dtype="float32")
        outputs["transitions"] = layer(outputs["logits"])
    outputs |= named_layers(encoded) if gives_layers else {}
    return keras.Model(inputs, outputs, name="tagging")


@keras.saving.register_keras_serializable("bert")
class JoinChoices(keras.layers.Layer):
    """Makes rows of the choices of all examples: [B, E, S] to [B·E, S]."""

    def call(self, inputs: Tensor) -> Tensor:
        return ops.reshape(inputs, (-1, ops.shape(inputs)[-1]))


@keras.saving.register_keras_serializable("bert")
class SplitChoices(keras.layers.Layer):
    """Gives each example its choices' scores: [B·E, 1] to [B, E], as many as in `inputs`."""

    def call(self, scores: Tensor, inputs: Tensor) -> Tensor:
        return ops.reshape(scores, ops.shape(inputs)[:2])


def choice_model(
    config: modeling.BertConfig, dtype: str = "float32", *, add_bilstm: bool = False
) -> keras.Model:
    """Returns a model of inputs int32 [B, E, S] with `logits`, float32 [B, E] (paper, section 4.4).

    The inputs have the names of `encoder_inputs`. The batch sets the number of choices.
    """
    inputs = {
        name: keras.Input((None, None), dtype="int32", name=name)
        for name in modeling.encoder_inputs()
    }
    # The sizes are known when the model is called, and to layers only.
    rows = {name: JoinChoices()(each) for name, each in inputs.items()}
    pooled = _encode_text(config, rows, dtype, add_bilstm=add_bilstm)
    scores = OutputLayer(config, 1, HEAD_DROPOUT_PROB, name="chooser", dtype=dtype)(pooled)
    logits = SplitChoices(dtype="float32")(scores, inputs["input_ids"])
    return keras.Model(inputs, {"logits": logits}, name="multiple_choice")


@ops.custom_gradient
def cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Any]:
    """Returns the loss of each row, -log softmax(logits)[label]: float32 [R].

    The general function of Keras gives the same numbers, but passes over a vocabulary's logits
    more often, which takes a fifth of the training step of a small model.

    Args:
      logits: float32 [R, C].
      labels: int32 [R].
    """
    probabilities = ops.softmax(logits)
    labels = ops.cast(labels, "int32")
    of_labels = ops.take_along_axis(probabilities, labels[:, None], axis=1)[:, 0]

    def gradient(upstream: Tensor) -> tuple[Tensor, None]:
        rows = ops.arange(ops.shape(labels)[0], dtype="int32")
        at_labels = ops.stack([rows, labels], axis=1)
        scaled = probabilities * upstream[:, None]
        return ops.scatter_update(scaled, at_labels, (of_labels - 1.0) * upstream), None

    # Where a probability underflows, its logarithm is lost, but that of the sum of all is not.
    loss = ops.cond(
        ops.min(of_labels) > 1e-30,
        lambda: -ops.log(of_labels),
        lambda: ops.sparse_categorical_crossentropy(labels, logits, from_logits=True),
    )
    return loss, gradient


# The weights of the rows of a batch in the loss of a classifier, float32 [B, 1]; absent, all are 1.
EXAMPLE_WEIGHTS = "example_weights"

_TASK_TYPES = ("classification", "multi_label", "regression")


def classification_objective(
    task_type: str,
    class_weights: Sequence[float] | None = None,
    blend: Blend | None = None,
    label_smoothing: float = 0.0,
) -> tuple[Weights, Losses]:
    """Returns what a classifier minimizes: the functions of a `bert.training.Objective`.

    The batch has `label_ids`, [B, 1] or of several labels [B, C], and `is_real_example`, int32
    [B, 1], 1 where a row counts.

    Args:
      task_type: "classification": cross entropy (original: run_classifier.py, create_model);
        "multi_label": sigmoid cross entropy, a mean over labels; "regression": squared error.
      class_weights: How much an example of each label counts; the loss is then a weighted mean. For
        "classification" only.
      blend: From the loss of each example, float32 [B], the logits and the batch to what counts in
        its place.
      label_smoothing: The weight of the mean cross entropy of all labels in the loss of an example,
        for "classification": the labels are then 1 - e + e/C for the right one and e/C for others.
    """
    if task_type not in _TASK_TYPES:
        raise ValueError(f"`task_type` must be one of {list(_TASK_TYPES)}. Received {task_type!r}.")
    if class_weights is not None and task_type != "classification":
        raise ValueError(
            "`class_weights` need examples of one label each, a `task_type` of 'classification'. "
            f"Received {task_type!r}."
        )

    def example_weights(batch: Batch) -> Tensor:
        weights = ops.cast(batch["is_real_example"][:, 0], "float32")
        if EXAMPLE_WEIGHTS in batch:
            weights = weights * batch[EXAMPLE_WEIGHTS][:, 0]
        if class_weights is None:
            return weights
        return weights * ops.take(ops.array(class_weights, "float32"), batch["label_ids"][:, 0])

    def weights(batch: Batch) -> dict[str, Tensor]:
        return {"loss": ops.sum(example_weights(batch))}

    def losses(
        outputs: Mapping[str, Tensor], batch: Batch, weights: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        each = _example_losses(task_type, outputs["logits"], batch["label_ids"])
        if label_smoothing:
            uniform = -ops.mean(ops.log_softmax(outputs["logits"]), axis=-1)
            each = (1.0 - label_smoothing) * each + label_smoothing * uniform
        if blend:
            each = blend(each, outputs["logits"], batch)
        return {"loss": ops.sum(each * example_weights(batch)) / weights["loss"]}

    return weights, losses


def _example_losses(task_type: str, logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the loss of each example, float32 [B]."""
    if task_type == "classification":
        return cross_entropy(logits, labels[:, 0])
    labels = ops.cast(labels, "float32")
    if task_type == "regression":
        return ops.mean(ops.square(logits - labels), axis=-1)
    return ops.mean(ops.binary_crossentropy(labels, logits, from_logits=True), axis=-1)


# Far below any logit, and yet finite, so that no gradient is lost.
_NEVER = -1e9


def without_padding(logits: Tensor, batch: Batch) -> Tensor:
    """Returns logits [B, S] that exclude padding from a softmax."""
    return ops.where(batch["input_mask"] > 0, logits, _NEVER)


def span_objective(blends: Mapping[str, Blend] | None = None) -> tuple[Weights, Losses]:
    """Returns what `span_model` minimizes: the mean cross entropy of answers' starts and ends.

    Windows that do not hold the answer have [CLS] for it (original: run_squad.py, model_fn).

    Args:
      blends: By output of the model, as `blend` of `classification_objective`, of windows, float32
        [B].
    """

    def weights(batch: Batch) -> dict[str, Tensor]:
        return {"loss": ops.cast(ops.shape(batch["input_ids"])[0], "float32")}

    def losses(
        outputs: Mapping[str, Tensor], batch: Batch, weights: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        total = 0.0
        for end in ("start", "end"):
            # Departs: padding takes no part in the softmax, so that the loss is the same whatever a
            # batch is padded to.
            logits = without_padding(outputs[f"{end}_logits"], batch)
            each = cross_entropy(logits, batch[f"{end}_positions"][:, 0])
            if blends:
                each = blends[f"{end}_logits"](each, logits, batch)
            total += ops.sum(each) / 2.0
        return {"loss": total / weights["loss"]}

    return weights, losses


def tagging_objective(blend: Blend | None = None) -> tuple[Weights, Losses]:
    """Returns what `tagging_model` minimizes: the mean cross entropy of the words' labels.

    The batch has `label_ids` and `label_mask`, int32 [B, S]; a word counts where its mask is 1, at
    its first word piece (paper, section 5.3).

    Args:
      blend: As for `classification_objective`, of tokens, float32 [B·S], rather than examples.
    """

    def weights(batch: Batch) -> dict[str, Tensor]:
        return {"loss": ops.sum(ops.cast(batch["label_mask"], "float32"))}

    def losses(
        outputs: Mapping[str, Tensor], batch: Batch, weights: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        logits = outputs["logits"]
        rows = ops.reshape(logits, (-1, logits.shape[-1]))
        each = cross_entropy(rows, ops.reshape(batch["label_ids"], (-1,)))
        if blend:
            each = blend(each, rows, batch)
        mask = ops.cast(ops.reshape(batch["label_mask"], (-1,)), "float32")
        return {"loss": ops.sum(each * mask) / weights["loss"]}

    return weights, losses


def crf_objective() -> tuple[Weights, Losses]:
    """Returns what a tagger with a `Crf` minimizes: -log p(path) of the words of each row.

    The loss is divided by the number of words, as that of `tagging_objective`, which it
    equals where all transitions are 0. The words that a window predicts are a path of their own,
    also where they are a part of a longer sentence.
    """
    weights, _ = tagging_objective()
    crf = names.load("bert.network.crf")

    def losses(
        outputs: Mapping[str, Tensor], batch: Batch, weights: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        order, counts = crf.word_order(batch["label_mask"])
        places = order[:, : ops.maximum(ops.max(counts), 1)]  # [B, W]
        logits = ops.take_along_axis(outputs["logits"], places[:, :, None], axis=1)
        labels = ops.take_along_axis(batch["label_ids"], places, axis=1)
        each = crf.path_losses(logits, counts, outputs["transitions"][0], labels)
        return {"loss": ops.sum(each) / weights["loss"]}

    return weights, losses


def choice_objective() -> tuple[Weights, Losses]:
    """Returns what `choice_model` minimizes: the mean cross entropy of the examples' right choices.

    The batch has `label_ids`, int32 [B, 1], and `choice_mask`, int32 [B, E], 1 where there is a
    choice (paper, section 4.4).
    """

    def weights(batch: Batch) -> dict[str, Tensor]:
        return {"loss": ops.cast(ops.shape(batch["label_ids"])[0], "float32")}

    def losses(
        outputs: Mapping[str, Tensor], batch: Batch, weights: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        logits = ops.where(batch["choice_mask"] > 0, outputs["logits"], _NEVER)
        each = cross_entropy(logits, batch["label_ids"][:, 0])
        return {"loss": ops.sum(each) / weights["loss"]}

    return weights, losses
