"""BERT's network: the encoder, the pre-training heads and their losses (paper, section 3).

Dimension key: `B` batch, `S` sequence, `H` hidden, `N` heads, `D` head size, `F` feed-forward,
`P` predictions, `V` vocabulary, `L` layers, `Q` queries, `K` keys.

Inside the encoder, activations are matrices [B·S, H], so that every dense layer is one bare matrix
product. Layer names equal the variable scopes of the original release, so a variable's path is its
name in a checkpoint. The network is built of `keras.ops` alone.
"""

import contextlib
import contextvars
import copy
import dataclasses
import functools
import importlib
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

from bert.files import huggingface as huggingface_files
from bert.files.json_text import parse_json
from bert.files.paths import read_file

Tensor = Any

# Keys of released `bert_config.json` files that the original never reads.
UNUSED_KEYS = frozenset(
    {
        "directionality",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
    }
)

# Faithful: variance and epsilon as in the original (modeling.py, layer_norm, through
# tf.contrib.layers.layer_norm).
LAYER_NORM_EPSILON = 1e-12

# What stands between the embeddings and the outputs.
ENCODER_TYPES = ("transformer", "bilstm", "word_vectors")

_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)


@dataclasses.dataclass
class BertConfig:
    """The shape of a model, as `bert_config.json` states it (original: modeling.py, BertConfig).

    Any values are taken, and may be set later; layers `check` them when they are made. What is set
    under other names stays, too, and has no effect.

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
      is_decoder: Whether a token attends to itself and those before it alone, as GPT's do (paper,
        section 5.1, "LTR"). Departs: the original has none such.
      encoder_type: One of `ENCODER_TYPES`. Of "bilstm", the layers are those of ELMo (paper, figure
        3): `num_attention_heads`, `intermediate_size` and `attention_probs_dropout_prob` have no
        effect then. Of "word_vectors", as before BERT (paper, section 2.1), there is nothing but a
        table with a vector for each whole word; L is 0 then. Departs: the original has Transformers
        alone.
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
        """Whether there is a table of words, and no Transformer."""
        return self.encoder_type == "word_vectors"

    @classmethod
    def from_dict(cls, json_object: Mapping[str, Any]) -> "BertConfig":
        """Returns the config that a parsed `bert_config.json` describes.

        Args:
          json_object: May also be a `config.json` of transformers. Of keys that are not known, a
            warning tells; they stay in the config, as in the original.

        Raises:
          ValueError: where transformers describes a model that is none of BERT's, or a key is the
            name of a method.
        """
        if huggingface_files.is_config(json_object):
            json_object = huggingface_files.to_bert(json_object)
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
        try:
            values = parse_json(read_file(os.fspath(json_file)))
        except FileNotFoundError as error:
            raise ValueError(f"`bert_config_file` must exist. Received {json_file!r}.") from error
        except ValueError as error:
            raise ValueError(f"{json_file!r} must be JSON: {error}.") from error
        if not isinstance(values, dict):
            raise ValueError(f"{json_file!r} must hold a JSON object. Received {values!r:.80}.")
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
        for name in _SIZES:
            value = getattr(self, name)
            least = 0 if (name, self.is_word_vectors) == ("num_hidden_layers", True) else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"`{name}` must be a positive integer. Received {value!r}.")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if not _is_number(getattr(self, name)) or not 0 <= getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be in [0, 1). Received {getattr(self, name)!r}.")
        if not _is_number(self.initializer_range) or not 0 < self.initializer_range < math.inf:
            raise ValueError(
                f"`initializer_range` must be positive. Received {self.initializer_range!r}."
            )
        if not isinstance(self.is_decoder, bool):
            raise ValueError(f"`is_decoder` must be true or false. Received {self.is_decoder!r}.")
        self._check_encoder_type()
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                "`hidden_size` must be a multiple of `num_attention_heads`. Received "
                f"{self.hidden_size} and {self.num_attention_heads}."
            )
        # A function is taken, too, as in the original; no file can hold one.
        if not callable(self.hidden_act):
            get_activation(str(self.hidden_act))

    def _check_encoder_type(self) -> None:
        if self.encoder_type not in ENCODER_TYPES:
            raise ValueError(
                f"`encoder_type` must be one of {list(ENCODER_TYPES)}. Received "
                f"{self.encoder_type!r}."
            )
        if self.is_bilstm and (self.is_decoder or self.hidden_size % 2):
            raise ValueError(
                "With the `encoder_type` 'bilstm', `is_decoder` must be false, and `hidden_size` "
                f"even, half of it for each direction. Received {self.is_decoder} and "
                f"{self.hidden_size}."
            )

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields by name, and what else was set.

        Those of a BERT are the original's: where `is_decoder` and `encoder_type` are as by default,
        they are left out.
        """
        values = copy.deepcopy(vars(self))
        for name in ("is_decoder", "encoder_type"):
            if getattr(self, name) == getattr(BertConfig, name):
                # One that was pickled before there were any has none.
                values.pop(name, None)
        return values

    def to_json_string(self) -> str:
        """Returns the text of a `bert_config.json`."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_FORMS: contextvars.ContextVar[Mapping[str, Callable[..., Tensor | None]]] = contextvars.ContextVar(
    "forms", default=types.MappingProxyType({})
)


@contextlib.contextmanager
def computing(**forms: Callable[..., Tensor | None]) -> Iterator[None]:
    """Within this context, operations are computed in other forms, which give the same but faster.

    So a backend's own are used, which `keras.ops` does not know, or compiled ones.

    Args:
      **forms: By the name of a function that is marked as `replaceable`, what is called instead,
        with the same arguments; where it returns None, the function itself is.
    """
    token = _FORMS.set({**_FORMS.get(), **forms})
    try:
        yield
    finally:
        _FORMS.reset(token)


def replaceable(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Marks an operation of which `computing` may name another form."""

    @functools.wraps(function)
    def operation(*arguments: Any, **constants: float) -> Tensor:
        form = _FORMS.get().get(function.__name__)
        result = form(*arguments, **constants) if form else None
        return function(*arguments, **constants) if result is None else result

    return operation


