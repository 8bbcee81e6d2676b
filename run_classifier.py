"""Fine-tunes, evaluates, predicts with and exports classifiers of texts and pairs (paper, 4.1).

    python run_classifier.py --task_name=mrpc --data_dir=glue/MRPC --output_dir=mrpc --do_train \
      --do_eval --vocab_file=vocab.txt --bert_config_file=bert_config.json \
      --init_checkpoint=bert_model.ckpt

All of GLUE, XNLI, and with --task_name=custom any TSV, CSV or JSONL files: classification,
multi-label classification and regression. Old commands of the original's run_classifier.py work
unchanged.
"""

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import tokenization
from bert.command_line import flags as common_flags
from bert.command_line.checks import Checks, start
from bert.command_line.console import run_script
from bert.command_line.flags import REQUIRED, flag
from bert.command_line.names import serve
from bert.tasks.classification import glue, own_files
from bert.tasks.classification.examples import METRICS, DataSet

if TYPE_CHECKING:
    import modeling
    from bert.tasks.classification.task import Classification


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(common_flags.EvaluatedSettings):
    """The flags of this script, by name."""

    data_dir: str = flag(
        REQUIRED,
        "Folder with the task's files: the official ones of GLUE or XNLI, or for custom "
        "train, dev and test, each .tsv, .csv or .jsonl.",
    )
    task_name: str = flag(
        REQUIRED, f"One of {', '.join(glue.TASK_NAMES)}, or custom for files of your own."
    )
    xnli_language: str = flag("zh", "Language of XNLI's files, such as en or zh.")
    class_weights: str = flag(
        "none",
        "With balanced, an example counts the more the rarer its label is, all labels alike.",
        choices=("none", "balanced"),
        shapes_training=True,
    )
    # Of a custom task.
    task_type: str = flag(
        "classification",
        "What a custom task decides: one label, any number of labels, or a number.",
        choices=tuple(METRICS),
    )
    labels: str | None = flag(
        None,
        "Labels of a custom task, comma-separated, in the order of the outputs; absent, those of "
        "the training file.",
    )
    text_a_column: str = flag("text", "Column of the text: its name, or number from 0.")
    text_b_column: str | None = flag(
        None, "Column of the second text, for pairs: its name or number."
    )
    label_column: str = flag("label", "Column of the label: its name or number.")
    id_column: str | None = flag(None, "Column of an id to repeat in the predictions.")
    label_separator: str = flag(
        ",", "What separates the labels of an example of a multi_label task."
    )
    has_header: bool | None = flag(
        None,
        "Whether the first line of TSV and CSV files names the columns; absent, it does unless the "
        "columns are given as numbers.",
    )


def define_flags() -> None:
    """Defines the flags (original: run_classifier.py)."""
    common_flags.define(Settings, without_effect=common_flags.TPU_FLAGS)


def run(settings: Settings) -> dict[str, Any]:
    """Trains, evaluates, predicts and exports as the settings say.

    Returns:
      The scores of the dev set, with `loss` and `baseline`; with several runs, what
      `bert.training.repeats.run` gives; empty without evaluation.

    Raises:
      ValueError: before the expensive part, where settings, files and model do not fit.
    """
    from bert.training import repeats

    return repeats.run(settings, open_task)


def check(settings: Settings, checks: Checks) -> None:
    """Checks what `run` needs."""
    from bert.training.checks import check_fine_tuning

    check_fine_tuning(checks, settings, open_task)


def open_task(
    settings: Settings, config: "modeling.BertConfig", tokenizer: tokenization.FullTokenizer
) -> "Classification":
    """Returns the task that the settings name, for a model of this shape."""
    from bert.tasks.classification.task import Classification
    from bert.weights.folder import require_segments

    data_set = _open_data_set(settings)
    if data_set.task.is_pair:
        require_segments(config, "a pair of texts")
    return Classification(
        config,
        tokenizer,
        settings.max_seq_length,
        data_set.task,
        data_set,
        settings.class_weights,
    )


def _open_data_set(settings: Settings) -> DataSet:
    name = settings.task_name.lower()
    if name != "custom":
        return glue.open_data_set(name, settings.data_dir, settings.xnli_language)
    options = {
        field.name: getattr(settings, field.name)
        for field in dataclasses.fields(own_files.Options)
        if hasattr(settings, field.name)
    }
    if options["labels"] is None and not settings.do_train:
        from bert.weights.folder import ModelFolder

        # Those that the model was trained for; its training file need not be there any more.
        with contextlib.suppress(ValueError):
            options["labels"] = (
                ModelFolder(settings.output_dir).read_task()["task"]["labels"] or None
            )
    return own_files.open_data_set(settings.data_dir, own_files.Options(**options))


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    from bert.command_line.quiet_import import keras

    settings = common_flags.read_settings(Settings)
    keras.utils.set_random_seed(settings.seed)
    start(settings, run, check)


# What people import from the original's run_classifier.py.
if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = serve(
        globals(),
        {
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
