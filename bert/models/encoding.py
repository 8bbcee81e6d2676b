"""Texts and words as vectors: what an encoder gives, pooled over tokens (paper, section 5.3)."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np

import modeling
import tokenization
from bert.models.similarity import unit_length
from bert.tasks.features import Extractor, Line, read_line
from bert.tasks.layers import parse_layers, width
from bert.tasks.task import is_list
from bert.training.lengths import cut_by_size, pad_sequences
from bert.weights.folder import ModelFolder
from bert.weights.variables import require_segments

Text = str | Sequence[str]

POOLINGS = ("mean", "max", "cls")

# A chunk, within which lines of like lengths are computed together, ends where its lines give so
# many values (of 4 bytes), or are so many.
CHUNK_VALUES = 1 << 25
CHUNK_LINES = 1 << 12


def extract(
    extractor: Extractor,
    lines: Iterable[Line],
    *,
    batch_size: int,
    max_seq_length: int,
    between: Callable[[], None] = lambda: None,
) -> Iterator[list[tuple[Line, list[np.ndarray]]]]:
    """Yields chunks of the lines, in their order, each with what `extractor` gives for it.

    Lines of any number go through in the same memory. The same lines give the same values to the
    last bit, whoever asks. `between` is called behind each batch; what it raises ends the work.
    """
    size = _size(extractor)
    for chunk in cut_by_size(lines, lambda line: size(len(line.tokens)), CHUNK_VALUES):
        values = extractor(
            chunk, batch_size=batch_size, max_seq_length=max_seq_length, between=between
        )
        yield list(zip(chunk, values, strict=True))


def _size(extractor: Extractor) -> Callable[[int], int]:
    """Returns what tells of a line, by its tokens, how much of a chunk it is."""
    values_per_row = sum(output.shape[-1] for output in extractor.model.outputs)

    def size(num_tokens: int) -> int:
        num_values = extractor.num_rows(num_tokens) * values_per_row
        return max(num_values, CHUNK_VALUES // CHUNK_LINES)

    return size


def chunk_starts(extractor: Extractor, lengths: Iterable[int]) -> list[int]:
    """Returns where the chunks of `extract` begin, and behind them where the last one ends.

    Args:
      extractor: As there.
      lengths: Tokens of each line, which matter where each of them gives a row.
    """
    chunks = cut_by_size(lengths, _size(extractor), CHUNK_VALUES)
    return [0, *itertools.accumulate(map(len, chunks))]


class TextEncoder:
    """An encoder that gives vectors of texts and of the words in them.

    A text is a string, or a pair of strings.

    Args:
      bert: The encoder, with its weights.
      tokenizer: That of the model.
      batch_size: Sequences to compute at a time.
    """

    def __init__(
        self,
        bert: modeling.BertModel,
        tokenizer: tokenization.FullTokenizer,
        batch_size: int = 32,
    ) -> None:
        self._bert = bert
        self.config = bert.config
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self._extractors: dict[tuple[int | str, str], Extractor] = {}

    @classmethod
    def load(cls, folder: ModelFolder, batch_size: int = 32) -> "TextEncoder":
        """Returns the encoder in the folder of a model, pre-trained or fine-tuned.

        Raises:
          ValueError: where it is not all there, or its parts do not fit.
        """
        folder.stored.check_fit(folder.config)
        bert = modeling.BertModel(folder.config)
        encoder = cls(bert, folder.load_tokenizer(), batch_size)
        model = encoder.extractor("last", "mean").model
        folder.stored.assign(model.weights)
        return encoder

    def extractor(self, layer: int | str, pooling: str) -> Extractor:
        """Returns what computes a layer; the same one for the same layer.

        Args:
          layer: A number, from 0 or from the end with -1, or a name of `COMBINATIONS`.
          pooling: One of `POOLINGS`, or "none".

        Raises:
          ValueError: where the model has no such layer.
        """
        (layer,) = parse_layers(str(layer), self.config, flag="layer")
        if (layer, pooling) not in self._extractors:
            self._extractors[layer, pooling] = Extractor(self._bert, [layer], pooling)
        return self._extractors[layer, pooling]

    def read(self, texts: Sequence[Text], max_seq_length: int | None = None) -> list[Line]:
        """Returns texts as the model takes them; what is longer is cut.

        Args:
          texts: The texts.
          max_seq_length: Tokens at most, [CLS] and [SEP] included; None for all that the model
            takes.

        Raises:
          ValueError: where these are no texts, or the length is none for the model.
        """
        limit = self.config.max_position_embeddings
        if max_seq_length is not None and not 3 <= max_seq_length <= limit:
            raise ValueError(
                f"`max_seq_length` must be at least 3 and at most {limit}, the "
                f"`max_position_embeddings` of the model. Received {max_seq_length}."
            )
        pairs = [as_pair(text, number) for number, text in enumerate(check_list(texts))]
        lines = [read_line(pair, self.tokenizer, max_seq_length or limit) for pair in pairs]
        if any(line.segment_ids[-1] for line in lines):
            require_segments(self.config, "a pair of texts")
        return lines

    def inputs(
        self, texts: Sequence[Text], max_seq_length: int | None = None
    ) -> dict[str, np.ndarray]:
        """Returns texts as arrays, int32 [N, S], for the inputs of a Keras model of the encoder.

        Args:
          texts: As `read`.
          max_seq_length: As `read`; the arrays are as wide as the longest text needs.
        """
        lines = self.read(texts, max_seq_length)
        ids = [line.input_ids for line in lines]
        segment_ids = [line.segment_ids for line in lines]
        return pad_sequences(
            ids, segment_ids, max_seq_length or self.config.max_position_embeddings
        )

    def encode(
        self,
        texts: Sequence[Text],
        layer: int | str = "last",
        pooling: str = "mean",
        *,
        normalize: bool = False,
        max_seq_length: int | None = None,
        between: Callable[[], None] = lambda: None,
    ) -> np.ndarray:
        """Returns a vector for each text, float32 [N, W], in their order.

        Texts of like lengths go through the model together, whatever their order.

        Args:
          texts: As `read`.
          layer: As `extractor`.
          pooling: One of `POOLINGS`.
          normalize: Whether to scale each vector to length 1.
          max_seq_length: As `read`.
          between: Called behind each batch; what it raises ends the work.

        Raises:
          ValueError: where there is no such layer or pooling, or these are no texts.
        """
        if pooling not in POOLINGS:
            raise ValueError(f"`pooling` must be mean, max or cls. Received {pooling!r}.")
        extractor = self.extractor(layer, pooling)
        (layer,) = extractor.layers
        lines = self.read(texts, max_seq_length)
        vectors = np.zeros((len(lines), width(layer, self.config)), np.float32)
        number = 0
        for chunk in self._extract(extractor, lines, max_seq_length, between):
            for _, (values,) in chunk:
                vectors[number] = values[0]
                number += 1
        return unit_length(vectors) if normalize else vectors

    def encode_words(
        self, texts: Sequence[Text], layer: int | str = "last", max_seq_length: int | None = None
    ) -> Iterator[tuple[list[str], np.ndarray]]:
        """Yields for each text its words, and a vector for each word, float32 [words, W].

        The vector of a word is the mean of those of its pieces, in this text.

        Args:
          texts: As `read`.
          layer: As `extractor`.
          max_seq_length: As `read`.
        """
        lines = self.read(texts, max_seq_length)
        for chunk in self._extract(self.extractor(layer, "none"), lines, max_seq_length):
            for line, (values,) in chunk:
                words = group_words(line.tokens)
                means = [values[places].mean(axis=0) for _, places in words]
                found = np.stack(means) if means else np.zeros((0, values.shape[-1]), np.float32)
                yield [word for word, _ in words], found

    def _extract(
        self,
        extractor: Extractor,
        lines: Sequence[Line],
        max_seq_length: int | None,
        between: Callable[[], None] = lambda: None,
    ) -> Iterator[Any]:
        longest = max_seq_length or self.config.max_position_embeddings
        return extract(
            extractor, lines, batch_size=self.batch_size, max_seq_length=longest, between=between
        )


def find_encoder(model: keras.Model) -> modeling.BertModel | None:
    """Returns the encoder within a model, None where there is none."""
    for layer in model.layers:
        if isinstance(layer, modeling.BertModel):
            return layer
        if isinstance(layer, keras.Model) and (found := find_encoder(layer)):
            return found
    return None


def group_words(tokens: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Returns the words of `[CLS] a [SEP] (b [SEP])`, each with the places of its pieces."""
    words: list[tuple[str, list[int]]] = []
    for place, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]"):
            continue
        if token.startswith("##") and words and words[-1][1][-1] == place - 1:
            word, places = words[-1]
            words[-1] = (word + token.removeprefix("##"), [*places, place])
        else:
            words.append((token, [place]))
    return words


def check_list(texts: Sequence[Text]) -> Sequence[Text]:
    """Returns `texts`; a `ValueError` where they are a single one, or a table."""
    if not is_list(texts):
        raise ValueError(f"`texts` must be a list, of one text too. Received {texts!r:.200}.")
    return texts


def as_pair(text: Text, number: int) -> tuple[str, str]:
    """Returns a text and the one behind it, which is empty where there is none.

    Args:
      text: The text.
      number: Its place among those given, from 0, for the message.
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