@replaceable
def gelu(x: Tensor) -> Tensor:
    """Returns the Gaussian error linear unit in its tanh form (original: modeling.py, gelu)."""
    wide = _widen(x)
    # Products rather than a power, which TensorFlow turns into products in some places, not in all:
    # a layer that is computed again must come to the same bits.
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * (wide * wide * wide))
    return ops.cast(0.5 * wide * (1.0 + ops.tanh(inner)), x.dtype)


@replaceable
def gelu_erf(x: Tensor) -> Tensor:
    """Returns the Gaussian error linear unit in its exact form, x Φ(x), as transformers has it."""
    return ops.cast(ops.gelu(_widen(x), approximate=False), x.dtype)


def _widen(x: Tensor) -> Tensor:
    """Returns float16 as float32: its smallest numbers depend on the order of the factors."""
    return ops.cast(x, "float32") if keras.backend.standardize_dtype(x.dtype) == "float16" else x


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor] | None] = {
    "linear": None,
    "relu": ops.relu,
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "tanh": ops.tanh,
}


def get_activation(activation_string: Any) -> Callable[[Tensor], Tensor] | None:
    """Returns the activation of that name; None for the linear one, and a callable as it is.

    Raises:
      ValueError: where the original has no activation of that name.
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
    """Returns a truncated normal initializer with that standard deviation.

    Every variable needs one of its own: a Keras initializer gives the same numbers each time.
    """
    return keras.initializers.TruncatedNormal(stddev=initializer_range)


_DROPOUT_SEED: contextvars.ContextVar[Tensor | None] = contextvars.ContextVar(
    "dropout_seed", default=None
)


@contextlib.contextmanager
def dropout_seed(seed: Tensor) -> Iterator[None]:
    """Within this context, dropout is a function of `seed` and each layer's path alone.

    A training loop that derives the seed from its step can be stopped and resumed without changing
    any mask. Elsewhere dropout draws from Keras' own generators.

    Args:
      seed: int32 [2].
    """
    token = _DROPOUT_SEED.set(seed)
    try:
        yield
    finally:
        _DROPOUT_SEED.reset(token)


class _FixedSeed(keras.random.SeedGenerator):
    """Hands one given seed to `keras.random`; holds no state."""

    def __init__(self, seed: Tensor) -> None:
        self.seed = seed

    def next(self, ordered: bool = True) -> Tensor:
        return self.seed


@keras.saving.register_keras_serializable("bert")
class Dropout(keras.layers.Dropout):
    """Dropout whose mask `dropout_seed` can fix (paper, appendix A.2).

    Input and output have the same shape; with `training` false, they are the same.
    """

    def build(self, *_: Any) -> None:
        self.built = True

    def call(self, inputs: Tensor, training: bool | None = False) -> Tensor:
        seed = _DROPOUT_SEED.get()
        graph = getattr(inputs, "graph", None)
        if not training or not self.rate:
            return super().call(inputs, training=training)
        if seed is None and graph is not None and not graph.building_function:
            # In a graph for a Session, Keras' generators would give every run the same mask.
            seed = _original("draw_seed")()
        if seed is None:
            return super().call(inputs, training=training)
        salt = ops.convert_to_tensor([zlib.crc32(self.path.encode()) & 0x7FFFFFFF, 0], "int32")
        # Each draw of 32 bits serves two elements; 16 bits meet the rate to within 1e-5, also in
        # half precision, whose own numbers are too coarse.
        sizes = ops.shape(inputs)
        is_known = all(isinstance(each, int) for each in sizes)
        size = math.prod(sizes) if is_known else ops.size(inputs)
        drawn = keras.random.randint(
            ((size + 1) // 2, 1), -(2**31), 2**31 - 1, "int32", seed=_FixedSeed(seed + salt)
        )
        numbers = ops.reshape(ops.view(drawn, "int16"), (-1,))[:size]
        return drop(inputs, ops.reshape(numbers, ops.shape(inputs)), rate=self.rate)


@replaceable
def drop(inputs: Tensor, numbers: Tensor, *, rate: float) -> Tensor:
    """Drops out where numbers, int16 of the inputs' shape, are of their largest."""
    kept = numbers < round((1 - rate) * 2**16) - 2**15
    return inputs * (ops.cast(kept, inputs.dtype) * (1.0 / (1.0 - rate)))


