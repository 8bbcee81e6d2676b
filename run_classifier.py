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
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from bert.command_line import quiet_import  # isort: skip  # noqa: F401

import keras
import numpy as np
from absl import logging

import modeling
import served_task
import tokenization
from bert.command_line import flags as common_flags
from bert.command_line.console import run_script
from bert.command_line.flags import REQUIRED, flag
from bert.files.paths import make_folder, write_text
from bert.original import classifier as original_classifier
from bert.tasks.classification import examples as classification_examples
from bert.tasks.classification import glue, own_files
from bert.tasks.classification.examples import METRICS, DataSet, Task
from bert.tasks.classification.results import (
    balanced_weights,
    baseline,
    decode,
    format_report,
    score,
    write_predictions,
    write_submission,
    write_test_results,
)
from bert.tasks.heads import classification_objective, classifier_model
from bert.training import finetuning, loop, repeats
from bert.training.batches import Batches, Feature, encoder_features
from bert.training.evaluation import EarlyStopping, Predictor, predict_all, save_results
from bert.weights import folder as model_folder

# What people import from the original's run_classifier.py.
InputExample = classification_examples.InputExample
PaddingInputExample = original_classifier.PaddingInputExample
InputFeatures = original_classifier.InputFeatures
DataProcessor = original_classifier.DataProcessor
ColaProcessor = original_classifier.ColaProcessor
MnliProcessor = original_classifier.MnliProcessor
MrpcProcessor = original_classifier.MrpcProcessor
XnliProcessor = original_classifier.XnliProcessor
convert_single_example = original_classifier.convert_single_example
convert_examples_to_features = original_classifier.convert_examples_to_features
file_based_convert_examples_to_features = (
    original_classifier.file_based_convert_examples_to_features
)
file_based_input_fn_builder = original_classifier.file_based_input_fn_builder
input_fn_builder = original_classifier.input_fn_builder
create_model = original_classifier.create_model
model_fn_builder = original_classifier.model_fn_builder


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
      `repeated_runs.repeat` gives; empty without evaluation.

    Raises:
      ValueError: before the expensive part, where settings, files and model do not fit.
    """
    _check_settings(settings)
    settings = model_folder.complete(settings)
    if settings.num_runs == 1:
        return _run(settings)
    return repeats.repeat(settings, _run, _open_data_set(settings).task.metric)


def _check_settings(settings: Settings) -> None:
    finetuning.check_verbs(settings, "do_train", "do_eval", "do_predict", "do_export")
    repeats.check_settings(settings, evaluates=settings.do_eval, verb="do_eval")


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
        # Those that the model was trained for; its training file need not be there any more.
        with contextlib.suppress(ValueError):
            options["labels"] = finetuning.read_task(settings.output_dir)["task"]["labels"] or None
    return own_files.open_data_set(settings.data_dir, own_files.Options(**options))


@dataclasses.dataclass(frozen=True)
class _Split:
    """Examples, their features and batches of them.

    Attributes:
      suffix: What tells its output files from those of other parts.
      submission: The file that GLUE wants of it, if any.
    """

    suffix: str
    submission: str | None
    examples: list[classification_examples.InputExample]
    arrays: Mapping[str, np.ndarray]
    batches: Batches


@dataclasses.dataclass(frozen=True)
class _Splits:
    train: list[_Split]
    eval: list[_Split]
    predict: list[_Split]


def _run(settings: Settings) -> dict[str, Any]:
    strategy, config, tokenizer = finetuning.set_up(settings)
    data_set = _open_data_set(settings)
    examples = _read_examples(settings, data_set)
    task = data_set.task
    if settings.class_weights == "balanced" and task.task_type != "classification":
        raise ValueError(
            "`--class_weights=balanced` needs a task of one label per example. Received task "
            f"{task.name!r}, which is {task.task_type}."
        )
    stored = {
        "kind": "classification",
        "task": task.to_dict(),
        "do_lower_case": settings.do_lower_case,
        "max_seq_length": settings.max_seq_length,
    }
    is_chief = loop.is_chief(strategy)
    finetuning.open_folder(settings, config, stored)
    if is_chief and settings.do_train:
        finetuning.keep_task(settings, config, stored)
    with finetuning.record_folder(settings, is_chief) as folder, strategy.scope():
        splits = _make_splits(settings, config, tokenizer, data_set, examples, folder)
        model = classifier_model(config, task.num_outputs, dtype=settings.precision)
        loop.log_set_up(model, strategy, settings)
        return _use_model(settings, model, tokenizer, task, splits, is_chief)


def _read_examples(
    settings: Settings, data_set: DataSet
) -> dict[str, dict[str, list[classification_examples.InputExample]]]:
    """Returns the examples that will be needed, by part and suffix."""
    wanted = {"train": settings.do_train, "dev": settings.do_eval, "test": settings.do_predict}
    names = [name for name, is_wanted in wanted.items() if is_wanted]
    data_set.check(names)
    examples: dict[str, dict[str, list[classification_examples.InputExample]]] = {}
    for name in names:
        read = getattr(data_set, name)()
        examples[name] = read if isinstance(read, dict) else {"": read}
        for suffix, each in examples[name].items():
            if not each:
                raise ValueError(
                    f"The {name}{suffix} set in `--data_dir` must have examples. There are none in "
                    f"{settings.data_dir!r}."
                )
            logging.info("Read %d examples of the %s%s set.", len(each), name, suffix)
    return examples


def _make_splits(
    settings: Settings,
    config: modeling.BertConfig,
    tokenizer: tokenization.FullTokenizer,
    data_set: DataSet,
    examples: Mapping[str, Mapping[str, list[classification_examples.InputExample]]],
    folder: str,
) -> _Splits:
    """Writes the examples as records and opens these."""
    task = data_set.task
    features = _features(settings, config, task)

    def make(part: str, file_name: str, batch_size: int, seed: int | None = None) -> list[_Split]:
        splits = []
        for suffix, each in examples.get(part, {}).items():
            arrays = classification_examples.make_features(
                each, task, tokenizer, settings.max_seq_length
            )
            path = os.path.join(folder, f"{file_name}{suffix}.tf_record")
            finetuning.write_examples(path, arrays)
            lengths = arrays["input_mask"].sum(axis=1)
            batches = finetuning.open_batches(
                path, features, settings, batch_size, lengths=lengths, seed=seed
            )
            submission = data_set.submission_names.get(suffix) if part == "test" else None
            splits.append(_Split(suffix, submission, each, arrays, batches))
        return splits

    return _Splits(
        make("train", "train", settings.train_batch_size, settings.seed),
        make("dev", "eval", settings.eval_batch_size),
        make("test", "predict", settings.predict_batch_size),
    )


def _features(settings: Settings, config: modeling.BertConfig, task: Task) -> dict[str, Feature]:
    encoder = encoder_features(
        max_seq_length=settings.max_seq_length,
        vocab_size=config.vocab_size,
        type_vocab_size=config.type_vocab_size,
    )
    labels = {
        "classification": Feature(1, "the task", task.num_outputs, "the number of labels"),
        "multi_label": Feature(task.num_outputs, "the number of labels", 2, "a bit"),
        "regression": Feature(1, "the task"),
    }
    return {
        **encoder,
        "label_ids": labels[task.task_type],
        "is_real_example": Feature(1, "the format", 2, "a bit"),
    }


def _use_model(
    settings: Settings,
    model: keras.Model,
    tokenizer: tokenization.FullTokenizer,
    task: Task,
    splits: _Splits,
    is_chief: bool,
) -> dict[str, Any]:
    """Does with the model what is asked for; returns the scores of the main dev set."""
    predict = _Logits(model, splits)
    step = _train(settings, model, task, splits, predict)
    scores = [(split, _score(task, predict(split), split)) for split in splits.eval]
    for split, each in scores if is_chief else []:
        _save_scores(settings, task, split.suffix, step, each)
    for split in splits.predict:
        logits = predict(split)
        if is_chief:
            _save_predictions(settings, task, split, logits)
    if settings.do_export and is_chief:
        # TensorFlow Text is not loaded where nothing is exported.
        from bert.tasks.classification.saved_model import export_classifier  # noqa: PLC0415

        export_classifier(
            finetuning.saved_model(settings),
            model,
            tokenizer,
            labels=task.labels,
            task_type=task.task_type,
            is_pair=task.is_pair,
            max_seq_length=settings.max_seq_length,
        )
    return scores[0][1] if scores else {}


class _Logits:
    """Returns a model's logits for a split, [N, C]; the function is built once for all."""

    def __init__(self, model: keras.Model, splits: _Splits) -> None:
        # Evaluation and prediction have batches of the same signature.
        for split in (*splits.eval, *splits.predict):
            self._predictor = Predictor(model, split.batches.signature)

    def __call__(self, split: _Split) -> np.ndarray:
        return predict_all(self._predictor, split.batches)["logits"]


