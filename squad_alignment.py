"""From word pieces back to the text they were made of (original: run_squad.py, get_final_text).

The tokenizer sets marks apart, and for uncased models it changes case and takes off accents. An
answer is to be as it stands in the paragraph, without what else its words have: `Steve Smith`, for
the pieces `steve smith` of `Steve Smith's`.
"""

import functools

from absl import logging

import tokenization


def get_final_text(
    pred_text: str, orig_text: str, do_lower_case: bool, *, verbose_logging: bool = False
) -> str:
    """Returns the part of `orig_text` that `pred_text` was made of; all of it if that fails."""
    begin, end = align(pred_text, orig_text, do_lower_case, verbose_logging=verbose_logging)
    return orig_text[begin:end]


def align(
    pred_text: str, orig_text: str, do_lower_case: bool, *, verbose_logging: bool = False
) -> tuple[int, int]:
    """Returns which characters of a text a prediction was made of.

    As long as the tokenizer leaves the number of characters but for spaces as it is, each is taken
    for the one in its place. Where that fails, all of the text is meant.

    Args:
      pred_text: Words as `BasicTokenizer` leaves them, with single spaces.
      orig_text: Text that holds them.
      do_lower_case: Of the tokenizer.
      verbose_logging: Whether to log why it fails.
    """
    split = " ".join(_basic_tokenizer(do_lower_case).tokenize(orig_text))
    begin = split.find(pred_text)
    end = begin + len(pred_text) - 1
    if begin < 0:
        reason = "Unable to find text: %r in %r."
    elif _num_characters(split) != _num_characters(orig_text):
        reason = "Length not equal after stripping spaces, looking for %r in %r."
    elif not pred_text or split[begin] == " " or split[end] == " ":
        reason = "Couldn't map the ends of %r in %r."
    else:
        first = _place(orig_text, begin - split.count(" ", 0, begin))
        last = _place(orig_text, end - split.count(" ", 0, end))
        return first, last + 1
    if verbose_logging:
        logging.info(reason, pred_text, orig_text)
    return 0, len(orig_text)


def _num_characters(text: str) -> int:
    return len(text) - text.count(" ")


def _place(text: str, number: int) -> int:
    """Returns where the character with this number is, from 0, spaces not counted."""
    place = number
    for word in text.split(" "):
        if number < len(word):
            break
        number -= len(word)
        place += 1
    return place


@functools.lru_cache(maxsize=2)
def _basic_tokenizer(do_lower_case: bool) -> tokenization.BasicTokenizer:
    return tokenization.BasicTokenizer(do_lower_case=do_lower_case)