@keras.saving.register_keras_serializable("bert")
class LayerNorm(keras.layers.LayerNormalization):
    """Layer normalization over the last axis, which `computing` can speed up."""

    def call(self, inputs: Tensor) -> Tensor:
        return self.layer_norm(inputs)

    @replaceable
    def layer_norm(self, inputs: Tensor) -> Tensor:
        """Returns rows of mean 0 and variance 1, scaled by gamma and shifted by beta."""
        return super().call(inputs)


class ConfiguredLayer(keras.layers.Layer):
    """A layer made of a `BertConfig` alone, and saved with it."""

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        config.check()
        self.config = config

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "config": self.config.to_dict()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "ConfiguredLayer":
        return super().from_config({**config, "config": BertConfig.from_dict(config["config"])})

    def add_table(self, name: str, shape: tuple[int, ...], **kwargs: Any) -> keras.Variable:
        """Adds a weight with the configured initializer."""
        initializer = create_initializer(self.config.initializer_range)
        return self.add_weight(name=name, shape=shape, initializer=initializer, **kwargs)

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
        width = config.hidden_size
        # Rows are looked up before they are cast: half precision must not cast the whole table.
        self.word_embeddings = self.add_table(
            "word_embeddings", (config.vocab_size, width), autocast=False
        )
        self.token_type_embeddings = self.add_table(
            "token_type_embeddings", (config.type_vocab_size, width)
        )
        self.position_embeddings = self.add_table(
            "position_embeddings", (config.max_position_embeddings, width)
        )
        self.layer_norm.build((None, width))
        self.dropout.build(None)

    def call(self, input_ids: Tensor, segment_ids: Tensor, training: bool | None = False) -> Tensor:
        batch, length = ops.shape(input_ids)
        width = self.config.hidden_size
        words = ops.take(self.word_embeddings, input_ids, axis=0)  # [B, S, H]
        words = ops.cast(words, self.compute_dtype)
        # A one-hot product rather than a look-up: its gradient is a matrix product, too.
        segments = ops.matmul(
            ops.one_hot(
                ops.reshape(segment_ids, (-1,)), self.config.type_vocab_size, dtype=words.dtype
            ),
            self.token_type_embeddings,
        )
        positions = self.position_embeddings[:length]
        embedded = words + ops.reshape(segments, (batch, length, width)) + positions
        embedded = self.layer_norm(ops.reshape(embedded, (-1, width)))  # [B·S, H]
        return self.dropout(embedded, training=training)


@replaceable
def attention_probs(scores: Tensor) -> Tensor:
    """Returns the shares with which queries attend to keys, [B, N, Q, K]; rows add up to 1."""
    return ops.softmax(scores)


def _keeping_attention(kept: list[Tensor]) -> contextlib.AbstractContextManager[None]:
    """Returns a context within which what layers attend to goes into a list, too."""

    def keep(scores: Tensor) -> Tensor:
        kept.append(ops.softmax(scores))
        return kept[-1]

    return computing(attention_probs=keep)


class SelfAttention(ConfiguredLayer):
    """Attends from tokens to the real ones (paper, section 3; Vaswani et al., section 3.2).

    Takes the activations of those that attend, `queries` [B·Q, H]; of all, `inputs` [B·S, H]; and
    `input_mask`, [B, Q, K], 1 where the query may attend to the key, or, where all attend, [B, S],
    1 for real tokens and 0 for padding. Gives [B·Q, H].
    """

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.projections = [
            self.new_dense(config.hidden_size, name) for name in ("query", "key", "value")
        ]
        self.dropout = self.new_dropout(config.attention_probs_dropout_prob)

    def build(self, *_: Any) -> None:
        for projection in self.projections:
            projection.build((None, self.config.hidden_size))
        self.dropout.build(None)

    def call(
        self, queries: Tensor, inputs: Tensor, input_mask: Tensor, training: bool | None = False
    ) -> Tensor:
        *_, from_length, to_length = ops.shape(input_mask)
        if len(input_mask.shape) == 2:
            from_length, input_mask = to_length, ops.expand_dims(input_mask, 1)  # [B, 1, K]
        to_queries, to_keys, to_values = self.projections
        query = self.split_heads(to_queries(queries), from_length)
        key, value = (self.split_heads(each(inputs), to_length) for each in (to_keys, to_values))
        return self.attend(query, key, value, input_mask, training)

    def split_heads(self, inputs: Tensor, length: Tensor) -> Tensor:
        """Returns [B·S, H] as [B, N, S, D]."""
        config = self.config
        head_size = config.hidden_size // config.num_attention_heads
        shape = (-1, length, config.num_attention_heads, head_size)
        return ops.transpose(ops.reshape(inputs, shape), (0, 2, 1, 3))

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, training: bool | None
    ) -> Tensor:
        """Returns the context [B·Q, H] of heads [B, N, Q, D] and [B, N, K, D] under [B, Q, K]."""
        head_size = self.config.hidden_size // self.config.num_attention_heads
        scores = ops.matmul(query * head_size**-0.5, ops.swapaxes(key, 2, 3))  # [B, N, Q, K]
        # Faithful: the original adds -10000 to padding rather than masking it exactly.
        padding = (1.0 - ops.cast(mask, scores.dtype)) * -10000.0
        weights = attention_probs(scores + ops.expand_dims(padding, 1))
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
        self.dropout.build(None)
        self.layer_norm.build((None, self.config.hidden_size))

    def call(self, inputs: Tensor, residual: Tensor, training: bool | None = False) -> Tensor:
        projected = self.dropout(self.dense(inputs), training=training)
        return self.layer_norm(projected + residual)


