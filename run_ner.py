"""Fine-tunes, evaluates and predicts labels of words, such as names (paper, section 5.3).

    python run_ner.py --data_dir=conll2003 --output_dir=tagger --do_train --do_eval --do_predict \
      --vocab_file=vocab.txt --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt

Reads columns as CoNLL-2003 has them, in any order, with tags in IOB1, IOB2 or IOBES. Models are
taken for cased ones unless --do_lower_case is given.
"""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from bert.command_line import quiet_import  # isort: skip  # noqa: F401

import keras
import numpy as np
from absl import flags, logging

import modeling
import served_task
import tokenization
from bert.command_line import flags as common_flags
from bert.command_line.console import run_script
from bert.command_line.flags import flag
from bert.files.paths import is_file, make_folder, write_text
from bert.tasks.features import FEATURE_LAYERS, FeatureTagger, check_layers
from bert.tasks.heads import tagging_model, tagging_objective
from bert.tasks.tagging import batches as tagging_batches
from bert.tasks.tagging import entities as tagging_entities
from bert.tasks.tagging import sentences as tagging_sentences
from bert.tasks.tagging import windows as tagging_windows
from bert.tasks.tagging import words as tagging_words
from bert.training import finetuning, loop, repeats
from bert.training.evaluation import EarlyStopping, save_results
from bert.weights import checkpoint
from bert.weights import folder as model_folder

METRIC = "f1"

# What is not given is as the model in `--output_dir` was trained, or else this.
_DEFAULTS: Mapping[str, Any] = {
    "scheme": "iob2",
    "unit": "word",
    "document_context": False,
    "feature_based": False,
    "feature_layers": "concat_last_four",
    "lstm_size": 768,
}
# What a BiLSTM that begins at random wants; the paper names no rate.
_LSTM_LEARNING_RATE = 1e-3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(common_flags.EvaluatedSettings):
    """The flags of this script, by name."""

    do_lower_case: bool = False
    eval_batch_size: int = flag(8, "Sentences per evaluation step.", low=1)
    data_dir: str | None = flag(
        None,
        f"Folder with train, dev and test, each with one of the endings "
        f"{', '.join(tagging_sentences.ENDINGS)}, or gzipped.",
    )
    train_file: str | None = flag(None, "File to train on, in place of that in --data_dir.")
    dev_file: str | None = flag(None, "File to evaluate on, in place of that in --data_dir.")
    test_file: str | None = flag(
        None,
        "File to predict, in place of that in --data_dir; where it has tags, too, there are "
        "scores.",
    )
    text_column: int = flag(0, "Column of the words, from 0; from the end with -1.")
    label_column: int = flag(-1, "Column of the tags, likewise.")
    separator: str | None = flag(
        None,
        "What separates columns: tab, space, comma or any other text; absent, any number of spaces "
        "and tabs.",
    )
    input_scheme: str | None = flag(
        None,
        "Scheme of the tags in the files; absent, the one that all of a file's tags are of.",
        choices=tagging_entities.SCHEMES,
    )
    output_scheme: str | None = flag(
        None,
        "Scheme of the tags in the predictions; absent, that of the model's labels.",
        choices=tagging_entities.SCHEMES,
    )
    scheme: str | None = flag(
        None,
        "Scheme of the model's labels; absent, that of the model in --output_dir, or "
        f"{_DEFAULTS['scheme']}.",
        choices=tagging_entities.SCHEMES,
    )
    unit: str | None = flag(
        None,
        "What has a label: words, or characters where no spaces are between words, as in Chinese; "
        "absent, as the model in --output_dir was trained, or words.",
        choices=tagging_words.UNITS,
    )
    document_context: bool | None = flag(
        None,
        "Fill each window with the sentences before and after it in the document, as the paper "
        "did; absent, as the model in --output_dir was trained, or not.",
    )
    feature_based: bool | None = flag(
        None,
        "Do not train BERT, but a BiLSTM on its layers, at a --learning_rate of "
        f"{_LSTM_LEARNING_RATE} unless one is given; absent, as the model in --output_dir was "
        "trained, or not.",
    )
    feature_layers: str | None = flag(
        None,
        "With --feature_based, the layers to take; weighted learns a weight for each. Absent, as "
        f"the model in --output_dir was trained, or {_DEFAULTS['feature_layers']}.",
        choices=FEATURE_LAYERS,
    )
    lstm_size: int | None = flag(
        None,
        "With --feature_based, units of each of the two LSTMs in each direction; absent, as the "
        f"model in --output_dir was trained, or {_DEFAULTS['lstm_size']}.",
        low=1,
    )
    features_dir: str | None = flag(
        None,
        "With --feature_based, folder for the features, which several runs may share; absent, "
        "--output_dir.",
    )


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings, without_effect=common_flags.TPU_FLAGS)


