"""Durations in hours, minutes and seconds."""

import re

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_DURATION = re.compile("".join(rf"(?:{_NUMBER}{unit})?" for unit in _UNITS))


def read_duration(text: str) -> float:
    """Returns the seconds of a time such as 90s, 60m, 1.5h or 1h30m.

    Raises:
      ValueError: where the text is no time, or 0.
    """
    match = _DURATION.fullmatch(text)
    numbers = match.groups() if match else ()
    seconds = sum(
        float(number) * unit
        for number, unit in zip(numbers, _UNITS.values(), strict=False)
        if number
    )
    if not seconds:
        raise ValueError(
            f"a time must be hours, minutes and seconds, such as 90s, 60m, 1.5h or 1h30m, and more "
            f"than nothing. Received {text!r}"
        )
    return seconds


def duration_text(seconds: float) -> str:
    """Returns the text of a time, which `read_duration` reads; equal times have equal texts."""
    parts = []
    # 1.1 h, times 3600, are a bit more than 66 m.
    seconds = round(seconds, 6)
    for unit, size in _UNITS.items():
        count = seconds if unit == "s" else seconds // size
        if count:
            parts.append(f"{count:g}{unit}")
        seconds -= count * size
    return "".join(parts)