class Attention(ConfiguredLayer):
    """Self-attention with its output projection; shapes as in `SelfAttention`."""

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.self_attention = SelfAttention(config, name="self", dtype=self.dtype_policy)
        self.output_projection = ResidualOutput(
            config, config.hidden_size, name="output", dtype=self.dtype_policy
        )

    def build(self, *_: Any) -> None:
        self.self_attention.build(None)
        self.output_projection.build(None)

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

    def build(self, *_: Any) -> None:
        self.dense.build((None, self.config.hidden_size))

    def call(self, inputs: Tensor) -> Tensor:
        return self.dense(inputs)


class TransformerLayer(ConfiguredLayer):
    """One layer of the encoder: attention, then feed-forward; shapes as in `SelfAttention`."""

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.attention = Attention(config, name="attention", dtype=self.dtype_policy)
        self.intermediate = Intermediate(config, name="intermediate", dtype=self.dtype_policy)
        self.output_projection = ResidualOutput(
            config, config.intermediate_size, name="output", dtype=self.dtype_policy
        )

    def build(self, *_: Any) -> None:
        self.attention.build(None)
        self.intermediate.build(None)
        self.output_projection.build(None)

    def call(
        self, queries: Tensor, inputs: Tensor, input_mask: Tensor, training: bool | None = False
    ) -> Tensor:
        attended = self.attention(queries, inputs, input_mask, training=training)
        return self.output_projection(self.intermediate(attended), attended, training=training)

    def dropout_seed(self) -> Tensor | None:
        """Returns what `_seed_of` does for the layer's masks."""
        return _seed_of([self.attention.self_attention.dropout, self.output_projection.dropout])


class Encoder(ConfiguredLayer):
    """The stack of Transformer layers; gives the list of all layers' outputs, [B·S, H] each.

    Given `positions`, int32 [B, Q], and an `input_mask` [B, S], the last layer computes the tokens
    there alone: [B·Q, H]. In a decoder, no token attends to one behind it.

    Attributes:
      gradient_checkpointing: Whether training keeps no more of a layer for the backward pass than
        its inputs, and computes the rest again (Chen et al., Training Deep Nets with Sublinear
        Memory Cost).
    """

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.transformer_layers = [
            TransformerLayer(config, name=f"layer_{index}", dtype=self.dtype_policy)
            for index in range(config.num_hidden_layers)
        ]
        self.gradient_checkpointing = False

    def build(self, *_: Any) -> None:
        for layer in self.transformer_layers:
            layer.build(None)

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
            return _computed_again(compute, inputs, layer.dropout_seed())
        return compute(inputs)

    def _mask(self, input_mask: Tensor, positions: Tensor | None) -> Tensor:
        """Returns to which tokens those at the positions, or all, may attend: [B, Q, K]."""
        keys = ops.arange(ops.shape(input_mask)[1], dtype="int32")  # [K]
        # [B, Q, 1]; where all ask, [S, 1].
        asking = ops.expand_dims(keys if positions is None else positions, -1)
        allowed = asking >= (keys if self.config.is_decoder else 0)
        return ops.expand_dims(input_mask, 1) * ops.cast(allowed, input_mask.dtype)


