r"""Fine-tunes, evaluates and applies models that choose the ending of a text (paper, section 4.4).

    python run_swag.py --data_dir=swag --output_dir=chooser --do_train --do_eval \
      --vocab_file=vocab.txt --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt

Reads the CSV files of SWAG, and CSV, JSON lines or Parquet files of your own, with any number of
endings per text. Other multiple-choice questions have the same form: the question is the text, and
its answers are the endings.
"""

import dataclasses
from typing import Any

from bert.commands import flags as common_flags
from bert.commands import training
from bert.commands.console import run_script
from bert.commands.training import FileSettings
from bert.options import option
from bert.runs.recipes import FineTuning, Search
from bert.tasks.options import SwagData


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(SwagData, FileSettings):
    """The flags of this script, by name."""

    do_eval: bool = option(
        False, "Evaluate on the val set; with --do_train, during and after training.", group="steps"
    )
    # The paper's: 16 texts, each with four endings.
    train_batch_size: int = 16
    learning_rate: float = 2e-5


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings, without_effect=common_flags.TPU_FLAGS)


def run(settings: Settings) -> dict[str, Any]:
    """Trains, evaluates, predicts and exports as the settings say.

    Returns:
      `accuracy`, `loss` and `baseline` on the val set, and where the test set has labels
      `test_accuracy` and `test_loss`; with several runs, what `bert.runs.search.run` gives.

    Raises:
      ValueError: before the expensive part, where settings, files and model do not fit.
    """
    return training.run(make_recipe(settings))


def check(settings: Settings) -> None:
    """Shows what `run` would do, and exits with 1 if it would fail."""
    training.check(make_recipe(settings))


def make_recipe(settings: Settings) -> FineTuning | Search:
    """Returns the recipe that the flags describe, or the search over several runs."""
    return training.make_recipe(settings, SwagData)


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    settings = common_flags.read_settings(Settings)
    (check if settings.check else run)(settings)


if __name__ == "__main__":
    define_flags()
    run_script(main)
