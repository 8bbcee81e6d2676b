"""Inspects a model that reads a text: its pieces, its attention, and what each layer predicts.

Dimension key as in `modeling.py`.
"""

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import modeling
import tokenization
from bert.models.fine_tuned import LoadedModel
from bert.models.open import find_export, open_model
from bert.models.options import EngineModel, QueriedModel
from bert.models.pretrained import MASK, Guess, PretrainedModel
from bert.models.vectors import find_encoder
from bert.options import Message, OptionError
from bert.tasks.tagging.tags import find_spans
from bert.weights.variables import require_segments

# White space, except characters that the tokenizer removes before it splits a text.
_SPACES = re.compile(r"[^\S\x0b\x0c\x1c-\x1f\x85]+")


@dataclasses.dataclass(frozen=True)
class Word:
    """A part of a text between white space, and its tokens.

    Attributes:
      typed: The part as it was typed; "" for [CLS] and [SEP].
      cleaned: The part without control characters, and for uncased models without capitals and
        accents.
      words: The words, split at punctuation and between Chinese characters.
      pieces: The word pieces, in their order.
    """

    typed: str
    cleaned: str
    words: Sequence[str]
    pieces: Sequence[str]


def read_words(text: str, tokenizer: tokenization.FullTokenizer, special: str = "") -> list[Word]:
    """Returns the words of a text; their pieces are the tokenizer's.

    Args:
      text: The text as it was typed.
      tokenizer: The tokenizer of the model.
      special: A token that is not split where the text has it, such as [MASK].
    """
    parts = text.split(special) if special else [text]
    words = list(_read_part(parts[0], tokenizer))
    for part in parts[1:]:
        words += [_unsplit(special, special), *_read_part(part, tokenizer)]
    return words


def _unsplit(typed: str, token: str) -> Word:
    return Word(typed, token, [token], [token])


def _read_part(text: str, tokenizer: tokenization.FullTokenizer) -> list[Word]:
    pieces = tokenizer.tokenize(text)
    words = list(_trace(text, tokenizer))
    if [piece for word in words for piece in word.pieces] == pieces:
        return words
    # A tokenizer of another class, whose steps are unknown.
    return [Word(text, text, [], pieces)]


def _trace(text: str, tokenizer: tokenization.FullTokenizer) -> Iterator[Word]:
    basic, wordpiece = tokenizer.basic_tokenizer, tokenizer.wordpiece_tokenizer
    for part, token in tokenizer.cut(text):
        if token is not None:
            yield _unsplit(part, token.content)
            continue
        for typed in filter(None, _SPACES.split(part)):
            words = basic.tokenize(typed)
            pieces = [piece for word in words for piece in wordpiece.tokenize(word)]
            yield Word(typed, basic.normalize(typed), words, pieces)


# Maximum weights of attention on a page, which has about two and a half bytes for each.
MAX_WEIGHTS = 8_000_000
# To which tokens a layer attends.
GOALS = ("[CLS]", "[SEP]", "itself", "the one before", "the one after", "others")


@dataclasses.dataclass(frozen=True)
class Reading:
    """A text as the inputs of a model.

    Attributes:
      texts: The texts as they were typed; the second may be empty.
      words: The words of both, with [CLS] and [SEP].
      tokens: The pieces of all words.
      input_ids: The ids of the tokens.
      segment_ids: 0 up to the first [SEP], then 1.
      unknown: The token that stands for words which the vocabulary lacks.
    """

    texts: tuple[str, str]
    words: Sequence[Word]
    tokens: Sequence[str]
    input_ids: Sequence[int]
    segment_ids: Sequence[int]
    unknown: str


@dataclasses.dataclass(frozen=True)
class Inspection:
    """How a model reads a text.

    Attributes:
      reading: The text.
      facts: Facts about the model, by name.
      attention: float32 [L, N, S, S], the weight of each token (column) for each query (row);
        [0, 0, S, S] for a model without attention.
      masks: By the position of each [MASK], the best tokens of each layer, from the embeddings on.
      is_next: The probability that the second text follows the first, where the model predicts it.
      answer: The answer of a fine-tuned model.
      notes: What cannot be shown, and why.
    """

    reading: Reading
    facts: dict[str, str | int]
    attention: np.ndarray
    masks: dict[int, list[list[Guess]]]
    is_next: float | None
    answer: dict[str, Any] | None
    notes: list[str]