def run(settings: Settings) -> dict[str, Any]:
    """Trains, evaluates, predicts and exports as the settings say.

    Returns:
      The scores of the dev set, with `loss` and `baseline`, and those of the test set, where it has
      tags, as `test_f1` and so on; with several runs, what `repeated_runs.repeat` gives.

    Raises:
      ValueError: before the expensive part, where settings, files and model do not fit.
    """
    _check_settings(settings)
    settings = model_folder.complete(settings)
    if settings.num_runs == 1:
        return _run(settings)
    if settings.feature_based and settings.features_dir is None:
        settings = dataclasses.replace(settings, features_dir=settings.output_dir)
    return repeats.repeat(settings, _run, METRIC)


def _check_settings(settings: Settings) -> None:
    finetuning.check_verbs(settings, "do_train", "do_eval", "do_predict", "do_export")
    repeats.check_settings(settings, evaluates=settings.do_eval, verb="do_eval")


def _run(settings: Settings) -> dict[str, Any]:
    strategy, config, tokenizer = finetuning.set_up(settings)
    stored_task = _read_stored_task(settings)
    settings, given = _complete(settings, stored_task), settings
    _check_features(settings, given, config)
    sentences = _read_sentences(settings, needs_labels=stored_task is None)
    task = _make_task(settings, stored_task, sentences)
    stored = _stored(settings, task)
    is_chief = loop.is_chief(strategy)
    finetuning.open_folder(settings, config, {name: stored[name] for name in _fixed(settings)})
    with finetuning.record_folder(settings, is_chief) as folder, strategy.scope():
        tagger = None
        if settings.feature_based:
            tagger = _feature_tagger(stored, config, settings.precision)
            model = tagger.model
            features_dir = (is_chief and settings.features_dir) or folder
            make_folder(features_dir)
            open_windows = tagging_batches.feature_opener(settings, tagger, features_dir)
        else:
            model = tagging_model(config, len(task.labels), dtype=settings.precision)
            open_windows = tagging_batches.record_opener(settings, config, len(task.labels), folder)
        splits = _make_splits(settings, tokenizer, task, sentences, open_windows)
        if is_chief and settings.do_train:
            finetuning.keep_task(settings, config, stored)
        loop.log_set_up(model, strategy, settings)
        scores = _use_model(settings, model, task, splits, is_chief)
        if settings.do_export and is_chief:
            # TensorFlow Text is not loaded where nothing is exported.
            from bert.tasks.tagging.saved_model import export_tagger  # noqa: PLC0415

            export_tagger(
                finetuning.saved_model(settings),
                tagger.whole_model() if tagger else model,
                tokenizer,
                task,
                settings.max_seq_length,
            )
        return scores


# The task.


def _read_stored_task(settings: Settings) -> dict[str, Any] | None:
    """Returns the `task.json` of the model to use, or None where one is to be trained."""
    path = os.path.join(settings.output_dir, checkpoint.TASK_FILE)
    if settings.do_train or not is_file(path):
        return None
    stored = finetuning.read_task(settings.output_dir)
    if stored.get("kind") != "tagging":
        raise ValueError(
            f"`--output_dir` must be of a tagger. That in {settings.output_dir!r} is of "
            f"{stored.get('kind')!r}."
        )
    return stored


def _complete(settings: Settings, stored: Mapping[str, Any] | None) -> Settings:
    """Returns the settings, what is not given being as it is stored, or else the default."""
    known = {**_DEFAULTS, **stored.get("task", {}), **stored} if stored else _DEFAULTS
    missing = [name for name in _DEFAULTS if getattr(settings, name) is None]
    return dataclasses.replace(settings, **{name: known[name] for name in missing})


def _check_features(settings: Settings, given: Settings, config: modeling.BertConfig) -> None:
    """Checks the flags of feature-based tagging, as they were given and as they are completed."""
    names = ("feature_layers", "lstm_size", "features_dir")
    if not settings.feature_based:
        for name in names:
            if getattr(given, name) is not None:
                raise ValueError(
                    f"`--{name}` needs `--feature_based`. Received {getattr(given, name)!r}."
                )
        return
    assert settings.feature_layers
    check_layers(settings.feature_layers, config)
    if settings.freeze_layers is not None or settings.layerwise_lr_decay != 1.0:
        raise ValueError(
            "`--freeze_layers` and `--layerwise_lr_decay` are for training BERT, which "
            f"`--feature_based` does not. Received {settings.freeze_layers} and "
            f"{settings.layerwise_lr_decay}."
        )


