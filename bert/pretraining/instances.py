"""Training instances of pre-training, in a compact table and as records (paper, section 3.1)."""

import array
import dataclasses
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import numpy as np

import tokenization
from bert.files.display import Progress, counted
from bert.files.records import encode_examples, write_records
from bert.log import logger
from bert.options import Message, Option
from bert.pretraining.corpus import ids_dtype
from bert.pretraining.draws import Drawn, Draws, Pair
from bert.pretraining.masking import (
    GOES_ON,
    SPACES,
    find_kinds,
    generator,
    offset_of,
    put_masks,
    words_of,
)

# The most instances of a table for which masks are drawn to estimate their number.
_SAMPLE = 256

# Possible causes of too few masked tokens.
_TOO_FEW = Message(
    "%s should be about %s times that.", Option("max_predictions_per_seq"), Option("max_seq_length")
)
_TOO_LONG = Message(
    "With %s, everything between two spaces is a word, and words of more tokens than %s, or than "
    "that share of a sequence, are never masked. Is the text segmented, with spaces between its "
    "words? For text that is not, leave %s out.",
    Option("words", SPACES),
    Option("max_predictions_per_seq"),
    Option("words"),
)


# Instances whose records are encoded together.
BATCH = 1024
# The instances that are logged, and those that a verbose log shows.
_NUM_SHOWN, MOST_SHOWN = 2, 20


@dataclasses.dataclass
class TrainingInstance:
    """A pair of segments with some tokens masked.

    Attributes:
      tokens: The masked tokens of `[CLS] a [SEP] b [SEP]`, or of `[CLS] a [SEP]`.
      segment_ids: 0 up to the first [SEP], then 1.
      masked_lm_positions: The masked positions in ascending order.
      masked_lm_labels: The tokens before masking.
      is_random_next: Whether `b` is random text, rather than what follows `a`.
      num_truncated: The number of tokens cut off to fit.
    """

    tokens: Sequence[str]
    segment_ids: Sequence[int]
    masked_lm_positions: Sequence[int]
    masked_lm_labels: Sequence[str]
    is_random_next: bool
    num_truncated: int = 0


