"""Which tokens of a sequence are masked, and what stands in their place (paper, section 3.1)."""

import random
from collections.abc import Mapping, Sequence


def create_masked_lm_predictions(
    tokens: Sequence[str],
    masked_lm_prob: float,
    max_predictions_per_seq: int,
    vocab_words: Sequence[str],
    rng: random.Random,
    *,
    do_whole_word_mask: bool = False,
) -> tuple[list[str], list[int], list[str]]:
    """Returns the tokens with some masked, their positions, and what stood there (section 3.1).

    Of those chosen, 80 % become [MASK], 10 % a random token and 10 % stay. A random token may be
    any, [PAD] and [unused1] included, as in the original.
    """
    candidates, followers = _mask_candidates(tokens, do_whole_word_mask)
    _shuffle(candidates, rng)
    num_to_predict = min(max_predictions_per_seq, max(1, round(len(tokens) * masked_lm_prob)))
    positions = _choose(candidates, followers, num_to_predict)
    output = list(tokens)
    for position in positions:
        if rng.random() < 0.8:
            output[position] = "[MASK]"
        elif rng.random() >= 0.5:
            output[position] = vocab_words[rng.randint(0, len(vocab_words) - 1)]
    positions.sort()
    return output, positions, [tokens[position] for position in positions]


def _mask_candidates(
    tokens: Sequence[str], do_whole_word_mask: bool
) -> tuple[list[int], dict[int, list[int]]]:
    """Returns the positions that can be chosen, and for some those that are masked with them."""
    candidates = [i for i, token in enumerate(tokens) if token not in {"[CLS]", "[SEP]"}]
    if not do_whole_word_mask:
        return candidates, {}
    followers: dict[int, list[int]] = {}
    firsts = candidates[:1]
    for position in candidates[1:]:
        # Faithful: pieces that begin segment b, its front cut off, go with the last word of a.
        if tokens[position].startswith("##"):
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


def _shuffle(items: list[int], rng: random.Random) -> None:
    """Does what `rng.shuffle(items)` does, with the same draws, in a third of the time."""
    getrandbits = rng.getrandbits
    for last in range(len(items) - 1, 0, -1):
        bits = (last + 1).bit_length()
        other = getrandbits(bits)
        while other > last:
            other = getrandbits(bits)
        items[last], items[other] = items[other], items[last]