def open_inspected(options: QueriedModel, *, dry: bool = False) -> LoadedModel | PretrainedModel:
    """Returns the model to inspect, pre-trained or fine-tuned.

    Args:
      options: The model.
      dry: Whether this is a dry run, as for `open_model`.

    Raises:
      ValueError: where it cannot be opened, has no encoder, or is an export without layers.
    """
    path = options.model_dir
    if find_export(path):
        raise OptionError(
            "model_dir",
            "have the weights of a model to inspect",
            Message("%r, an export", path),
            "Give the folder that it was exported from.",
        )
    model = open_model(EngineModel(**vars(options)), dry=dry)
    assert isinstance(model, LoadedModel | PretrainedModel), "Exports are refused above."
    if find_encoder(model.model) is None:
        received = Message("%r, a model of word vectors alone", path)
        raise OptionError("model_dir", "have an encoder to inspect", received)
    return model


def read(
    model: LoadedModel | PretrainedModel, texts: tuple[str, str], max_seq_length: int | None = None
) -> Reading:
    """Returns a text, and a second one or "", as the inputs of the model.

    Args:
      model: The model.
      texts: The texts.
      max_seq_length: Maximum tokens; None for as many as the model takes. Longer texts are refused,
        since a page would not show what was truncated.

    Raises:
      ValueError: where the texts are empty, too long, or more than the model takes.
    """
    config, tokenizer = _encoder(model).config, model.tokenizer
    special = MASK if _fills_masks(model) else ""
    first, second = (read_words(_spaced(text, model), tokenizer, special) for text in texts)
    check_second(model, texts[1])
    if not _pieces(first) or (texts[1] and not _pieces(second)):
        raise ValueError(f"The text must have at least one token. Received {list(texts)!r}.")
    length = len(_pieces([*first, *second])) + (3 if second else 2)
    if isinstance(model, LoadedModel):
        max_seq_length = model.task.stored()["max_seq_length"]
    _check_length(length, config, max_seq_length)
    if isinstance(model, LoadedModel):
        _check_question(len(_pieces(first)), model)
    start, end = (Word("", token, [], [token]) for token in ("[CLS]", "[SEP]"))
    words = [start, *first, end, *([*second, end] if second else [])]
    tokens, segment_ids = tokenization.pack(_pieces(first), _pieces(second), max_length=length)
    unknown = tokenizer.wordpiece_tokenizer.unk_token
    input_ids = tokenizer.convert_tokens_to_ids(tokens)
    return Reading(texts, words, tokens, input_ids, segment_ids, unknown)


def _spaced(text: str, model: LoadedModel | PretrainedModel) -> str:
    """Returns a text with spaces between the characters that a tagger of characters reads."""
    tags = getattr(model.task, "tag_set", None) if isinstance(model, LoadedModel) else None
    if tags is None or tags.unit != "character":
        return text
    return " ".join(text[start:stop] for start, stop in find_spans(text, tags.unit))


def check_second(model: LoadedModel | PretrainedModel, text: str) -> None:
    """Checks that a model takes a second text, where there is one.

    Raises:
      ValueError: where it is fine-tuned for one text, or has one segment.
    """
    if text:
        require_segments(_encoder(model).config, "`text_b`")
    if text and isinstance(model, LoadedModel) and len(model.fields) == 1:
        raise OptionError("text_b", "not be given for a model that takes one text", text)


def _encoder(model: LoadedModel | PretrainedModel) -> modeling.BertModel:
    bert = find_encoder(model.model)
    assert bert is not None, "`open_inspected` refuses what has none."
    return bert


def _fills_masks(model: LoadedModel | PretrainedModel) -> bool:
    return isinstance(model, PretrainedModel) and model.masked is not None


def _pieces(words: Sequence[Word]) -> list[str]:
    return [piece for word in words for piece in word.pieces]


