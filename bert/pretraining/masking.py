"""Which tokens of a sequence are masked, and what stands in their place (paper, section 3.1)."""

import dataclasses
import functools
import hashlib
import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

# What masking asks of a token: is it [CLS] or [SEP], which stay; does a word begin with it; does it
# go on with one.
SPECIAL, FIRST, FOLLOWING = range(3)

# What records without masks hold beside ids where words are not told by these: whether each token
# goes on with the word before it.
GOES_ON = "goes_on"

# What may come in a token's place, beside a random word, which is a number from 0.
MASK, ITSELF = -1, -2


class Ratios(NamedTuple):
    """What becomes of the tokens that are to be predicted, in percent (paper, table 8).

    Attributes:
      mask: Those that become [MASK].
      same: Those that stay as they are.
      random: Those that become a random word.
    """

    mask: float
    same: float
    random: float

    def __str__(self) -> str:
        return f"{self.mask:g} % as [MASK], {self.same:g} % as they are, {self.random:g} % random"


# The paper's (section 3.1), as a flag gives them.
RATIOS = "80,10,10"


def parse_ratios(text: str) -> Ratios:
    """Returns the ratios that a flag gives.

    Raises:
      ValueError: where they are not three numbers from 0 that make 100.
    """
    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != len(Ratios._fields) or not min(numbers) >= 0 or not _is_whole(numbers):
        raise ValueError(
            "`--mask_ratios` must be three numbers from 0 whose sum is 100: the percent of masked "
            "tokens that become [MASK], that stay the same and that become a random word, such as "
            f"{RATIOS}. Received {text!r}."
        )
    return Ratios(*numbers)


def _is_whole(percents: Sequence[float]) -> bool:
    return math.isclose(sum(percents), 100)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Masking:
    """How tokens are masked, as the flags of the same names have it."""

    masked_lm_prob: float
    max_predictions_per_seq: int
    do_whole_word_mask: bool
    mask_ratios: str = RATIOS

    @functools.cached_property
    def ratios(self) -> Ratios:
        """What becomes of the masked tokens."""
        return parse_ratios(self.mask_ratios)

    def draw(
        self, kinds: bytes, num_words: int, rng: random.Random, *, sparing: bool = False
    ) -> tuple[list[int], list[int]]:
        """Returns what `draw_masks` does for a sequence of tokens of these kinds."""
        return draw_masks(
            kinds,
            count_masks(len(kinds), self.masked_lm_prob, self.max_predictions_per_seq),
            num_words,
            rng,
            self.do_whole_word_mask,
            ratios=self.ratios,
            sparing=sparing,
        )


def kind(token: str) -> int:
    """Returns what masking asks of a token."""
    if token in {"[CLS]", "[SEP]"}:
        return SPECIAL
    return FOLLOWING if token.startswith("##") else FIRST


def kinds_of_ids(vocab: Mapping[str, int]) -> np.ndarray:
    """Returns what masking asks of every id, uint8 [ids]."""
    kinds = np.zeros(max(vocab.values()) + 1, np.uint8)
    for token, number in vocab.items():
        kinds[number] = kind(token)
    return kinds


def words_of(vocab: Mapping[str, int]) -> np.ndarray:
    """Returns the id of all that may come in a token's place, int64 [words + 1].

    It is found at what `draw_masks` gives: counted from the end, at -1 stands what `MASK` means.
    """
    return np.array([*vocab.values(), vocab.get("[MASK]", 0)])


def create_masked_lm_predictions(
    tokens: Sequence[str],
    masked_lm_prob: float,
    max_predictions_per_seq: int,
    vocab_words: Sequence[str],
    rng: random.Random,
    *,
    do_whole_word_mask: bool = False,
) -> tuple[list[str], list[int], list[str]]:
    """Returns the tokens with some masked, their positions, and what stood there (section 3.1)."""
    masking = Masking(
        masked_lm_prob=masked_lm_prob,
        max_predictions_per_seq=max_predictions_per_seq,
        do_whole_word_mask=do_whole_word_mask,
    )
    positions, words = masking.draw(bytes(map(kind, tokens)), len(vocab_words), rng)
    output = list(tokens)
    for position, word in zip(positions, words, strict=True):
        if word != ITSELF:
            output[position] = "[MASK]" if word == MASK else vocab_words[word]
    positions.sort()
    return output, positions, [tokens[position] for position in positions]


def count_masks(length: int, masked_lm_prob: float, max_predictions_per_seq: int) -> int:
    """Returns how many tokens of a sequence to mask at most, [CLS] and [SEP] counted with it."""
    return min(max_predictions_per_seq, max(1, round(length * masked_lm_prob)))


