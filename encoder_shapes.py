"""The variables of the encoder and their shapes, as a configuration gives them without a model."""

from collections.abc import Mapping, Sequence

from modeling import BertConfig

Shapes = dict[str, list[int]]

# Which key of `bert_config.json` gives which dimension of a variable, by the end of its name.
_CONFIG_KEYS = {
    "word_embeddings": ("vocab_size", "hidden_size"),
    "token_type_embeddings": ("type_vocab_size", "hidden_size"),
    "position_embeddings": ("max_position_embeddings", "hidden_size"),
    "predictions/output_bias": ("vocab_size",),
    "intermediate/dense/kernel": ("hidden_size", "intermediate_size"),
    "intermediate/dense/bias": ("intermediate_size",),
}


def expected(config: BertConfig) -> Shapes:
    """Returns the shapes of the encoder's variables by name; a test holds them to the model's."""
    width, inner = config.hidden_size, config.intermediate_size
    shapes = {
        "bert/embeddings/word_embeddings": [config.vocab_size, width],
        "bert/embeddings/token_type_embeddings": [config.type_vocab_size, width],
        "bert/embeddings/position_embeddings": [config.max_position_embeddings, width],
        **_layer_norm("bert/embeddings", width),
        **_dense("bert/pooler/dense", width, width),
    }
    for number in range(config.num_hidden_layers):
        layer = f"bert/encoder/layer_{number}"
        for name in ("self/query", "self/key", "self/value", "output/dense"):
            shapes |= _dense(f"{layer}/attention/{name}", width, width)
        shapes |= _layer_norm(f"{layer}/attention/output", width)
        shapes |= _dense(f"{layer}/intermediate/dense", width, inner)
        shapes |= _dense(f"{layer}/output/dense", inner, width)
        shapes |= _layer_norm(f"{layer}/output", width)
    return shapes


def _dense(scope: str, inputs: int, outputs: int) -> Shapes:
    return {f"{scope}/kernel": [inputs, outputs], f"{scope}/bias": [outputs]}


def _layer_norm(scope: str, width: int) -> Shapes:
    return {f"{scope}/LayerNorm/gamma": [width], f"{scope}/LayerNorm/beta": [width]}


def differences(
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
    """Returns the key of `bert_config.json` that explains a difference of shapes, if one does."""
    if name in ("output_weights", "output_bias"):
        return " (its head is that of another task or of other labels)"
    for ending, keys in _CONFIG_KEYS.items():
        if name.endswith(ending) and len(stored) == len(keys):
            causes = [
                f"`{key}` should be {there}"
                for key, there, here in zip(keys, stored, wanted, strict=True)
                if there != here
            ]
            return f" ({', '.join(causes)})"
    return ""
