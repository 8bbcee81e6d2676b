r"""Fine-tunes, evaluates and applies models that choose the ending of a text (paper, section 4.4).

    python run_swag.py --data_dir=swag --output_dir=chooser --do_train --do_eval \
      --vocab_file=vocab.txt --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt

Reads the CSV files of SWAG, and CSV, JSON lines or Parquet files of your own, with any number of
endings per text. Other multiple-choice questions have the same form: the question is the text, and
its answers are the endings.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import tokenization
from bert.commands import flags as common_flags
from bert.commands.checks import Checks, start
from bert.commands.console import run_script
from bert.commands.settings import FileSettings
from bert.files.process import import_tensorflow
from bert.options import option, take
from bert.tasks.swag.options import SwagData

if TYPE_CHECKING:
    import modeling
    from bert.tasks.swag.task import MultipleChoice


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
      `test_accuracy` and `test_loss`; with several runs, what `bert.runs.repeats.run` gives.

    Raises:
      ValueError: before the expensive part, where settings, files and model do not fit.
    """
    import_tensorflow()
    from bert.runs import repeats

    return repeats.run(settings, open_task)


def check(settings: Settings, checks: Checks) -> None:
    """Checks what `run` needs."""
    import_tensorflow()
    from bert.runs.checks import check_fine_tuning

    check_fine_tuning(checks, settings, open_task)


def open_task(
    settings: Settings, config: "modeling.BertConfig", tokenizer: tokenization.FullTokenizer
) -> "MultipleChoice":
    """Returns the task that the settings name, for a model of this shape."""
    import_tensorflow()
    from bert.runs.contexts import make_context
    from bert.tasks.swag.open import open_swag

    context = make_context(settings, config, tokenizer)
    return open_swag(context, take(SwagData, settings), settings, settings)


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


if __name__ == "__main__":
    define_flags()
    run_script(main)