def _make_task(
    settings: Settings,
    stored: Mapping[str, Any] | None,
    sentences: Mapping[str, Sequence[tagging_sentences.Sentence]],
) -> tagging_windows.Task:
    assert settings.scheme and settings.unit
    if stored is None:
        return tagging_windows.make_task(sentences["train"], settings.scheme, settings.unit)
    task = tagging_windows.Task.from_dict(stored.get("task", {}))
    return dataclasses.replace(task, scheme=settings.scheme, unit=settings.unit)


def _stored(settings: Settings, task: tagging_windows.Task) -> dict[str, Any]:
    """Returns what `task.json` keeps, all that `serve` needs."""
    return {
        "kind": "tagging",
        "task": task.to_dict(),
        "do_lower_case": settings.do_lower_case,
        "max_seq_length": settings.max_seq_length,
        "document_context": settings.document_context,
        "feature_based": settings.feature_based,
        "feature_layers": settings.feature_layers if settings.feature_based else None,
        "lstm_size": settings.lstm_size if settings.feature_based else None,
    }


def _fixed(settings: Settings) -> list[str]:
    """Returns what may not change from one run in a folder to the next."""
    names = ["kind", "task", "do_lower_case", "feature_based", "feature_layers", "lstm_size"]
    # A trained model may be used with other windows, but training cannot go on with others.
    return names + ["max_seq_length", "document_context"] * settings.do_train


# Files and features.


def _files(settings: Settings) -> tagging_sentences.TaggedFiles:
    assert settings.unit
    return tagging_sentences.TaggedFiles(
        data_dir=settings.data_dir,
        train_file=settings.train_file,
        dev_file=settings.dev_file,
        test_file=settings.test_file,
        columns=tagging_sentences.Columns(
            settings.text_column, settings.label_column, settings.separator
        ),
        scheme=settings.input_scheme,
        unit=settings.unit,
    )


def _read_sentences(
    settings: Settings, *, needs_labels: bool
) -> dict[str, list[tagging_sentences.Sentence]]:
    """Returns the sentences that will be needed, by split; the training set also for its labels."""
    wanted = {
        "train": settings.do_train or needs_labels,
        "dev": settings.do_eval,
        "test": settings.do_predict,
    }
    files = _files(settings)
    splits = [split for split, is_wanted in wanted.items() if is_wanted]
    for split in splits:
        files.find(split)
    return {split: files.read(split) for split in splits}


def _make_splits(
    settings: Settings,
    tokenizer: tokenization.FullTokenizer,
    task: tagging_windows.Task,
    sentences: Mapping[str, list[tagging_sentences.Sentence]],
    open_windows: tagging_batches.Opener,
) -> dict[str, tagging_batches.Split]:
    """Returns what the model reads, by split."""
    names = {
        "train": ("train", settings.train_batch_size, settings.seed),
        "dev": ("eval", settings.eval_batch_size, None),
        "test": ("predict", settings.predict_batch_size, None),
    }
    # What is wrong with any split is said before a file is written.
    arrays = {
        split: tagging_windows.make_features(
            each,
            task,
            tokenizer,
            settings.max_seq_length,
            document_context=bool(settings.document_context),
        )
        for split, each in sentences.items()
    }
    return {
        split: tagging_batches.Split(
            sentences[split], *open_windows(name, arrays[split], batch_size, seed)
        )
        for split, (name, batch_size, seed) in names.items()
        if split in arrays and (split != "train" or settings.do_train)
    }


# The model.


def _feature_tagger(
    stored: Mapping[str, Any], config: modeling.BertConfig, precision: str
) -> FeatureTagger:
    return FeatureTagger(
        config,
        len(stored["task"]["labels"]),
        layers=stored["feature_layers"],
        lstm_size=stored["lstm_size"],
        dtype=precision,
    )


def _use_model(
    settings: Settings,
    model: keras.Model,
    task: tagging_windows.Task,
    splits: Mapping[str, tagging_batches.Split],
    is_chief: bool,
) -> dict[str, Any]:
    """Does with the model what is asked for; returns the scores."""
    logits = tagging_batches.Logits(model, splits)
    step = _train(settings, model, task, splits, logits)
    scores: dict[str, Any] = {}
    if dev := splits.get("dev"):
        scores, _ = _score(task, dev, logits("dev"))
        if is_chief:
            _save_scores(settings, "eval", step, scores)
    if test := splits.get("test"):
        test_scores, predictions = _score(task, test, logits("test"))
        if is_chief:
            _save_predictions(settings, task, test, predictions)
        if test_scores and is_chief:
            _save_scores(settings, "test", step, test_scores)
        scores |= {f"test_{name}": test_scores[name] for name in _NAMES if test_scores}
    return scores


