"""Fine-tunes on questions about paragraphs, answers them and scores the answers (paper, 4.2, 4.3).

    python run_squad.py --train_file=train-v1.1.json --predict_file=dev-v1.1.json --do_train \
      --do_predict --output_dir=squad --vocab_file=vocab.txt --bert_config_file=bert_config.json \
      --init_checkpoint=bert_model.ckpt

SQuAD 1.1, SQuAD 2.0 with --version_2_with_negative, and your own questions in their JSON. Old
commands of the original's run_squad.py work unchanged.
"""

import dataclasses
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bert.command_line import quiet_import  # isort: skip  # noqa: F401

import keras
import numpy as np
from absl import logging

import modeling
import served_task
import squad_cache
import tokenization
from bert.command_line import flags as common_flags
from bert.command_line.console import run_script
from bert.command_line.flags import flag
from bert.files.paths import open_file, write_text
from bert.files.processes import usable_cores
from bert.original import squad as original_squad
from bert.tasks.heads import span_model, span_objective
from bert.tasks.squad import answers as squad_answers
from bert.tasks.squad import questions as squad_questions
from bert.tasks.squad import scores as squad_scores
from bert.tasks.squad import windows as squad_windows
from bert.tasks.squad.report import write_report
from bert.tasks.squad.window_table import WindowTable
from bert.training import finetuning, loop, repeats
from bert.training.batches import Batches, Feature, Records, encoder_features
from bert.training.evaluation import EarlyStopping, Predictor
from bert.weights import folder as model_folder

# Faithful: whatever the seed of the run, the examples are shuffled with this one.
SHUFFLE_SEED = 12345

# What people import from the original's run_squad.py.
SquadExample = squad_questions.SquadExample
InputFeatures = original_squad.InputFeatures
RawResult = original_squad.RawResult
FeatureWriter = original_squad.FeatureWriter
read_squad_examples = squad_questions.read_squad_examples
convert_examples_to_features = original_squad.convert_examples_to_features
write_predictions = original_squad.write_predictions
get_final_text = original_squad.get_final_text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(common_flags.FineTuningSettings):
    """The flags of this script, by name."""

    max_seq_length: int = 384
    train_file: str | None = flag(None, "Questions to train on, in SQuAD's JSON.")
    predict_file: str | None = flag(
        None, "Questions to answer, in SQuAD's JSON; where it has answers, too, there are scores."
    )
    doc_stride: int = flag(
        128,
        "Tokens from the beginning of a window over a long paragraph to that of the next one.",
        low=1,
    )
    max_query_length: int = flag(64, "Tokens of a question; what is longer is cut.", low=1)
    n_best_size: int = flag(20, "Answers per question in nbest_predictions.json.", low=1)
    max_answer_length: int = flag(30, "Tokens of an answer at most.", low=1)
    verbose_logging: bool = flag(
        False, "Log each answer that cannot be found in the paragraph's words."
    )
    version_2_with_negative: bool = flag(False, "Some questions have no answer, as in SQuAD 2.0.")
    null_score_diff_threshold: float = flag(
        0.0,
        "With SQuAD 2.0, a question has no answer where that scores higher than the best answer by "
        "more than this.",
    )
    bucket_predictions: bool = flag(
        False,
        "Predict on windows of about the same length together, without padding: faster, but where "
        "padding is among the --n_best_size best positions, not the original's lists.",
    )


def define_flags() -> None:
    """Defines the flags (original: run_squad.py)."""
    common_flags.define(Settings, without_effect=common_flags.TPU_FLAGS)


def run(settings: Settings) -> dict[str, Any]:
    """Trains and predicts as the settings say.

    Returns:
      The official scores of the predictions; with several runs, what `repeated_runs.repeat` gives;
      empty where nothing is predicted or the file has no answers.

    Raises:
      ValueError: before the expensive part, where settings, files and model do not fit.
    """
    _check_settings(settings)
    settings = model_folder.complete(settings)
    if settings.num_runs == 1:
        return _run(settings)
    _check_scored(settings, "num_runs", _read_questions(settings))
    return repeats.repeat(settings, _run_with_baseline, "f1")


