"""BERT's network: embeddings, encoder and pooler (paper, section 3).

Dimension key: `B` batch, `S` sequence, `H` hidden, `N` heads, `D` head size, `F` feed-forward,
`P` predictions, `V` vocabulary, `L` layers, `Q` queries, `K` keys.

Inside the encoder, activations are matrices [B·S, H], so that every dense layer is one bare matrix
product. Layer names equal the variable scopes of the original release, so a variable's path is its
name in a checkpoint. The network is built of `keras.ops` alone. Whoever trains or predicts may give
its layers faster kernels: `bert.network`.
"""

import contextlib
import copy
import dataclasses
import json
import logging
import math
import os
import types
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from bert import names
from bert.dropout import DROPOUT_SEED, draw
from bert.files import stored_models
from bert.files.paths import read_json_object

Tensor = Any

# Keys of released `bert_config.json` files that the original never reads.
UNUSED_KEYS = {"directionality", "pooler_fc_size", "pooler_num_attention_heads"} | {
    *("pooler_num_fc_layers", "pooler_size_per_head", "pooler_type")
}

# Faithful: variance and epsilon as in the original (modeling.py, layer_norm, through
# tf.contrib.layers.layer_norm).
LAYER_NORM_EPSILON = 1e-12

# The layers between the embeddings and the outputs.
ENCODER_TYPES = ("transformer", "bilstm", "word_vectors")


