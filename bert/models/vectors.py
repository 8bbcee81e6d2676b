"""Computes vectors of texts and of words: an encoder's outputs, pooled over tokens.

The paper uses such features in section 5.3.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np

import modeling
from bert.files.paths import split_by_size
from bert.models.model import Between, Model, Text
from bert.network.kernels import check_finite
from bert.network.lengths import pad_sequences
from bert.options import OptionError, typed_value
from bert.tasks.examples import is_list
from bert.tasks.features import Extractor, Line, read_line
from bert.tasks.layers import NO_ENCODER, parse_one_layer, width
from bert.weights.sentence_transformers import TextVectors
from bert.weights.variables import require_segments

POOLINGS = ("mean", "max", "cls")

# Limits of a chunk, in which texts of similar lengths are computed together: values of 4 bytes, and
# lines.
CHUNK_VALUES = 1 << 25
CHUNK_LINES = 1 << 12
# Maximum values of 4 bytes in a block of vectors that are compared together.
_BLOCK_VALUES = 1 << 22


class Encoding(Model):
    """A model with an encoder, which computes vectors of texts and of the words in them.

    A text is a string, or a pair of strings, or its tokens, as `read` returns them.
    """

    batch_size: int
    max_seq_length: int | None = None
    text_vectors: TextVectors | None = None

    @functools.cached_property
    def encoder(self) -> modeling.BertModel:
        bert = find_encoder(self.model)
        if bert is None:
            raise ValueError(NO_ENCODER)
        return bert

    @functools.cached_property
    def _extractors(self) -> dict[tuple[int | str, str], Extractor]:
        return {}

    def extractor(self, layer: int | str, pooling: str) -> Extractor:
        """Returns the extractor of a layer, the same object for the same layer.

        Args:
          layer: A number, from 0 or from the end with -1, or a name of `COMBINATIONS`.
          pooling: One of `POOLINGS`, or "none".

        Raises:
          ValueError: where the model has no such layer, or several are named.
        """
        layer = parse_one_layer(str(layer), self.encoder.config, flag="layer")
        if (layer, pooling) not in self._extractors:
            self._extractors[layer, pooling] = Extractor(self.encoder, [layer], pooling)
        return self._extractors[layer, pooling]

    def read(self, texts: Sequence[Text | Line], max_seq_length: int | None = None) -> list[Line]:
        """Returns the tokens of texts, which `encode` and `inputs` take in place of the texts."""
        limit, length = self.encoder.config.max_position_embeddings, self._length(max_seq_length)
        if not 3 <= length <= limit:
            must = f"be at least 3 and at most {limit}, the `max_position_embeddings` of the model"
            raise OptionError("max_seq_length", must, length)
        lines = [
            text
            if isinstance(text, Line)
            else read_line(as_pair(text, number), self.tokenizer, length)
            for number, text in enumerate(check_list(texts))
        ]
        if any(line.segment_ids[-1] for line in lines):
            require_segments(self.encoder.config, "a pair of texts")
        return lines

    def inputs(
        self, texts: Sequence[Text | Line], max_seq_length: int | None = None
    ) -> dict[str, np.ndarray]:
        lines = self.read(texts, max_seq_length)
        ids = [line.input_ids for line in lines]
        segment_ids = [line.segment_ids for line in lines]
        return pad_sequences(ids, segment_ids, self._length(max_seq_length))

    def encode(
        self,
        texts: Sequence[Text | Line],
        layer: int | str = "last",
        pooling: str | None = None,
        *,
        normalize: bool | None = None,
        max_seq_length: int | None = None,
        between: Between = lambda: None,
    ) -> np.ndarray:
        if normalize is not None:
            normalize = typed_value("normalize", normalize, bool)
        given: dict[str, Any] = {"pooling": pooling, "normalize": normalize}
        if self.text_vectors:
            given |= self.text_vectors.fill(given)
        pooling = given["pooling"] or "mean"
        if pooling not in POOLINGS:
            raise OptionError("pooling", "be mean, max or cls", pooling)
        extractor = self.extractor(layer, pooling)
        lines = self.read(texts, max_seq_length)
        (layer,) = extractor.layers
        vectors = np.zeros((len(lines), width(layer, self.encoder.config)), np.float32)
        found = self._extract(extractor, lines, max_seq_length, between)
        for number, (_, (values,)) in enumerate(found):
            vectors[number] = check_finite(values[0])
        return unit_length(vectors) if given["normalize"] else vectors

    def encode_words(
        self, texts: Sequence[Text], layer: int | str = "last", max_seq_length: int | None = None
    ) -> Iterator[tuple[list[str], np.ndarray]]:
        """Yields the words of each text, and a vector for each word, float32 [words, W].

        The vector of a word is the mean of the vectors of its pieces in this text. Arguments are as
        for `encode`.
        """
        lines, extractor = self.read(texts, max_seq_length), self.extractor(layer, "none")
        for line, (values,) in self._extract(extractor, lines, max_seq_length):
            words = group_words(line.tokens)
            means = [values[positions].mean(axis=0) for _, positions in words]
            found = np.stack(means) if means else np.zeros((0, values.shape[-1]), np.float32)
            yield [word for word, _ in words], found

    def _extract(
        self,
        extractor: Extractor,
        lines: Sequence[Line],
        max_seq_length: int | None,
        between: Between = lambda: None,
    ) -> Iterator[Any]:
        length = self._length(max_seq_length)
        return itertools.chain.from_iterable(
            extract(
                extractor, lines, batch_size=self.batch_size, max_seq_length=length, between=between
            )
        )

    def _length(self, given: int | None) -> int:
        """Returns the maximum tokens of a text: the first length that is given, or the model's."""
        if given is not None:
            given = typed_value("max_seq_length", given, int)
        vectors = self.text_vectors
        lengths = (given, self.max_seq_length, vectors.max_seq_length if vectors else None)
        most = self.encoder.config.max_position_embeddings
        return next((length for length in lengths if length is not None), most)