def _check_settings(settings: Settings) -> None:
    finetuning.check_verbs(settings, "do_train", "do_predict", "do_export")
    for verb in ("train", "predict"):
        if getattr(settings, f"do_{verb}"):
            _check_file(getattr(settings, f"{verb}_file"), verb)
    squad_windows.check_lengths(
        settings.max_seq_length, settings.doc_stride, settings.max_query_length
    )
    if settings.bucket_predictions and settings.pad_to_max_length:
        raise ValueError(
            "`--bucket_predictions` must not be given together with `--pad_to_max_length`, which "
            "asks for the contrary."
        )
    repeats.check_settings(settings, evaluates=settings.do_predict, verb="do_predict")


def _check_file(path: str | None, verb: str) -> None:
    if not path:
        raise ValueError(f"`--do_{verb}` needs `--{verb}_file`.")
    try:
        with open_file(path) as file:
            file.read(1)
    except OSError as error:
        raise ValueError(
            f"`--{verb}_file` must name a readable file. Received {path!r} ({error})."
        ) from error


def _read_questions(settings: Settings) -> list[squad_questions.SquadExample]:
    """Returns the questions to answer."""
    assert settings.predict_file is not None
    return squad_questions.read_squad_examples(
        settings.predict_file, False, settings.version_2_with_negative
    )


def _check_scored(
    settings: Settings, flag: str, questions: Sequence[squad_questions.SquadExample]
) -> None:
    if not _golds(settings, questions):
        raise ValueError(
            f"`--{flag}` needs answers in `--predict_file` to score with. There are none in "
            f"{settings.predict_file!r}."
        )


def _run_with_baseline(settings: Settings) -> dict[str, Any]:
    """Runs once; adds the F1 of always giving the same answer."""
    scores = _run(settings)
    baseline = 0.0
    if settings.version_2_with_negative:
        baseline = 100.0 * scores.get("NoAns_total", 0) / scores["total"]
    return {**scores, "baseline": baseline}


def _run(settings: Settings) -> dict[str, Any]:
    strategy, config, tokenizer = finetuning.set_up(settings)
    questions = _read_questions(settings) if settings.do_predict else []
    if settings.early_stopping_patience:
        _check_scored(settings, "early_stopping_patience", questions)
    is_chief = loop.is_chief(strategy)
    stored = _stored(settings)
    finetuning.open_folder(settings, config, {key: stored[key] for key in _fixed(settings)})
    with finetuning.record_folder(settings, is_chief) as folder, strategy.scope():
        windows = _open_windows(settings, config, tokenizer, questions, folder)
        if is_chief and settings.do_train:
            finetuning.keep_task(settings, config, stored)
        model = span_model(config, dtype=settings.precision)
        loop.log_set_up(model, strategy, settings)
        return _use_model(settings, model, tokenizer, questions, windows, is_chief)


def _stored(settings: Settings) -> dict[str, Any]:
    """Returns what `task.json` keeps, all that `serve` needs."""
    names = ("do_lower_case", "max_seq_length", "doc_stride", "max_query_length", *_DECODING)
    return {"kind": "question_answering", **{name: getattr(settings, name) for name in names}}


_DECODING = (
    "version_2_with_negative",
    "n_best_size",
    "max_answer_length",
    "null_score_diff_threshold",
)


def _fixed(settings: Settings) -> list[str]:
    """Returns what may not change from one run in a folder to the next."""
    names = ["kind", "do_lower_case"]
    if settings.do_train:
        # Its windows; a trained model may be asked in other ways.
        names += ["max_seq_length", "doc_stride", "max_query_length", "version_2_with_negative"]
    return names


@dataclasses.dataclass(frozen=True)
class _Windows:
    """Windows and batches of them; without batches where there is no window."""

    table: WindowTable
    batches: Batches | None


