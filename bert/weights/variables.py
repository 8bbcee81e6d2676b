"""The table of BERT's variables: names, shapes by keys of the configuration, and other names.

Names are those of the original's checkpoints; the other names are those of transformers, which
stores kernels transposed.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from bert.files.machine import gpu_memory, size_text, total_memory
from bert.options import Message, Option, OptionError
from modeling import BertConfig

# The name of the table of words in every checkpoint.
WORD_TABLE = "bert/embeddings/word_embeddings"
GLOBAL_STEP = "global_step"
# The optimizer's variables, beside each variable that it trains.
SLOTS = ("adam_m", "adam_v")

_LAYER = re.compile(r"(?:bert[./])?encoder[./]layer[._](\d+)[./]")
_HIDDEN = "hidden_size"
_INNER = "intermediate_size"


@dataclasses.dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the encoder or of a head.

    Attributes:
      name: The name in a TF1 checkpoint.
      keys: The key of the configuration for each dimension, None where the task gives it.
      theirs: The name in transformers.
      is_transposed: Whether transformers stores the variable transposed.
    """

    name: str
    keys: tuple[str | None, ...]
    theirs: str
    is_transposed: bool = False


Table = Mapping[str, Variable]


def _module(scope: str) -> str:
    return re.sub(r"layer_(\d+)", r"layer.\1", scope).replace("/", ".")


def _embedding(kind: str, size: str) -> Variable:
    name = f"bert/embeddings/{kind}_embeddings"
    return Variable(name, (size, _HIDDEN), f"{_module(name)}.weight")


def _dense(scope: str, inputs: str, outputs: str) -> list[Variable]:
    module = _module(scope)
    return [
        Variable(f"{scope}/kernel", (inputs, outputs), f"{module}.weight", is_transposed=True),
        Variable(f"{scope}/bias", (outputs,), f"{module}.bias"),
    ]


def _layer_norm(scope: str) -> list[Variable]:
    module = _module(scope)
    return [
        Variable(f"{scope}/LayerNorm/gamma", (_HIDDEN,), f"{module}.LayerNorm.weight"),
        Variable(f"{scope}/LayerNorm/beta", (_HIDDEN,), f"{module}.LayerNorm.bias"),
    ]


def _output(scope: str, module: str) -> list[Variable]:
    return [
        Variable(f"{scope}output_weights", (None, _HIDDEN), f"{module}.weight"),
        Variable(f"{scope}output_bias", (None,), f"{module}.bias"),
    ]


def _layer(number: int) -> list[Variable]:
    scope = f"bert/encoder/layer_{number}"
    attention = ("self/query", "self/key", "self/value", "output/dense")
    return [
        *(v for part in attention for v in _dense(f"{scope}/attention/{part}", *_SQUARE)),
        *_layer_norm(f"{scope}/attention/output"),
        *_dense(f"{scope}/intermediate/dense", _HIDDEN, _INNER),
        *_dense(f"{scope}/output/dense", _INNER, _HIDDEN),
        *_layer_norm(f"{scope}/output"),
    ]


_SQUARE = (_HIDDEN, _HIDDEN)
_EMBEDDINGS_AND_POOLER = (
    _embedding("word", "vocab_size"),
    _embedding("token_type", "type_vocab_size"),
    _embedding("position", "max_position_embeddings"),
    *_layer_norm("bert/embeddings"),
    *_dense("bert/pooler/dense", *_SQUARE),
)
_HEADS = (
    *_dense("cls/predictions/transform/dense", *_SQUARE),
    *_layer_norm("cls/predictions/transform"),
    Variable("cls/predictions/output_bias", ("vocab_size",), "cls.predictions.bias"),
    *_output("cls/seq_relationship/", "cls.seq_relationship"),
    *_output("cls/squad/", "qa_outputs"),
    *_output("", "classifier"),
)


def encoder_variables(layers: Iterable[int]) -> Table:
    """Returns the variables of an encoder with layers of these numbers, by name."""
    in_layers = (variable for number in layers for variable in _layer(number))
    return {variable.name: variable for variable in (*_EMBEDDINGS_AND_POOLER, *in_layers)}


def find_variables(names: Iterable[str]) -> Table:
    """Returns the variables of all heads and of an encoder with the layers of these names.

    The names are those of variables here or in transformers.
    """
    layers = {int(match[1]) for name in names if (match := _LAYER.match(name))}
    return {**encoder_variables(layers), **{head.name: head for head in _HEADS}}


def encoder_shapes(config: BertConfig) -> dict[str, list[int]]:
    """Returns the shapes of the encoder's variables by name; a test holds them to the model's."""
    if config.is_word_vectors:
        return {WORD_TABLE: [config.vocab_size, config.hidden_size]}
    sizes = config.to_dict()
    # Variables of LSTMs have no names in transformers.
    num_known = 0 if config.is_bilstm else config.num_hidden_layers
    shapes = {
        name: [sizes[key] for key in variable.keys if key]
        for name, variable in encoder_variables(range(num_known)).items()
    }
    return {**shapes, **_lstm_shapes(config)} if config.is_bilstm else shapes


