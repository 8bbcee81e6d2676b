"""Pooling: the tokens that represent a sequence, and their encoding.

[CLS] represents it in BERT. In a decoder, [CLS] attends to itself alone, and the last [SEP] to all
tokens. Of LSTMs, the forward half of the last token and the backward half of the first one have
read the complete sequence.
"""

from typing import Any

from keras import ops

from modeling import BertConfig, gather_tokens

Tensor = Any


def pooled_positions(config: BertConfig, input_mask: Tensor) -> Tensor:
    """Returns the positions of the tokens that represent a sequence: int32 [B, `num_pooled`].

    Args:
      config: The configuration of the model.
      input_mask: [B, S], 1 for real tokens, which come before padding.
    """
    if config.is_bilstm:
        return end_positions(input_mask)
    first = ops.zeros_like(input_mask[:, :1])
    return end_positions(input_mask)[:, :1] if config.is_decoder else first


def num_pooled(config: BertConfig) -> int:
    """Returns the number of tokens that represent a sequence."""
    return 2 if config.is_bilstm else 1


def end_positions(input_mask: Tensor) -> Tensor:
    """Returns the position of each row's last real token, and that of its first: int32 [B, 2]."""
    first = ops.zeros_like(input_mask[:, :1])
    last = ops.maximum(ops.sum(input_mask, axis=1, keepdims=True) - 1, first)
    return ops.concatenate([last, first], axis=1)


def pool(config: BertConfig, encodings: Tensor, input_mask: Tensor, *, is_gathered: bool) -> Tensor:
    """Returns the encoding of a sequence, [B, H].

    Args:
      config: The configuration of the model.
      encodings: [B, S, H], or [B, Q, H] of which the first are at `pooled_positions`.
      input_mask: [B, S].
      is_gathered: Whether the encodings are [B, Q, H].
    """
    if not is_gathered:
        _, length, width = ops.shape(encodings)
        positions = pooled_positions(config, input_mask)
        rows = gather_tokens(ops.reshape(encodings, (-1, width)), positions, length)
        encodings = ops.reshape(rows, (ops.shape(positions)[0], -1, width))
    return join_ends(encodings) if config.is_bilstm else encodings[:, 0]


def join_ends(encodings: Tensor) -> Tensor:
    """Returns the first half of the first token and the second half of the second: [B, H]."""
    half = encodings.shape[-1] // 2
    return ops.concatenate([encodings[:, 0, :half], encodings[:, 1, half:]], axis=-1)