def _train(
    settings: Settings,
    model: keras.Model,
    task: Task,
    splits: _Splits,
    predict: _Logits,
) -> int:
    """Trains the model or loads it; returns the step of its weights."""
    if not settings.do_train:
        return finetuning.load(settings, model)
    train = splits.train[0]
    class_weights = None
    if settings.class_weights == "balanced":
        class_weights = balanced_weights(task, train.arrays["label_ids"])
    objective = loop.Objective(*classification_objective(task.task_type, class_weights))
    evaluation = None
    if splits.eval:
        dev = splits.eval[0]
        evaluation = EarlyStopping(
            lambda: score(task, predict(dev), dev.arrays["label_ids"]),
            task.metric,
            settings.early_stopping_patience,
        )
    return finetuning.train(settings, model, objective, train.batches, evaluation)


def _score(task: Task, logits: np.ndarray, split: _Split) -> dict[str, Any]:
    label_ids = split.arrays["label_ids"]
    scores = score(task, logits, label_ids)
    return {**scores, "baseline": baseline(task, label_ids)}


def _save_scores(
    settings: Settings,
    task: Task,
    suffix: str,
    step: int,
    scores: Mapping[str, Any],
) -> None:
    # Faithful: the names of the original's eval_results.txt. All other scores are in the JSON.
    names = ("pearson", "spearman") if task.task_type == "regression" else ("accuracy",)
    results = {f"eval_{name}": scores[name] for name in (*names, "loss")}
    results["loss"] = scores["loss"]
    save_results(settings.output_dir, step, results, name=f"eval_results{suffix}")
    text = json.dumps({"global_step": step, **scores}, indent=2, ensure_ascii=False) + "\n"
    write_text(os.path.join(settings.output_dir, f"eval_results{suffix}.json"), text)
    for line in format_report(task, scores).splitlines():
        logging.info("  %s", line)
    logging.info(
        "Always giving the same answer would reach %s %.4f.", task.metric, scores["baseline"]
    )


