"""What pre-training text and its instances look like: statistics to log, and warnings."""

from collections.abc import Mapping

import numpy as np
from absl import logging

from bert.tasks.pretraining.corpus import Corpus, Faults
from bert.tasks.pretraining.instances import InstanceTable


def describe_corpus(corpus: Corpus, faults: Faults, vocab: Mapping[str, int]) -> None:
    """Logs statistics of the input, and warns where it does not look as it should."""
    documents, num_tokens = corpus.documents, len(corpus.ids)
    num_sentences = sum(map(len, documents)) - len(documents)
    num_unknown = np.count_nonzero(corpus.ids == vocab.get("[UNK]", -1))
    num_single = sum(len(document) == 2 for document in documents)
    logging.info(
        "Read %s documents, %s sentences, %s tokens; %.1f sentences a document, %.1f tokens a "
        "sentence, %.2f %% of the tokens [UNK].",
        f"{len(documents):,}",
        f"{num_sentences:,}",
        f"{num_tokens:,}",
        num_sentences / len(documents),
        num_tokens / num_sentences,
        100 * num_unknown / num_tokens,
    )
    if len(documents) == 1:
        logging.warning(
            "There is one document only, so that a 'random' next segment is from the same one. Put "
            "a blank line between documents."
        )
    elif num_single > len(documents) / 2:
        logging.warning(
            "%d of %d documents are a single sentence, whose next segment is always random. A "
            "blank line ends a document: is there one after every sentence?",
            num_single,
            len(documents),
        )
    if num_unknown > 0.02 * num_tokens:
        logging.warning(
            "%.1f %% of the tokens are [UNK]. Are --vocab_file and --do_lower_case the right ones "
            "for this text?",
            100 * num_unknown / num_tokens,
        )
    if faults.num_damaged:
        logging.warning(
            "%d lines are not UTF-8. What cannot be read was left out.", faults.num_damaged
        )
    if faults.num_joined:
        logging.warning(
            "%d input files begin within a document, for the file before does not end with a blank "
            "line.",
            faults.num_joined,
        )


def describe_instances(instances: InstanceTable, masked_lm_prob: float) -> None:
    """Logs statistics of the output, and warns where it does not look as it should."""
    counts = instances.counts()
    num_random = int(counts[:, InstanceTable.IS_RANDOM_NEXT].sum())
    num_tokens = int(counts[:, InstanceTable.LENGTH].sum()) - 3 * len(counts)
    num_masked = int(counts[:, InstanceTable.NUM_MASKED].sum())
    truncated = counts[:, InstanceTable.NUM_TRUNCATED]
    lost = int(truncated.sum())
    logging.info(
        "Made %s instances of %.1f tokens: %.1f %% with a random next segment, %.1f %% of the "
        "tokens masked; %.1f %% of the instances truncated, by %.1f %% of all tokens.",
        f"{len(counts):,}",
        num_tokens / len(counts) + 3,
        100 * num_random / len(counts),
        100 * num_masked / num_tokens,
        100 * (truncated > 0).mean(),
        100 * lost / (lost + num_tokens),
    )
    if num_random > 0.75 * len(counts):
        logging.warning(
            "%.1f %% of the next segments are random, where about half should be. Documents need "
            "several sentences, a line each.",
            100 * num_random / len(counts),
        )
    if num_masked < 0.8 * masked_lm_prob * num_tokens:
        logging.warning(
            "%.1f %% of the tokens are masked, where --masked_lm_prob asks for %.1f %%. "
            "--max_predictions_per_seq should be about --max_seq_length times that.",
            100 * num_masked / num_tokens,
            100 * masked_lm_prob,
        )
    if lost > 0.5 * (lost + num_tokens):
        logging.warning(
            "%.1f %% of the tokens were cut off. Are the lines longer than sentences?",
            100 * lost / (lost + num_tokens),
        )