def _open_windows(
    settings: Settings,
    config: modeling.BertConfig,
    tokenizer: tokenization.FullTokenizer,
    questions: Sequence[squad_questions.SquadExample],
    folder: str,
) -> dict[str, _Windows]:
    """Returns the windows to train on and those to predict on, by "train" and "predict"."""
    windows = {}
    features = encoder_features(
        max_seq_length=settings.max_seq_length,
        vocab_size=config.vocab_size,
        type_vocab_size=config.type_vocab_size,
    )
    if settings.do_train:
        path = os.path.join(folder, "train.tf_record")
        table = _make_table(
            settings, tokenizer, "train", path, lambda: _read_train_examples(settings)
        )
        place = Feature(1, "the task", settings.max_seq_length, "--max_seq_length")
        batches = finetuning.open_batches(
            path,
            {**features, "start_positions": place, "end_positions": place},
            settings,
            settings.train_batch_size,
            lengths=table.lengths(),
            seed=settings.seed,
        )
        windows["train"] = _Windows(table, batches)
    if settings.do_predict:
        path = os.path.join(folder, "eval.tf_record")
        table = _make_table(settings, tokenizer, "predict", path, lambda: questions)
        windows["predict"] = _Windows(
            table, _predict_batches(settings, features, table, path) if len(table) else None
        )
    return windows


def _read_train_examples(settings: Settings) -> list[squad_questions.SquadExample]:
    assert settings.train_file is not None
    examples = squad_questions.read_squad_examples(
        settings.train_file, True, settings.version_2_with_negative
    )
    random.Random(SHUFFLE_SEED).shuffle(examples)
    return examples


