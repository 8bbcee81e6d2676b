"""Layers of an encoder and their combinations by name (paper, table 7)."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert.options import Message, MessageError, Option, OptionError

if TYPE_CHECKING:
    import modeling

Tensor = Any

# The combinations of table 7; sums are over Transformer layers without the embeddings.
COMBINATIONS: dict[str, Callable[[Tensor, Sequence[Tensor]], Tensor]] = {
    "embeddings": lambda embeddings, layers: embeddings,
    "last": lambda embeddings, layers: layers[-1],
    "second_to_last": lambda embeddings, layers: layers[-2],
    "sum_last_four": lambda embeddings, layers: sum(layers[-3:], layers[-4]),
    "concat_last_four": lambda embeddings, layers: _concatenate(layers[-4:]),
    "sum_all": lambda embeddings, layers: sum(layers[1:], layers[0]),
}
_LAYERS_NEEDED = {"embeddings": 0, "second_to_last": 2, "sum_last_four": 4, "concat_last_four": 4}

# A mean of all layers, whose weights are learned with the tagger.
WEIGHTED = "weighted"
FEATURE_LAYERS = (*COMBINATIONS, WEIGHTED)

NO_ENCODER = (
    "The model must have an encoder. It has word vectors alone, which run_ner.py was given: that "
    "script and predict.py take such a model."
)


def _concatenate(layers: Sequence[Tensor]) -> Tensor:
    from keras import ops  # noqa: PLC0415

    return ops.concatenate(layers, axis=-1)


def parse_layers(text: str, config: "modeling.BertConfig", *, flag: str) -> list[int | str]:
    """Returns the layers that a comma-separated list names, in its order.

    Args:
      text: Numbers and names of `COMBINATIONS`. Layers count from 0, or from the end with -1.
      config: The shape of the model.
      flag: The option of the list, for the message.

    Raises:
      ValueError: where the model has no such layer.
    """
    num_layers = config.num_hidden_layers
    return [_parse_layer(name.strip(), num_layers, flag, text) for name in text.split(",")]


def parse_one_layer(text: str, config: "modeling.BertConfig", *, flag: str) -> int | str:
    """Returns the one layer that a text names; arguments and errors are those of `parse_layers`."""
    layer, *others = parse_layers(text, config, flag=flag)
    if others:
        raise OptionError(flag, "name a single layer", text)
    return layer


def other_names(layer: str, config: "modeling.BertConfig") -> list[str]:
    """Returns the names of a layer that `parse_layers` takes for the same one."""
    last = {"last": "-1", "second_to_last": "-2"}.get(layer, layer)
    if not last.removeprefix("-").isdecimal():
        return []
    count = config.num_hidden_layers
    number = int(last) % count
    return [str(number), str(number - count), *["second_to_last"] * (number == count - 2)]


def _parse_layer(name: str, num_layers: int, flag: str, text: str) -> int | str:
    try:
        index = int(name)
    except ValueError:
        if name not in COMBINATIONS:
            known = f"list numbers of layers or names among {list(COMBINATIONS)}"
            raise OptionError(flag, known, text) from None
        needed = _LAYERS_NEEDED.get(name, 1)
        if num_layers < needed:
            raise MessageError(
                "%s must name what the model has: %r needs %d layers, and `num_hidden_layers` is "
                "%d.",
                Option(flag),
                name,
                needed,
                num_layers,
            ) from None
        return name
    if not -num_layers <= index < num_layers:
        must = Message(
            "be at least %d and less than %d, the `num_hidden_layers` in %s",
            -num_layers,
            num_layers,
            Option("bert_config_file"),
        )
        raise OptionError(flag, must, text)
    return index


def check_layers(name: str, config: "modeling.BertConfig") -> None:
    """Raises `ValueError` where a model lacks layers that one of `FEATURE_LAYERS` needs."""
    if name != WEIGHTED:
        parse_layers(name, config, flag="feature_layers")


def check_encoder(config: "modeling.BertConfig") -> None:
    """Raises `ValueError` for a model of word vectors, which has no encoder."""
    if config.is_word_vectors:
        raise ValueError(NO_ENCODER)


def combine(encoded: Mapping[str, Any], layer: int | str) -> Tensor:
    """Returns one layer or combination, [B, S, `width`], of the outputs of `BertModel`."""
    layers = encoded["encoder_layers"]
    if isinstance(layer, int):
        return layers[layer]
    return COMBINATIONS[layer](encoded["embedding_output"], layers)


def width(layer: int | str, config: "modeling.BertConfig") -> int:
    """Returns the number of values per token of a layer or combination."""
    return config.hidden_size * (4 if layer == "concat_last_four" else 1)