@dataclasses.dataclass
class BertConfig:
    """The shape of a model, as `bert_config.json` states it (original: modeling.py, BertConfig).

    A config may be given any values, and more attributes; a layer checks the values when it is
    made.

    Attributes:
      vocab_size: Number of entries of the vocabulary, V.
      hidden_size: Width of the encoder, H; a multiple of `num_attention_heads`.
      num_hidden_layers: Number of Transformer layers, L.
      num_attention_heads: Attention heads per layer, N.
      intermediate_size: Width of the feed-forward layer, F.
      hidden_act: Activation of the feed-forward and pre-training transforms: one of `ACTIVATIONS`,
        or a function, with which neither the config nor a model can be written to a file.
      hidden_dropout_prob: Dropout of embeddings, projections and heads, in [0, 1).
      attention_probs_dropout_prob: Dropout of the attention weights, in [0, 1).
      max_position_embeddings: Longest sequence that the position table can serve.
      type_vocab_size: Number of segment types.
      initializer_range: Standard deviation of the truncated normal initializer.
      is_decoder: Whether a token attends only to itself and the tokens before it, as in GPT (paper,
        section 5.1, "LTR"). Departs: the original has no decoder.
      encoder_type: One of `ENCODER_TYPES`. "bilstm" is ELMo's encoder (paper, figure 3), which
        ignores `num_attention_heads`, `intermediate_size` and `attention_probs_dropout_prob`.
        "word_vectors" is a table with a vector for each word (paper, section 2.1); L is 0. Departs:
        the original has Transformers alone.
    """

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 16
    initializer_range: float = 0.02
    is_decoder: bool = False
    encoder_type: str = "transformer"

    @property
    def is_bilstm(self) -> bool:
        """Whether the layers are LSTMs."""
        return self.encoder_type == "bilstm"

    @property
    def is_word_vectors(self) -> bool:
        """Whether the model is a table of words, without an encoder."""
        return self.encoder_type == "word_vectors"

    @classmethod
    def from_dict(cls, json_object: Mapping[str, Any]) -> "BertConfig":
        """Returns the config of a `bert_config.json`, or as transformers or keras-hub has it.

        Unknown keys are logged and become attributes, as in the original.

        Raises:
          ValueError: where another program does not describe a BERT, or a key is a method's name.
        """
        if stored_models.is_huggingface_config(json_object):
            json_object = stored_models.from_huggingface(json_object)
        elif stored_models.is_keras_config(json_object):
            json_object = stored_models.from_keras(json_object)
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(json_object.keys() - known - UNUSED_KEYS):
            logging.getLogger(__name__).warning(
                "Keys %s of the configuration have no effect. Known are %s.", unknown, sorted(known)
            )
        if taken := [key for key in unknown if hasattr(cls, key)]:
            raise ValueError(f"Keys must not be names of methods. Received {taken}.")
        config = cls(vocab_size=json_object.get("vocab_size"))  # type: ignore[arg-type]
        for key, value in json_object.items():
            setattr(config, key, value)
        return config

    @classmethod
    def from_json_file(cls, json_file: str) -> "BertConfig":
        """Returns the config in `json_file`, a path that `tf.io.gfile` reads.

        Raises:
          ValueError: where the file is absent, not JSON, or does not describe a model.
        """
        values = read_json_object(os.fspath(json_file), "bert_config_file")
        try:
            config = cls.from_dict(values)
            config.check()
        except ValueError as error:
            raise ValueError(f"{json_file!r}: {error}") from error
        return config

    def check(self) -> None:
        """Checks that the values can describe a model.

        Raises:
          ValueError: naming the field that cannot.
        """
        if self.vocab_size is None:
            raise ValueError(
                "`vocab_size` must be given. It is the number of lines of `vocab.txt`."
            )
        for name in (field.name for field in dataclasses.fields(BertConfig) if field.type is int):
            least = 0 if name == "num_hidden_layers" and self.is_word_vectors else 1
            is_size = _is_number(getattr(self, name), int) and getattr(self, name) >= least
            self._check(name, is_size, "a positive integer")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            rate = getattr(self, name)
            self._check(name, _is_number(rate) and 0 <= rate < 1, "in [0, 1)")
        deviation = self.initializer_range
        is_deviation = _is_number(deviation) and 0 < deviation < math.inf
        self._check("initializer_range", is_deviation, "positive")
        self._check("is_decoder", isinstance(self.is_decoder, bool), "true or false")
        is_type = self.encoder_type in ENCODER_TYPES
        self._check("encoder_type", is_type, f"one of {list(ENCODER_TYPES)}")
        if self.is_bilstm and (self.is_decoder or self.hidden_size % 2):
            raise ValueError(
                "With the `encoder_type` 'bilstm', `is_decoder` must be false, and `hidden_size` "
                f"even, half of it for each direction. Received {self.is_decoder} and "
                f"{self.hidden_size}."
            )
        if self.encoder_type == "transformer" and self.hidden_size % self.num_attention_heads:
            raise ValueError(
                "`hidden_size` must be a multiple of `num_attention_heads`. Received "
                f"{self.hidden_size} and {self.num_attention_heads}."
            )
        # The original accepts a function, too.
        if not callable(self.hidden_act):
            get_activation(str(self.hidden_act))

    def _check(self, name: str, is_valid: bool, must_be: str) -> None:
        if not is_valid:
            raise ValueError(f"`{name}` must be {must_be}. Received {getattr(self, name)!r}.")

    def to_dict(self) -> dict[str, Any]:
        """Returns all attributes by name, without `is_decoder` and `encoder_type` of a BERT."""
        values = copy.deepcopy(vars(self))
        for name in ("is_decoder", "encoder_type"):
            if getattr(self, name) == getattr(BertConfig, name):
                # A config pickled by an older release lacks these attributes.
                values.pop(name, None)
        return values

    def to_json_string(self) -> str:
        """Returns the text of a `bert_config.json`."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"


def _is_number(value: Any, kinds: Any = int | float) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def gelu(x: Tensor) -> Tensor:
    """Returns the Gaussian error linear unit in its tanh form (original: modeling.py, gelu)."""
    wide = _widen(x)
    # TensorFlow turns some powers into products, but not all; a recomputed layer must give the same
    # bits.
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * (wide * wide * wide))
    return ops.cast(0.5 * wide * (1.0 + ops.tanh(inner)), x.dtype)


def gelu_erf(x: Tensor) -> Tensor:
    """Returns the Gaussian error linear unit in its exact form, x Φ(x), as in transformers."""
    return ops.cast(ops.gelu(_widen(x), approximate=False), x.dtype)


def _widen(x: Tensor) -> Tensor:
    """Returns float16 as float32, whose smallest products do not depend on the order of factors."""
    return ops.cast(x, "float32") if keras.backend.standardize_dtype(x.dtype) == "float16" else x


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor] | None] = {
    "linear": None,
    "relu": ops.relu,
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "tanh": ops.tanh,
}


def get_activation(activation_string: Any) -> Callable[[Tensor], Tensor] | None:
    """Returns the activation of a name; None for the linear one, and a callable unchanged.

    Raises:
      ValueError: where the original has no such activation.
    """
    if not isinstance(activation_string, str):
        return activation_string
    name = activation_string.lower()
    if name and name not in ACTIVATIONS:
        raise ValueError(
            f"`hidden_act` must be among {sorted(ACTIVATIONS)}. Received {activation_string!r}."
        )
    return ACTIVATIONS[name] if name else None


def create_initializer(initializer_range: float = 0.02) -> keras.initializers.Initializer:
    """Returns a truncated normal initializer with the given standard deviation.

    Every variable needs its own initializer: Keras' returns the same numbers in each call.
    """
    return keras.initializers.TruncatedNormal(stddev=initializer_range)


def drop(inputs: Tensor, numbers: Tensor, *, rate: float) -> Tensor:
    """Returns the inputs, dropped where the int16 numbers of the same shape are largest."""
    kept = numbers < min(round((1 - rate) * 2**16) - 2**15, 2**15 - 1)  # an int16
    return inputs * (ops.cast(kept, inputs.dtype) * (1.0 / (1.0 - rate)))


@keras.saving.register_keras_serializable("bert")
class Dropout(keras.layers.Dropout):
    """Dropout whose mask `dropout_seed` can fix (paper, appendix A.2).

    Input and output have the same shape; with `training` false, they are the same.
    """

    drop = staticmethod(drop)

    def build(self, *_: Any) -> None:
        self.built = True

    def salt(self) -> Any:
        """Returns the number, int32, by which the mask differs from those of other layers."""
        return zlib.crc32(self.path.encode()) & 0x7FFFFFFF

    def call(self, inputs: Tensor, training: bool | None = False) -> Tensor:
        if not training or not self.rate:
            return super().call(inputs, training=training)
        seed = DROPOUT_SEED.get()
        graph = getattr(inputs, "graph", None)
        if seed is None and graph is not None and not graph.building_function:
            # In a graph for a Session, Keras' generators would give every run the same mask.
            seed = names.load("bert.original.graph", "draw_seed")()
        if seed is None:
            return super().call(inputs, training=training)
        salt = ops.convert_to_tensor([self.salt(), 0], "int32")
        return self.drop(inputs, draw(inputs, seed + salt), rate=self.rate)


@keras.saving.register_keras_serializable("bert")
class LayerNorm(keras.layers.LayerNormalization):
    """Layer normalization over the last axis."""

    def call(self, inputs: Tensor) -> Tensor:
        return self.normalize(inputs)

    def normalize(self, inputs: Tensor) -> Tensor:
        """Returns rows of mean 0 and variance 1, scaled by gamma and shifted by beta."""
        return super().call(inputs)


class ConfiguredLayer(keras.layers.Layer):
    """A layer that a `BertConfig` describes; Keras saves it with the config."""

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        config.check()
        self.config = config

    def build(self, *_: Any) -> None:
        """Builds the layers of this layer that take activations of width H."""
        for layer in self._flatten_layers(include_self=False, recursive=False):
            if not layer.built:
                layer.build((None, self.config.hidden_size))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "config": self.config.to_dict()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "ConfiguredLayer":
        return super().from_config({**config, "config": BertConfig.from_dict(config["config"])})

    def add_table(self, name: str, rows: int, **kwargs: Any) -> keras.Variable:
        """Adds a weight [`rows`, H] with the configured initializer."""
        initializer = create_initializer(self.config.initializer_range)
        shape = (rows, self.config.hidden_size)
        return self.add_weight(name=name, shape=shape, initializer=initializer, **kwargs)

    def new(self, kind: type["ConfiguredLayer"], name: str, *arguments: Any) -> Any:
        """Returns a layer of the same configuration and precision."""
        return kind(self.config, *arguments, name=name, dtype=self.dtype_policy)

    def new_dense(self, units: int, name: str, activation: str = "linear") -> keras.layers.Dense:
        """Returns a dense layer with the configured initializer."""
        return keras.layers.Dense(
            units,
            activation=get_activation(activation),
            kernel_initializer=create_initializer(self.config.initializer_range),
            name=name,
            dtype=self.dtype_policy,
        )

    def new_dropout(self, rate: float) -> Dropout:
        """Returns a dropout layer."""
        return Dropout(rate, name="dropout", dtype=self.dtype_policy)

    def new_layer_norm(self) -> LayerNorm:
        """Returns a layer normalization."""
        return LayerNorm(epsilon=LAYER_NORM_EPSILON, name="LayerNorm", dtype=self.dtype_policy)


class Embeddings(ConfiguredLayer):
    """Sums token, segment and position embeddings, then normalizes (paper, figure 2).

    Takes `input_ids` and `segment_ids`, int32 [B, S]; gives [B·S, H].
    """

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.layer_norm = self.new_layer_norm()
        self.dropout = self.new_dropout(config.hidden_dropout_prob)

    def build(self, *_: Any) -> None:
        config = self.config
        # Rows are looked up before they are cast: half precision must not cast the whole table.
        self.word_embeddings = self.add_table("word_embeddings", config.vocab_size, autocast=False)
        segments = self.add_table("token_type_embeddings", config.type_vocab_size)
        positions = self.add_table("position_embeddings", config.max_position_embeddings)
        self.token_type_embeddings, self.position_embeddings = segments, positions
        super().build()

    def call(self, input_ids: Tensor, segment_ids: Tensor, training: bool | None = False) -> Tensor:
        batch, length = ops.shape(input_ids)
        width = self.config.hidden_size
        words = ops.take(self.word_embeddings, input_ids, axis=0)  # [B, S, H]
        words = ops.cast(words, self.compute_dtype)
        # A one-hot product rather than a look-up: its gradient is a matrix product, too.
        rows = ops.reshape(segment_ids, (-1,))
        rows = ops.one_hot(rows, self.config.type_vocab_size, dtype=words.dtype)
        segments = ops.matmul(rows, self.token_type_embeddings)
        positions = self.position_embeddings[:length]
        embedded = words + ops.reshape(segments, (batch, length, width)) + positions
        embedded = self.layer_norm(ops.reshape(embedded, (-1, width)))  # [B·S, H]
        return self.dropout(embedded, training=training)


@contextlib.contextmanager
def _observing(attentions: Sequence["SelfAttention"], probs: list[Tensor]) -> Iterator[None]:
    """Collects the attention weights of layers within this context."""
    try:
        for attention in attentions:
            attention.observer = probs.append
        yield
    finally:
        for attention in attentions:
            attention.observer = None


class SelfAttention(ConfiguredLayer):
    """Attention from tokens to real tokens (paper, section 3; Vaswani et al., section 3.2).

    Takes the activations of the tokens that attend, `queries` [B·Q, H]; of all tokens, `inputs`
    [B·S, H]; and `input_mask`: [B, Q, K], 1 where the query may attend to the key, or [B, S], 1 for
    real tokens and 0 for padding, where Q is S. Gives [B·Q, H].

    Attributes:
      observer: Called with the attention weights [B, N, Q, K] before dropout, or None.
    """

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        width = config.hidden_size
        self.head_size = width // config.num_attention_heads
        self.projections = [self.new_dense(width, name) for name in ("query", "key", "value")]
        self.dropout = self.new_dropout(config.attention_probs_dropout_prob)
        self.observer: Callable[[Tensor], None] | None = None

    def call(
        self, queries: Tensor, inputs: Tensor, input_mask: Tensor, training: bool | None = False
    ) -> Tensor:
        *_, from_length, to_length = ops.shape(input_mask)
        if len(input_mask.shape) == 2:
            from_length, input_mask = to_length, ops.expand_dims(input_mask, 1)  # [B, 1, K]
        to_queries, to_keys, to_values = self.projections
        query = self.split_heads(to_queries(queries), from_length)
        key = self.split_heads(to_keys(inputs), to_length)
        value = self.split_heads(to_values(inputs), to_length)
        return self.attend(query, key, value, input_mask, training)

    def split_heads(self, inputs: Tensor, length: Tensor) -> Tensor:
        """Returns [B·S, H] as [B, N, S, D]."""
        shape = (-1, length, self.config.num_attention_heads, self.head_size)
        return ops.transpose(ops.reshape(inputs, shape), (0, 2, 1, 3))

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, training: bool | None
    ) -> Tensor:
        """Returns the context [B·Q, H] of heads [B, N, Q, D] and [B, N, K, D] under [B, Q, K]."""
        scores = ops.matmul(query * self.head_size**-0.5, ops.swapaxes(key, 2, 3))  # [B, N, Q, K]
        # Faithful: the original adds -10000 to padding rather than masking it exactly.
        padding = (1.0 - ops.cast(mask, scores.dtype)) * -10000.0
        weights = ops.softmax(scores + ops.expand_dims(padding, 1))
        if self.observer:
            self.observer(weights)
        weights = self.dropout(weights, training=training)
        context = ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3))  # [B, Q, N, D]
        return ops.reshape(context, (-1, self.config.hidden_size))


class ResidualOutput(ConfiguredLayer):
    """Projects, drops out, adds the layer's input and normalizes (paper, appendix A.2).

    Takes activations [B·S, `input_size`] and the residual [B·S, H]; gives [B·S, H].
    """

    def __init__(self, config: BertConfig, input_size: int, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.input_size = input_size
        self.dense = self.new_dense(config.hidden_size, "dense")
        self.dropout = self.new_dropout(config.hidden_dropout_prob)
        self.layer_norm = self.new_layer_norm()

    def build(self, *_: Any) -> None:
        self.dense.build((None, self.input_size))
        super().build()

    def call(self, inputs: Tensor, residual: Tensor, training: bool | None = False) -> Tensor:
        projected = self.dropout(self.dense(inputs), training=training)
        return self.layer_norm(projected + residual)


class Attention(ConfiguredLayer):
    """Self-attention with its output projection; shapes as in `SelfAttention`."""

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.self_attention = self.new(SelfAttention, "self")
        self.output_projection = self.new(ResidualOutput, "output", config.hidden_size)

    def call(
        self, queries: Tensor, inputs: Tensor, input_mask: Tensor, training: bool | None = False
    ) -> Tensor:
        context = self.self_attention(queries, inputs, input_mask, training=training)
        return self.output_projection(context, queries, training=training)


class Intermediate(ConfiguredLayer):
    """The widening half of the feed-forward layer: [B·S, H] to [B·S, F]."""

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.dense = self.new_dense(config.intermediate_size, "dense", config.hidden_act)

    def call(self, inputs: Tensor) -> Tensor:
        return self.dense(inputs)


class TransformerLayer(ConfiguredLayer):
    """One layer of the encoder: attention, then feed-forward; shapes as in `SelfAttention`."""

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.attention = self.new(Attention, "attention")
        self.intermediate = self.new(Intermediate, "intermediate")
        self.output_projection = self.new(ResidualOutput, "output", config.intermediate_size)

    def call(
        self, queries: Tensor, inputs: Tensor, input_mask: Tensor, training: bool | None = False
    ) -> Tensor:
        attended = self.attention(queries, inputs, input_mask, training=training)
        return self.output_projection(self.intermediate(attended), attended, training=training)


class Encoder(ConfiguredLayer):
    """The stack of Transformer layers; gives the list of all layers' outputs, [B·S, H] each.

    Given `positions`, int32 [B, Q], and an `input_mask` [B, S], the last layer computes the tokens
    at these positions alone: [B·Q, H]. In a decoder, no token attends to a later one.

    Attributes:
      gradient_checkpointing: Whether training keeps only the inputs of a layer for the backward
        pass, and computes the rest again (Chen et al., Training Deep Nets with Sublinear Memory
        Cost).
    """

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        indices = range(config.num_hidden_layers)
        self.transformer_layers = [self.new(TransformerLayer, f"layer_{i}") for i in indices]
        self.gradient_checkpointing = False

    def call(
        self,
        inputs: Tensor,
        input_mask: Tensor,
        positions: Tensor | None = None,
        training: bool | None = False,
    ) -> list[Tensor]:
        *lower, last = self.transformer_layers
        outputs = []
        for layer in lower:
            inputs = self._call_layer(layer, inputs, input_mask, None, training)
            outputs.append(inputs)
        return [*outputs, self._call_layer(last, inputs, input_mask, positions, training)]

    def _call_layer(
        self,
        layer: TransformerLayer,
        inputs: Tensor,
        input_mask: Tensor,
        positions: Tensor | None,
        training: bool | None,
    ) -> Tensor:
        def compute(inputs: Tensor) -> Tensor:
            queries, mask = inputs, input_mask
            if positions is not None:
                queries = gather_tokens(inputs, positions, ops.shape(input_mask)[1])
            if positions is not None or self.config.is_decoder:
                mask = self._mask(input_mask, positions)
            return layer(queries, inputs, mask, training=training)

        if self.gradient_checkpointing and training:
            dropouts = [layer.attention.self_attention.dropout, layer.output_projection.dropout]
            return names.load("bert.network.recomputation", "recompute")(compute, inputs, dropouts)
        return compute(inputs)

    def _mask(self, input_mask: Tensor, positions: Tensor | None) -> Tensor:
        """Returns the attention mask [B, Q, K]: 1 where a query may attend to a key."""
        keys = ops.arange(ops.shape(input_mask)[1], dtype="int32")  # [K]
        # [B, Q, 1]; [S, 1] where all tokens are queries.
        queries = ops.expand_dims(keys if positions is None else positions, -1)
        allowed = queries >= (keys if self.config.is_decoder else 0)
        return ops.expand_dims(input_mask, 1) * ops.cast(allowed, input_mask.dtype)


def gather_tokens(inputs: Tensor, positions: Tensor, length: Tensor) -> Tensor:
    """Returns the rows [B·Q, H] of [B·S, H] at the positions, int32 [B, Q], of each sequence.

    `length` is S.
    """
    starts = ops.arange(ops.shape(positions)[0], dtype="int32")[:, None] * length
    return ops.take(inputs, ops.reshape(ops.cast(positions, "int32") + starts, (-1,)), axis=0)


class Pooler(ConfiguredLayer):
    """A tanh layer on the encoding of [CLS]: [B, H] to [B, H] (original: modeling.py)."""

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.dense = self.new_dense(config.hidden_size, "dense", "tanh")

    def call(self, inputs: Tensor) -> Tensor:
        return self.dense(inputs)


class NoOutputError(ValueError, AttributeError):
    """An output is read of a `BertModel` that was made without inputs."""


def _getter(name: str) -> Callable[["BertModel"], Any]:
    """Returns a method that returns an output of a `BertModel` that was made with inputs."""

    def get(self: "BertModel") -> Any:
        if name in self._outputs:
            return self._outputs[name]
        raise NoOutputError(
            f"`BertModel` must be made with `input_ids` to have `{name}`. Without them, call the "
            "model on a dictionary of inputs, and read the dictionary that it returns."
        )

    return get


@keras.saving.register_keras_serializable("bert")
class BertModel(ConfiguredLayer):
    """The encoder with its pooler (paper, section 3; original: modeling.py, BertModel).

    Takes a dictionary of `input_ids`, int32 [B, S]; `input_mask`, int32 [B, S], 1 for real tokens
    and 0 for padding (all real where absent); and `segment_ids`, int32 [B, S] (all 0 where absent).

    Gives a dictionary of `sequence_output` [B, S, H]; `pooled_output` [B, H]; `embedding_output`
    [B, S, H]; `encoder_layers`, a list of L tensors [B, S, H], the last being `sequence_output`;
    and `embedding_table` [V, H], for output weights tied to the input embeddings.

    Called with `positions`, int32 [B, Q], the last layer computes the tokens at these positions
    alone: `sequence_output` and the last of `encoder_layers` are [B, Q, H], with the same numbers.
    `pooled_output` is of the first positions, which must be `pooled_positions`. This saves most of
    a layer where few tokens are read.

    Called with `attention_probs=True`, the dictionary also has `attention_probs`, a list of L
    tensors [B, N, S, S]: the weight with which the token of a row attends to the token of a column,
    by layer and head, before dropout. With `positions`, the last one is [B, N, Q, S].

    Made as in the original, with `is_training` and `input_ids`, the model is called at once, and
    the getters and attributes of the original return its outputs. In a graph of `tf.compat.v1` the
    model then has no layers, and the variables are those of the graph's scope `scope`.

    Args:
      config: The shape of the model; copied.
      is_training: False for a model without dropout. On `keras.Input` tensors, a model with dropout
        drops out where Keras trains it.
      input_ids: int32 [B, S], eager or of `keras.Input`.
      input_mask: The `input_mask` of the dictionary.
      token_type_ids: The `segment_ids` of the dictionary.
      use_one_hot_embeddings: Ignored; in the original it changes no number, either.
      scope: The layer's name.
      name: The layer's name where there is no `scope`.
      gradient_checkpointing: See `Encoder`; also an attribute, to be set before training. This
        project's loop gives the same bits with it; Keras' `fit`, other rounding and dropout masks.
      **kwargs: Keras' arguments of every layer.
    """

    def __init__(  # noqa: PLR0913 (the original's arguments)
        self,
        config: BertConfig,
        is_training: bool | None = None,
        input_ids: Tensor | None = None,
        input_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        use_one_hot_embeddings: bool = False,
        scope: str | None = None,
        *,
        name: str = "bert",
        gradient_checkpointing: bool = False,
        **kwargs: Any,
    ) -> None:
        config = copy.deepcopy(config)
        if is_training is None and input_ids is None:
            super().__init__(config, name=scope or name, **kwargs)
            self.add_layers()
            self.gradient_checkpointing = gradient_checkpointing
            outputs = {}
        else:
            inputs = (input_ids, input_mask, token_type_ids)
            call_at_once = names.load("bert.original.graph", "init_and_call")
            kwargs = {"name": name, "gradient_checkpointing": gradient_checkpointing, **kwargs}
            outputs = call_at_once(self, config, inputs, is_training, scope, **kwargs)
        # Keras would search a dictionary for weights.
        self._outputs = types.MappingProxyType(outputs)

    def add_layers(self) -> None:
        """Adds the embeddings, the encoder and the pooler."""
        if self.config.is_word_vectors:
            raise ValueError(
                "The model must have a Transformer. The `encoder_type` in its configuration is "
                "'word_vectors': run_ner.py and predict.py take such a model."
            )
        is_bilstm = self.config.is_bilstm
        encoder = names.load("bert.network.lstm", "LstmEncoder") if is_bilstm else Encoder
        self.embeddings = self.new(Embeddings, "embeddings")
        self.encoder = self.new(encoder, "encoder")
        self.pooler = self.new(Pooler, "pooler")

    @property
    def stacked_layers(self) -> list[keras.layers.Layer]:
        """The layers of the encoder, from the lowest."""
        encoder = self.encoder
        return encoder.lstm_layers if self.config.is_bilstm else encoder.transformer_layers

    @property
    def gradient_checkpointing(self) -> bool:
        return self.encoder.gradient_checkpointing

    @gradient_checkpointing.setter
    def gradient_checkpointing(self, value: bool) -> None:
        self.encoder.gradient_checkpointing = value

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "gradient_checkpointing": self.gradient_checkpointing}

    get_pooled_output = _getter("pooled_output")
    get_sequence_output = _getter("sequence_output")
    get_all_encoder_layers = _getter("encoder_layers")
    get_embedding_output = _getter("embedding_output")
    get_embedding_table = _getter("embedding_table")

    # As attributes, too, as in the original.
    pooled_output = property(get_pooled_output)
    sequence_output = property(get_sequence_output)
    all_encoder_layers = property(get_all_encoder_layers)
    embedding_output = property(get_embedding_output)
    embedding_table = property(get_embedding_table)

    def call(
        self,
        inputs: Mapping[str, Tensor],
        training: bool | None = False,
        positions: Tensor | None = None,
        attention_probs: bool = False,
    ) -> dict[str, Any]:
        _check_inputs(inputs)
        input_ids = inputs["input_ids"]
        batch, length = ops.shape(input_ids)
        self._check_call(length, attention_probs, training)
        input_mask, segment_ids = inputs.get("input_mask"), inputs.get("segment_ids")
        input_mask = ops.ones_like(input_ids) if input_mask is None else input_mask
        segment_ids = ops.zeros_like(input_ids) if segment_ids is None else segment_ids
        embedded = self.embeddings(input_ids, segment_ids, training=training)
        probs: list[Tensor] = []
        observed = self.stacked_layers if attention_probs else ()
        with _observing([layer.attention.self_attention for layer in observed], probs):
            layers = self.encoder(embedded, input_mask, positions, training=training)
        width = self.config.hidden_size
        last_length = length if positions is None else ops.shape(positions)[1]
        last = ops.reshape(layers.pop(), (batch, last_length, width))
        embedded, *layers = (
            ops.reshape(output, (batch, length, width)) for output in (embedded, *layers)
        )
        first = last[:, 0]
        if self.config.is_decoder or self.config.is_bilstm:
            pool = names.load("bert.network.lstm", "pool")
            first = pool(self.config, last, input_mask, is_gathered=positions is not None)
        return {
            "sequence_output": last,
            "pooled_output": self.pooler(first),
            "embedding_output": embedded,
            "encoder_layers": [*layers, last],
            "embedding_table": ops.cast(self.embeddings.word_embeddings, self.compute_dtype),
            **({"attention_probs": probs} if attention_probs else {}),
        }

    def compute_output_spec(
        self,
        inputs: Mapping[str, Tensor],
        training: bool | None = False,
        positions: Tensor | None = None,
        attention_probs: bool = False,
    ) -> dict[str, Any]:
        """Returns the outputs of symbolic inputs, since tracing `call` for their shapes is slow."""
        _check_inputs(inputs)
        batch, length = inputs["input_ids"].shape
        self._check_call(length, attention_probs, training)

        def output(*shape: int | None) -> Tensor:
            return keras.KerasTensor(shape, self.compute_dtype)

        width = self.config.hidden_size
        num_lower = self.config.num_hidden_layers - 1
        num_read = length if positions is None else positions.shape[1]
        last = output(batch, num_read, width)
        queries = [*[length] * num_lower, num_read] if attention_probs else []
        heads = self.config.num_attention_heads
        probs = [output(batch, heads, size, length) for size in queries]
        return {
            "sequence_output": last,
            "pooled_output": output(batch, width),
            "embedding_output": output(batch, length, width),
            "encoder_layers": [*(output(batch, length, width) for _ in range(num_lower)), last],
            "embedding_table": output(self.config.vocab_size, width),
            **({"attention_probs": probs} if attention_probs else {}),
        }

    def _check_call(
        self, length: Tensor | None, attention_probs: bool, training: bool | None
    ) -> None:
        limit = self.config.max_position_embeddings
        if isinstance(length, int) and length > limit:
            raise ValueError(
                f"`max_seq_length` must be at most {limit} for this model. Received {length}."
            )
        if attention_probs and self.config.is_bilstm:
            raise ValueError(
                "`attention_probs` must be requested of Transformers alone. The `encoder_type` of "
                "this model is 'bilstm'."
            )
        if attention_probs and training and self.gradient_checkpointing:
            raise ValueError(
                "`attention_probs` must not be requested in training with "
                "`gradient_checkpointing`, which keeps only the inputs of a layer."
            )


_INPUTS = ("input_ids", "input_mask", "segment_ids")
# Their names in other libraries.
_OTHER_INPUTS = {"attention_mask", "token_type_ids", "input_word_ids", "input_type_ids"}


def _check_inputs(inputs: Any) -> None:
    """Checks that the inputs have the names that `BertModel` takes, among others."""
    found = sorted(inputs) if isinstance(inputs, Mapping) else []
    if "input_ids" not in found or _OTHER_INPUTS & {*found}:
        raise ValueError(
            "`inputs` must be a dictionary of `input_ids` and, where they are not all 1 and all 0, "
            f"`input_mask` and `segment_ids`. Received {found or type(inputs).__name__}. The "
            "`attention_mask` of transformers is `input_mask` here, and its `token_type_ids` are "
            "`segment_ids`."
        )


def encoder_inputs() -> dict[str, Tensor]:
    """Returns symbolic `input_ids`, `input_mask` and `segment_ids`, int32 [B, S], by name."""
    return {name: keras.Input((None,), dtype="int32", name=name) for name in _INPUTS}


# Type checkers must still see misspelt names.
if not TYPE_CHECKING:
    _ORIGINAL = """
        assert_rank attention_layer create_attention_mask_from_input_mask dropout embedding_lookup
        embedding_postprocessor get_assignment_map_from_checkpoint get_shape_list layer_norm
        layer_norm_and_dropout reshape_from_matrix reshape_to_matrix transformer_model
    """
    _LSTM = """
        BilstmLayer Lstm LstmEncoder both_ways join_ends pool reversed_positions side_by_side
    """
    __getattr__, __dir__, __all__ = names.serve(
        globals(),
        {
            "bert.dropout": ["dropout_seed"],
            "bert.original.modeling": _ORIGINAL.split(),
            "bert.network.heads": ["end_positions", "num_pooled", "pooled_positions"],
            "bert.network.lstm": _LSTM.split(),
        },
    )
