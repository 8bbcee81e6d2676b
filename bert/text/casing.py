"""Checks that texts are cased as a vocabulary, or a model by its name, requires."""

import re
from collections.abc import Iterable

from bert.log import logger
from bert.options import Option

# [CLS], [unused1], <S> and the like.
_MARK = re.compile(r"\[.*\]|<.*>", re.DOTALL)
# In the released cased vocabularies, at least 31 % of the entries with letters have capitals; in
# the uncased ones, none. Small vocabularies, and those of scripts without case, are undecided.
_FEWEST_LETTERS = 1000
_FEWEST_CAPITALS = 100
_CASED_SHARE = 0.1
_UNCASED_SHARE = 0.001

_RELEASED_NAME = re.compile(
    r"(?:^|/)(?P<name>(?:wwm_|multi_)?(?:un)?cased_L-\d+_H-\d+_A-\d+"
    r"|(?:multilingual|chinese)_L-12_H-768_A-12)(?:/bert_model\.ckpt[^/]*|/)?$"
)


def validate_case_matches_checkpoint(do_lower_case: bool, init_checkpoint: str | None) -> None:
    """Raises if `init_checkpoint` is named like a released model of the other casing."""
    match = _RELEASED_NAME.search(init_checkpoint or "")
    if match is None:
        return
    name = match["name"]
    cased = name.startswith(("cased", "wwm_cased", "multi_cased"))
    if cased == do_lower_case:
        raise ValueError(
            f"`do_lower_case` must be {not cased} for the {'cased' if cased else 'lower-cased'} "
            f"model {name!r}. Received {do_lower_case} with {init_checkpoint!r}. If that model is "
            "not the released one, give its folder another name."
        )


def find_casing(vocab: Iterable[str]) -> bool | None:
    """Returns whether a vocabulary is cased, or None if that is undecided."""
    letters = [token for token in vocab if token.lower() != token.upper()]
    letters = [token for token in letters if not _MARK.fullmatch(token)]
    capitals = sum(token != token.lower() for token in letters)
    if capitals >= _FEWEST_CAPITALS and capitals >= _CASED_SHARE * len(letters):
        return True
    if len(letters) >= _FEWEST_LETTERS and capitals <= _UNCASED_SHARE * len(letters):
        return False
    return None


def warn_of_casing(vocab: Iterable[str], vocab_file: str, do_lower_case: bool) -> None:
    """Warns where texts are not lower-cased as the vocabulary requires.

    Args:
      vocab: The tokens.
      vocab_file: The file of the tokens, for the message.
      do_lower_case: Whether texts are lower-cased.
    """
    is_cased = find_casing(vocab)
    if is_cased is None or is_cased != do_lower_case:
        return
    if is_cased:
        lost = "are never used, for texts are lower-cased"
    else:
        lost = "are absent, so words that begin with one are unknown"
    logger.warning(
        "%s is the vocabulary of %s model, but %s is %s: its entries with capitals %s. Is %s "
        "meant?",
        vocab_file,
        "a cased" if is_cased else "an uncased",
        Option("do_lower_case"),
        do_lower_case,
        lost,
        Option("do_lower_case", not is_cased),
    )
