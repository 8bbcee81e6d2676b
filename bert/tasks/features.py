"""Layers of an encoder as features of texts (paper, section 5.3).

Dimension key as in `modeling.py`; also `W`, the width of a layer.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import modeling
import tokenization
from bert.network.kernels import infer
from bert.network.lengths import pad_sequences, sort_by_length
from bert.tasks.layers import combine


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """The tokens of a text, or of a pair of texts.

    Attributes:
      tokens: `[CLS] a [SEP] (b [SEP])`.
      input_ids: The ids of the tokens.
      segment_ids: 0 up to the first [SEP], then 1.
      num_cut: The number of truncated tokens.
    """

    tokens: Sequence[str]
    input_ids: Sequence[int]
    segment_ids: Sequence[int]
    num_cut: int


def read_line(
    texts: Sequence[str], tokenizer: tokenization.FullTokenizer, max_seq_length: int
) -> Line:
    """Returns the tokens of two texts, of which the second may be empty, truncated to a length."""
    a, b = map(tokenizer.tokenize, texts)
    tokens, segment_ids = tokenization.pack(a, b, max_length=max_seq_length)
    num_cut = len(a) + len(b) + (3 if b else 2) - len(tokens)
    return Line(tokens, tokenizer.convert_tokens_to_ids(tokens), segment_ids, num_cut)


class Extractor:
    """Computes layers of an encoder, and pools them over tokens.

    Args:
      bert: The encoder.
      layers: The layers, as `parse_layers` returns them.
      pooling: "none", "cls", "mean" or "max".
    """

    def __init__(self, bert: modeling.BertModel, layers: Sequence[int | str], pooling: str) -> None:
        self.layers = layers
        self.pooling = pooling
        inputs = modeling.encoder_inputs()
        encoded = bert(inputs)
        outputs = [combine(encoded, layer) for layer in layers]
        self.model = keras.Model(inputs, outputs)
        # One trace is enough for all shapes. TensorFlow computes only what the outputs need.
        signature = {name: tf.TensorSpec((None, None), tf.int32) for name in inputs}
        self._compute = tf.function(self._pooled, input_signature=[signature], autograph=False)

    def _pooled(self, batch: dict[str, Any]) -> list[Any]:
        """Returns each layer, [B, S, W], or pooled [B, 1, W]."""
        # Keras does not return a single output as a list.
        outputs = tf.nest.flatten(infer(self.model, batch))
        outputs = [tf.cast(output, tf.float32) for output in outputs]
        if self.pooling == "none":
            return outputs
        if self.pooling == "cls":
            return [output[:, :1] for output in outputs]
        mask = tf.cast(batch["input_mask"], tf.float32)[:, :, None]
        if self.pooling == "mean":
            num_tokens = tf.reduce_sum(mask, axis=1, keepdims=True)
            sums = [tf.reduce_sum(output * mask, axis=1, keepdims=True) for output in outputs]
            return [total / num_tokens for total in sums]
        masked = [tf.where(mask > 0, output, output.dtype.min) for output in outputs]
        return [tf.reduce_max(output, axis=1, keepdims=True) for output in masked]

    def num_rows(self, num_tokens: int) -> int:
        """Returns the number of result rows of a line."""
        return num_tokens if self.pooling == "none" else 1

    def __call__(
        self,
        lines: Sequence[Line],
        *,
        batch_size: int,
        max_seq_length: int,
        between: Callable[[], None] = lambda: None,
    ) -> list[list[np.ndarray]]:
        """Returns float32 [`num_rows`, W] for each line and layer.

        Args:
          lines: The lines.
          batch_size: The lines of a batch.
          max_seq_length: The maximum number of tokens of a line.
          between: A function that is called after each batch, and may raise to stop.
        """
        results: list[list[np.ndarray]] = [[] for _ in lines]
        lengths = [len(line.tokens) for line in lines]
        for batch in sort_by_length(lengths, batch_size):
            inputs = pad_sequences(
                [lines[number].input_ids for number in batch],
                [lines[number].segment_ids for number in batch],
                max_seq_length,
            )
            outputs = [output.numpy() for output in self._compute(inputs)]
            between()
            for row, number in enumerate(batch):
                num_rows = self.num_rows(lengths[number])
                results[number] = [output[row, :num_rows] for output in outputs]
        return results
