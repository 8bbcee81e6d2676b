"""The scores of a run as numbers at the head of a page: their names, scales and baselines."""

from collections.abc import Mapping
from typing import Any

from bert.reports.page import Figure

_MOST_FIGURES = 8
_NAMES = {
    "accuracy": "accuracy",
    "exact": "exact match",
    "f1": "F1",
    "mae": "mean absolute error",
    "macro_f1": "macro F1",
    "masked_lm_accuracy": "masked LM accuracy",
    "masked_lm_loss": "masked LM loss",
    "matthews": "Matthews' correlation",
    "micro_f1": "micro F1",
    "mse": "mean squared error",
    "pearson": "Pearson's correlation",
    "r2": "R²",
    "spearman": "Spearman's correlation",
}
_CORRELATIONS = ("matthews", "pearson", "spearman")
_ERRORS = ("loss", "mae", "mse", "perplexity")
_SHARES = ("accuracy", "exact", "exact_match", "f1", "precision", "recall")
# The scores of SQuAD's own script are in percent.
_IN_PERCENT = ("exact", "exact_match")


def make_figures(
    scores: Mapping[str, Any],
    metric: str,
    names: Mapping[str, str] | None = None,
    baselines: Mapping[str, float] | None = None,
) -> list[Figure]:
    """Returns the main scores, the metric first.

    Args:
      scores: All scores of a run; those of a test set begin with `test_`.
      metric: The score that decides, or "".
      names: What a score is called on the page, where the usual name does not say enough.
      baselines: By score, what the same answer for all examples would reach.
    """
    values = {
        name: value
        for name, value in scores.items()
        if isinstance(value, float) and name != "baseline"
    }
    chosen = [name for name in values if not name.startswith("test_")]
    chosen = sorted(chosen, key=lambda name: name != metric)[:_MOST_FIGURES]
    if f"test_{metric}" in values:
        chosen.insert(1, f"test_{metric}")
    most = 100 if any(name in scores for name in _IN_PERCENT) else 1
    return [
        Figure(
            name_score(name, names),
            values[name],
            _note(name, most, (baselines or {}).get(name)),
        )
        for name in chosen
    ]


def name_score(name: str, names: Mapping[str, str] | None = None) -> str:
    """Returns what a score is called on a page."""
    base = name.removeprefix("test_")
    shown = {**_NAMES, **(names or {})}.get(base, base.replace("_", " "))
    return f"{shown}, test set" if base != name else shown


def _note(name: str, most: int, baseline: float | None) -> str:
    scale = _scale(name.removeprefix("test_"), most)
    same = f"one answer for all: {baseline:.4g}" if baseline is not None else ""
    return "; ".join(filter(None, (scale, same)))


def _scale(name: str, most: int) -> str:
    last = name.rpartition("_")[2]
    if last in _CORRELATIONS:
        return "from −1 to 1"  # noqa: RUF001
    if last in _ERRORS:
        return "less is better"
    if name == "r2":
        return "at most 1"
    return f"of {most}" if last in _SHARES or name in _SHARES else ""
