"""A table of word vectors from a BERT: every entry of the vocabulary, encoded once.

A text's vector is then the mean of the vectors of its pieces, which takes no network. The vectors
are reduced to their principal components, and an entry of rank r of the vocabulary, which is
sorted by frequency, is weighted by log(1 + r), for by Zipf's law its frequency is about 1 / r.

Source: Tulkens and van Dongen, Model2Vec, 2024; weights by frequency: Arora et al., A Simple but
Tough-to-Beat Baseline for Sentence Embeddings, 2017.
"""

import numpy as np

from bert.files.progress import Progress
from bert.files.word_vectors import WordVectors
from bert.models.vectors import TextEncoder, extract
from bert.options import OptionError
from bert.tasks.features import Line
from bert.weights.folder import ModelFolder

# Entries that no text contains.
_SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]")
_UNUSED = "[unused"
# Sequences of three tokens that go through the model together.
_BATCH_SIZE = 256


def make_table(folder: ModelFolder, vector_size: int) -> WordVectors:
    """Returns the vectors of all word pieces of a model, in the order of its vocabulary.

    They are pooled as the folder of a sentence-transformers model says, else by the mean.

    Args:
      folder: The folder of the model.
      vector_size: The number of principal components.

    Raises:
      ValueError: where the vectors of the model have less values than `vector_size`.
    """
    most = folder.config.hidden_size
    if vector_size > most:
        raise OptionError("vector_size", f"be at most {most} for this model", vector_size)
    encoder = TextEncoder.load(folder)
    vectors_of_texts = folder.text_vectors
    pooling = (vectors_of_texts and vectors_of_texts.pooling) or "mean"
    pieces = {
        piece: number
        for piece, number in encoder.tokenizer.vocab.items()
        if piece not in _SPECIAL and not piece.startswith(_UNUSED) and piece.split() == [piece]
    }
    vectors = _encode(encoder, pieces, pooling)
    weights = np.log1p([*pieces.values()])[:, None]
    values = _reduce(vectors, vector_size) * weights
    return WordVectors([*pieces], np.asarray(values, np.float32))


def _encode(encoder: TextEncoder, pieces: dict[str, int], pooling: str) -> np.ndarray:
    """Returns the vector of each piece, alone between [CLS] and [SEP], float32 [N, H]."""
    vocab = encoder.tokenizer.vocab
    first, last = vocab["[CLS]"], vocab["[SEP]"]
    lines = [
        Line(["[CLS]", piece, "[SEP]"], [first, number, last], [0, 0, 0], 0)
        for piece, number in pieces.items()
    ]
    progress = Progress("Encoding the vocabulary", len(lines))
    extractor = encoder.extractor("last", pooling)
    vectors = []
    for chunk in extract(extractor, lines, batch_size=_BATCH_SIZE, max_seq_length=3):
        vectors += [values[0] for _, (values,) in chunk]
        progress(len(vectors))
    return np.stack(vectors)


def _reduce(vectors: np.ndarray, size: int) -> np.ndarray:
    """Returns the first principal components of float32 [N, W], float64 [N, size]."""
    centered = vectors - vectors.mean(axis=0, dtype=np.float64)
    _, axes = np.linalg.eigh(centered.T @ centered)  # [W, W], the greatest last
    axes = axes[:, ::-1][:, :size]
    # An eigenvector has either sign; the one whose largest value is positive is taken.
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0)
    return centered @ (axes * np.sign(largest))