class InstanceTable(Sequence[TrainingInstance]):
    """Training instances in rows of numbers, an eighth of the memory of lists of tokens.

    Args:
      tokenizer: The tokenizer of the ids.
      max_seq_length: The most tokens of an instance.
      max_predictions_per_seq: The most masked tokens; 0 for records that are masked when they are
        read.
    """

    # A row has these counts, then token ids, masked positions and label ids, padded with 0.
    LENGTH, FIRST_LENGTH, NUM_MASKED, IS_RANDOM_NEXT, NUM_TRUNCATED, NUM_COUNTS = range(6)

    def __init__(
        self,
        tokenizer: tokenization.FullTokenizer,
        max_seq_length: int,
        max_predictions_per_seq: int,
    ) -> None:
        self._tokenizer = tokenizer
        ends = np.cumsum(
            [self.NUM_COUNTS, max_seq_length, max_predictions_per_seq, max_predictions_per_seq]
        ).tolist()
        self._tokens, self._positions, self._labels = map(slice, ends[:-1], ends[1:])
        self._width = ends[-1]
        self._dtype = ids_dtype((*tokenizer.inv_vocab, max_seq_length))
        self._largest = (1 << 8 * self._dtype.itemsize) - 1
        self._words = words_of(tokenizer.vocab)
        self._offset = offset_of(tokenizer)
        self._places = np.arange(max_seq_length)
        self._numbers = bytearray()
        self._order = array.array("Q")

    @property
    def lengths(self) -> tuple[int, int]:
        """The `max_seq_length` and `max_predictions_per_seq` of the instances."""
        return len(self._places), self._labels.stop - self._labels.start

    @property
    def bytes_per_instance(self) -> int:
        """The memory of an instance, with its place in the order."""
        return self._width * self._dtype.itemsize + self._order.itemsize

    def extend(self, ids: np.ndarray, drawn: Sequence[Drawn]) -> None:
        """Adds instances at the end that are drawn from a corpus of these ids."""
        pairs, masks = zip(*drawn, strict=True)
        a_start, a_stop, b_start, b_stop, is_random, num_truncated, _ = np.array(pairs).T
        first_length = a_stop - a_start + 2
        length = first_length + np.where(b_stop > b_start, b_stop - b_start + 1, 0)
        tokens = self._join(ids, pairs)  # [T], without padding
        firsts = np.cumsum(length) - length
        num_masked, columns, labels = put_masks(tokens, firsts, masks, self._words)
        rows = np.zeros((len(drawn), self._width), self._dtype)
        num_truncated = np.minimum(num_truncated, self._largest)
        counts = (length, first_length, num_masked, is_random, num_truncated)
        rows[:, : self.NUM_COUNTS] = np.stack(counts, axis=1)
        is_label = np.arange(self.lengths[1]) < num_masked[:, None]
        rows[:, self._positions][is_label] = columns
        rows[:, self._labels][is_label] = labels
        rows[:, self._tokens][self._places < length[:, None]] = tokens
        self._numbers += rows.tobytes()
        self._order.extend(range(len(self._order), len(self._order) + len(drawn)))

    def _join(self, ids: np.ndarray, pairs: Sequence[Pair]) -> np.ndarray:
        """Returns `[CLS] a [SEP] b [SEP]`, or `[CLS] a [SEP]`, of every pair, in turn."""
        first, last = (np.array([self._tokenizer.vocab[t]], ids.dtype) for t in ("[CLS]", "[SEP]"))
        parts: list[np.ndarray] = []
        for a_start, a_stop, b_start, b_stop, *_ in pairs:
            parts += (first, ids[a_start:a_stop], last)
            if b_stop > b_start:
                parts += (ids[b_start:b_stop], last)
        return np.concatenate(parts)

    def shuffle(self, rng: random.Random) -> None:
        """Shuffles the instances as `rng.shuffle` shuffles a list."""
        rng.shuffle(self._order)

    def _all_rows(self) -> np.ndarray:
        return np.frombuffer(self._numbers, self._dtype).reshape(-1, self._width)

    def counts(self) -> np.ndarray:
        """Returns the counts, in the order of adding, int64 [instances, NUM_COUNTS]."""
        return self._all_rows()[:, : self.NUM_COUNTS].astype(np.int64)

    def kinds(self, step: int) -> list[bytes]:
        """Returns the kinds of all tokens of every `step`th instance, in the order of adding."""
        rows = self._all_rows()[::step]
        kinds = find_kinds(self._tokenizer)[rows[:, self._tokens]]
        lengths = rows[:, self.LENGTH].tolist()
        return [row[:length].tobytes() for row, length in zip(kinds, lengths, strict=True)]

    def _rows(self, start: int, stop: int) -> np.ndarray:
        return self._all_rows()[np.frombuffer(self._order, np.uint64)[start:stop]]

    def features(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Returns the features of the records of some instances, each [B, values]."""
        rows = self._rows(start, stop)
        counts = rows[:, : self.NUM_COUNTS, None].astype(np.int64)  # [B, NUM_COUNTS, 1]
        inside = self._places < counts[:, self.LENGTH]
        tokens, labels = rows[:, self._tokens], rows[:, self._labels]
        goes_on = {}
        most = labels.shape[1]
        if self._offset:
            goes_on = {} if most else {GOES_ON: tokens >= self._offset}
            tokens, labels = tokens % self._offset, labels % self._offset
        features = {
            **goes_on,
            "input_ids": tokens,
            "input_mask": inside,
            "segment_ids": inside & (self._places >= counts[:, self.FIRST_LENGTH]),
            "next_sentence_labels": counts[:, self.IS_RANDOM_NEXT],
        }
        if not most:
            return features
        masked = np.arange(most) < counts[:, self.NUM_MASKED]
        return {
            **features,
            "masked_lm_positions": rows[:, self._positions],
            "masked_lm_ids": labels,
            "masked_lm_weights": masked.astype(np.float32),
        }

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, index: int) -> TrainingInstance: ...
    @overload
    def __getitem__(self, index: slice) -> list[TrainingInstance]: ...
    def __getitem__(self, index: int | slice) -> TrainingInstance | list[TrainingInstance]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        row = self._rows(index, index + 1)[0].tolist()
        length, first_length, num_masked, is_random_next, num_truncated = row[: self.NUM_COUNTS]
        return TrainingInstance(
            tokens=self._tokenizer.convert_ids_to_tokens(row[self._tokens][:length]),
            segment_ids=[0] * first_length + [1] * (length - first_length),
            masked_lm_positions=row[self._positions][:num_masked],
            masked_lm_labels=self._tokenizer.convert_ids_to_tokens(row[self._labels][:num_masked]),
            is_random_next=bool(is_random_next),
            num_truncated=num_truncated,
        )


# An instance whose masks are to be drawn: its pair, the ids of both segments, and the generator, as
# `Draws.pair` returns it.
Segments = tuple[Pair, np.ndarray, np.ndarray, random.Random]


def mask_all(
    instances: Sequence[Segments],
    draws: Draws,
    tokenizer: tokenization.FullTokenizer,
    kinds: np.ndarray,
) -> InstanceTable:
    """Returns a table of instances in their order, with their masks.

    Args:
      instances: At least one.
      draws: How masks are drawn.
      tokenizer: The tokenizer of the ids.
      kinds: The kind of every id, as `find_kinds` returns it.
    """
    ids = np.concatenate([part for _, *parts, _ in instances for part in parts])
    kinds_of_all, num_words = kinds[ids].tobytes(), len(tokenizer.vocab)
    drawn, start = [], 0
    for pair, a, b, rng in instances:
        middle, stop = start + len(a), start + len(a) + len(b)
        joined = Pair(start, middle, middle, stop, *pair[4:])
        drawn.append(draws.mask(joined, kinds_of_all, num_words, rng))
        start = stop
    table = InstanceTable(tokenizer, draws.max_seq_length, draws.most_masks)
    table.extend(ids, drawn)
    return table


def features_of(
    instances: Sequence[TrainingInstance],
    vocab: Mapping[str, int],
    max_seq_length: int,
    max_predictions_per_seq: int,
) -> dict[str, np.ndarray]:
    """Returns the features of the records of some instances, each [B, values].

    Raises:
      ValueError: where an instance is too long, its parts differ in length, or the vocabulary does
        not have a token.
    """
    ids, mask, segments = np.zeros((3, len(instances), max_seq_length), np.int64)
    positions, labels, is_label = np.zeros((3, len(instances), max_predictions_per_seq), np.int64)
    for row, instance in enumerate(instances):
        length, num_masked = len(instance.tokens), len(instance.masked_lm_positions)
        if not 0 < length <= max_seq_length or len(instance.segment_ids) != length:
            raise ValueError(
                f"An instance must have 1 to {max_seq_length} tokens, the `max_seq_length`, and as "
                f"many `segment_ids`. Received {length} and {len(instance.segment_ids)}."
            )
        num_labels = len(instance.masked_lm_labels)
        if num_masked > max_predictions_per_seq or num_labels != num_masked:
            raise ValueError(
                f"An instance must have at most {max_predictions_per_seq} `masked_lm_positions`, "
                "the `max_predictions_per_seq`, and as many `masked_lm_labels`. Received "
                f"{num_masked} and {num_labels}."
            )
        ids[row, :length] = tokenization.convert_by_vocab(vocab, instance.tokens)
        mask[row, :length] = 1
        segments[row, :length] = instance.segment_ids
        positions[row, :num_masked] = instance.masked_lm_positions
        labels[row, :num_masked] = tokenization.convert_by_vocab(vocab, instance.masked_lm_labels)
        is_label[row, :num_masked] = 1
    return {
        "input_ids": ids,
        "input_mask": mask,
        "segment_ids": segments,
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "masked_lm_weights": is_label.astype(np.float32),
        "next_sentence_labels": np.array([[int(i.is_random_next)] for i in instances]),
    }


def write_instances(
    instances: Sequence[TrainingInstance],
    features: Callable[[int, int], Mapping[str, np.ndarray]],
    output_files: Sequence[str],
    made_with: Mapping[str, Any] | None = None,
) -> None:
    """Writes records to TFRecord files in turn; the files appear when all are complete.

    Args:
      instances: The instances.
      features: Returns the features of the instances from one number up to another.
      output_files: The paths of the files.
      made_with: The description for the index beside each file; None to write no index.
    """
    progress = Progress("Writing", len(instances))
    with write_records(output_files, made_with) as writers:
        for start in range(0, len(instances), BATCH):
            records = encode_examples(features(start, min(start + BATCH, len(instances))))
            for index, record in enumerate(records, start):
                writers[index % len(writers)].write(record)
                if index < MOST_SHOWN:
                    show(index, instances[index])
            progress(start)
    logger.info("Wrote %d total instances", len(instances))


def show(index: int, instance: TrainingInstance) -> None:
    """Logs an instance in readable form; all but the first ones only in a verbose log."""
    tokens = list(instance.tokens)
    for position, label in zip(
        instance.masked_lm_positions, instance.masked_lm_labels, strict=True
    ):
        tokens[position] += f"={label}"
    logger.log(
        logging.INFO if index < _NUM_SHOWN else logging.DEBUG,
        "Example %d%s%s: %s",
        index + 1,
        ", its hidden tokens behind =" if instance.masked_lm_positions else "",
        _describe_second(instance),
        " ".join(tokens),
    )


def _describe_second(instance: TrainingInstance) -> str:
    if not any(instance.segment_ids):
        return ""
    return f", the second part {'random' if instance.is_random_next else 'the next'}"


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
        "Made %s of %.1f tokens: %s, %s; %.1f %% of the instances truncated, by %.1f %% "
        "of all tokens.",
        counted(num_instances, "instance"),
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
            Option("masked_lm_prob"),
            100 * draws.masked_lm_prob,
            _TOO_LONG if draws.words == SPACES else _TOO_FEW,
        )
    if counts.num_lost > 0.5 * (counts.num_lost + num_tokens):
        logger.warning(
            "%.1f %% of the tokens were cut off. Are the lines longer than sentences?",
            100 * counts.num_lost / (counts.num_lost + num_tokens),
        )