def _make_table(
    settings: Settings,
    tokenizer: tokenization.FullTokenizer,
    verb: str,
    record_file: str,
    read: Callable[[], Sequence[squad_questions.SquadExample]],
) -> WindowTable:
    """Returns the windows whose records are in `record_file`, made anew unless they are there."""
    is_training = verb == "train"
    lengths = (settings.max_seq_length, settings.doc_stride, settings.max_query_length)
    deciding = {
        "lengths": lengths,
        "is_training": is_training,
        # In prediction, it changes no window.
        "version_2_with_negative": is_training and settings.version_2_with_negative,
    }
    key = squad_cache.cache_key(getattr(settings, f"{verb}_file"), tokenizer, deciding)
    table = squad_cache.read(record_file, key)
    if table is None:
        examples = read()
        num_processes = min(
            usable_cores(),
            max(len(examples) // squad_windows.QUESTIONS_PER_PROCESS, 1),
        )
        table = squad_windows.make_features(
            examples, tokenizer, *lengths, is_training, num_processes
        )
        squad_cache.write(record_file, table, key, num_processes)
    table.log_summary()
    if is_training and not len(table):
        raise ValueError(
            f"`--train_file` must have paragraphs with words. {settings.train_file!r} has none."
        )
    return table


def _predict_batches(
    settings: Settings,
    features: Mapping[str, Feature],
    table: WindowTable,
    path: str,
) -> Batches:
    """Returns batches in order, padded, or with --bucket_predictions formed by length."""
    # Faithful: padding competes for places among the n best, so all of it is there by default.
    buckets = settings.bucket_predictions
    return Batches(
        Records([path]),
        features,
        settings.predict_batch_size,
        lengths=table.lengths() if buckets else None,
        trim=buckets,
    )


def _use_model(
    settings: Settings,
    model: keras.Model,
    tokenizer: tokenization.FullTokenizer,
    questions: Sequence[squad_questions.SquadExample],
    windows: Mapping[str, _Windows],
    is_chief: bool,
) -> dict[str, Any]:
    """Does with the model what is asked for; returns the scores."""
    answer = None
    if settings.do_predict:
        answer = _Answers(settings, model, tokenizer, questions, windows["predict"])
    step = _train(settings, model, windows, answer)
    scores: dict[str, Any] = {}
    if answer is not None:
        predictions = answer()
        squad_answers.log_summary(predictions)
        scores = _score(settings, questions, predictions)
        if is_chief:
            _save(settings, step, questions, predictions, scores)
    if settings.do_export and is_chief:
        # TensorFlow Text is not loaded where nothing is exported.
        from bert.tasks.squad.saved_model import export_answerer  # noqa: PLC0415

        export_answerer(
            finetuning.saved_model(settings),
            model,
            tokenizer,
            max_seq_length=settings.max_seq_length,
            doc_stride=settings.doc_stride,
            max_query_length=settings.max_query_length,
            decoding=_decoding(settings),
        )
    return scores


def _decoding(settings: Settings) -> squad_answers.Decoding:
    names = [field.name for field in dataclasses.fields(squad_answers.Decoding)]
    return squad_answers.Decoding(**{name: getattr(settings, name) for name in names})


class _Answers:
    """Answers all questions with a model as it is; the function is built once."""

    def __init__(
        self,
        settings: Settings,
        model: keras.Model,
        tokenizer: tokenization.FullTokenizer,
        questions: Sequence[squad_questions.SquadExample],
        windows: _Windows,
    ) -> None:
        self.questions = questions
        self._settings = settings
        self._tokenizer = tokenizer
        self._windows = windows
        if windows.batches:
            self._predictor = Predictor(model, windows.batches.signature)

    def __call__(self) -> list[squad_answers.Prediction]:
        table, decoding = self._windows.table, _decoding(self._settings)
        return list(
            squad_answers.find_answers(
                self.questions, table, self._logits(), self._tokenizer, decoding
            )
        )

    def _logits(self) -> Iterator[squad_answers.Logits]:
        """Yields the logits of each window, in order."""
        batches = self._windows.batches
        if batches is None:
            return
        outputs = self._predictor.predict(batches)
        if batches.lengths is None:
            for _, each in outputs:
                yield from zip(each["start_logits"], each["end_logits"], strict=True)
            return
        rows: dict[int, squad_answers.Logits] = {}
        for numbers, each in outputs:
            for row, number in enumerate(numbers.tolist()):
                length = int(batches.lengths[number])
                rows[number] = (
                    each["start_logits"][row, :length],
                    each["end_logits"][row, :length],
                )
        for number in range(len(rows)):
            yield rows.pop(number)


def _train(
    settings: Settings,
    model: keras.Model,
    windows: Mapping[str, _Windows],
    answer: _Answers | None,
) -> int:
    """Trains the model or loads it; returns the step of its weights."""
    if not settings.do_train:
        return finetuning.load(settings, model)
    evaluation = None
    if settings.early_stopping_patience and answer is not None:
        evaluation = EarlyStopping(
            lambda: _score(settings, answer.questions, answer()),
            "f1",
            settings.early_stopping_patience,
        )
    batches = windows["train"].batches
    assert batches is not None
    return finetuning.train(
        settings,
        model,
        loop.Objective(*span_objective()),
        batches,
        evaluation,
        # Faithful: steps are counted in questions, of which some have several windows.
        num_examples=windows["train"].table.num_examples,
    )


def _golds(
    settings: Settings, questions: Sequence[squad_questions.SquadExample]
) -> dict[str, list[str]]:
    """Returns the gold answers of the questions that can be scored."""
    return {
        question.qas_id: [answer.text for answer in question.answers]
        for question in questions
        if question.answers or (question.answers == () and settings.version_2_with_negative)
    }


def _score(
    settings: Settings,
    questions: Sequence[squad_questions.SquadExample],
    predictions: Sequence[squad_answers.Prediction],
) -> dict[str, Any]:
    """Returns the official scores; empty where no question has answers."""
    golds = _golds(settings, questions)
    if golds and len(golds) < len(questions):
        logging.warning(
            "%d questions are not scored, as the file has no answer to them; for those that have "
            "none, as in SQuAD 2.0, pass --version_2_with_negative.",
            len(questions) - len(golds),
        )
    if not golds:
        return {}
    texts = {prediction.qas_id: prediction.text for prediction in predictions}
    if not settings.version_2_with_negative:
        return squad_scores.evaluate_v1(golds, texts)
    odds = {each.qas_id: each.null_odds for each in predictions if each.null_odds is not None}
    # The answers are already empty beyond this threshold: they are scored as they stand.
    return squad_scores.evaluate_v2(golds, texts, odds, settings.null_score_diff_threshold)


def _save(
    settings: Settings,
    step: int,
    questions: Sequence[squad_questions.SquadExample],
    predictions: Sequence[squad_answers.Prediction],
    scores: Mapping[str, Any],
) -> None:
    """Writes answers, scores and the page, and logs the scores."""

    def path(name: str) -> str:
        return os.path.join(settings.output_dir, name)

    is_v2 = settings.version_2_with_negative
    squad_answers.write_answers(
        predictions,
        path("predictions.json"),
        path("nbest_predictions.json"),
        path("null_odds.json") if is_v2 else None,
    )
    if scores:
        text = json.dumps({"global_step": step, **scores}, indent=2) + "\n"
        write_text(path("eval_results.json"), text)
        logging.info("***** Eval results at step %d *****", step)
        for name, value in scores.items():
            logging.info("  %s = %s", name, value if isinstance(value, int) else f"{value:.4f}")
    write_report(
        path("predictions.html"),
        questions,
        predictions,
        dict(scores),
        version_2_with_negative=is_v2,
    )
    logging.info("Wrote %s, to look through the answers.", path("predictions.html"))


class _ServedWindows(dict[str, np.ndarray]):
    """What the model reads of some windows, with what they are made of."""

    def __init__(self, questions: list[squad_questions.SquadExample], table: WindowTable) -> None:
        # The model wants a window even where all contexts are blank; it is not looked at.
        blank = np.zeros((1, table.max_seq_length), np.int32)
        names = ("input_ids", "input_mask", "segment_ids")
        features = table.features(0, len(table)) if len(table) else dict.fromkeys(names, blank)
        super().__init__({name: features[name].astype(np.int32) for name in names})
        self.questions = questions
        self.table = table


def serve(
    stored: Mapping[str, Any],
    config: modeling.BertConfig,
    tokenizer: tokenization.FullTokenizer,
    precision: str,
) -> served_task.ServedTask:
    """Returns how a model of `task.json`'s contents answers, for `serving.load`.

    Each answer has `answer`, empty for none, with its `start` and `end` in characters of the
    context, or None; `score`, the sum of its logits; `probability` among the n best; `nbest`,
    these, each likewise; and for SQuAD 2.0 `null_odds`. Padding does not compete.
    """
    decoding = squad_answers.Decoding(
        do_lower_case=stored["do_lower_case"], **{name: stored[name] for name in _DECODING}
    )
    lengths = (stored["max_seq_length"], stored["doc_stride"], stored["max_query_length"])

    def make_features(rows: Sequence[Mapping[str, Any]]) -> _ServedWindows:
        words = {row["context"]: squad_questions.split_words(row["context"]) for row in rows}
        questions = [
            squad_questions.SquadExample(
                str(number), row["question"], words[row["context"]], context=row["context"]
            )
            for number, row in enumerate(rows)
        ]
        table = squad_windows.make_features(questions, tokenizer, *lengths, False)
        return _ServedWindows(questions, table)

    def decode(
        rows: Sequence[Mapping[str, Any]],
        features: Mapping[str, np.ndarray],
        outputs: Mapping[str, np.ndarray],
    ) -> list[dict[str, Any]]:
        assert isinstance(features, _ServedWindows) and len(rows) == len(features.questions)
        logits = (
            (outputs["start_logits"][number, :length], outputs["end_logits"][number, :length])
            for number, length in enumerate(features.table.lengths().tolist())
        )
        predictions = squad_answers.find_answers(
            features.questions, features.table, logits, tokenizer, decoding
        )
        return [
            _served_answer(question, prediction)
            for question, prediction in zip(features.questions, predictions, strict=True)
        ]

    return served_task.ServedTask(
        fields=("question", "context"),
        model=span_model(config, dtype=precision),
        make_features=make_features,
        decode=decode,
    )


def _served_answer(
    question: squad_questions.SquadExample, prediction: squad_answers.Prediction
) -> dict[str, Any]:
    answer = _served_entry(question, prediction.best)
    answer["nbest"] = [_served_entry(question, entry) for entry in prediction.nbest]
    if prediction.null_odds is not None:
        answer["null_odds"] = prediction.null_odds
    return answer


def _served_entry(
    question: squad_questions.SquadExample, entry: squad_answers.Entry
) -> dict[str, Any]:
    start, end = entry.span.in_context(question) if entry.span else (None, None)
    return {
        "answer": entry.text if entry.span else "",
        "start": start,
        "end": end,
        "score": entry.score,
        "probability": entry.probability,
    }


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    settings = common_flags.read_settings(Settings)
    keras.utils.set_random_seed(settings.seed)
    run(settings)


if __name__ == "__main__":
    define_flags()
    run_script(main)
