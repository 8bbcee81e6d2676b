"""Writes word vectors as a model of its own kind: a table of words, and no layer above it."""

import os

import numpy as np

from bert.files.weight_names import WEIGHTS
from bert.files.word_vectors import WordVectors
from bert.weights.folder import ModelFolder
from bert.weights.saving import save_tensors
from bert.weights.variables import WORD_TABLE
from modeling import BertConfig

# The rows before the words.
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def save_as_model(vectors: WordVectors, folder: str) -> None:
    """Writes the model of word vectors to an existing folder; [UNK] has the vector of no word."""
    rows = [row for row, word in enumerate(vectors.words) if word not in SPECIAL_TOKENS]
    width = vectors.values.shape[1]
    zeros = np.zeros((1, width), np.float32)
    table = np.concatenate([zeros, vectors.unknown[None], zeros, zeros, vectors.values[rows]])
    config = BertConfig(
        vocab_size=len(table),
        hidden_size=width,
        num_hidden_layers=0,
        num_attention_heads=1,
        intermediate_size=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        type_vocab_size=1,
        encoder_type="word_vectors",
    )
    words = [*SPECIAL_TOKENS, *(vectors.words[row] for row in rows)]
    ModelFolder(folder).save(config, "".join(f"{word}\n" for word in words).encode())
    save_tensors(os.path.join(folder, WEIGHTS), {WORD_TABLE: table})
