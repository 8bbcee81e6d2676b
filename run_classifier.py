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

import tokenization
from bert.commands import flags as common_flags
from bert.commands.checks import Checks, start
from bert.commands.console import run_script
from bert.commands.settings import DistilledSettings
from bert.files.process import import_tensorflow
from bert.names import serve
from bert.options import take
from bert.tasks.classification.options import ClassificationData

if TYPE_CHECKING:
    import modeling
    from bert.tasks.classification.task import Classification


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(ClassificationData, DistilledSettings):
    """The flags of this script, by name."""


def define_flags() -> None:
    """Defines the flags (original: run_classifier.py)."""
    common_flags.define(Settings, without_effect=common_flags.TPU_FLAGS)


def run(settings: Settings) -> dict[str, Any]:
    """Trains, evaluates, predicts and exports as the settings say.

    Returns:
      The scores of the dev set, with `loss` and `baseline`, and those of the test set, where it has
      labels, as `test_f1` and so on; with several runs, what `bert.runs.repeats.run` gives.

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
) -> "Classification":
    """Returns the task that the settings name, for a model of this shape."""
    import_tensorflow()
    from bert.runs.contexts import make_context
    from bert.runs.teachers import teach
    from bert.tasks.classification.open import open_classification

    context = make_context(settings, config, tokenizer)
    data = take(ClassificationData, settings)
    task = open_classification(context, data, settings, settings)
    if not settings.do_train:
        return task
    arguments = (settings.output_dir, settings.predict_batch_size)
    return teach(task, settings, *arguments, fetches=not settings.check)


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


# What people import from the original's run_classifier.py.
if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = serve(
        globals(),
        {
            "absl": ("flags",),
            "absl.flags": ("FLAGS",),
            "modeling": (),
            "optimization": (),
            "bert.original.classifier": (
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
                "file_based_input_fn_builder",
                "input_fn_builder",
                "create_model",
                "model_fn_builder",
                "truncate_seq_pair as _truncate_seq_pair",
            ),
            "bert.tasks.classification.examples": ("InputExample",),
        },
    )

if __name__ == "__main__":
    define_flags()
    run_script(main)
