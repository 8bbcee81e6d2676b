"""Conditional random fields over the labels of the words of a sentence (Lafferty et al., 2001).

The score of a path, one label for each word, is the sum of the logits of its labels and of the
scores of neighbouring labels; its probability is a softmax over all paths. As in the taggers of
Lample et al. (2016), the logits are those of a neural network.

Dimension key: `B` sentences, `S` tokens, `W` words, `C` labels. `transitions`, [C + 2, C], has the
score of each label (column) after each other one (row), then of the first and of the last label.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras import ops

Tensor = Any

# The label of a word in `path_losses` whose label is not known.
ANY = -1
# Far below any score, and yet finite, so that no gradient is lost.
_NEVER = -1e9


@keras.saving.register_keras_serializable("bert")
class Crf(keras.layers.Layer):
    """The learned scores of neighbouring labels: logits [B, S, C] to float32 [B, C + 2, C].

    Each row has the same `transitions`. They start at 0, where labels do not depend on each other.
    """

    def build(self, logits_shape: tuple[int | None, ...]) -> None:
        def new(name: str, *shape: int | None) -> keras.Variable:
            return self.add_weight(name=name, shape=shape, initializer="zeros", autocast=False)

        count = logits_shape[-1]
        self.transitions = new("transitions", count, count)
        self.start = new("start_transitions", count)
        self.end = new("end_transitions", count)

    def call(self, logits: Tensor) -> Tensor:
        rows = [self.transitions, self.start[None], self.end[None]]
        return ops.zeros_like(logits[:, :1, :1]) + ops.concatenate(rows, axis=0)


def word_order(label_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the positions of a row's words, then those of other tokens, and the number of words.

    Args:
      label_mask: int32 [B, S], 1 at the tokens that represent words.

    Returns:
      int32 [B, S] and int32 [B].
    """
    length = ops.shape(label_mask)[1]
    keys = (1 - label_mask) * length + ops.arange(length, dtype="int32")[None]
    return ops.cast(ops.argsort(keys, axis=1), "int32"), ops.sum(label_mask, axis=1)


def path_losses(logits: Tensor, counts: Tensor, transitions: Tensor, labels: Tensor) -> Tensor:
    """Returns -log of the probability of the labels of each sentence, [B]; 0 without words.

    Args:
      logits: [B, W, C].
      counts: int32 [B], the number of words of each sentence, which come before padding.
      transitions: [C + 2, C].
      labels: int32 [B, W]; the probability is a sum over all labels where one is `ANY`.
    """
    # The path is the only one that other labels, far below any score, do not take part in.
    given = labels[:, :, None]
    is_other = (given != ops.arange(ops.shape(logits)[2])) & (given != ANY)
    both = ops.concatenate([logits, ops.where(is_other, _NEVER, logits)], axis=0)
    reached = _forward(both, ops.tile(counts, 2), transitions, ops.logsumexp)[-1]
    of_all, of_path = ops.split(ops.logsumexp(reached + transitions[-1], axis=1), 2)
    return of_all - of_path


def best_paths(logits: Tensor, counts: Tensor, transitions: Tensor) -> Tensor:
    """Returns the most probable labels of each sentence by Viterbi's algorithm, int32 [B, W].

    Labels of padding have no meaning. For the arguments, see `path_losses`.
    """
    reached = _forward(logits, counts, transitions, ops.max)
    pairs = ops.transpose(transitions[:-2])

    def step(state: tuple[Tensor, Tensor], scores: Tensor) -> tuple[Any, Any]:
        number, label = state
        is_inner = (number + 1 < counts)[:, None]
        scores += ops.where(is_inner, ops.take(pairs, label, axis=0), transitions[-1])
        state = (number - 1, ops.cast(ops.argmax(scores, axis=1), "int32"))
        return state, state

    last = ops.shape(logits)[1] - 1
    _, (_, labels) = ops.scan(step, (last, ops.zeros_like(counts)), reached, reverse=True)
    return ops.transpose(labels)


def log_marginals(logits: Tensor, counts: Tensor, transitions: Tensor) -> Tensor:
    """Returns the logarithm of the probability of each label of each word, [B, W, C].

    It is the sum over all paths with the label, by the forward-backward algorithm. For the
    arguments, see `path_losses`.
    """
    reached = _forward(logits, counts, transitions, ops.logsumexp)
    pairs, end = transitions[:-2], transitions[-1]

    def step(state: tuple[Tensor, Tensor, Tensor], scores: Tensor) -> tuple[Any, Any]:
        number, after, following = state
        paths = ops.logsumexp(pairs + (following + after)[:, None], axis=2)
        state = (number - 1, ops.where((number + 1 < counts)[:, None], paths, end), scores)
        return state, state

    none = ops.zeros_like(logits[:, 0])
    state, scores = (ops.shape(logits)[1] - 1, none, none), ops.swapaxes(logits, 0, 1)
    _, (_, ahead, _) = ops.scan(step, state, scores, reverse=True)
    return ops.swapaxes(ops.log_softmax(reached + ahead, axis=-1), 0, 1)


def _forward(
    logits: Tensor, counts: Tensor, transitions: Tensor, combine: Callable[..., Tensor]
) -> Tensor:
    """Returns the combined score of the paths up to each label of each word, [W, B, C].

    After the last word of a sentence, the scores stay. `combine` is a sum or maximum of scores.
    """
    pairs, start = transitions[:-2], transitions[-2]

    def step(state: tuple[Tensor, Tensor], scores: Tensor) -> tuple[Any, Any]:
        # Keras reads only one sequence of unknown length, so the word's number is in the state.
        number, before = state
        paths = combine(before[:, :, None] + pairs, axis=1)
        reached = ops.where(number > 0, paths, start) + scores
        state = (number + 1, ops.where((number < counts)[:, None], reached, before))
        return state, state

    state, scores = (0, ops.zeros_like(logits[:, 0])), ops.swapaxes(logits, 0, 1)
    return ops.scan(step, state, scores)[1][1]


_SENTENCES = [
    tf.TensorSpec([None, None, None], tf.float64),
    tf.TensorSpec([None], tf.int32),
    tf.TensorSpec([None, None], tf.float64),
]


@functools.partial(tf.function, input_signature=_SENTENCES, autograph=False)
def decode_sentences(logits: Tensor, counts: Tensor, transitions: Tensor) -> tuple[Tensor, Tensor]:
    """Returns `best_paths` and `log_marginals` of float64."""
    arguments = (logits, counts, transitions)
    return best_paths(*arguments), log_marginals(*arguments)


@functools.partial(
    tf.function,
    input_signature=[*_SENTENCES, tf.TensorSpec([None, None], tf.int32)],
    autograph=False,
)
def sentence_losses(logits: Tensor, counts: Tensor, transitions: Tensor, labels: Tensor) -> Tensor:
    """Returns `path_losses` of float64."""
    return path_losses(logits, counts, transitions, labels)
