"""The same run with several seeds, for a mean with its deviation, and for the runs that fail.

Small sets make BERT's fine-tuning unstable: some seeds learn nothing (paper, section 4.1).
"""

import contextlib
import dataclasses
import json
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import keras
from absl import logging

from bert.command_line import flags as common_flags
from bert.files.durable import write_text
from bert.files.manifest import claim, claim_folder, lock
from bert.files.outputs import make_folder

Settings = common_flags.FineTuningSettings
SettingsType = TypeVar("SettingsType", bound=Settings)


def repeat(
    settings: SettingsType, run: Callable[[SettingsType], tuple[str, Mapping[str, Any]]]
) -> dict[str, Any]:
    """Runs with several seeds, in folders `run_1`, `run_2` and so on, and sums up in `runs.json`.

    Args:
      settings: Those of the script, with `num_runs`.
      run: Runs once and returns the name of the score by which a run has failed to train, and its
        scores, among them `baseline`, that of guessing.

    Returns:
      What `runs.json` holds: `runs`, each with seed, folder and scores; `mean` and
      `standard_deviation` (of the sample) of each score; and `failed`, the seeds whose runs are
      no better than guessing.
    """
    make_folder(settings.output_dir)
    # Of several workers, each would keep out the others.
    alone = settings.strategy != "multi_worker"
    with lock(settings.output_dir) if alone else contextlib.nullcontext():
        return _repeat(settings, run)


def _repeat(
    settings: SettingsType, run: Callable[[SettingsType], tuple[str, Mapping[str, Any]]]
) -> dict[str, Any]:
    runs = []
    for index in range(settings.num_runs):
        seed = settings.seed + index
        folder = claim_folder(settings.output_dir, f"run_{index + 1}")
        logging.info("***** Run %d of %d, seed %d *****", index + 1, settings.num_runs, seed)
        keras.utils.clear_session()
        keras.utils.set_random_seed(seed)
        metric, scores = run(dataclasses.replace(settings, output_dir=folder, seed=seed))
        runs.append({"seed": seed, "folder": os.path.basename(folder), "scores": dict(scores)})
    summary = _summarize(runs, metric)
    text = json.dumps(summary, indent=2, ensure_ascii=False) + "\n"
    write_text(claim(settings.output_dir, "runs.json"), text)
    return summary


def _summarize(runs: Sequence[Mapping[str, Any]], metric: str) -> dict[str, Any]:
    names = [name for name, value in runs[0]["scores"].items() if isinstance(value, int | float)]
    values = {name: [run["scores"][name] for run in runs] for name in names}
    mean = {name: statistics.fmean(each) for name, each in values.items()}
    deviation = {name: statistics.stdev(each) for name, each in values.items()}
    failed = [run["seed"] for run in runs if run["scores"][metric] <= run["scores"]["baseline"]]
    logging.info("***** %d runs: mean and standard deviation *****", len(runs))
    for name in names:
        each = ", ".join(f"{value:.4f}" for value in values[name])
        logging.info("  %s = %.4f ± %.4f  (%s)", name, mean[name], deviation[name], each)
    if failed:
        logging.warning(
            "%d of %d runs did not learn: %s is no better than guessing (%.4f) with the seeds %s. "
            "A smaller --learning_rate or more --num_train_epochs may help.",
            len(failed),
            len(runs),
            metric,
            mean["baseline"],
            failed,
        )
    return {
        "runs": list(runs),
        "metric": metric,
        "mean": mean,
        "standard_deviation": deviation,
        "failed": failed,
    }
