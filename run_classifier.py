r"""Fine-tunes, evaluates, applies and exports classifiers of texts and pairs (paper, section 4.1).

    python run_classifier.py --task_name=mrpc --data_dir=glue/MRPC --output_dir=mrpc --do_train \
      --do_eval --vocab_file=vocab.txt --bert_config_file=bert_config.json \
      --init_checkpoint=bert_model.ckpt

    python run_classifier.py --train_file=my.csv --output_dir=mine --do_train --do_eval \
      --init_checkpoint=google/bert_uncased_L-2_H-128_A-2

For all of GLUE, XNLI, and any TSV, CSV, JSONL or Parquet files of your own: classification,
multi-label classification and regression. Old commands for the original's run_classifier.py work
unchanged.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

from bert.commands import training
from bert.commands.checks import Checks, make_script
from bert.commands.console import run_script
from bert.commands.flags import TPU_FLAGS
from bert.commands.training import DistilledSettings
from bert.names import serve
from bert.runs.recipes import FineTuning, Search
from bert.tasks.classification.options import ClassificationData
from bert.tasks.options import Teacher


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(ClassificationData, DistilledSettings):
    """The flags of this script, by name."""


def run(settings: Settings) -> dict[str, Any]:
    """Trains, evaluates, predicts and exports as the settings say.

    Returns:
      The scores of the dev set, with `loss` and `baseline`, and those of the test set, where it has
      labels, as `test_f1` and so on; with several runs, what `bert.runs.search.run` gives.

    Raises:
      ValueError: before the expensive part, where settings, files and model do not fit.
    """
    return training.run(make_recipe(settings))


def check(settings: Settings, checks: Checks) -> None:
    """Shows what `run` would do."""
    training.check(make_recipe(settings), checks)


def make_recipe(settings: Settings) -> FineTuning | Search:
    """Returns the recipe that the flags describe, or the search over several runs."""
    return training.make_recipe(settings, ClassificationData, teacher=Teacher)


define_flags, main = make_script(Settings, run, check, without_effect=TPU_FLAGS)

# What people import from the original's run_classifier.py.
if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = serve(
        globals(),
        {
            "absl": ("flags",),
            "absl.flags": ("FLAGS",),
            "modeling": (),
            "optimization": (),
            "tokenization": (),
            "bert.original.classifier": (
                *("create_model", "file_based_input_fn_builder"),
                *("input_fn_builder", "model_fn_builder"),
            ),
            "bert.original.processors": (
                "PaddingInputExample",
                "InputFeatures",
                "DataProcessor",
                "ColaProcessor",
                "MnliProcessor",
                "MrpcProcessor",
                "XnliProcessor",
                "convert_single_example",
                "convert_examples_to_features",
                "file_based_convert_examples_to_features",
                "truncate_seq_pair as _truncate_seq_pair",
            ),
            "bert.tasks.classification.examples": ("InputExample",),
        },
    )

if __name__ == "__main__":
    define_flags()
    run_script(main)