def _train(
    settings: Settings,
    model: keras.Model,
    task: tagging_windows.Task,
    splits: Mapping[str, tagging_batches.Split],
    logits: tagging_batches.Logits,
) -> int:
    """Trains the model or loads it; returns the step of its weights."""
    if not settings.do_train:
        return finetuning.load(settings, model)
    evaluation = None
    if dev := splits.get("dev"):
        evaluation = EarlyStopping(
            lambda: _score(task, dev, logits("dev"))[0], METRIC, settings.early_stopping_patience
        )
    objective = loop.Objective(*tagging_objective())
    return finetuning.train(settings, model, objective, splits["train"].batches, evaluation)


# Scores and predictions.

_NAMES = ("precision", "recall", "f1", "accuracy", "loss")


def _score(
    task: tagging_windows.Task, split: tagging_batches.Split, logits: np.ndarray
) -> tuple[dict[str, Any], list[tagging_windows.Prediction]]:
    """Returns the scores, empty where there is no entity, and what is predicted."""
    predictions = tagging_windows.decode(task, split.sentences, split.arrays, logits)
    if not tagging_sentences.has_entities(split.sentences):
        return {}, predictions
    scores = tagging_windows.score(task, split.sentences, predictions)
    # Who guesses O finds nothing.
    return {
        **scores,
        "loss": tagging_windows.loss(split.arrays, logits),
        "baseline": 0.0,
    }, predictions


def _save_scores(settings: Settings, part: str, step: int, scores: Mapping[str, Any]) -> None:
    results = {f"{part}_{name}": scores[name] for name in _NAMES}
    name = f"{part}_results"
    save_results(settings.output_dir, step, {**results, "loss": scores["loss"]}, name=name)
    text = json.dumps({"global_step": step, **scores}, indent=2, ensure_ascii=False) + "\n"
    write_text(os.path.join(settings.output_dir, f"{name}.json"), text)
    for line in tagging_entities.format_report(dict(scores)).splitlines():
        logging.info("  %s", line)


def _save_predictions(
    settings: Settings,
    task: tagging_windows.Task,
    split: tagging_batches.Split,
    predictions: Sequence[tagging_windows.Prediction],
) -> None:
    files = _files(settings)
    path = os.path.join(settings.output_dir, "predictions.txt")
    pairs = zip(split.sentences, (each.tags for each in predictions), strict=True)
    tagging_sentences.write_predictions(
        path,
        files.find("test"),
        files.columns,
        pairs,
        settings.output_scheme or task.scheme,
    )
    logging.info("Wrote the tags of %d sentences to %s.", len(predictions), path)


def serve(
    stored: Mapping[str, Any],
    config: modeling.BertConfig,
    tokenizer: tokenization.FullTokenizer,
    precision: str,
) -> served_task.ServedTask:
    """Returns how a model of `task.json`'s contents answers, for `serving.load`.

    An input has `text`. Each answer has `entities`, as `tagging.text_entities` gives them.
    """
    task = tagging_windows.Task.from_dict(stored["task"])
    # The model wants a window even where all texts are blank.
    blank = np.zeros((1, stored["max_seq_length"]), np.int32)

    def read(
        rows: Sequence[Mapping[str, Any]],
    ) -> list[tuple[tagging_sentences.Sentence, list[Any]]]:
        for number, row in enumerate(rows):
            if not isinstance(row["text"], str):
                raise ValueError(
                    f"Input {number}, counted from 0, must have one text as 'text'. "
                    f"Received {row['text']!r}."
                )
        return [tagging_windows.read_text(row["text"], task.unit) for row in rows]

    def make_features(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
        sentences = [sentence for sentence, _ in read(rows)]
        features = tagging_windows.make_features(
            sentences, task, tokenizer, stored["max_seq_length"]
        )
        if not len(features["word_ids"]):
            return {**dict.fromkeys(features, blank), "word_ids": blank + tagging_windows.NO_WORD}
        return features

    def decode(
        rows: Sequence[Mapping[str, Any]],
        features: Mapping[str, np.ndarray],
        outputs: Mapping[str, np.ndarray],
    ) -> list[dict[str, Any]]:
        texts = read(rows)
        sentences = [sentence for sentence, _ in texts]
        predictions = tagging_windows.decode(task, sentences, features, outputs["logits"])
        return [
            {"entities": tagging_windows.text_entities(row["text"], spans, prediction)}
            for row, (_, spans), prediction in zip(rows, texts, predictions, strict=True)
        ]

    if stored.get("feature_based"):
        model = _feature_tagger(stored, config, precision).whole_model()
    else:
        model = tagging_model(config, len(task.labels), dtype=precision)
    return served_task.ServedTask(
        fields=("text",),
        model=model,
        make_features=make_features,
        decode=decode,
    )


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    if flags.FLAGS.feature_based:
        flags.FLAGS.set_default("learning_rate", _LSTM_LEARNING_RATE)
    settings = common_flags.read_settings(Settings)
    keras.utils.set_random_seed(settings.seed)
    run(settings)


if __name__ == "__main__":
    define_flags()
    run_script(main)