class Lstm(ConfiguredLayer):
    """Reads rows from their beginnings: [B, S, `input_size`] to [B, S, U], U being H/2.

    Computes in float32 whatever its policy: a state that every token adds to loses too much in 16
    bits (Hochreiter and Schmidhuber, 1997; the bias of forget gates begins at 1, as Jozefowicz et
    al., 2015, recommend).
    """

    def __init__(self, config: BertConfig, input_size: int, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.input_size = input_size
        self.units = config.hidden_size // 2

    def build(self, *_: Any) -> None:
        def new(name: str, shape: tuple[int, ...], initializer: Any) -> keras.Variable:
            return self.add_weight(name=name, shape=shape, initializer=initializer, autocast=False)

        # Gates side by side: input, forget, candidate, output.
        width = 4 * self.units
        self.kernel = new("kernel", (self.input_size, width), "glorot_uniform")
        self.recurrent_kernel = new("recurrent_kernel", (self.units, width), "orthogonal")
        self.bias = new("bias", (width,), _forget_bias)

    def call(self, inputs: Tensor) -> Tensor:
        gates = ops.matmul(ops.cast(inputs, "float32"), self.kernel) + self.bias  # [B, S, 4·U]

        def step(state: tuple[Tensor, Tensor], gates: Tensor) -> tuple[Any, Any]:
            output, cell = state
            gates += ops.matmul(output, self.recurrent_kernel)
            to_add, to_keep, candidate, to_give = ops.split(gates, 4, axis=-1)
            cell = ops.sigmoid(to_keep) * cell + ops.sigmoid(to_add) * ops.tanh(candidate)
            state = (ops.sigmoid(to_give) * ops.tanh(cell), cell)
            # Keras wants what is kept of a step to be like the state.
            return state, state

        zeros = ops.zeros_like(gates[:, 0, : self.units])
        _, (outputs, _) = ops.scan(step, (zeros, zeros), ops.swapaxes(gates, 0, 1))
        return ops.cast(ops.swapaxes(outputs, 0, 1), self.compute_dtype)


def _forget_bias(shape: tuple[int, ...], dtype: Any = None) -> Tensor:
    """Returns 1 for the forget gates, the second quarter, and else 0."""
    places = ops.arange(shape[0])
    return ops.cast((places >= shape[0] // 4) & (places < shape[0] // 2), dtype or "float32")


class BilstmLayer(ConfiguredLayer):
    """Reads rows in two directions, neither of which learns of the other: [2, B, S, D] to [.., U].

    First the rows, then the rows reversed; U is H/2, and D is `input_size`. Where D is U, the input
    is added to the output (Peters et al., Deep contextualized word representations, 3.1 and 3.4).
    """

    def __init__(self, config: BertConfig, input_size: int, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.lstms = [
            Lstm(config, input_size, name=name, dtype=self.dtype_policy)
            for name in ("forward", "backward")
        ]
        self.dropout = self.new_dropout(config.hidden_dropout_prob)
        self.is_residual = input_size == config.hidden_size // 2

    def build(self, *_: Any) -> None:
        for lstm in self.lstms:
            lstm.build(None)
        self.dropout.build(None)

    def call(self, inputs: Tensor, training: bool | None = False) -> Tensor:
        outputs = ops.stack([lstm(inputs[index]) for index, lstm in enumerate(self.lstms)])
        outputs = self.dropout(outputs, training=training)
        return outputs + inputs if self.is_residual else outputs


class LstmEncoder(ConfiguredLayer):
    """The LSTMs of ELMo in the place of an `Encoder`; takes, gives and has what that does.

    The first half of a token's output is of an LSTM that has read its row up to it, the second of
    one that has read from the last real token back to it. Each half of a layer reads its own half
    of the one below, so that neither knows what is on the other side.
    """

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        widths = [config.hidden_size, *[config.hidden_size // 2] * (config.num_hidden_layers - 1)]
        self.lstm_layers = [
            BilstmLayer(config, width, name=f"layer_{index}", dtype=self.dtype_policy)
            for index, width in enumerate(widths)
        ]
        self.gradient_checkpointing = False

    def build(self, *_: Any) -> None:
        for layer in self.lstm_layers:
            layer.build(None)

    def call(
        self,
        inputs: Tensor,
        input_mask: Tensor,
        positions: Tensor | None = None,
        training: bool | None = False,
    ) -> list[Tensor]:
        order = reversed_positions(input_mask)
        hidden = both_ways(inputs, order)
        outputs = []
        for layer in self.lstm_layers:
            hidden = self._call_layer(layer, hidden, training)
            outputs.append(side_by_side(hidden, order))
        if positions is not None:
            outputs[-1] = gather_tokens(outputs[-1], positions, ops.shape(input_mask)[1])
        return outputs

    def _call_layer(self, layer: BilstmLayer, hidden: Tensor, training: bool | None) -> Tensor:
        def compute(hidden: Tensor) -> Tensor:
            return layer(hidden, training=training)

        if self.gradient_checkpointing and training:
            return _computed_again(compute, hidden, _seed_of([layer.dropout]))
        return compute(hidden)


def reversed_positions(input_mask: Tensor) -> Tensor:
    """Returns for each place the one that stands there when its row is reversed: int32 [B, S].

    The real tokens of a row, which come before padding, change their order; padding stays.
    """
    places = ops.arange(ops.shape(input_mask)[1], dtype="int32")
    lengths = ops.sum(ops.cast(input_mask, "int32"), axis=1, keepdims=True)  # [B, 1]
    return ops.where(places < lengths, lengths - 1 - places, places)


def both_ways(inputs: Tensor, order: Tensor) -> Tensor:
    """Returns rows, [B·S, D], and these in the order, int32 [B, S]: [2, B, S, D]."""
    batch, length = ops.shape(order)
    both = ops.stack([inputs, gather_tokens(inputs, order, length)])
    return ops.reshape(both, (2, batch, length, inputs.shape[-1]))


def side_by_side(outputs: Tensor, order: Tensor) -> Tensor:
    """Returns the two halves of each token, of what `both_ways` gave: [2, B, S, U] to [B·S, H]."""
    forward, backward = (ops.reshape(outputs[i], (-1, outputs.shape[-1])) for i in range(2))
    return ops.concatenate([forward, gather_tokens(backward, order, ops.shape(order)[1])], axis=-1)


def _seed_of(dropouts: Sequence[Dropout]) -> Tensor | None:
    """Returns a seed for all masks of a call, int32 [2]; None where nothing is dropped out.

    It is that of the context `dropout_seed`, or else drawn from a generator of a layer.
    """
    drawing = [dropout.seed_generator for dropout in dropouts if dropout.rate]
    seed = _DROPOUT_SEED.get()
    if seed is None and drawing:
        return ops.cast(drawing[0].next(), "int32")
    return seed if drawing else None


def _computed_again(
    compute: Callable[[Tensor], Tensor], inputs: Tensor, seed: Tensor | None
) -> Tensor:
    """Returns `compute(inputs)`, of which the backward pass has nothing but `inputs`.

    Args:
      compute: A function of [B·S, H].
      inputs: [B·S, H].
      seed: That of `dropout_seed`, None where nothing is dropped out.
    """

    def seeded(inputs: Tensor) -> Tensor:
        if seed is None:
            return compute(inputs)
        # Adds 0, which only the values tell. TensorFlow would find masks of the seed alone to be
        # the same in both passes, and keep them from one to the other.
        zero = ops.cast(ops.sum(ops.abs(inputs[:1, :1])) < 0, "int32")
        with dropout_seed(seed + zero):
            return compute(inputs)

    return keras.remat(seeded)(inputs)


def gather_tokens(inputs: Tensor, positions: Tensor, length: Tensor) -> Tensor:
    """Returns those of [B·S, H] at the positions, int32 [B, Q], of each row: [B·Q, H].

    `length` is S.
    """
    starts = ops.arange(ops.shape(positions)[0], dtype="int32")[:, None] * length
    return ops.take(inputs, ops.reshape(ops.cast(positions, "int32") + starts, (-1,)), axis=0)


class Pooler(ConfiguredLayer):
    """A tanh layer on what `pool` gives: [B, H] to [B, H] (original: modeling.py)."""

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.dense = self.new_dense(config.hidden_size, "dense", "tanh")

    def build(self, *_: Any) -> None:
        self.dense.build((None, self.config.hidden_size))

    def call(self, inputs: Tensor) -> Tensor:
        return self.dense(inputs)


class NoOutputError(ValueError, AttributeError):
    """A `BertModel` is asked for an output before it was called on anything."""


@keras.saving.register_keras_serializable("bert")
class BertModel(ConfiguredLayer):
    """The encoder with its pooler (paper, section 3; original: modeling.py, BertModel).

    Takes a dictionary of `input_ids`, int32 [B, S]; `input_mask`, int32 [B, S], 1 for real tokens
    and 0 for padding (all real where absent); and `segment_ids`, int32 [B, S] (all 0 where absent).

    Gives a dictionary of `sequence_output` [B, S, H]; `pooled_output` [B, H]; `embedding_output`
    [B, S, H]; `encoder_layers`, a list of L tensors [B, S, H], the last being `sequence_output`;
    and `embedding_table` [V, H], for output weights tied to the input embeddings.

    Called with `positions`, int32 [B, Q], it computes the last layer for the tokens there alone:
    `sequence_output` and the last of `encoder_layers` are [B, Q, H], of the same numbers as else.
    `pooled_output` is that of the first of them, whose positions must be those of
    `pooled_positions`. This saves most of a layer where few tokens are read.

    Called with `attention_probs=True`, it also gives `attention_probs`, a list of L tensors
    [B, N, S, S]: the share of its attention that the token of a row gives to that of a column, by
    layer and head, before dropout. With `positions`, the last one is [B, N, Q, S].

    Made in the original's way, with `is_training` and `input_ids`, it is called at once, and the
    getters and attributes of the original give its outputs. So made in a graph of `tf.compat.v1`,
    it has the outputs alone; the variables are those of the graph's scope `scope`.

    Args:
      config: The shape of the model.
      is_training: False for a model without dropout. On `keras.Input` tensors, a model with dropout
        drops out where Keras trains it.
      input_ids: int32 [B, S], eager or of `keras.Input`.
      input_mask: As in the dictionary.
      token_type_ids: The `segment_ids` of the dictionary.
      use_one_hot_embeddings: Without effect; in the original it changes no number, either.
      scope: The layer's name.
      name: The layer's name where there is no `scope`.
      **kwargs: Keras' arguments of every layer.

    Attributes:
      gradient_checkpointing: As that of `Encoder`, to be set before the model is trained. With the
        training loop of this project the numbers are the same bit for bit; with Keras' `fit` they
        differ by rounding and by the masks of dropout.
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
        **kwargs: Any,
    ) -> None:
        if (is_training is None) != (input_ids is None):
            raise ValueError(
                "`is_training` and `input_ids` must be given together, or neither. Received "
                f"{is_training!r} and {input_ids!r}."
            )
        if config.is_word_vectors:
            raise ValueError(
                "The model must have a Transformer. The `encoder_type` in its configuration is "
                "'word_vectors', from `run_ner.py --word_vectors`: that script and predict.py take "
                "such a model."
            )
        # What becomes of the given one is no concern of the model.
        config = copy.deepcopy(config)
        if input_ids is not None and not is_training:
            config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
        given = {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": token_type_ids}
        inputs = {name: tensor for name, tensor in given.items() if tensor is not None}
        if input_ids is not None and _original("in_graph")():
            super().__init__(config, name=name, **kwargs)
            outputs = _original("encode_in_graph")(config, inputs, scope)
            self._outputs = types.SimpleNamespace(**outputs)
            return
        super().__init__(config, name=scope or name, **kwargs)
        self.embeddings = Embeddings(config, name="embeddings", dtype=self.dtype_policy)
        encoder = LstmEncoder if config.is_bilstm else Encoder
        self.encoder = encoder(config, name="encoder", dtype=self.dtype_policy)
        self.pooler = Pooler(config, name="pooler", dtype=self.dtype_policy)
        # In an object that Keras does not search for weights.
        self._outputs = types.SimpleNamespace()
        if input_ids is not None:
            # Symbolic outputs follow the phase of the functional model that they become part of.
            training = not isinstance(input_ids, keras.KerasTensor)
            outputs = self(inputs, training=training)
            self._outputs = types.SimpleNamespace(**outputs)

    @property
    def stacked_layers(self) -> list[keras.layers.Layer]:
        """The layers above the embeddings, from the lowest."""
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

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "BertModel":
        config = dict(config)
        checkpointing = config.pop("gradient_checkpointing", False)
        model = super().from_config(config)
        model.gradient_checkpointing = checkpointing
        return model

    def get_pooled_output(self) -> Tensor:
        return self._output("pooled_output")

    def get_sequence_output(self) -> Tensor:
        return self._output("sequence_output")

    def get_all_encoder_layers(self) -> list[Tensor]:
        return self._output("encoder_layers")

    def get_embedding_output(self) -> Tensor:
        return self._output("embedding_output")

    def get_embedding_table(self) -> Tensor:
        return self._output("embedding_table")

    # As attributes, too, as in the original.
    pooled_output = property(get_pooled_output)
    sequence_output = property(get_sequence_output)
    all_encoder_layers = property(get_all_encoder_layers)
    embedding_output = property(get_embedding_output)
    embedding_table = property(get_embedding_table)

    def _output(self, name: str) -> Any:
        if not hasattr(self._outputs, name):
            raise NoOutputError(
                f"`input_ids` must be given to `BertModel` for it to keep its `{name}`. Without, "
                "call it on a dictionary and take the output from the one that it gives."
            )
        return getattr(self._outputs, name)

    def build(self, *_: Any) -> None:
        self.embeddings.build(None)
        self.encoder.build(None)
        self.pooler.build(None)

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
        self._check_length(length)
        self._check_attends(attention_probs)
        if attention_probs and training and self.gradient_checkpointing:
            raise ValueError(
                "`attention_probs` must not be asked for in training with "
                "`gradient_checkpointing`, which keeps nothing of a layer but its inputs."
            )
        input_mask = inputs.get("input_mask")
        if input_mask is None:
            input_mask = ops.ones_like(input_ids)
        segment_ids = inputs.get("segment_ids")
        if segment_ids is None:
            segment_ids = ops.zeros_like(input_ids)
        embedded = self.embeddings(input_ids, segment_ids, training=training)
        kept: list[Tensor] = []
        with _keeping_attention(kept) if attention_probs else contextlib.nullcontext():
            layers = self.encoder(embedded, input_mask, positions, training=training)
        width = self.config.hidden_size
        last_length = length if positions is None else ops.shape(positions)[1]
        last = ops.reshape(layers.pop(), (batch, last_length, width))
        embedded, *layers = (
            ops.reshape(output, (batch, length, width)) for output in (embedded, *layers)
        )
        first = last
        if positions is None and (self.config.is_decoder or self.config.is_bilstm):
            places = pooled_positions(self.config, input_mask)
            first = gather_tokens(ops.reshape(last, (-1, width)), places, length)
            first = ops.reshape(first, (batch, -1, width))
        return {
            "sequence_output": last,
            "pooled_output": self.pooler(pool(self.config, first)),
            "embedding_output": embedded,
            "encoder_layers": [*layers, last],
            "embedding_table": ops.cast(self.embeddings.word_embeddings, self.compute_dtype),
            **({"attention_probs": kept} if attention_probs else {}),
        }

    def compute_output_spec(
        self,
        inputs: Mapping[str, Tensor],
        training: bool | None = False,
        positions: Tensor | None = None,
        attention_probs: bool = False,
    ) -> dict[str, Any]:
        """Returns what `call` gives for symbolic inputs; tracing it for their shapes takes long."""
        _check_inputs(inputs)
        batch, length = inputs["input_ids"].shape
        self._check_length(length)
        self._check_attends(attention_probs)

        def output(*shape: int | None) -> Tensor:
            return keras.KerasTensor(shape, self.compute_dtype)

        width = self.config.hidden_size
        num_lower = self.config.num_hidden_layers - 1
        num_read = length if positions is None else positions.shape[1]
        last = output(batch, num_read, width)
        queries = [*[length] * num_lower, num_read] if attention_probs else []
        heads = self.config.num_attention_heads
        kept = [output(batch, heads, each, length) for each in queries]
        return {
            "sequence_output": last,
            "pooled_output": output(batch, width),
            "embedding_output": output(batch, length, width),
            "encoder_layers": [*(output(batch, length, width) for _ in range(num_lower)), last],
            "embedding_table": output(self.config.vocab_size, width),
            **({"attention_probs": kept} if attention_probs else {}),
        }

    def _check_attends(self, attention_probs: bool) -> None:
        if attention_probs and self.config.is_bilstm:
            raise ValueError(
                "`attention_probs` must be asked of Transformers alone: the LSTMs of an "
                "`encoder_type` 'bilstm' attend to nothing."
            )

    def _check_length(self, length: Tensor | None) -> None:
        """Raises ValueError where a length that is known is more than the model has positions."""
        limit = self.config.max_position_embeddings
        if isinstance(length, int) and length > limit:
            raise ValueError(
                f"`max_seq_length` must be at most {limit} for this model. Received {length}."
            )


_INPUTS = ("input_ids", "input_mask", "segment_ids")


# What others call them.
_OTHER_INPUTS = {"attention_mask", "token_type_ids", "input_word_ids", "input_type_ids"}


def _check_inputs(inputs: Any) -> None:
    """Raises `ValueError` unless `inputs` has what `BertModel` takes, under its names.

    More may be there, such as labels; but what has another name would silently not count.
    """
    names = sorted(inputs) if isinstance(inputs, Mapping) else []
    if "input_ids" not in names or _OTHER_INPUTS & {*names}:
        raise ValueError(
            "`inputs` must be a dictionary of `input_ids` and, where they are not all 1 and all 0, "
            f"`input_mask` and `segment_ids`. Received {names or type(inputs).__name__}. The "
            "`attention_mask` of transformers is `input_mask` here, and its `token_type_ids` are "
            "`segment_ids`."
        )


def encoder_inputs() -> dict[str, Tensor]:
    """Returns symbolic `input_ids`, `input_mask` and `segment_ids`, int32 [B, S], by name."""
    return {name: keras.Input((None,), dtype="int32", name=name) for name in _INPUTS}


def pooled_positions(config: BertConfig, input_mask: Tensor) -> Tensor:
    """Returns the positions of what stands for all of a sequence: int32 [B, 1].

    That is [CLS], the first; in a decoder, where [CLS] sees nothing but itself, the last [SEP]; of
    LSTMs both, the last and then the first: [B, 2].

    Args:
      config: Of the model.
      input_mask: [B, S], 1 for real tokens, which come before padding.
    """
    if config.is_bilstm:
        return end_positions(input_mask)
    first = ops.zeros_like(input_mask[:, :1])
    return end_positions(input_mask)[:, :1] if config.is_decoder else first


def end_positions(input_mask: Tensor) -> Tensor:
    """Returns the position of each row's last real token, and that of its first: int32 [B, 2]."""
    first = ops.zeros_like(input_mask[:, :1])
    last = ops.maximum(ops.sum(input_mask, axis=1, keepdims=True) - 1, first)
    return ops.concatenate([last, first], axis=1)


def num_pooled(config: BertConfig) -> int:
    """Returns how many positions `pooled_positions` gives of a sequence."""
    return 2 if config.is_bilstm else 1


def pool(config: BertConfig, encodings: Tensor) -> Tensor:
    """Returns what stands for all of a sequence: [B, H].

    Of LSTMs it is the forward one's half at the last token and the backward one's at the first,
    each of which has read the whole sequence.

    Args:
      config: Of the model.
      encodings: [B, Q, H], of which the first are at `pooled_positions`.
    """
    return join_ends(encodings) if config.is_bilstm else encodings[:, 0]


def join_ends(encodings: Tensor) -> Tensor:
    """Returns [B, H]: of [B, Q, H] the first half of the first token, the second of the second."""
    half = encodings.shape[-1] // 2
    return ops.concatenate([encodings[:, 0, :half], encodings[:, 1, half:]], axis=-1)


_ORIGINAL_NAMES = frozenset(
    {
        "assert_rank",
        "attention_layer",
        "create_attention_mask_from_input_mask",
        "dropout",
        "embedding_lookup",
        "embedding_postprocessor",
        "get_assignment_map_from_checkpoint",
        "get_shape_list",
        "layer_norm",
        "layer_norm_and_dropout",
        "reshape_from_matrix",
        "reshape_to_matrix",
        "transformer_model",
    }
)


def _original(name: str) -> Any:
    return getattr(importlib.import_module("bert.original.modeling"), name)


# The rest of the original's modeling.py, which the network does not need, is found here by its
# readers and loaded when first asked for. Type checkers must still see misspelt names.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _ORIGINAL_NAMES:
            return _original(name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *_ORIGINAL_NAMES})

    # What `from modeling import *` brings.
    __all__ = [name for name in __dir__() if not name.startswith("_")]
