"""Looks into a model that reads a text.

Dimension key as in `modeling.py`.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import modeling
import tokenization
from bert.inspection.words import Word, read_words
from bert.models.fine_tuned import LoadedModel
from bert.models.open import is_export, open_model
from bert.models.options import NO_OVERRIDES, Overrides
from bert.models.pretrained import MASK, Guess, MaskedModel, PretrainedModel
from bert.models.vectors import find_encoder
from bert.weights.variables import require_segments

# Weights of attention that a page may hold; it has about two and a half bytes for each.
MAX_WEIGHTS = 8_000_000
# To which tokens a layer attends.
GOALS = ("[CLS]", "[SEP]", "itself", "the one before", "the one after", "others")


@dataclasses.dataclass(frozen=True)
class Reading:
    """A text as a model takes it.

    Attributes:
      texts: As they were typed; the second may be empty.
      words: Of both, with [CLS] and [SEP], of which nothing was typed.
      tokens: The pieces of all words.
      input_ids: Of the tokens.
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
    """What goes on within a model.

    Attributes:
      reading: The text.
      facts: By name, what model it is.
      attention: float32 [L, N, S, S], to which token (column) each one (row) attends; of a model
        that has none, [0, 0, S, S].
      masks: By the position of each [MASK], the model's guesses by layer; the first ones are those
        of the embeddings.
      is_next: The probability that the second text follows the first, where the model tells it.
      answer: Of a fine-tuned model.
      notes: What cannot be shown, and why.
    """

    reading: Reading
    facts: dict[str, str | int]
    attention: np.ndarray
    masks: dict[int, list[list[Guess]]]
    is_next: float | None
    answer: dict[str, Any] | None
    notes: list[str]


def open_inspected(
    model_dir: str, overrides: Overrides = NO_OVERRIDES, precision: str = "float32"
) -> LoadedModel | PretrainedModel:
    """Returns the model of a folder, pre-trained or fine-tuned, as `bert.load` does.

    Raises:
      ValueError: where it is not there, has no encoder, or is a graph that nobody can look into.
    """
    if is_export(model_dir):
        raise ValueError(
            f"`--model_dir` must hold the weights of a model to look into. Received {model_dir!r}, "
            "a SavedModel; give the folder that it was exported from."
        )
    model = open_model(model_dir, "model_dir", overrides, precision=precision)
    assert isinstance(model, LoadedModel | PretrainedModel), "Exports are refused above."
    if find_encoder(model.model) is None:
        raise ValueError(
            f"`--model_dir` must hold an encoder to look into. Received {model_dir!r}, a model of "
            "word vectors alone."
        )
    return model


def read(
    model: LoadedModel | PretrainedModel, texts: tuple[str, str], max_seq_length: int | None = None
) -> Reading:
    """Returns a text, and a second one or "", as the model takes them.

    Args:
      model: The model.
      texts: The texts.
      max_seq_length: Tokens at most; None for as many as the model takes. What is longer is
        refused, for nothing would show what was cut.

    Raises:
      ValueError: where they are empty, too long, or more than the model takes.
    """
    config, tokenizer = _encoder(model).config, model.tokenizer
    kept = MASK if _masked(model) else ""
    first, second = (read_words(text, tokenizer, kept) for text in texts)
    check_second(model, texts[1])
    if not _pieces(first) or (texts[1] and not _pieces(second)):
        raise ValueError(f"The text must have at least one token. Received {list(texts)!r}.")
    length = len(_pieces([*first, *second])) + (3 if second else 2)
    if isinstance(model, LoadedModel):
        max_seq_length = model.task.stored()["max_seq_length"]
    _check_length(length, config, max_seq_length)
    start, end = (Word("", token, [], [token]) for token in ("[CLS]", "[SEP]"))
    words = [start, *first, end, *([*second, end] if second else [])]
    tokens, segment_ids = tokenization.pack(_pieces(first), _pieces(second), max_length=length)
    unknown = tokenizer.wordpiece_tokenizer.unk_token
    input_ids = tokenizer.convert_tokens_to_ids(tokens)
    return Reading(texts, words, tokens, input_ids, segment_ids, unknown)


def check_second(model: LoadedModel | PretrainedModel, text: str) -> None:
    """Checks that a model takes a second text, where there is one.

    Raises:
      ValueError: where it is fine-tuned for one text, or tells no segments apart.
    """
    if text:
        require_segments(_encoder(model).config, "`--text_b`")
    if text and isinstance(model, LoadedModel) and len(model.fields) == 1:
        raise ValueError(
            f"`--text_b` must not be given for a model that takes one text. Received {text!r}."
        )


def _encoder(model: LoadedModel | PretrainedModel) -> modeling.BertModel:
    bert = find_encoder(model.model)
    assert bert is not None, "`open_inspected` refuses what has none."
    return bert


def _masked(model: LoadedModel | PretrainedModel) -> MaskedModel | None:
    return model.masked if isinstance(model, PretrainedModel) else None


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


def look(model: LoadedModel | PretrainedModel, reading: Reading, top_k: int = 5) -> Inspection:
    """Returns what goes on within a model that reads a text.

    Args:
      model: The model.
      reading: The text, as `read` gives it.
      top_k: Guesses for each [MASK].
    """
    bert, masked, notes = _encoder(model), _masked(model), list[str]()
    attention = attend(bert, reading)
    if not attention.size:
        notes.append("The model has no attention: its layers are LSTMs.")
    masks: dict[int, list[list[Guess]]] = {}
    is_next = answer = None
    if isinstance(model, LoadedModel):
        answer = _answer(model, reading.texts, notes)
    elif masked is None:
        notes.append(_why_no_masks(bert.config))
    else:
        text = masked.read(reading.texts)
        if text.masks():
            masks = dict(zip(text.masks(), masked.fill_by_layer(text, top_k), strict=True))
        else:
            notes.append(f"Write {MASK} into the text to see what each layer would put there.")
        if text.is_pair() and masked.predicts_next:
            [is_next] = masked.next_sentence([text])
        elif text.is_pair():
            notes.append("The model has not learned to tell which texts follow others.")
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
        notes.append("The model chooses among several endings; here is what it makes of one.")
        return None
    if len(model.fields) == 2 and not texts[1]:
        notes.append(f"The model answers where `--text_b` gives it the {model.fields[1]}, too.")
        return None
    [answer] = model.predict([dict(zip(model.fields, texts, strict=False))])
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

    They are means over heads and tokens, and add up to 1. What goes to [CLS] or [SEP] counts there,
    whoever stands beside it.
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