def draw_masks(
    kinds: bytes,
    num_to_predict: int,
    num_words: int,
    rng: random.Random,
    do_whole_word_mask: bool,
    *,
    ratios: Ratios,
    sparing: bool = False,
) -> tuple[list[int], list[int]]:
    """Returns the positions to mask in the order drawn, and what comes in the place of each.

    Those chosen become `MASK`, stay `ITSELF` or become a random word, which may be any, [PAD] and
    [unused1] included, as in the original.

    Args:
      kinds: The kind of each token.
      num_to_predict: How many to mask.
      num_words: The words from which to draw.
      rng: As everywhere.
      do_whole_word_mask: Whether a word's pieces stay together.
      ratios: How often each.
      sparing: Whether no more is drawn than is needed, unlike in the original.
    """
    candidates = list(itertools.compress(itertools.count(), kinds))
    followers: dict[int, list[int]] = {}
    if do_whole_word_mask:
        candidates, followers = _split_words(candidates, kinds)
    if sparing and not followers:
        _shuffle(candidates, rng, num_to_predict)
        # Those that are drawn first come to stand last.
        candidates.reverse()
    else:
        _shuffle(candidates, rng)
    positions = _choose(candidates, followers, num_to_predict)
    draw = rng.random
    mask, rest = ratios.mask / 100, ratios.same + ratios.random
    # Of those that do not become a mask.
    same = ratios.same / rest if rest else 0.0
    words = [
        MASK if draw() < mask else ITSELF if draw() < same else below(num_words, rng)
        for _ in positions
    ]
    return positions, words


def put_masks(
    tokens: np.ndarray,
    firsts: np.ndarray,
    drawn: Sequence[tuple[Sequence[int], Sequence[int]]],
    words: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Puts what was drawn for some sequences in the place of their tokens.

    Args:
      tokens: The ids of all of them, which are changed, [T].
      firsts: Where each sequence begins in `tokens`, in ascending order, [B].
      drawn: For each, what `draw_masks` returns.
      words: What `words_of` returns.

    Returns:
      How many tokens of each sequence are masked, [B]; and in ascending order, one sequence after
      the other, where each is in its sequence, and the id that stood there, [M].
    """
    counts = np.fromiter((len(positions) for positions, _ in drawn), np.int64, len(drawn))
    columns, numbers = (
        np.fromiter(itertools.chain.from_iterable(each[index] for each in drawn), np.int64)
        for index in range(2)
    )
    places = np.repeat(firsts, counts) + columns
    order = np.argsort(places)
    columns, numbers, places = columns[order], numbers[order], places[order]
    labels = tokens[places]
    tokens[places] = np.where(numbers == ITSELF, labels, words[numbers])
    return counts, columns, labels


def _split_words(candidates: Sequence[int], kinds: bytes) -> tuple[list[int], dict[int, list[int]]]:
    """Returns where words begin, and for some the positions that are masked with the first."""
    followers: dict[int, list[int]] = {}
    firsts = list(candidates[:1])
    for position in candidates[1:]:
        # Faithful: pieces that begin segment b, its front cut off, go with the last word of a.
        if kinds[position] == FOLLOWING:
            followers.setdefault(firsts[-1], []).append(position)
        else:
            firsts.append(position)
    return firsts, followers


def _choose(
    candidates: Sequence[int], followers: Mapping[int, Sequence[int]], num_to_predict: int
) -> list[int]:
    """Returns the first candidates and what goes with them, leaving out words too long to fit."""
    if not followers:
        return list(candidates[:num_to_predict])
    positions: list[int] = []
    for first in candidates:
        word = [first, *followers.get(first, ())]
        if len(positions) + len(word) <= num_to_predict:
            positions += word
    return positions


def _shuffle(items: list[int], rng: random.Random, num_last: int | None = None) -> None:
    """Does what `rng.shuffle(items)` does, with the same draws, in less time.

    With `num_last`, it ends as soon as so many of the last items are what they will be.
    """
    getrandbits = rng.getrandbits
    count = max(len(items) - 1, 0)
    steps = _steps(count.bit_length())
    for last, bits in steps[len(steps) - count :][:num_last]:
        other = getrandbits(bits)
        while other > last:
            other = getrandbits(bits)
        items[last], items[other] = items[other], items[last]


@functools.cache
def _steps(bits: int) -> list[tuple[int, int]]:
    """Returns the numbers of so many bits down to 1, each with the bits of the one above it."""
    return [(last, (last + 1).bit_length()) for last in range((1 << bits) - 1, 0, -1)]


def generator(*numbers: int) -> random.Random:
    """Returns a generator whose draws depend on these numbers alone."""
    name = " ".join(map(str, numbers)).encode()
    digest = hashlib.blake2b(name, digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "big"))


def below(limit: int, rng: random.Random) -> int:
    """Does what `rng.randint(0, limit - 1)` does, with the same draws, in less time.

    Raises:
      ValueError: where there is no such number.
    """
    if limit < 1:
        raise ValueError(f"There must be something to draw from. Received {limit} items.")
    bits = limit.bit_length()
    number = rng.getrandbits(bits)
    while number >= limit:
        number = rng.getrandbits(bits)
    return number
