"""Nearest neighbours of sentences and words, and tables of word vectors of and as models."""

import array
import dataclasses
import itertools
import json
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import tokenization
from bert.files.display import Progress
from bert.files.stored_models import WEIGHTS
from bert.files.texts import Texts, split_pair
from bert.files.vectors import read_npz
from bert.files.word_vectors import WordVectors, read_word_vectors
from bert.log import logger
from bert.models.options import TEXT_LIMIT, Search, is_archive
from bert.models.pretrained import PretrainedModel
from bert.models.vectors import Encoding, Index, extract, group_words, unit_length
from bert.options import Message, Option, OptionError
from bert.tasks.features import Line
from bert.tasks.layers import other_names
from bert.weights.checkpoint import Stored
from bert.weights.folder import ModelFolder
from bert.weights.saving import save_tensors
from bert.weights.variables import WORD_TABLE
from modeling import BertConfig

# Texts to encode at a time.
_CHUNK = 1 << 12
# How far the square of a length of 1 may be off, with numbers of 16 bits.
_UNIT = 0.01
# The least cosine of two vectors that a model has computed of the same text, on any device.
_SAME = 0.999
# Words to show on either side of a word.
_WORDS_SHOWN = 6
# Pieces that are encoded together for a table of vectors, each between [CLS] and [SEP].
_PIECES = 256
# Entries of a vocabulary that no text contains.
_SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]")
_UNUSED = "[unused"
# The rows before the words in a model of word vectors.
_FIRST_ROWS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


@dataclasses.dataclass(frozen=True, slots=True)
class Neighbour:
    """A neighbour of a query.

    Attributes:
      cosine: The cosine of the angle between the vectors, 1 for the same direction.
      text: The sentence or word.
      id: Its id in a table, if it has one.
    """

    cosine: float
    text: str
    id: str | None = None


@dataclasses.dataclass(frozen=True)
class Space:
    """Sentences or words with vectors, among which neighbours are searched.

    Attributes:
      texts: The sentences or words.
      ids: Their ids in a table, where they have one.
      index: Their vectors, in the same order.
      look_up: Returns the vector of a query, [1, W], and the numbers of the texts that are the
        query itself, or pieces of it, which are no neighbours.
    """

    texts: Sequence[str]
    ids: Sequence[str | None]
    index: Index
    look_up: Callable[[str], tuple[np.ndarray, Collection[int]]]

    def nearest(self, query: str, top_k: int) -> list[Neighbour]:
        """Returns the nearest texts except the query itself, nearest first.

        Args:
          query: As for `look_up`.
          top_k: Maximum number of neighbours.
        """
        vector, own = self.look_up(query)
        scores, numbers = self.index.nearest(vector, top_k + len(own))
        found = [
            Neighbour(float(score), self.texts[number], self.ids[number])
            for score, number in zip(scores[0], numbers[0], strict=True)
            if number not in own
        ]
        return found[:top_k]


def open_space(search: Search, files: Sequence[str], folder: ModelFolder | None) -> Space:
    """Returns the space in which a search looks.

    Args:
      search: The options, completed with what the folder of the model says.
      files: The files to search.
      folder: The folder of the model; None for word vectors.
    """
    center = search.center
    if folder is None:
        return vectors_space(read_vectors(search), center=center)
    if not files:
        return table_space(folder.stored, folder.load_tokenizer(), center=center)
    encoder = PretrainedModel(folder, search.batch_size, with_heads=False)
    if is_archive(files):
        return stored_space(files[0], encoder, search)
    texts = Texts(files, search)
    if search.word:
        return context_space(texts, encoder, search)
    return sentence_space(texts, encoder, search)


def read_vectors(search: Search) -> WordVectors:
    """Returns the word vectors.

    Raises:
      ValueError: where words to look up have none, naming them, or there are no others.
    """
    assert search.word_vectors
    vectors = read_word_vectors(search.word_vectors)
    if not any(map(_has_letters, vectors.words)):
        shown = f"{', '.join(map(repr, vectors.words[:3]))}{', …' * (len(vectors.words) > 3)}"
        raise OptionError("word_vectors", "have words, of letters or digits", Message("%s", shown))
    if missing := [word for word in search.queries() if vectors.find(word) is None]:
        must = Message("be among the %s", Option("word_vectors"))
        verb = "have" if missing[1:] else "has"
        received = Message("%s, which %s no vector", ", ".join(map(repr, missing)), verb)
        raise OptionError("word", must, received)
    return vectors


