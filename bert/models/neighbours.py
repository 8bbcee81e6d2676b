"""What is near to what: sentences, words of the embedding table, and words where they stand."""

import dataclasses
import itertools
import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
from absl import logging

import tokenization
from bert.files.texts import Texts, split_pair
from bert.files.vectors import read_npz
from bert.files.word_vectors import WordVectors
from bert.models.vectors import Index, Text, TextEncoder, group_words
from bert.weights.checkpoint import Stored
from bert.weights.variables import WORD_TABLE

# Texts to encode at a time, and words to show on either side of one.
_CHUNK = 1 << 12
_WORDS_SHOWN = 6


@dataclasses.dataclass(frozen=True, slots=True)
class Neighbour:
    """Something that is near.

    Attributes:
      cosine: Of the angle between both vectors, 1 for the same direction.
      text: What it is.
      id: What its table calls it, if anything.
    """

    cosine: float
    text: str
    id: str | None = None


@dataclasses.dataclass(frozen=True)
class Space:
    """Things with vectors, among which neighbours are looked for.

    Attributes:
      texts: What they are.
      ids: What their table calls them, if anything.
      index: Their vectors, in the same order.
      vector: Returns that of something else, [1, W].
      places: Returns the numbers of the things that something else is or is made of: a word would
        be its own nearest neighbour, and so would its pieces.
    """

    texts: Sequence[str]
    ids: Sequence[str | None]
    index: Index
    vector: Callable[[str], np.ndarray]
    places: Callable[[str], Collection[int]] = lambda _: ()

    def nearest(self, query: str, top_k: int) -> list[Neighbour]:
        """Returns the nearest things but itself, nearest first.

        Args:
          query: As `vector` takes it.
          top_k: How many.
        """
        own = self.places(query)
        scores, numbers = self.index.nearest(self.vector(query), top_k + len(own))
        found = [
            Neighbour(float(score), self.texts[number], self.ids[number])
            for score, number in zip(scores[0], numbers[0], strict=True)
            if number not in own
        ]
        return found[:top_k]


def _gather(parts: Iterable[np.ndarray], width: int) -> np.ndarray:
    """Returns the rows of all parts, float32 [N, W], which are kept in a file, not in memory."""
    with tempfile.TemporaryFile() as file:
        count = 0
        for part in parts:
            file.write(np.ascontiguousarray(part, np.float32).data.cast("B"))
            count += len(part)
        file.flush()
        if not count:
            return np.zeros((0, width), np.float32)
        return np.memmap(file, np.float32, "r", shape=(count, width))


def _none_left(texts: Texts, what: str) -> ValueError:
    return ValueError(f"`--input_file` must hold {what}. {texts.files} have none.")


def _text_of(pair: tuple[str, str]) -> Text:
    """Returns what an encoder takes of two texts, of which the second may be empty."""
    return pair if pair[1] else pair[0]


