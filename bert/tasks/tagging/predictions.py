"""What a model predicts for words: decoded, scored, and told of raw text."""

import collections
import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import logsumexp, softmax

from bert.tasks.tagging import entities as tagging_entities
from bert.tasks.tagging import plain_tags
from bert.tasks.tagging import words as tagging_words
from bert.tasks.tagging.sentences import Sentence
from bert.tasks.tagging.windows import NO_WORD, Task


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """A label for each word of a sentence, and its probability."""

    tags: list[str]
    probabilities: list[float]


def decode(
    task: Task,
    sentences: Sequence[Sentence],
    arrays: Mapping[str, np.ndarray],
    logits: np.ndarray,
) -> list[Prediction]:
    """Returns the likeliest label of each word.

    Args:
      task: What was decided.
      sentences: Those that the arrays were made of.
      arrays: As `make_features` gives them.
      logits: float [N, S, C].
    """
    words = word_logits(arrays, logits)
    num_words = sum(len(sentence.words) for sentence in sentences)
    if len(words) != num_words:
        raise ValueError(
            f"`arrays` must be those of `sentences`. They have {len(words)} words, not {num_words}."
        )
    best = words.argmax(axis=-1)
    probabilities = softmax(words, axis=-1).max(axis=-1).tolist()
    tags = [task.labels[label] for label in best]
    ends = itertools.accumulate((len(sentence.words) for sentence in sentences), initial=0)
    return [
        Prediction(tags[start:end], probabilities[start:end])
        for start, end in itertools.pairwise(ends)
    ]


def word_logits(arrays: Mapping[str, np.ndarray], logits: np.ndarray) -> np.ndarray:
    """Returns the logits of all words in their order, float64 [words, C]; arguments as `decode`."""
    is_word = arrays["word_ids"] != NO_WORD
    order = np.argsort(arrays["word_ids"][is_word])
    return np.asarray(logits, np.float64)[is_word][order]


def is_known(sentences: Sequence[Sentence], task: Task) -> np.ndarray:
    """Returns whether the model can give each word its tag, bool [words].

    Of tags that are no entities, some may be so rare that there is none to train on.
    """
    labels = {*task.labels} if task.is_plain else ()
    return np.array(
        [
            tag in labels or not task.is_plain
            for sentence in sentences
            for tag in sentence.tags or [""] * len(sentence.words)
        ],
        bool,
    )


def score(
    task: Task, sentences: Sequence[Sentence], predictions: Sequence[Prediction]
) -> dict[str, Any]:
    """Returns what `entities.score` does, tags being compared in the task's scheme.

    Of tags that are no entities, it is what `plain_tags.score` returns.
    """
    if task.is_plain:
        return plain_tags.score(
            [tag for sentence in sentences for tag in sentence.tags or ()],
            [tag for prediction in predictions for tag in prediction.tags],
        )
    gold = [tagging_entities.convert(sentence.tags or (), task.scheme) for sentence in sentences]
    scores = tagging_entities.score(gold, [prediction.tags for prediction in predictions])
    return {**scores, "baseline": _baseline(task, gold)}


def _baseline(task: Task, gold: Sequence[Sequence[str]]) -> float:
    """Returns the F1 of always giving the same label."""
    if not task.cuts_words:
        # Who guesses O finds nothing.
        return 0.0
    most = collections.Counter(itertools.chain.from_iterable(gold)).most_common(1)[0][0]
    return float(tagging_entities.score(gold, [[most] * len(tags) for tags in gold])["f1"])


def loss(
    arrays: Mapping[str, np.ndarray], logits: np.ndarray, known: np.ndarray | None = None
) -> float:
    """Returns the mean of -log p(label) over all words, or those that are `known`, bool [words]."""
    is_word = arrays["label_mask"] > 0
    if known is not None:
        is_word &= known[arrays["word_ids"]]
    if not is_word.any():
        return math.nan
    words = np.asarray(logits, np.float64)[is_word]  # [words, C]
    labels = arrays["label_ids"][is_word]
    return float(np.mean(logsumexp(words, axis=-1) - words[np.arange(len(words)), labels]))


def text_entities(
    text: str, spans: Sequence[tagging_words.Span], prediction: Prediction, scheme: str
) -> list[dict[str, Any]]:
    """Returns the entities in a text, fit for JSON.

    Args:
      text: The text.
      spans: Where its words are.
      prediction: Their tags.
      scheme: That of the tags.

    Returns:
      For each, `type`; `start` and `end`, in characters; `text`, which stands there; and `score`,
      the mean probability of its words' labels.
    """
    entities = []
    for entity in tagging_entities.find_entities(prediction.tags, scheme):
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


def text_words(
    text: str, spans: Sequence[tagging_words.Span], prediction: Prediction, scheme: str
) -> list[dict[str, Any]]:
    """Returns the words of a text that is tagged or cut as a whole, fit for JSON.

    Each has what `text_entities` tells, but `tag` for `type`, and only where there is one.
    """
    return [as_word(entity) for entity in text_entities(text, spans, prediction, scheme)]


def as_word(entity: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what `text_words` tells of a word that `text_entities` takes for an entity."""
    tag = {"tag": entity["type"]} if entity["type"] else {}
    places = {name: entity[name] for name in ("start", "end", "score")}
    return {"text": entity["text"], **tag, **places}
