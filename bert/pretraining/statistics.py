"""Statistics of pre-training text and its instances, and warnings about them."""

import dataclasses

import numpy as np

from bert.log import logger
from bert.options import Message, Option
from bert.pretraining.corpus import CorpusCounts
from bert.pretraining.draws import Draws
from bert.pretraining.instances import InstanceTable
from bert.pretraining.masking import PIECES, SPACES, generator

# The most instances of a table for which masks are drawn to estimate their number.
_SAMPLE = 256

# The share of tokens that continue a word below which masking whole words has hardly an effect.
_FEW_FOLLOWING = 0.01

# Possible causes of too few masked tokens.
_TOO_FEW = Message(
    "%s should be about %s times that.", Option("max_predictions_per_seq"), Option("max_seq_length")
)
_TOO_LONG = Message(
    "With %s, everything between two spaces is a word, and words of more tokens than %s, or than "
    "that share of a sequence, are never masked. Is the text segmented, with spaces between its "
    "words? For text that is not, leave %s out.",
    *(Option("words", SPACES), Option("max_predictions_per_seq"), Option("words")),
)


def describe_corpus(counts: CorpusCounts, draws: Draws) -> None:
    """Logs statistics of the input, and warns of what is unusual."""
    logger.info(
        "Read %s documents, %s sentences, %s tokens; %.1f sentences a document, %.1f tokens a "
        "sentence, %.2f %% of the tokens [UNK].",
        f"{counts.num_documents:,}",
        f"{counts.num_sentences:,}",
        f"{counts.num_tokens:,}",
        counts.num_sentences / counts.num_documents,
        counts.num_tokens / counts.num_sentences,
        100 * counts.num_unknown / counts.num_tokens,
    )
    if draws.next_sentence:
        _warn_of_documents(counts)
        _warn_of_lines(counts, draws.max_seq_length)
    if draws.do_whole_word_mask and draws.words == PIECES:
        _warn_of_words(counts)
    if counts.num_unknown > 0.02 * counts.num_tokens:
        logger.warning(
            "%.1f %% of the tokens are [UNK]. Are %s and %s the right ones for this text?",
            100 * counts.num_unknown / counts.num_tokens,
            *map(Option, ("vocab_file", "do_lower_case")),
        )
    if counts.num_damaged:
        logger.warning(
            "%d lines are not UTF-8. What cannot be read was left out.", counts.num_damaged
        )
    if counts.num_joined:
        logger.warning(
            "%d input files begin within a document, for the file before does not end with a blank "
            "line.",
            counts.num_joined,
        )


def _warn_of_lines(counts: CorpusCounts, max_seq_length: int) -> None:
    """Warns where lines are longer than sequences, before the records are drawn."""
    if counts.num_tokens > max_seq_length * counts.num_sentences:
        logger.warning(
            "A line has %.0f tokens on average, more than a sequence of %s holds: most of the "
            "text will be cut off. Each line should be a sentence; split_sentences.py makes them. "
            "Or give %s.",
            counts.num_tokens / counts.num_sentences,
            *(Option("max_seq_length", max_seq_length), Option("next_sentence", False)),
        )


def _warn_of_words(counts: CorpusCounts) -> None:
    """Warns where hardly any word has several pieces to mask together."""
    if counts.num_following < _FEW_FOLLOWING * counts.num_tokens:
        logger.warning(
            "%s does almost nothing: %.2g %% of the tokens begin with ## and continue a word. "
            "Chinese is split into characters, each of them a word: have a segmenter put spaces "
            "between its words, and give %s.",
            *(Option("do_whole_word_mask"), 100 * counts.num_following / counts.num_tokens),
            Option("words", SPACES),
        )


def _warn_of_documents(counts: CorpusCounts) -> None:
    """Warns of documents without other sentences, or other documents, to be paired with."""
    if counts.num_documents == 1:
        logger.warning(
            "There is one document only, so that a 'random' next segment is from the same one. Put "
            "a blank line between documents."
        )
    elif counts.num_single > counts.num_documents / 2:
        logger.warning(
            "%d of %d documents are a single sentence, whose next segment is always random. A "
            "blank line ends a document: is there one after every sentence? If each text is one "
            "sentence, give %s, and train with %s.",
            *(counts.num_single, counts.num_documents),
            *(Option("next_sentence", False), Option("objective", "masked_lm")),
        )


