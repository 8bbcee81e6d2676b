r"""Fine-tunes, evaluates and applies models that choose the ending of a text (paper, section 4.4).

    python run_swag.py --data_dir=swag --output_dir=chooser --do_train --do_eval \
      --vocab_file=vocab.txt --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt

Reads the CSV files of SWAG, and CSV, JSON lines or Parquet files of your own, with any number of
endings per text. Other multiple-choice questions have the same form: the question is the text, and
its answers are the endings.
"""

import dataclasses
from typing import Any

from bert.commands import training
from bert.commands.checks import Checks, make_script
from bert.commands.console import run_script
from bert.commands.flags import TPU_FLAGS
from bert.commands.training import FileSettings
from bert.options import option
from bert.runs.recipes import FineTuning, Search
from bert.tasks.options import SwagData, SwagSchedule


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(SwagData, SwagSchedule, FileSettings):
    """The flags of this script, by name."""

    do_eval: bool = option(
        False, "Evaluate on the val set; with --do_train, during and after training.", group="steps"
    )


def run(settings: Settings) -> dict[str, Any]:
    """Trains, evaluates, predicts and exports as the settings say.

    Returns:
      `accuracy`, `loss` and `baseline` on the val set, and where the test set has labels
      `test_accuracy` and `test_loss`; with several runs, what `bert.runs.search.run` gives.

    Raises:
      ValueError: before the expensive part, where settings, files and model do not fit.
    """
    return training.run(make_recipe(settings))


def check(settings: Settings, checks: Checks) -> None:
    """Shows what `run` would do."""
    training.check(make_recipe(settings), checks)


def make_recipe(settings: Settings) -> FineTuning | Search:
    """Returns the recipe that the flags describe, or the search over several runs."""
    return training.make_recipe(settings, SwagData)


define_flags, main = make_script(Settings, run, check, without_effect=TPU_FLAGS)

if __name__ == "__main__":
    define_flags()
    run_script(main)