def sentence_space(
    encoder: TextEncoder,
    texts: Texts,
    layer: int | str,
    pooling: str,
    *,
    max_seq_length: int,
    center: bool,
) -> Space:
    """Returns the space of the texts of files that are not blank.

    Args:
      encoder: Makes their vectors.
      texts: The texts.
      layer: As `TextEncoder.encode`.
      pooling: As `TextEncoder.encode`.
      max_seq_length: As `TextEncoder.encode`.
      center: As `Index`.
    """

    def encode(pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        return encoder.encode(
            [*map(_text_of, pairs)], layer, pooling, max_seq_length=max_seq_length
        )

    kept = [given for given in texts if given.text.strip()]
    if not kept:
        raise _none_left(texts, "sentences")
    pairs = [given.texts for given in kept]
    parts = (encode(pairs[start : start + _CHUNK]) for start in range(0, len(pairs), _CHUNK))
    first = next(parts)
    vectors = _gather(itertools.chain([first], parts), first.shape[1])
    index = Index(vectors, center=center)
    names = [given.text for given in kept]
    return Space(
        names, [given.id for given in kept], index, lambda text: encode([split_pair(text)])
    )


def stored_space(path: str, encoder: TextEncoder, *, max_seq_length: int, center: bool) -> Space:
    """Returns the space of an archive of vectors, as extract_features.py --pooling writes it.

    Args:
      path: A .npz file.
      encoder: That of the same model, for what is looked for.
      max_seq_length: As `TextEncoder.encode`.
      center: As `Index`.

    Raises:
      ValueError: where it is something else, or of another model.
    """
    arrays = read_npz(path)
    missing = {"values", "texts", "layers", "pooling"} - {*arrays}
    if missing or arrays["values"].shape[1:2] != (1,):
        raise ValueError(
            f"{path!r} must hold vectors of texts, of one layer. It lacks {sorted(missing)} "
            "or has several layers. Write it with `extract_features.py --pooling=mean "
            "--layers=-1`."
        )
    vectors = arrays["values"][:, 0]
    texts = arrays["texts"].tolist()
    ids = arrays["ids"].tolist() if "ids" in arrays else [None] * len(texts)
    layer, pooling = str(arrays["layers"][0]), str(arrays["pooling"][0])

    def encode(text: str) -> np.ndarray:
        asked = [_text_of(split_pair(text))]
        return encoder.encode(asked, layer, pooling, max_seq_length=max_seq_length)

    if (width := encode("").shape[1]) != vectors.shape[1]:
        raise ValueError(
            f"{path!r} must hold vectors of the model, of {width} values. It has "
            f"{vectors.shape[1]} of each text; are they of another model?"
        )
    return Space(texts, ids, Index(vectors, center=center), encode)


def table_space(stored: Stored, tokenizer: tokenization.FullTokenizer, *, center: bool) -> Space:
    """Returns the space of the words of a vocabulary, by the rows of the word embedding table.

    Words are those entries that are neither special nor continue a word. A word of several pieces
    is the mean of their rows.

    Args:
      stored: The weights.
      tokenizer: That of the model.
      center: As `Index`.
    """
    table = stored.read([WORD_TABLE])[WORD_TABLE]
    rows = [row for row, token in sorted(tokenizer.inv_vocab.items()) if _is_word(token)]

    places = {row: place for place, row in enumerate(rows)}

    def find(word: str) -> list[int]:
        pieces = [word] if word in tokenizer.vocab else tokenizer.tokenize(word)
        if not pieces or "[UNK]" in pieces:
            raise ValueError(
                f"`--word` must be made of pieces of the vocabulary. Received {word!r}, which is "
                f"{pieces}."
            )
        return tokenizer.convert_tokens_to_ids(pieces)

    def vector(word: str) -> np.ndarray:
        found = find(word)
        if len(found) > 1:
            pieces = tokenizer.convert_ids_to_tokens(found)
            logging.info(
                "%r is no word of the vocabulary; the mean of %s stands for it.", word, pieces
            )
        return table[found].mean(axis=0, keepdims=True)

    def own(word: str) -> set[int]:
        return {places[row] for row in find(word) if row in places}

    words = [tokenizer.inv_vocab[row] for row in rows]
    return Space(words, [None] * len(words), Index(table[rows], center=center), vector, own)


def check_words(vectors: WordVectors, words: Sequence[str]) -> None:
    """Checks that words have vectors, and that there are others that may be near.

    Raises:
      ValueError: where they have none, naming them.
    """
    if not _rows_of_words(vectors):
        raise ValueError(
            "`--word_vectors` must hold words, of letters or digits. Received "
            f"{', '.join(map(repr, vectors.words[:3]))}{', …' * (len(vectors.words) > 3)}."
        )
    if missing := [word for word in words if vectors.find(word) is None]:
        raise ValueError(
            "`--word` must be among the `--word_vectors`. Received "
            f"{', '.join(map(repr, missing))}, which {'have' if missing[1:] else 'has'} no vector."
        )


def _rows_of_words(vectors: WordVectors) -> list[int]:
    return [row for row, word in enumerate(vectors.words) if any(map(str.isalnum, word))]


def vectors_space(vectors: WordVectors, *, center: bool) -> Space:
    """Returns the space of words that have vectors.

    Args:
      vectors: The words, among which, as `check_words` says, are those that are looked for.
      center: As `Index`.
    """

    def find(word: str) -> int:
        row = vectors.find(word)
        assert row is not None
        return row

    rows = _rows_of_words(vectors)
    places = {row: place for place, row in enumerate(rows)}
    words = [vectors.words[row] for row in rows]
    return Space(
        words,
        [None] * len(words),
        Index(vectors.values[rows], center=center),
        lambda word: vectors.values[[find(word)]],
        lambda word: {places[row] for row in [find(word)] if row in places},
    )


def _is_word(token: str) -> bool:
    is_special = token.startswith("[") and token.endswith("]")
    return not is_special and not token.startswith("##") and any(map(str.isalnum, token))


def context_space(
    encoder: TextEncoder,
    texts: Texts,
    word: str,
    layer: int | str,
    *,
    max_seq_length: int,
    center: bool,
) -> Space:
    """Returns the space of all words of the texts of files, each where it stands.

    What is looked for in it is a sentence, in which the word is meant.

    Args:
      encoder: Makes the vectors of words, the means of those of their pieces.
      texts: The texts.
      word: Is meant, where it first stands in a sentence.
      layer: As `TextEncoder.encode_words`.
      max_seq_length: As `TextEncoder.encode_words`.
      center: As `Index`.
    """
    shown: list[str] = []
    lines = [_text_of(given.texts) for given in texts if given.text]
    encoded = encoder.encode_words(lines, layer, max_seq_length)

    def parts() -> Iterable[np.ndarray]:
        for words, vectors in encoded:
            places = [place for place, each in enumerate(words) if any(map(str.isalnum, each))]
            shown.extend(_in_context(words, place) for place in places)
            yield vectors[places]

    def vector(sentence: str) -> np.ndarray:
        asked = [_text_of(split_pair(sentence))]
        ((words, vectors),) = encoder.encode_words(asked, layer, max_seq_length)
        return vectors[[_find_word(word, words, encoder.tokenizer)]]

    query = vector
    rows = parts()
    first = next(iter(rows), None)
    if first is None:
        raise _none_left(texts, "text")
    vectors = _gather(itertools.chain([first], rows), first.shape[1])
    return Space(shown, [None] * len(shown), Index(vectors, center=center), query)


def _in_context(words: Sequence[str], place: int) -> str:
    before = words[max(place - _WORDS_SHOWN, 0) : place]
    after = words[place + 1 : place + 1 + _WORDS_SHOWN]
    return " ".join([*before, f"[{words[place]}]", *after])


def _find_word(word: str, words: Sequence[str], tokenizer: tokenization.FullTokenizer) -> int:
    """Returns the place of a word among those of a sentence."""
    wanted = [each for each, _ in group_words(tokenizer.tokenize(word))]
    if len(wanted) != 1 or wanted[0] not in words:
        raise ValueError(
            f"`--word` must be a word of the `--context`. Received {word!r}; the context has "
            f"{list(words)}."
        )
    if wanted[0] == "[UNK]":
        raise ValueError(
            "`--word` must be made of pieces of the vocabulary, for another word of the "
            f"`--context` may be [UNK], too. Received {word!r}."
        )
    return words.index(wanted[0])
