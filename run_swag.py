"""Fine-tunes, evaluates and predicts which of some endings continues a text (paper, section 4.4).

    python run_swag.py --data_dir=swag --output_dir=chooser --do_train --do_eval \
      --vocab_file=vocab.txt --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt

Reads the CSV of SWAG, and JSON lines of your own, with any number of endings per text. Other
questions of multiple choice are of the same form: the question is the text, its answers the
endings.
"""

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
from bert.files.paths import describe_folder, find_file, write_text
from bert.tasks.heads import choice_model, choice_objective
from bert.tasks.swag import examples as swag_examples
from bert.training import finetuning, loop, repeats
from bert.training.batches import Batches, Feature, encoder_features
from bert.training.evaluation import EarlyStopping, Predictor, predict_all, save_results
from bert.weights import folder as model_folder

METRIC = "accuracy"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(common_flags.EvaluatedSettings):
    """The flags of this script, by name."""

    data_dir: str = flag(
        REQUIRED, "Folder with train, val and test, each .csv with SWAG's columns or .jsonl."
    )
    do_eval: bool = flag(False, "Evaluate on the val set, during and after training.")
    # The paper's: 16 texts, each with four endings.
    train_batch_size: int = 16
    learning_rate: float = 2e-5


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings, without_effect=common_flags.TPU_FLAGS)


def run(settings: Settings) -> dict[str, Any]:
    """Trains, evaluates, predicts and exports as the settings say.

    Returns:
      `accuracy`, `loss` and `baseline` on the val set; with several runs, what
      `repeated_runs.repeat` gives; empty without evaluation.

    Raises:
      ValueError: before the expensive part, where settings, files and model do not fit.
    """
    _check_settings(settings)
    settings = model_folder.complete(settings)
    if settings.num_runs == 1:
        return _run(settings)
    return repeats.repeat(settings, _run, METRIC)


def _check_settings(settings: Settings) -> None:
    finetuning.check_verbs(settings, "do_train", "do_eval", "do_predict", "do_export")
    repeats.check_settings(settings, evaluates=settings.do_eval, verb="do_eval")


@dataclasses.dataclass(frozen=True)
class _Split:
    """Examples, their features and batches of them."""

    examples: list[swag_examples.Example]
    arrays: Mapping[str, np.ndarray]
    batches: Batches


def _run(settings: Settings) -> dict[str, Any]:
    strategy, config, tokenizer = finetuning.set_up(settings)
    if config.type_vocab_size < 2:
        raise ValueError(
            "`type_vocab_size` in --bert_config_file must be at least 2, for a text and its "
            f"ending. Received {config.type_vocab_size}."
        )
    examples = _read_examples(settings)
    stored = {
        "kind": "multiple_choice",
        "do_lower_case": settings.do_lower_case,
        "max_seq_length": settings.max_seq_length,
    }
    is_chief = loop.is_chief(strategy)
    finetuning.open_folder(settings, config, stored)
    if is_chief and settings.do_train:
        finetuning.keep_task(settings, config, stored)
    with finetuning.record_folder(settings, is_chief) as folder, strategy.scope():
        splits = _make_splits(settings, config, tokenizer, examples, folder)
        model = choice_model(config, dtype=settings.precision)
        loop.log_set_up(model, strategy, settings)
        return _use_model(settings, model, tokenizer, splits, is_chief)


def _read_examples(settings: Settings) -> dict[str, list[swag_examples.Example]]:
    """Returns the examples that will be needed, by split."""
    wanted = {"train": settings.do_train, "dev": settings.do_eval, "test": settings.do_predict}
    paths = {}
    for split, is_wanted in wanted.items():
        if not is_wanted:
            continue
        path = find_file(settings.data_dir, swag_examples.FILES[split])
        if path is None:
            raise ValueError(
                f"`--data_dir` must hold one of {swag_examples.FILES[split]}. Received "
                f"{describe_folder(settings.data_dir)}."
            )
        paths[split] = path
    examples = {}
    for split, path in paths.items():
        examples[split] = swag_examples.read(path, with_labels=split != "test")
        counts = sorted({len(example.endings) for example in examples[split]})
        span = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        logging.info("Read %d examples of %s endings: %s.", len(examples[split]), span, path)
    return examples


def _make_splits(
    settings: Settings,
    config: modeling.BertConfig,
    tokenizer: tokenization.FullTokenizer,
    examples: Mapping[str, list[swag_examples.Example]],
    folder: str,
) -> dict[str, _Split]:
    """Writes the examples as records and opens these."""
    names = {
        "train": ("train", settings.train_batch_size, settings.seed),
        "dev": ("eval", settings.eval_batch_size, None),
        "test": ("predict", settings.predict_batch_size, None),
    }
    splits = {}
    for split, each in examples.items():
        name, batch_size, seed = names[split]
        arrays = swag_examples.make_features(each, tokenizer, settings.max_seq_length)
        path = os.path.join(folder, f"{name}.tf_record")
        finetuning.write_examples(path, arrays)
        batches = finetuning.open_batches(
            path,
            _features(settings, config, arrays["choice_mask"].shape[1]),
            settings,
            batch_size,
            lengths=arrays["input_mask"].sum(axis=2).max(axis=1),
            seed=seed,
        )
        splits[split] = _Split(each, arrays, batches)
    return splits


