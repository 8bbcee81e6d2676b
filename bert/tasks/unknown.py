"""Warns of a vocabulary that is likely to be another text's."""

from absl import logging

_MANY = 0.05


def warn_of_unknown(num_unknown: int, count: int, what: str) -> None:
    """Logs a warning where many are [UNK].

    Args:
      num_unknown: How many are.
      count: Of so many.
      what: What they are, such as "words".
    """
    if num_unknown > _MANY * count:
        logging.warning(
            "%.1f %% of the %s are [UNK]. Are --vocab_file and --do_lower_case the right ones?",
            100 * num_unknown / count,
            what,
        )