def _lstm_shapes(config: BertConfig) -> dict[str, list[int]]:
    units = config.hidden_size // 2
    shapes = {}
    for index in range(config.num_hidden_layers):
        for name in ("forward", "backward"):
            scope = f"bert/encoder/layer_{index}/{name}"
            shapes[f"{scope}/kernel"] = [units if index else config.hidden_size, 4 * units]
            shapes[f"{scope}/recurrent_kernel"] = [units, 4 * units]
            shapes[f"{scope}/bias"] = [4 * units]
    return shapes


def count_parameters(config: BertConfig) -> int:
    """Returns the number of the encoder's parameters; quick for a model of any size."""
    if config.is_word_vectors or config.is_bilstm:
        return sum(map(math.prod, encoder_shapes(config).values()))
    sizes = config.to_dict()
    counts = {
        name: math.prod(sizes[key] for key in variable.keys if key)
        for name, variable in encoder_variables([0]).items()
    }
    of_layer = sum(count for name, count in counts.items() if "/layer_0/" in name)
    return sum(counts.values()) + (config.num_hidden_layers - 1) * of_layer


# Measured: the bytes of objects, symbolic tensors and the like for each layer of a model.
_LAYER_OBJECTS = 1_000_000


def check_size(config: BertConfig, path: str) -> None:
    """Checks that this machine has the memory for a model's weights, in use or not.

    Args:
      config: The shape of the model.
      path: The file of the configuration, for the message.
    """
    total = total_memory()
    count = count_parameters(config)
    needed = 4 * count + _LAYER_OBJECTS * config.num_hidden_layers
    if total is None or needed <= total:
        return
    gpus = gpu_memory()
    if needed > total + sum(gpus):
        beside = f" and {size_text(sum(gpus))} on {len(gpus)} GPUs" if gpus else ""
        keys = ("vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size")
        sizes = ", ".join(f"`{key}` {getattr(config, key)}" for key in keys)
        raise ValueError(
            f"{path!r} must describe a model that this machine can hold. With {sizes}, its "
            f"{count:,} parameters and its layers take {needed:,} bytes ({size_text(needed)}); the "
            f"machine has {total:,} ({size_text(total)}){beside}."
        )


# How the names of a head begin that is as large as the number of labels.
LABEL_HEAD = ("output_weights", "output_bias", "crf/")
# How the names of projections begin, from layers of a student to the width of its teacher.
PROJECTION = "distillation_"


def find_differences(
    wanted: Mapping[str, Sequence[int]], stored: Mapping[str, Sequence[int]]
) -> list[str]:
    """Returns a sentence for each variable that is stored in another shape, with the cause."""
    return [
        f"`{name}` is {list(stored[name])} there and {list(shape)} in the model"
        f"{_cause(name, stored[name], shape)}"
        for name, shape in wanted.items()
        if name in stored and list(stored[name]) != list(shape)
    ]


def _cause(name: str, stored: Sequence[int], wanted: Sequence[int]) -> str:
    """Returns the keys of the configuration that explain a difference of shapes, if any do."""
    if name.startswith(LABEL_HEAD):
        return " (its head is that of another task or of other labels)"
    variable = find_variables([name]).get(name)
    if variable is None or len(stored) != len(variable.keys):
        return ""
    causes = {
        f"`{key}` should be {there}": None
        for key, there, here in zip(variable.keys, stored, wanted, strict=True)
        if key and there != here
    }
    return f" ({', '.join(causes)})" if causes else ""


def require_segments(config: BertConfig, what: str) -> None:
    """Checks that a model has two segment types, which `what` needs, as "a text and its ending"."""
    if config.type_vocab_size < 2:
        raise ValueError(
            f"`type_vocab_size` of the model must be at least 2, for {what}. Received "
            f"{config.type_vocab_size}."
        )


def check_length(max_seq_length: int, config: BertConfig, source: Option | None = None) -> None:
    """Checks that a model has positions for the longest sequences.

    Args:
      max_seq_length: Tokens per sequence.
      config: The shape of the model.
      source: The option that the shape is of; None for `bert_config_file`.

    Raises:
      OptionError: where it has fewer.
    """
    limit = config.max_position_embeddings
    if max_seq_length > limit:
        source = source or Option("bert_config_file")
        must = Message("be at most %d, the `max_position_embeddings` of %s", limit, source)
        raise OptionError("max_seq_length", must, max_seq_length)


def is_slot(name: str) -> bool:
    """Returns whether a tensor of that name is one of the optimizer's."""
    return name.rpartition("/")[2] in SLOTS