def _check_length(length: int, config: modeling.BertConfig, max_seq_length: int | None) -> None:
    limits = {
        config.max_position_embeddings: "`max_position_embeddings` of the model",
        max_seq_length or length: "`max_seq_length`",
    }
    if not config.is_bilstm:
        heads = config.num_hidden_layers * config.num_attention_heads
        limits.setdefault(
            math.isqrt(MAX_WEIGHTS // heads),
            f"which makes {MAX_WEIGHTS:,} weights of attention in {heads} heads, all that a page "
            "holds",
        )
    limit = min(limits)
    if length > limit:
        raise ValueError(
            f"The text must have at most {limit} tokens, [CLS] and [SEP] included: {limits[limit]}."
            f" It has {length}. Shorten it."
        )


def _check_question(length: int, model: LoadedModel) -> None:
    """Checks that a model that answers questions reads all tokens of the question."""
    limit = model.task.stored().get("max_query_length", length)
    if length > limit:
        raise ValueError(
            f"The question must have at most {limit} tokens: `max_query_length`. It has {length}. "
            "Shorten it."
        )


def look(model: LoadedModel | PretrainedModel, reading: Reading, top_k: int = 5) -> Inspection:
    """Returns how a model reads a text.

    Args:
      model: The model.
      reading: The text, as `read` returns it.
      top_k: Number of tokens for each [MASK].
    """
    bert, notes = _encoder(model), list[str]()
    attention = attend(bert, reading)
    if not attention.size:
        notes.append("The model has no attention: its layers are LSTMs.")
    masks: dict[int, list[list[Guess]]] = {}
    is_next = answer = None
    if isinstance(model, LoadedModel):
        answer = _answer(model, reading.texts, notes)
    elif model.masked is None:
        notes.append(_why_no_masks(bert.config))
    else:
        text = model.read_text(reading.texts)
        if text.masks():
            masks = dict(zip(text.masks(), model.fill_by_layer(text, top_k), strict=True))
        else:
            notes.append(f"Write {MASK} into the text to see what each layer predicts there.")
        if text.is_pair() and model.predicts_next:
            [is_next] = model.next_sentence([text])
        elif text.is_pair():
            notes.append("The model has not learned to predict which texts follow others.")
    facts = _describe(model, bert.config)
    return Inspection(reading, facts, attention, masks, is_next, answer, notes)


def attend(bert: modeling.BertModel, reading: Reading) -> np.ndarray:
    """Returns the attention of all layers and heads, as `Inspection` has it."""
    if bert.config.is_bilstm:
        return np.zeros((0, 0, *[len(reading.tokens)] * 2), np.float32)
    ids = np.array([reading.input_ids], np.int32)
    inputs = {"input_ids": ids, "segment_ids": np.array([reading.segment_ids], np.int32)}
    layers = bert(inputs, attention_probs=True)["attention_probs"]
    return np.stack([np.asarray(each[0], np.float32) for each in layers])


def _why_no_masks(config: modeling.BertConfig) -> str:
    if config.is_bilstm:
        return f"The model reads each side of a token by itself: it fills no {MASK}."
    if config.is_decoder:
        return f"The model reads from left to right: it fills no {MASK}."
    return f"The model has no masked-LM head, cls/predictions: it fills no {MASK}."


def _answer(model: LoadedModel, texts: tuple[str, str], notes: list[str]) -> dict[str, Any] | None:
    if model.task.kind == "multiple_choice":
        notes.append("The model chooses among several endings; this page shows one text.")
        return None
    if len(model.fields) == 2 and not texts[1]:
        notes.append(f"The model answers where the {model.fields[1]} is given as the second text.")
        return None
    [answer] = model.predict([texts[: len(model.fields)]])
    return answer


def _describe(
    model: LoadedModel | PretrainedModel, config: modeling.BertConfig
) -> dict[str, str | int]:
    kind = model.task.kind if isinstance(model, LoadedModel) else "pre-trained"
    return {
        "model": kind.replace("_", " "),
        "layers": config.num_hidden_layers,
        **({} if config.is_bilstm else {"heads": config.num_attention_heads}),
        "width": config.hidden_size,
        "vocabulary": config.vocab_size,
        "uncased": "yes" if model.tokenizer.basic_tokenizer.do_lower_case else "no",
    }


def find_goals(attention: np.ndarray, tokens: Sequence[str]) -> np.ndarray:
    """Returns the shares of each layer's attention that go to `GOALS`, [L, 6].

    The shares are means over heads and tokens, and add up to 1. Attention to [CLS] or [SEP] counts
    there, also for tokens beside it.
    """
    places = np.arange(len(tokens))
    away = places[None, :] - places[:, None]
    is_cls, is_sep = (
        np.array([token == mark for token in tokens])[None, :] for mark in ("[CLS]", "[SEP]")
    )
    others = ~(is_cls | is_sep)
    goals = [is_cls, is_sep, *(others & (away == step) for step in (0, -1, 1))]
    goals.append(others & (abs(away) > 1))
    shares = [(attention * goal).sum(axis=(2, 3)) / len(tokens) for goal in goals]  # each [L, N]
    return np.stack([share.sum(axis=1) / max(share.shape[1], 1) for share in shares], axis=1)