def _features(
    settings: Settings, config: modeling.BertConfig, num_choices: int
) -> dict[str, Feature]:
    encoder = encoder_features(
        max_seq_length=settings.max_seq_length,
        vocab_size=config.vocab_size,
        type_vocab_size=config.type_vocab_size,
        rows=num_choices,
    )
    endings = "the largest number of endings"
    return {
        **encoder,
        "choice_mask": Feature(num_choices, endings, 2, "a mask"),
        "label_ids": Feature(1, "the task", num_choices, endings),
    }


def _use_model(
    settings: Settings,
    model: keras.Model,
    tokenizer: tokenization.FullTokenizer,
    splits: Mapping[str, _Split],
    is_chief: bool,
) -> dict[str, Any]:
    """Does with the model what is asked for; returns the scores."""
    predict = _Logits(model, splits)
    step = _train(settings, model, splits, predict)
    scores: dict[str, Any] = {}
    if dev := splits.get("dev"):
        scores = swag_examples.score(dev.arrays, predict("dev"))
        if is_chief:
            _save_scores(settings, step, scores)
    if test := splits.get("test"):
        logits = predict("test")
        if is_chief:
            path = os.path.join(settings.output_dir, "predictions.tsv")
            swag_examples.write_predictions(path, test.examples, test.arrays, logits)
            logging.info("Wrote %d predictions to %s.", len(logits), path)
    if settings.do_export and is_chief:
        # TensorFlow Text is not loaded where nothing is exported.
        from bert.tasks.swag.saved_model import export_chooser  # noqa: PLC0415

        export_chooser(finetuning.saved_model(settings), model, tokenizer, settings.max_seq_length)
    return scores


class _Logits:
    """Returns a model's logits for a split, [N, E]; its function is built once."""

    def __init__(self, model: keras.Model, splits: Mapping[str, _Split]) -> None:
        self._batches = {name: split.batches for name, split in splits.items()}
        self._predictors = {
            name: Predictor(model, batches.signature) for name, batches in self._batches.items()
        }

    def __call__(self, name: str) -> np.ndarray:
        return predict_all(self._predictors[name], self._batches[name])["logits"]


def _train(
    settings: Settings, model: keras.Model, splits: Mapping[str, _Split], predict: _Logits
) -> int:
    """Trains the model or loads it; returns the step of its weights."""
    if not settings.do_train:
        return finetuning.load(settings, model)
    evaluation = None
    if dev := splits.get("dev"):
        evaluation = EarlyStopping(
            lambda: swag_examples.score(dev.arrays, predict("dev")),
            METRIC,
            settings.early_stopping_patience,
        )
    objective = loop.Objective(*choice_objective())
    return finetuning.train(settings, model, objective, splits["train"].batches, evaluation)


def _save_scores(settings: Settings, step: int, scores: Mapping[str, float]) -> None:
    results = {f"eval_{name}": scores[name] for name in ("accuracy", "loss")}
    save_results(settings.output_dir, step, {**results, "loss": scores["loss"]})
    text = json.dumps({"global_step": step, **scores}, indent=2) + "\n"
    write_text(os.path.join(settings.output_dir, "eval_results.json"), text)
    logging.info("Always giving the same number would reach %s %.4f.", METRIC, scores["baseline"])


def serve(
    stored: Mapping[str, Any],
    config: modeling.BertConfig,
    tokenizer: tokenization.FullTokenizer,
    precision: str,
) -> served_task.ServedTask:
    """Returns how a model of `task.json`'s contents answers, for `serving.load`.

    An input has `context`, a text, and `endings`, a list of at least two. Each answer has `label`,
    the number of the likeliest ending from 0; `ending`, its text; and `probabilities`, of all.
    """

    def read(rows: Sequence[Mapping[str, Any]]) -> list[swag_examples.Example]:
        examples = []
        for number, row in enumerate(rows):
            endings = row["endings"]
            cells = {
                "context": row["context"],
                "endings": list(endings) if isinstance(endings, tuple) else endings,
            }
            place = f"Input {number}, counted from 0"
            examples.append(swag_examples.make_example(place, number, cells, with_label=False))
        return examples

    def make_features(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
        return swag_examples.make_features(read(rows), tokenizer, stored["max_seq_length"])

    return served_task.ServedTask(
        fields=("context", "endings"),
        model=choice_model(config, dtype=precision),
        make_features=make_features,
        decode=lambda rows, features, outputs: swag_examples.decode(
            read(rows), features, outputs["logits"]
        ),
    )


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    settings = common_flags.read_settings(Settings)
    keras.utils.set_random_seed(settings.seed)
    run(settings)


if __name__ == "__main__":
    define_flags()
    run_script(main)