def extract(
    extractor: Extractor,
    lines: Iterable[Line],
    *,
    batch_size: int,
    max_seq_length: int,
    between: Between = lambda: None,
) -> Iterator[list[tuple[Line, list[np.ndarray]]]]:
    """Yields chunks of lines in their order, with the extractor's values for each line.

    The memory does not depend on the number of lines. The same lines have the same values to the
    last bit. `between` is called after each batch; its exceptions end the work.
    """
    size = _size(extractor)
    for chunk in split_by_size(lines, lambda line: size(len(line.tokens)), CHUNK_VALUES):
        values = extractor(
            chunk, batch_size=batch_size, max_seq_length=max_seq_length, between=between
        )
        yield list(zip(chunk, values, strict=True))


def _size(extractor: Extractor) -> Callable[[int], int]:
    """Returns a function that maps the tokens of a line to its share of `CHUNK_VALUES`."""
    values_per_row = sum(output.shape[-1] for output in extractor.model.outputs)

    def size(num_tokens: int) -> int:
        num_values = extractor.num_rows(num_tokens) * values_per_row
        return max(num_values, CHUNK_VALUES // CHUNK_LINES)

    return size


def chunk_starts(extractor: Extractor, lengths: Iterable[int]) -> list[int]:
    """Returns the first lines of the chunks of `extract`, and the end of the last chunk.

    Args:
      extractor: As for `extract`.
      lengths: Tokens of each line.
    """
    chunks = split_by_size(lengths, _size(extractor), CHUNK_VALUES)
    return [0, *itertools.accumulate(map(len, chunks))]


def find_encoder(model: keras.Model) -> modeling.BertModel | None:
    """Returns the encoder within a model, None where there is none."""
    for layer in model.layers:
        if isinstance(layer, modeling.BertModel):
            return layer
        if isinstance(layer, keras.Model) and (found := find_encoder(layer)):
            return found
    return None


def group_words(tokens: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Returns the words of `[CLS] a [SEP] (b [SEP])`, each with the positions of its pieces."""
    words: list[tuple[str, list[int]]] = []
    for position, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]"):
            continue
        if token.startswith("##") and words and words[-1][1][-1] == position - 1:
            word, positions = words[-1]
            words[-1] = (word + token.removeprefix("##"), [*positions, position])
        else:
            words.append((token, [position]))
    return words


def check_list(texts: Sequence[Any]) -> Sequence[Any]:
    """Returns `texts`, or a list of a single text; raises `ValueError` for a table."""
    if isinstance(texts, str):
        return [texts]
    if not is_list(texts):
        raise ValueError(f"`texts` must be a list of texts, or one text. Received {texts!r:.200}.")
    return texts


def as_pair(text: Text, number: int) -> tuple[str, str]:
    """Returns a text and its second text, which is empty where there is none.

    Args:
      text: A string or a pair of strings.
      number: The index of the text, for the message.
    """
    if isinstance(text, str):
        return text, ""
    if isinstance(text, list | tuple) and len(text) == 2:
        first, second = text
        if isinstance(first, str) and isinstance(second, str):
            return first, second
    raise ValueError(
        f"Text {number}, counted from 0, must be a string, or a pair of strings. Received {text!r}."
    )


def unit_length(vectors: np.ndarray) -> np.ndarray:
    """Returns each row of float32 [N, W] at length 1; zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)


class Index:
    """Finds the nearest vectors by the cosine of the angle between two vectors.

    Args:
      vectors: float32 [N, W], in memory or mapped from a file, which is read in blocks.
      center: Whether to subtract the mean of all vectors first. BERT's vectors lie in a narrow
        cone, so that any two seem similar (Ethayarajh, How Contextual are Contextualized Word
        Representations?, section 4.1); around their mean they do not. Whether the order of
        neighbours improves depends on the model: with a small one of ours, the rank correlation of
        cosines with people's ratings of the pairs of STS-B fell from 0.57 to 0.54.
    """

    def __init__(self, vectors: np.ndarray, *, center: bool) -> None:
        self._vectors = vectors
        self._mean = np.zeros(vectors.shape[-1], np.float32)
        if center and len(vectors):
            sums = sum(block.sum(axis=0, dtype=np.float64) for _, block in self._blocks())
            self._mean = np.asarray(sums / len(vectors), np.float32)

    def _blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        size = max(_BLOCK_VALUES // max(self._vectors.shape[-1], 1), 1)
        for start in range(0, len(self._vectors), size):
            yield start, np.asarray(self._vectors[start : start + size], np.float32)

    def nearest(self, queries: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the cosines and numbers of the nearest vectors, each [Q, K], nearest first.

        K is `top_k`, or the number of vectors if that is less. Among equally near vectors, the
        first come first.

        Args:
          queries: float32 [Q, W].
          top_k: Number of vectors to find.
        """
        queries = unit_length(queries - self._mean)
        scores = np.zeros((len(queries), 0), np.float32)
        numbers = np.zeros((len(queries), 0), np.int64)
        for start, block in self._blocks():
            found = queries @ unit_length(block - self._mean).T  # [Q, block]
            order = np.argsort(-found, axis=1, kind="stable")[:, :top_k]
            scores = np.concatenate([scores, np.take_along_axis(found, order, axis=1)], axis=1)
            numbers = np.concatenate([numbers, start + order], axis=1)
            order = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
            scores = np.take_along_axis(scores, order, axis=1)
            numbers = np.take_along_axis(numbers, order, axis=1)
        return scores, numbers