def _save_predictions(settings: Settings, task: Task, split: _Split, logits: np.ndarray) -> None:
    def path(name: str) -> str:
        return os.path.join(settings.output_dir, name)

    write_test_results(path(f"test_results{split.suffix}.tsv"), task, logits)
    predictions = path(f"predictions{split.suffix}.tsv")
    write_predictions(predictions, task, split.examples, logits)
    logging.info("Wrote %d predictions to %s.", len(logits), predictions)
    if split.submission:
        make_folder(path("submission"))
        submission = path(os.path.join("submission", split.submission))
        write_submission(submission, task, split.examples, logits)
        logging.info("Wrote %s, as GLUE wants it.", submission)


def serve(
    stored: Mapping[str, Any],
    config: modeling.BertConfig,
    tokenizer: tokenization.FullTokenizer,
    precision: str,
) -> served_task.ServedTask:
    """Returns how a model of `task.json`'s contents answers, for `serving.load`."""
    task = Task.from_dict(stored["task"])
    fields = ("text_a", "text_b") if task.is_pair else ("text_a",)

    def make_features(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
        examples = [
            classification_examples.InputExample(str(number), *(row[name] for name in fields))
            for number, row in enumerate(rows)
        ]
        return classification_examples.make_features(
            examples, task, tokenizer, stored["max_seq_length"]
        )

    return served_task.ServedTask(
        fields=fields,
        model=classifier_model(config, task.num_outputs, dtype=precision),
        make_features=make_features,
        decode=lambda rows, features, outputs: decode(task, outputs["logits"]),
    )


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    settings = common_flags.read_settings(Settings)
    keras.utils.set_random_seed(settings.seed)
    run(settings)


if __name__ == "__main__":
    define_flags()
    run_script(main)
