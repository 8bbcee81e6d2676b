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
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tokenization
from bert.commands import flags as common_flags
from bert.commands.checks import Checks, start
from bert.commands.console import run_script
from bert.commands.names import serve
from bert.commands.settings import DistilledSettings
from bert.files.process import import_tensorflow
from bert.files.rows import SEPARATORS
from bert.files.split import DevSplit, find_split
from bert.options import option
from bert.tasks.classification import glue, own_files
from bert.tasks.classification.examples import METRICS, DataSet

if TYPE_CHECKING:
    import modeling
    from bert.tasks.classification.task import Classification
    from bert.tasks.classification.teacher import Teacher


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(DistilledSettings):
    """The flags of this script, by name."""

    data_dir: str | None = option(
        None,
        "Folder with the task's files: the official ones of GLUE or XNLI; for a custom task, "
        "train, dev and test, each .tsv, .csv, .jsonl or .parquet.",
    )
    task_name: str | None = option(
        None,
        f"One of {', '.join(glue.TASK_NAMES)}; or custom, for files of your own. Default: custom, "
        "if files are given one by one.",
    )
    xnli_language: str = option("zh", "Language of the XNLI files, such as en or zh.")
    class_weights: str = option(
        "none",
        "Weights of the examples in the loss. balanced: the rarer its label, the more an example "
        "counts, so that all labels count alike.",
        choices=("none", "balanced"),
        shapes_training=True,
        group="training",
    )
    # Of a custom task.
    metric: str | None = option(
        None,
        "Score of a custom task that says which weights, runs and combinations of values are the "
        "best. For one label accuracy, f1 or matthews; for multi_label micro_f1, macro_f1 or "
        "accuracy; for regression pearson or spearman. f1 is that of the label 1, or else of the "
        "second of two; of more labels the mean. Default: the first of these.",
        choices=tuple(dict.fromkeys(name for names in METRICS.values() for name in names)),
        group="training",
    )
    task_type: str = option(
        "classification",
        "What a custom task predicts: one label, any number of labels, or a number.",
        choices=tuple(METRICS),
    )
    labels: str | None = option(
        None,
        "Labels of a custom task, comma-separated, in the order of the outputs. Default: those of "
        "the training file.",
    )
    text_a_column: str = option("text", "Column of the text: its name, or a number from 0.")
    text_b_column: str | None = option(
        None, "Column of the second text, for pairs: its name, or a number from 0."
    )
    label_column: str = option("label", "Column of the label: its name, or a number from 0.")
    id_column: str | None = option(None, "Column of an ID to copy to the predictions.")
    separator: str | None = option(
        None,
        f"Column separator of the files: {SEPARATORS}. Default: tab for .tsv, comma for .csv. "
        "With this flag, files may have any extension.",
    )
    label_separator: str = option(
        ",", "Separator between the labels of an example of a multi_label task."
    )
    has_header: bool | None = option(
        None,
        "Whether the first line of TSV and CSV files names the columns. Default: true, unless the "
        "columns are given as numbers.",
    )


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
    from bert.tasks.bilstm import find_bilstm
    from bert.tasks.classification.task import Classification
    from bert.weights.folder import ModelFolder
    from bert.weights.variables import require_segments

    stored = ModelFolder.read_source_task(settings, settings.output_dir, trains=settings.do_train)
    dev_split = find_split(
        settings,
        stored
        or ModelFolder.read_resumed_task(
            settings.output_dir, resumes=settings.do_train and not settings.overwrite_output_dir
        ),
    )
    data_set = _open_data_set(settings, stored, dev_split)
    if data_set.task.is_pair:
        require_segments(config, "a pair of texts")
    task = Classification(
        config,
        tokenizer,
        settings.max_seq_length,
        data_set.task,
        data_set,
        settings.class_weights,
        data_set.columns,
        dev_split,
        add_bilstm=find_bilstm(settings, config),
    )
    if not settings.do_train:
        return task
    return dataclasses.replace(task, teacher=_open_teacher(settings, task))


def _open_teacher(settings: Settings, task: "Classification") -> "Teacher | None":
    """Returns what is learned from another model, if there is one."""
    from bert.models.teachers import open_teacher
    from bert.tasks import distillation
    from bert.tasks.classification.task import Classification
    from bert.tasks.classification.teacher import Teacher, order_of_labels

    opened = open_teacher(settings, task, task.config)
    if opened is None:
        return None
    model, layers = opened
    assert isinstance(model.task, Classification)
    order = order_of_labels(task.task, model.task.task, settings.teacher or "")
    unlabeled = []
    if settings.unlabeled_file:
        rows = distillation.read_unlabeled(settings.unlabeled_file, task.fields, task.columns)
        unlabeled = task.parse_unlabeled(rows)
    return Teacher(
        lambda examples: model.decide(examples)[1][:, order],
        unlabeled,
        settings.teacher_weight,
        settings.distillation_temperature,
        layers,
    )


def _open_data_set(
    settings: Settings, stored: Mapping[str, Any], dev_split: DevSplit | None
) -> DataSet:
    paths = {split: getattr(settings, f"{split}_file") for split in ("train", "dev", "test")}
    files = {split: path for split, path in paths.items() if path}
    name = (settings.task_name or ("custom" if files else "")).lower()
    if name != "custom":
        return _open_known(settings, name, files)
    options = _options_of(settings)
    if options["labels"] is None and not settings.do_train:
        # Those that the model was trained for; its training file need not be there any more.
        options["labels"] = stored.get("task", {}).get("labels") or None
    if not settings.do_train:
        options["metric"] = settings.metric or _stored_metric(settings, stored)
    return own_files.open_data_set(
        settings.data_dir, own_files.Options(**options), files, dev_split
    )


def _options_of(settings: Settings) -> dict[str, Any]:
    """Returns what the flags say of a custom task."""
    return {
        field.name: getattr(settings, field.name)
        for field in dataclasses.fields(own_files.Options)
        if hasattr(settings, field.name)
    }


def _stored_metric(settings: Settings, stored: Mapping[str, Any]) -> str | None:
    """Returns the metric that a model was selected by, where it is of the same type of task."""
    task = stored.get("task", {})
    return task.get("metric") if task.get("task_type") == settings.task_type else None


def _open_known(settings: Settings, name: str, files: Mapping[str, str]) -> DataSet:
    """Returns a task of GLUE, or XNLI."""
    if not name:
        raise ValueError(
            f"`--task_name` must be given, one of {', '.join(glue.TASK_NAMES)}, or custom for "
            "files of your own; or a `--train_file`."
        )
    if files or settings.data_dir is None:
        received = f"`--{next(iter(files))}_file`" if files else "none"
        raise ValueError(
            f"`--data_dir` must be given, and no single files, for task {name!r}, whose files are "
            f"known. Received {received}. For files of your own, `--task_name` is custom."
        )
    for name_of_option, value in _options_of(settings).items():
        if value != getattr(own_files.Options, name_of_option):
            raise ValueError(
                f"`--{name_of_option}` must not be given for task {name!r}, of which it is known. "
                f"Received {value!r}. For files of your own, `--task_name` is custom."
            )
    return glue.open_data_set(name, settings.data_dir, settings.xnli_language)


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