def find_neighbours(
    search: Search, space: Space, top_k: int
) -> Iterable[tuple[str, Sequence[Neighbour]]]:
    """Returns the queries with their neighbours; an unknown word is an error before the first."""
    found = ((query, space.nearest(query, top_k)) for query in search.queries())
    return [*found] if search.is_word_alone else found


class _Stored(Sequence[Any]):
    """Texts in a file instead of memory, which has only their offsets."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the texts are used)
        self._ends = array.array("q", [0])

    def __del__(self) -> None:
        self._file.close()

    def append(self, text: str | None) -> None:
        # A text may have several lines, and an id may be absent.
        line = json.dumps(text).encode()
        self._file.write(line)
        self._ends.append(self._ends[-1] + len(line))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: Any) -> Any:
        start, end = self._ends[number : number + 2]
        self._file.seek(start)
        return json.loads(self._file.read(end - start))


def _gather(parts: Iterable[np.ndarray], texts: Texts, what: str) -> np.ndarray:
    """Returns the rows of all parts, float32 [N, W], stored in a file instead of memory.

    Raises:
      OptionError: where there is no part, since `texts` have no `what`.
    """
    count, width = 0, None
    with tempfile.TemporaryFile() as file:
        for part in parts:
            file.write(np.ascontiguousarray(part, np.float32).tobytes())
            count, width = count + len(part), part.shape[1]
        if width is None:
            raise OptionError("input_file", f"have {what}", texts.files)
        file.flush()
        if not count:
            return np.zeros((0, width), np.float32)
        return np.memmap(file, np.float32, "r", shape=(count, width))


def sentence_space(texts: Texts, encoder: Encoding, search: Search) -> Space:
    """Returns the space of the texts of files that are not blank.

    Args:
      texts: The texts.
      encoder: Computes the vectors.
      search: The options, as for `open_space`.
    """
    layer, pooling = search.layer, search.pooling or "mean"

    def encode(pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        return encoder.encode(pairs, layer, pooling, max_seq_length=search.max_seq_length)

    names, ids = _Stored(), _Stored()

    def parts() -> Iterable[np.ndarray]:
        rows = (row for row in texts if row.text.strip())
        while chunk := [*itertools.islice(rows, _CHUNK)]:
            for row in chunk:
                names.append(row.text)
                ids.append(row.id)
            yield encode([row.texts for row in chunk])

    index = Index(_gather(parts(), texts, "sentences"), center=search.center)
    return Space(names, ids, index, lambda text: (encode([split_pair(text)]), ()))


def stored_space(path: str, encoder: Encoding, search: Search) -> Space:
    """Returns the space of an archive of vectors that extract_features.py has written with pooling.

    Args:
      path: A .npz file.
      encoder: The encoder of the same model, for queries.
      search: The options, as for `open_space`.

    Raises:
      ValueError: where the file has something else, or vectors of another model or options.
    """
    arrays = read_npz(path)
    missing = {"values", "texts", "layers", "pooling"} - {*arrays}
    if missing or arrays["values"].shape[1:2] != (1,):
        raise ValueError(
            f"{path!r} must hold vectors of texts, of one layer. It lacks {sorted(missing)} "
            "or has several layers. Write it with extract_features.py, the pooling mean and the "
            "layer -1."
        )
    if not all(is_text := [bool(text.strip()) for text in arrays["texts"].tolist()]):
        # A search of the file of the texts leaves blank ones out, too.
        rows = {"values", "texts", "ids", "lengths"} & {*arrays}
        arrays |= {name: arrays[name][is_text] for name in rows}
    vectors, texts = arrays["values"][:, 0], arrays["texts"].tolist()
    ids = arrays["ids"].tolist() if "ids" in arrays else [None] * len(texts)
    layer, pooling = str(arrays["layers"][0]), str(arrays["pooling"][0])
    layers = ("last", layer, *other_names(layer, encoder.encoder.config))
    for name, known in (("layer", layers), ("pooling", (None, pooling))):
        if (given := getattr(search, name)) not in known:
            raise OptionError(name, f"be {known[1]}, or absent, for the vectors in {path!r}", given)

    # Differences to a mean depend on lengths, which the archive alone shows.
    squares = np.einsum("nw,nw->n", vectors, vectors, dtype=np.float32)
    is_scaled = bool(np.allclose(squares, 1, atol=_UNIT))

    def encode(text: str, length: int | None = search.max_seq_length) -> np.ndarray:
        query = [split_pair(text)]
        return encoder.encode(query, layer, pooling, normalize=is_scaled, max_seq_length=length)

    if (width := encode("").shape[1]) != vectors.shape[1]:
        raise ValueError(
            f"{path!r} must hold vectors of the model, of {width} values. It has "
            f"{vectors.shape[1]} of each text; are they of another model?"
        )
    # A mark within a text of a table may be no end of its first text, and a long text is cut.
    if plain := [n for n, t in enumerate(texts) if "|||" not in t and len(t) < TEXT_LIMIT]:
        number = min(plain, key=lambda number: len(texts[number]))
        lengths = arrays.get("lengths", np.full(len(texts), search.max_seq_length))
        found = encode(texts[number], max(int(lengths[number]), 3))
        cosine = float(np.vdot(unit_length(found), unit_length(vectors[number])))
        if cosine < _SAME:
            raise ValueError(
                f"{path!r} must hold vectors of the model. That of {texts[number]!r:.80} and the "
                f"model's have a cosine of {cosine:.3f}; are they of another model or casing?"
            )
    index = Index(vectors, center=search.center)
    return Space(texts, ids, index, lambda text: (encode(text), ()))


def table_space(stored: Stored, tokenizer: tokenization.FullTokenizer, *, center: bool) -> Space:
    """Returns the space of the words of a vocabulary, by the rows of the word embedding table.

    Words are the entries that are neither special nor continue a word. The vector of a word of
    several pieces is the mean of their rows.

    Args:
      stored: The weights.
      tokenizer: The tokenizer of the model.
      center: As `Index`.
    """

    def find(word: str) -> list[int]:
        pieces = [word] if word in tokenizer.vocab else tokenizer.tokenize(word)
        if not pieces or "[UNK]" in pieces:
            received = Message("%r, which is %s", word, pieces)
            raise OptionError("word", "consist of pieces of the vocabulary", received)
        if len(pieces) > 1:
            logger.info(
                "%r is no word of the vocabulary; its vector is the mean of %s.", word, pieces
            )
        return tokenizer.convert_tokens_to_ids(pieces)

    words = {row: token for row, token in sorted(tokenizer.inv_vocab.items()) if _is_word(token)}
    return _word_space(words, stored.read([WORD_TABLE])[WORD_TABLE], find, center=center)


def _word_space(
    words: Mapping[int, str],
    vectors: np.ndarray,
    find: Callable[[str], list[int]],
    *,
    center: bool,
) -> Space:
    """Returns the space of words by their rows; a query is the mean of the rows of its pieces."""
    numbers = {row: number for number, row in enumerate(words)}

    def look_up(word: str) -> tuple[np.ndarray, set[int]]:
        rows = find(word)
        own = {numbers[row] for row in rows if row in numbers}
        return vectors[rows].mean(axis=0, keepdims=True), own

    index = Index(vectors[[*words]], center=center)
    return Space([*words.values()], [None] * len(words), index, look_up)


def vectors_space(vectors: WordVectors, *, center: bool) -> Space:
    """Returns the space of words that have vectors.

    Args:
      vectors: The words with their vectors, among which are the queries (`read_vectors`).
      center: As `Index`.
    """

    def find(word: str) -> list[int]:
        row = vectors.find(word)
        assert row is not None
        return [row]

    words = {row: word for row, word in enumerate(vectors.words) if _has_letters(word)}
    return _word_space(words, vectors.values, find, center=center)


def _has_letters(word: str) -> bool:
    """Returns whether a word has a letter or a digit."""
    return any(map(str.isalnum, word))


def _is_word(token: str) -> bool:
    is_special = token.startswith("[") and token.endswith("]")
    return not is_special and not token.startswith("##") and _has_letters(token)


def context_space(texts: Texts, encoder: Encoding, search: Search) -> Space:
    """Returns the space of all words of the texts of files, each in its context.

    A query is a sentence with the word, whose first occurrence there counts.

    Args:
      texts: The texts.
      encoder: Computes the vectors of words, the means of the vectors of their pieces.
      search: The options, as for `open_space`.
    """
    word, options = search.word or "", (search.layer, search.max_seq_length)
    shown = _Stored()
    lines = [row.texts for row in texts if row.text]
    encoded = encoder.encode_words(lines, *options)

    def parts() -> Iterable[np.ndarray]:
        for words, vectors in encoded:
            positions = [position for position, found in enumerate(words) if _has_letters(found)]
            for position in positions:
                shown.append(_in_context(words, position))
            yield vectors[positions]

    def look_up(sentence: str) -> tuple[np.ndarray, tuple[()]]:
        query = split_pair(sentence)
        ((words, vectors),) = encoder.encode_words([query], *options)
        return vectors[[_find_word(word, words, encoder.tokenizer)]], ()

    index = Index(_gather(parts(), texts, "text"), center=search.center)
    return Space(shown, [None] * len(shown), index, look_up)


def _in_context(words: Sequence[str], position: int) -> str:
    before = words[max(position - _WORDS_SHOWN, 0) : position]
    after = words[position + 1 : position + 1 + _WORDS_SHOWN]
    return " ".join([*before, f"[{words[position]}]", *after])


def _find_word(word: str, words: Sequence[str], tokenizer: tokenization.FullTokenizer) -> int:
    """Returns the position of a word among the words of a sentence."""
    wanted = [found for found, _ in group_words(tokenizer.tokenize(word))]
    if len(wanted) != 1 or wanted[0] not in words:
        must = Message("be a word of the %s", Option("context"))
        raise OptionError("word", must, word, f"The context has {[*words]}.")
    if wanted[0] == "[UNK]":
        must = Message(
            "consist of pieces of the vocabulary, since another word of the %s may also be [UNK]",
            Option("context"),
        )
        raise OptionError("word", must, word)
    return words.index(wanted[0])


def make_table(folder: ModelFolder, pooling: str, vector_size: int) -> WordVectors:
    """Returns the vectors of all word pieces of a model, each encoded once, in their order.

    A text's vector is then the mean of the vectors of its pieces, which takes no network. The
    vectors are reduced to their principal components, and an entry of rank r of the vocabulary,
    which is sorted by frequency, is weighted by log(1 + r), for by Zipf's law its frequency is
    about 1 / r (Tulkens and van Dongen, Model2Vec, 2024; weights by frequency: Arora et al., A
    Simple but Tough-to-Beat Baseline for Sentence Embeddings, 2017).

    Args:
      folder: The folder of the model.
      pooling: "mean", "max" or "cls".
      vector_size: The number of principal components.
    """
    encoder = PretrainedModel(folder, with_heads=False)
    pieces = {
        piece: number
        for piece, number in encoder.tokenizer.vocab.items()
        if piece not in _SPECIAL and not piece.startswith(_UNUSED) and piece.split() == [piece]
    }
    vectors = _encode_pieces(encoder, pieces, pooling)
    weights = np.log1p([*pieces.values()])[:, None]
    values = _reduce(vectors, vector_size) * weights
    return WordVectors([*pieces], np.asarray(values, np.float32))


def _encode_pieces(encoder: Encoding, pieces: dict[str, int], pooling: str) -> np.ndarray:
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
    for chunk in extract(extractor, lines, batch_size=_PIECES, max_seq_length=3):
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


def save_as_model(vectors: WordVectors, folder: str) -> None:
    """Writes the model of word vectors to an existing folder; [UNK] has the vector of no word."""
    rows = [row for row, word in enumerate(vectors.words) if word not in _FIRST_ROWS]
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
    words = [*_FIRST_ROWS, *(vectors.words[row] for row in rows)]
    ModelFolder(folder).save(config, "".join(f"{word}\n" for word in words).encode())
    save_tensors(os.path.join(folder, WEIGHTS), {WORD_TABLE: table})
