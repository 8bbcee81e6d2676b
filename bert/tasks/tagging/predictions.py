"""Predictions of tags for words: decoding, scores, and answers about raw text."""

import collections
import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import logsumexp, softmax

from bert.tasks.tagging.entities import convert, find_entities
from bert.tasks.tagging.scores import score_entities, score_tags
from bert.tasks.tagging.sentences import Sentence
from bert.tasks.tagging.tag_set import TagSet
from bert.tasks.tagging.windows import NO_WORD
from bert.tasks.tagging.words import Span


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted tag of each word of a sentence, and its probability."""

    tags: list[str]
    probabilities: list[float]


def decode(
    tag_set: TagSet,
    sentences: Sequence[Sentence],
    arrays: Mapping[str, np.ndarray],
    logits: np.ndarray,
) -> list[Prediction]:
    """Returns the most probable tag of each word.

    Args:
      tag_set: The tags of the model.
      sentences: The sentences of the arrays.
      arrays: The arrays of `windows.make_features`.
      logits: The logits, float [N, S, C].
    """
    words = word_logits(arrays, logits)
    ends = list(itertools.accumulate((len(s.words) for s in sentences), initial=0))
    if len(words) != ends[-1]:
        raise ValueError(
            f"`arrays` must be those of `sentences`. They have {len(words)} words, not {ends[-1]}."
        )
    probabilities = softmax(words, axis=-1).max(axis=-1).tolist()
    tags = [tag_set.labels[label] for label in words.argmax(axis=-1)]
    return [
        Prediction(tags[start:end], probabilities[start:end])
        for start, end in itertools.pairwise(ends)
    ]


def word_logits(arrays: Mapping[str, np.ndarray], logits: np.ndarray) -> np.ndarray:
    """Returns the logits of words in their order, float64 [words, C]; the arguments of `decode`."""
    is_word = arrays["word_ids"] != NO_WORD
    order = np.argsort(arrays["word_ids"][is_word])
    return np.asarray(logits, np.float64)[is_word][order]


def is_known(sentences: Sequence[Sentence], tag_set: TagSet) -> np.ndarray:
    """Returns whether the gold tag of each word is in the tag set, bool [words].

    Rare plain tags may be missing from the training set. Types of entities may not.
    """
    tags = [tag for s in sentences for tag in s.tags or [""] * len(s.words)]
    return np.array([not tag_set.is_plain or tag in tag_set.labels for tag in tags], bool)


def score(
    tag_set: TagSet, sentences: Sequence[Sentence], predictions: Sequence[Prediction]
) -> dict[str, Any]:
    """Returns the scores of `score_entities` in the scheme of the tag set, or of `score_tags`.

    Both include `baseline`, the score of predicting the same tag for every word.
    """
    predicted = [prediction.tags for prediction in predictions]
    gold = [convert(sentence.tags or (), tag_set.scheme) for sentence in sentences]
    if tag_set.is_plain:
        return score_tags(
            *(list(itertools.chain.from_iterable(tags)) for tags in (gold, predicted))
        )
    # Predicting O for every word finds no entity.
    baseline = 0.0
    if tag_set.is_segmentation:
        ((most, _),) = collections.Counter(itertools.chain.from_iterable(gold)).most_common(1)
        baseline = float(score_entities(gold, [[most] * len(tags) for tags in gold])["f1"])
    return {**score_entities(gold, predicted), "baseline": baseline}


def loss(
    arrays: Mapping[str, np.ndarray], logits: np.ndarray, known: np.ndarray | None = None
) -> float:
    """Returns the mean of -log p(tag) over all words, or those that are `known`, bool [words]."""
    is_word = arrays["label_mask"] > 0
    if known is not None:
        is_word &= known[arrays["word_ids"]]
    if not is_word.any():
        return math.nan
    words = np.asarray(logits, np.float64)[is_word]  # [words, C]
    labels = arrays["label_ids"][is_word]
    return float(np.mean(logsumexp(words, axis=-1) - words[np.arange(len(words)), labels]))


def text_entities(
    text: str, spans: Sequence[Span], prediction: Prediction, scheme: str
) -> list[dict[str, Any]]:
    """Returns the entities in a text, as values of JSON.

    Args:
      text: The text.
      spans: The span of each word of the text.
      prediction: The tags of the words.
      scheme: The scheme of the tags.

    Returns:
      Entities with `type`; `start` and `end` (exclusive), in characters; `text`; and `score`, the
      mean probability of the tags.
    """
    entities = []
    for entity in find_entities(prediction.tags, scheme):
        start, end = spans[entity.start][0], spans[entity.end - 1][1]
        probabilities = prediction.probabilities[entity.start : entity.end]
        entities.append(
            {
                "type": entity.type,
                "start": start,
                "end": end,
                "text": text[start:end],
                "score": sum(probabilities) / len(probabilities),
            }
        )
    return entities


def as_word(entity: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an entity of `text_entities` as a word: its type, if any, is named `tag`."""
    tag = {"tag": entity["type"]} if entity["type"] else {}
    return {"text": entity["text"], **tag, **{n: entity[n] for n in ("start", "end", "score")}}
