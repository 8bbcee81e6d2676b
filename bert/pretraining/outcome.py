"""What a pre-trained model has learned, in words and on the page of its run."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import keras
import numpy as np

from bert.log import logger
from bert.options import Option
from bert.pretraining.goals import GOALS, Goal
from bert.pretraining.guesses import guess
from bert.pretraining.options import PretrainingEvaluation, PretrainingSchedule
from bert.training.batches import Batches
from tokenization import load_vocab

# Records that the page of a run shows; of some, all tokens are predicted.
LOOKED_AT, DECODED_LOOKED_AT = 200, 20
# By the directions of a goal, of what the figures are.
_PREDICTED = {
    (): "hidden tokens",
    (1,): "tokens, each behind those before it",
    (1, -1): "tokens, each once behind those before it and once before those behind it",
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
    """Returns the model's guesses for the first evaluated records, the vocabulary and the goal."""
    goal = GOALS[objective]
    most = DECODED_LOOKED_AT if goal.directions else LOOKED_AT
    most = min(most, evaluation.max_eval_steps * evaluation.eval_batch_size)
    tokens = (
        {number: token for token, number in load_vocab(vocab_file).items()} if vocab_file else None
    )
    return guess(model, batches, most), tokens, goal


def perplexity_of(objective: str, results: Mapping[str, float]) -> float:
    """Returns between how many equally likely tokens the model is as unsure as, on average."""
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
    token_counts, pair_counts = (np.bincount(np.concatenate(each)) for each in (tokens, pairs))
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
            "Whether the second segment really followed the first, it told right for %.1f %% of %s "
            "pairs; always giving the more frequent answer would be right for %.1f %%.",
            100 * results["next_sentence_accuracy"],
            f"{pair_counts.sum():,}",
            100 * pair_counts.max() / pair_counts.sum(),
        )
    share = float(pair_counts.max() / pair_counts.sum())
    return Frequencies(int(token_counts.max(initial=0)), int(token_counts.sum()), share)


def warn_if_not_learned(
    schedule: PretrainingSchedule, accuracy: float, num_frequent: int, num_tokens: int
) -> None:
    """Warns where a model guesses as if it knew no more than how frequent each token is.

    Training that starts at random stays there for a while: its first guess is always the same few
    tokens. Two standard deviations are chance.
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
