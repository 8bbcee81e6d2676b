"""Functions of the original's extract_features.py, with its arguments and results.

Code written for the original finds these names as `extract_features.<name>`.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import modeling
import tokenization
from bert.files.paths import read_lines
from bert.files.texts import clean_line, split_pair
from bert.log import logger
from bert.original import model_fn
from bert.tasks import features as layer_features
from bert.tasks import layers as layers_by_name

Tensor = Any

_INPUTS = ("input_ids", "input_mask", "input_type_ids")
_EXAMPLES_LOGGED = 5


@dataclasses.dataclass
class InputExample:
    """A text, or a pair of texts, with a number."""

    unique_id: int
    text_a: str
    text_b: str | None


@dataclasses.dataclass
class InputFeatures:
    """The model's inputs for one example; the last three are lists of `seq_length`."""

    unique_id: int
    tokens: list[str]
    input_ids: list[int]
    input_mask: list[int]
    input_type_ids: list[int]


def read_examples(input_file: str) -> list[InputExample]:
    """Returns the lines of a file, `A` or `A ||| B` each, numbered from 0."""
    texts = (split_pair(clean_line(line)) for line, _ in read_lines(input_file))
    return [InputExample(number, a, b or None) for number, (a, b) in enumerate(texts)]


def convert_examples_to_features(
    examples: Iterable[InputExample], seq_length: int, tokenizer: tokenization.FullTokenizer
) -> list[InputFeatures]:
    """Returns the features of each example, truncated or padded to `seq_length`; logs a few."""
    if seq_length < 3:
        raise ValueError(
            "`seq_length` must be at least 3, to hold a token and what surrounds it. Received "
            f"{seq_length}."
        )
    converted = []
    for number, example in enumerate(examples):
        texts = (example.text_a, example.text_b or "")
        line = layer_features.read_line(texts, tokenizer, seq_length)
        rest = [0] * (seq_length - len(line.tokens))
        features = InputFeatures(
            example.unique_id,
            list(line.tokens),
            [*line.input_ids, *rest],
            [1] * len(line.tokens) + rest,
            [*line.segment_ids, *rest],
        )
        if number < _EXAMPLES_LOGGED:
            logger.info("*** Example ***")
            for name, value in vars(features).items():
                shown = " ".join(map(str, value)) if isinstance(value, list) else value
                logger.info("%s: %s", name, shown)
        converted.append(features)
    return converted


def input_fn_builder(features: Sequence[InputFeatures], seq_length: int) -> model_fn.InputFn:
    """Returns a function that gives features as batches, in order.

    These have `unique_ids`, int32 [B]; `input_ids`, `input_mask` and `input_type_ids`, int32
    [B, S].
    """
    arrays = model_fn.stack_inputs(features, _INPUTS, seq_length)
    arrays["unique_ids"] = np.array([row.unique_id for row in features], np.int32)
    return model_fn.from_arrays(arrays, is_training=False, drop_remainder=False)


def model_fn_builder(
    bert_config: modeling.BertConfig,
    init_checkpoint: str,
    layer_indexes: Sequence[int],
    use_tpu: bool,
    use_one_hot_embeddings: bool,
) -> model_fn.ModelFn:
    """Returns BERT, whose predictions of a batch are some of its layers.

    These are `unique_id`, int32 [B], and `layer_output_0` and so on, float32 [B, S, H], one for
    each of `layer_indexes`, which count from 0, or from the end with -1.
    """
    del use_tpu, use_one_hot_embeddings
    names = ",".join(map(str, layer_indexes))
    layers = layers_by_name.parse_layers(names, bert_config, flag="layers")

    def make_model() -> keras.Model:
        inputs = modeling.encoder_inputs()
        encoded = modeling.BertModel(bert_config)(inputs)
        outputs = {
            f"layer_output_{number}": layers_by_name.combine(encoded, layer)
            for number, layer in enumerate(layers)
        }
        return keras.Model(inputs, outputs)

    def predict(outputs: Mapping[str, Tensor], features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        model_fn.check_features(features, ["unique_ids"])
        return {"unique_id": tf.convert_to_tensor(features["unique_ids"]), **outputs}

    ways = model_fn.Ways(predict=predict, input_names={"segment_ids": "input_type_ids"})
    return model_fn.build(make_model, ways, init_checkpoint)
