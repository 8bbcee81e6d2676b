"""Scores and example predictions of a pre-trained model, for the log and the report."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert.log import logger
from bert.options import Option
from bert.pretraining.options import GOALS, Goal, PretrainingEvaluation, PretrainingSchedule
from bert.training.batches import Batches
from tokenization import load_vocab

Tensor = Any

# The most records in a report: of masked tokens, and of objectives that predict every token.
LOOKED_AT, DECODED_LOOKED_AT = 200, 20
# The number of predictions for a masked token.
_TOP = 5
# The predicted tokens by the directions of a goal.
_PREDICTED = {
    (): "hidden tokens",
    (1,): "tokens, each from those before it",
    (1, -1): "tokens, each once from those before it and once from those after it",
}


class Frequencies(NamedTuple):
    """How frequent the answers are that a model is asked for.

    Attributes:
      num_frequent: How often the most frequent predicted token occurs.
      num_tokens: How many tokens are predicted.
      pair_share: The share of the more frequent answer about the second segment.
    """

    num_frequent: int
    num_tokens: int
    pair_share: float

    def baselines(self, goal: Goal) -> dict[str, float]:
        """Returns by score what always giving the most frequent answer reaches."""
        tokens = {goal.accuracy: self.num_frequent / self.num_tokens} if self.num_tokens else {}
        pairs = {"next_sentence_accuracy": self.pair_share} if goal.has_next_sentence else {}
        return {**tokens, **pairs}


def guess_first_records(
    objective: str,
    evaluation: PretrainingEvaluation,
    vocab_file: str | None,
    model: keras.Model,
    batches: Batches,
) -> tuple[dict[str, np.ndarray], dict[int, str] | None, Goal]:
    """Returns predictions for the first evaluated records, the token of each id, and the goal."""
    goal = GOALS[objective]
    most = DECODED_LOOKED_AT if goal.directions else LOOKED_AT
    most = min(most, evaluation.max_eval_steps * evaluation.eval_batch_size)
    tokens = (
        {number: token for token, number in load_vocab(vocab_file).items()} if vocab_file else None
    )
    return guess(model, batches, most), tokens, goal


def guess(model: keras.Model, batches: Batches, most: int) -> dict[str, np.ndarray]:
    """Returns the first records of batches with the predictions of the model.

    Args:
      model: A model of `pretraining_model`.
      batches: Batches of the features of pre-training.
      most: The most records.

    Returns:
      The features of the records; `guesses` int32 and `guess_probabilities` [N, P, 5], the best
      first; `log_probabilities` [N, P] of the masked tokens; and `next_sentence_probabilities`
      [N, 2].
    """

    @tf.function(input_signature=[batches.signature], autograph=False)
    def predict(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        outputs = model({name: batch[name] for name in model.input}, training=False)
        logits = tf.nn.log_softmax(outputs["masked_lm_logits"])
        best = tf.math.top_k(logits, min(_TOP, logits.shape[-1]))
        return {
            **batch,
            "guesses": best.indices,
            "guess_probabilities": tf.exp(best.values),
            "log_probabilities": tf.gather(logits, batch["masked_lm_ids"], axis=2, batch_dims=2),
            "next_sentence_probabilities": tf.nn.softmax(outputs["next_sentence_logits"]),
        }

    num_batches = min(-(-most // batches.batch_size), batches.num_batches)
    predicted = [predict(batch) for batch in batches.iterate(0, num_batches)]
    return {
        name: np.concatenate([outputs[name] for outputs in predicted])[:most]
        for name in predicted[0]
    }


def perplexity_of(objective: str, results: Mapping[str, float]) -> float:
    """Returns the perplexity of the predicted tokens, bounded to a finite number."""
    return math.exp(min(results[GOALS[objective].token_loss], 700))


def explain(
    objective: str, max_eval_steps: int, results: Mapping[str, float], batches: Batches
) -> Frequencies:
    """Logs what the scores mean beside a baseline; returns the frequencies that it follows from."""
    goal = GOALS[objective]
    num_steps = min(max_eval_steps, batches.num_batches)
    tokens, pairs = [], []
    for batch in batches.iterate(0, num_steps):
        ids, weights = (np.asarray(batch[f"masked_lm_{name}"]) for name in ("ids", "weights"))
        tokens.append(ids[weights > 0])
        pairs.append(np.asarray(batch["next_sentence_labels"])[:, 0])
    token_counts, pair_counts = (np.bincount(np.concatenate(ids)) for ids in (tokens, pairs))
    if token_counts.any():
        logger.info(
            "In words: of %s %s, the model's first guess was right for %.1f %%; always "
            "guessing the most frequent token would be right for %.1f %%.",
            f"{token_counts.sum():,}",
            _PREDICTED[goal.directions],
            100 * results[goal.accuracy],
            100 * token_counts.max() / token_counts.sum(),
        )
        beside = "; about 4 was reported for BERT-Base, fully trained, on held-out text"
        logger.info(
            "Its perplexity is %.1f: as unsure as between that many equally likely tokens (1 is "
            "certainty%s).",
            perplexity_of(objective, results),
            "" if goal.directions else beside,
        )
    if goal.has_next_sentence:
        logger.info(
            "Whether the second segment follows the first, the model predicted correctly for "
            "%.1f %% of %s pairs; the more frequent answer alone would be right for %.1f %%.",
            100 * results["next_sentence_accuracy"],
            f"{pair_counts.sum():,}",
            100 * pair_counts.max() / pair_counts.sum(),
        )
    share = float(pair_counts.max() / pair_counts.sum())
    return Frequencies(int(token_counts.max(initial=0)), int(token_counts.sum()), share)


def warn_if_not_learned(
    schedule: PretrainingSchedule, accuracy: float, num_frequent: int, num_tokens: int
) -> None:
    """Warns where a model is not more accurate than the most frequent token as a baseline.

    Training from random weights predicts the same few tokens for a while. A difference of two
    standard deviations is chance.
    """
    share = num_frequent / max(num_tokens, 1)
    chance = 2.0 * math.sqrt(share * (1.0 - share) / max(num_tokens, 1))
    if num_tokens and accuracy <= share + chance:
        more = "time_budget" if schedule.time_budget else "num_train_steps"
        logger.warning(
            "It has learned no more than how frequent tokens are: %.1f %% of its first guesses are "
            "right, and %.1f %% would be if it always guessed the most frequent one. Go on with "
            "more %s (after %s; it takes thousands of steps from random weights) and %s; or, in "
            "another %s, try another %s or start from an %s.",
            100 * accuracy,
            100 * share,
            Option(more),
            getattr(schedule, more),
            *map(Option, ("resume_with_changes", "output_dir", "learning_rate")),
            Option("init_checkpoint"),
        )