@dataclasses.dataclass(frozen=True)
class InstanceCounts:
    """Counts of instances, which add up over several parts.

    Attributes:
      num_instances: The number of instances.
      num_random: Instances with a random next segment.
      num_tokens: Tokens without [CLS] and [SEP].
      num_masked: Masked tokens; an estimate where masks are left to training.
      num_truncated: Instances that were truncated.
      num_lost: Tokens that were cut off.
    """

    num_instances: int = 0
    num_random: int = 0
    num_tokens: int = 0
    num_masked: int = 0
    num_truncated: int = 0
    num_lost: int = 0

    @classmethod
    def of(cls, instances: InstanceTable, draws: Draws) -> "InstanceCounts":
        """Returns the counts of a table of instances."""
        counts = instances.counts()
        sums = counts.sum(axis=0).tolist()
        if draws.mask_at_training:
            sums[InstanceTable.NUM_MASKED] = _estimate_masks(instances, draws)
        return cls(
            num_instances=len(counts),
            num_random=sums[InstanceTable.IS_RANDOM_NEXT],
            num_tokens=sums[InstanceTable.LENGTH] - draws.num_special * len(counts),
            num_masked=sums[InstanceTable.NUM_MASKED],
            num_truncated=int(np.count_nonzero(counts[:, InstanceTable.NUM_TRUNCATED])),
            num_lost=sums[InstanceTable.NUM_TRUNCATED],
        )

    def __add__(self, other: "InstanceCounts") -> "InstanceCounts":
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return InstanceCounts(*(one + another for one, another in pairs))


def _estimate_masks(instances: InstanceTable, draws: Draws) -> int:
    """Estimates how many tokens training masks in each pass, by masks for some instances."""
    step = -(-len(instances) // _SAMPLE) or 1
    sample = instances.kinds(step)
    # The words that replace them make no difference.
    masks = [
        len(draws.draw(kinds, 1, generator(draws.random_seed, number))[0])
        for number, kinds in enumerate(sample)
    ]
    return round(sum(masks) * len(instances) / max(len(sample), 1))


def describe_instances(counts: InstanceCounts, draws: Draws) -> None:
    """Logs statistics of the output, and warns of what is unusual."""
    num_instances, num_tokens = counts.num_instances, counts.num_tokens
    logger.info(
        "Made %s instances of %.1f tokens: %s, %s; %.1f %% of the instances truncated, by %.1f %% "
        "of all tokens.",
        f"{num_instances:,}",
        num_tokens / num_instances + draws.num_special,
        f"{100 * counts.num_random / num_instances:.1f} % with a random next segment"
        if draws.next_sentence
        else "of one segment each",
        "no token masked before training"
        if draws.mask_at_training
        else f"{100 * counts.num_masked / num_tokens:.1f} % of the tokens masked, {draws.ratios}",
        100 * counts.num_truncated / num_instances,
        100 * counts.num_lost / (counts.num_lost + num_tokens),
    )
    if counts.num_random > 0.75 * num_instances:
        logger.warning(
            "%.1f %% of the next segments are random, where about half should be. Documents need "
            "several sentences, a line each.",
            100 * counts.num_random / num_instances,
        )
    if counts.num_masked < 0.8 * draws.masked_lm_prob * num_tokens:
        logger.warning(
            "%.1f %% of the tokens %s masked, where %s is %.1f %%. %s",
            100 * counts.num_masked / num_tokens,
            "will be" if draws.mask_at_training else "are",
            *(Option("masked_lm_prob"), 100 * draws.masked_lm_prob),
            _TOO_LONG if draws.words == SPACES else _TOO_FEW,
        )
    if counts.num_lost > 0.5 * (counts.num_lost + num_tokens):
        logger.warning(
            "%.1f %% of the tokens were cut off. Are the lines longer than sentences?",
            100 * counts.num_lost / (counts.num_lost + num_tokens),
        )
