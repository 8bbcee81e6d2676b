"""What all fine-tuning scripts do alike: checks, files of examples, training, the folder they fill.

The folder `--output_dir` holds all that a later prediction needs: `task.json`, `vocab.txt`,
`bert_config.json` and the weights, `bert_model.ckpt`. While training, it also holds checkpoints to
resume from; `best/` keeps the weights of the best evaluation.
"""

import contextlib
import dataclasses
import json
import os
import re
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import keras
import numpy as np
import tensorflow as tf
from absl import logging

import checkpoint
import common_flags
import input_pipeline
import modeling
import optimization
import record_files
import text_inputs
import tokenization
import tokenizer_json
import training

TASK_FILE = "task.json"
VOCAB_FILE = "vocab.txt"
BEST = "best"
HISTORY_FILE = "evaluations.jsonl"

# What a run leaves in its folder, for --overwrite_output_dir: nothing else is deleted.
_OWN_FILES = re.compile(
    r"(model|bert_model)\.ckpt.*|checkpoint|events\.out\.tfevents.*|.*\.tf_record|eval|best"
    r"|(train|eval)\.windows\.npz|nbest_predictions\.json|null_odds\.json"
    r"|saved_model|submission|run_\d+|runs\.json|evaluations\.jsonl|task\.json|vocab\.txt"
    r"|bert_config\.json|eval_results.*|test_results.*|predictions.*|.*\.features\.npy"
)

Settings = common_flags.FineTuningSettings
SettingsType = TypeVar("SettingsType", bound=Settings)


def check_settings(
    settings: Settings, config: modeling.BertConfig, vocab: Mapping[str, int], num_replicas: int
) -> None:
    """Checks what all fine-tuning scripts share, before any data is read.

    Raises:
      ValueError: naming the flag.
    """
    limit = config.max_position_embeddings
    if settings.max_seq_length > limit:
        raise ValueError(
            f"`--max_seq_length` must be at most {limit}, the `max_position_embeddings` in "
            f"--bert_config_file. Received {settings.max_seq_length}."
        )
    if settings.init_checkpoint:
        tokenization.validate_case_matches_checkpoint(
            settings.do_lower_case, settings.init_checkpoint
        )
        checkpoint.check_fit(settings.init_checkpoint, config)
    text_inputs.check_vocabulary(vocab, settings.vocab_file, config.vocab_size, ["[CLS]", "[SEP]"])
    if settings.train_batch_size % (num_replicas * settings.gradient_accumulation_steps):
        raise ValueError(
            f"`--train_batch_size` must be a multiple of the {num_replicas} devices times "
            f"`--gradient_accumulation_steps`. Received {settings.train_batch_size} and "
            f"{settings.gradient_accumulation_steps}."
        )
    if settings.freeze_layers is not None and settings.freeze_layers > config.num_hidden_layers:
        raise ValueError(
            f"`--freeze_layers` must be at most {config.num_hidden_layers}, the "
            f"`num_hidden_layers` in --bert_config_file. Received {settings.freeze_layers}."
        )
    is_random = not settings.init_checkpoint and not settings.do_train
    if is_random and find_weights(settings.output_dir) is None:
        raise ValueError(
            "`--output_dir` must hold a trained model, or `--init_checkpoint` name one, unless "
            f"`--do_train` is given. Received {settings.output_dir!r}, which holds none."
        )


def check_repeats(settings: Settings, *, evaluates: bool, verb: str) -> None:
    """Checks that what goes by scores has some; `verb` is the flag that gives them.

    Raises:
      ValueError: naming the flag.
    """
    for flag, is_set in (
        ("early_stopping_patience", settings.early_stopping_patience),
        ("num_runs", settings.num_runs > 1),
    ):
        if is_set and not (settings.do_train and evaluates):
            raise ValueError(f"`--{flag}` needs `--do_train` and `--{verb}`.")


def open_folder(settings: Settings, config: modeling.BertConfig, task: Mapping[str, Any]) -> None:
    """Makes `--output_dir`, or checks that what it holds belongs to the same task.

    Args:
      settings: Those of the script.
      config: The shape of the model.
      task: What `keep_task` stores.

    Raises:
      ValueError: where it cannot be written, or belongs to another task, naming the difference.
    """
    folder = settings.output_dir
    checkpoint.make_folder(folder)
    if settings.overwrite_output_dir and settings.do_train:
        clear_folder(folder)
    checkpoint.check_config(folder, config)
    stored = read_task(folder) if tf.io.gfile.exists(os.path.join(folder, TASK_FILE)) else {}
    # A trained model may serve other lengths, but training cannot go on with another.
    ignored = set() if settings.do_train else {"max_seq_length"}
    differences = [
        f"`{key}` is {stored[key]!r} there and {value!r} now"
        for key, value in _plain(task).items()
        if key in stored and stored[key] != value and key not in ignored
    ]
    if stored and _read(os.path.join(folder, VOCAB_FILE)) != _read_vocabulary(settings):
        differences.append(f"its {VOCAB_FILE} differs from `--vocab_file`")
    if differences:
        raise ValueError(
            f"`--output_dir` must belong to the same task. In {folder!r}, "
            f"{'; '.join(differences)}. Give another `--output_dir`, or "
            "`--do_train --overwrite_output_dir` to delete what is there."
        )


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values as JSON gives them back, lists for tuples."""
    return json.loads(json.dumps(values))


def _read(path: str) -> bytes:
    with record_files.open_file(path) as file:
        return file.read()


def _read_vocabulary(settings: Settings) -> bytes:
    text = _read(settings.vocab_file)
    if not tokenizer_json.is_one(settings.vocab_file):
        return text
    return tokenizer_json.vocab_text(tokenizer_json.read_vocab(text, settings.vocab_file))


def clear_folder(folder: str) -> None:
    """Deletes what earlier runs wrote to the folder, and nothing else."""
    for entry in tf.io.gfile.listdir(folder):
        name = entry.rstrip("/")
        path = os.path.join(folder, name)
        if not _OWN_FILES.fullmatch(name):
            continue
        if tf.io.gfile.isdir(path):
            tf.io.gfile.rmtree(path)
        else:
            tf.io.gfile.remove(path)


def keep_task(settings: Settings, config: modeling.BertConfig, task: Mapping[str, Any]) -> None:
    """Stores in `--output_dir` what a prediction needs besides the weights."""
    folder = settings.output_dir
    checkpoint.keep_config(folder, config)
    with record_files.replace_files([os.path.join(folder, VOCAB_FILE)]) as (file,):
        file.write(_read_vocabulary(settings))
    text = json.dumps(task, indent=2, ensure_ascii=False) + "\n"
    checkpoint.write_text(os.path.join(folder, TASK_FILE), text)


def read_task(folder: str, *, flag: str = "output_dir") -> dict[str, Any]:
    """Returns what `keep_task` stored.

    Raises:
      ValueError: where it is absent or damaged.
    """
    path = os.path.join(folder, TASK_FILE)
    if not tf.io.gfile.exists(path):
        raise ValueError(
            f"`--{flag}` must be the `--output_dir` of a fine-tuning script. {folder!r} has no "
            f"{TASK_FILE}. Fine-tune first, with `--do_train`; convert_checkpoint.py makes such a "
            "folder of a fine-tuned Hugging Face model; fill_mask.py and extract_features.py ask "
            "models that are only pre-trained."
        )
    try:
        return dict(json.loads(_read(path)))
    except ValueError as error:
        raise ValueError(f"{path!r} must hold a JSON object: {error}.") from error


@contextlib.contextmanager
def record_folder(settings: Settings, is_chief: bool) -> Iterator[str]:
    """Gives the folder for the files of examples; workers that are not the chief keep theirs."""
    if is_chief:
        checkpoint.Checkpoints(settings.output_dir).remove_partial()
        yield settings.output_dir
        return
    with tempfile.TemporaryDirectory(prefix="bert-examples-") as folder:
        yield folder


def write_examples(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes one record per row of the arrays, [N, ...] each, to a TFRecord file."""
    rows = {name: values.reshape(len(values), -1) for name, values in arrays.items()}
    count = len(rows["input_ids"])
    with record_files.write_records([path]) as (writer,):
        for start in range(0, count, 1000):
            part = {name: values[start : start + 1000] for name, values in rows.items()}
            for record in record_files.encode_examples(part):
                writer.write(record)


def open_batches(
    path: str,
    features: Mapping[str, input_pipeline.Feature],
    settings: Settings,
    batch_size: int,
    *,
    lengths: np.ndarray,
    seed: int | None = None,
) -> input_pipeline.Batches:
    """Returns batches of the records in `path`, formed by length.

    Args:
      path: A file that `write_examples` wrote.
      features: What every record must be.
      settings: Those of the script.
      batch_size: Records per step.
      lengths: int [N], the tokens of each record.
      seed: For training; None for evaluation.
    """
    return input_pipeline.Batches(
        input_pipeline.Records([path]),
        features,
        batch_size,
        seed,
        lengths=lengths,
        trim=not settings.pad_to_max_length,
    )


class Evaluation:
    """Evaluates during training, keeps the best weights, and tells when it no longer improves.

    What it finds goes to `evaluations.jsonl`, from which a resumed run knows what came before.

    Args:
      function: Returns scores of the model as it is.
      metric: Name of the score that counts; higher is better.
      patience: Evaluations without improvement after which training ends; 0 for never.
    """

    def __init__(
        self, function: Callable[[], Mapping[str, Any]], metric: str, patience: int = 0
    ) -> None:
        self.function = function
        self.metric = metric
        self.patience = patience
        self._history: list[dict[str, Any]] = []

    def open(self, folder: str, model: keras.Model, step: int, *, writes: bool) -> None:
        """Starts at `step` of the training in `folder`; reads what came before."""
        self._folder, self._model, self._writes = folder, model, writes
        path = os.path.join(folder, HISTORY_FILE)
        lines = _read(path).splitlines() if step and tf.io.gfile.exists(path) else []
        history = [json.loads(line) for line in lines]
        self._history = [scores for scores in history if scores["step"] <= step]
        self._writer = tf.summary.create_file_writer(os.path.join(folder, "eval"))

    @property
    def best(self) -> dict[str, Any] | None:
        """The scores of the best evaluation, the first of equals, with their `step`."""
        return max(self._history, key=lambda scores: scores[self.metric], default=None)

    @property
    def is_over(self) -> bool:
        """Whether training has ended for want of improvement."""
        if not self.patience or self.best is None:
            return False
        return len(self._history) - self._history.index(self.best) > self.patience

    def __call__(self, step: int) -> bool:
        """Evaluates after `step`, and returns `is_over`."""
        scores = {
            name: float(value)
            for name, value in self.function().items()
            if isinstance(value, int | float)
        }
        self._history.append({"step": step, **scores})
        is_best = self._history[-1] is self.best
        values = "  ".join(f"{name} {value:.4g}" for name, value in scores.items())
        logging.info("Evaluation at step %d  %s%s", step, values, "  (best)" if is_best else "")
        if self._writes:
            if is_best:
                best = checkpoint.Checkpoints(os.path.join(self._folder, BEST), 1)
                best.save({variable.path: variable for variable in self._model.weights}, step)
            training.write_summaries(self._writer, step, scores)
            text = "".join(json.dumps(line) + "\n" for line in self._history)
            checkpoint.write_text(os.path.join(self._folder, HISTORY_FILE), text)
        if self.is_over:
            logging.info(
                "No better %s in %d evaluations: training ends.", self.metric, self.patience
            )
        return self.is_over


def train(
    settings: Settings,
    model: keras.Model,
    objective: training.Objective,
    batches: input_pipeline.Batches,
    evaluation: Evaluation | None = None,
    num_examples: int | None = None,
) -> int:
    """Trains the model, saves its weights, and returns the step that they are from.

    With early stopping, the weights are the best; else they are the last.

    Args:
      settings: Those of the script.
      model: As in `task_models.py`.
      objective: What is minimized.
      batches: Those to train on.
      evaluation: Called every `--save_checkpoints_steps` and at the end, or None.
      num_examples: How many make an epoch, where that is not the number of records.

    Raises:
      ValueError: where the folder is further than `--num_train_epochs` goes, or that is no step.
    """
    num_train_steps = count_steps(settings, num_examples or len(batches.records))
    freeze(model, settings.freeze_layers)
    trainer = make_trainer(settings, model, objective, batches, num_train_steps)
    writes = training.is_chief(trainer.strategy)
    checkpoints = checkpoint.Checkpoints(settings.output_dir, settings.keep_checkpoint_max)
    step = training.initialize(model, trainer.state(), checkpoints, settings.init_checkpoint)
    if step > num_train_steps:
        raise ValueError(
            f"`--num_train_epochs` must reach step {step}, where {settings.output_dir!r} is. It "
            f"gives {num_train_steps} steps; give more epochs or `--overwrite_output_dir`."
        )
    observers: list[training.Observer] = []
    if writes:
        observers.append(
            training.ProgressLog(
                settings.output_dir,
                first_step=step,
                num_train_steps=num_train_steps,
                batch_size=settings.train_batch_size,
                every=settings.log_every_steps,
            )
        )
    if evaluation:
        checkpoint.make_folder(os.path.join(settings.output_dir, BEST))
        evaluation.open(settings.output_dir, model, step, writes=writes)
        observers.append(_at_steps(evaluation, settings.save_checkpoints_steps, num_train_steps))
    if evaluation and evaluation.is_over:
        logging.warning("Nothing to train: early stopping ended it at step %d.", step)
    else:
        _log_plan(settings, len(batches.records), num_train_steps)
        if writes and step < num_train_steps:
            # They are of an earlier training: a prediction must not take them for this one's.
            checkpoint.remove(os.path.join(settings.output_dir, checkpoint.WEIGHTS))
        training.train(
            trainer,
            batches,
            num_train_steps=num_train_steps,
            checkpoints=checkpoints,
            save_checkpoints_steps=settings.save_checkpoints_steps,
            observers=observers,
        )
    return _keep_weights(settings, model, trainer.step, evaluation)


def count_steps(settings: Settings, num_examples: int) -> int:
    """Returns the steps of the training (original: run_classifier.py, main).

    Raises:
      ValueError: where there are none.
    """
    steps = int(num_examples / settings.train_batch_size * settings.num_train_epochs)
    if steps < 1:
        raise ValueError(
            f"`--num_train_epochs` must give at least one step. {settings.num_train_epochs} epochs "
            f"of {num_examples} examples give none with `--train_batch_size="
            f"{settings.train_batch_size}`."
        )
    return steps


def _log_plan(settings: Settings, num_examples: int, num_train_steps: int) -> None:
    logging.info("***** Running training *****")
    logging.info("  Num examples = %d", num_examples)
    logging.info("  Batch size = %d", settings.train_batch_size)
    logging.info("  Num steps = %d", num_train_steps)


def freeze(model: keras.Model, num_layers: int | None) -> None:
    """Makes embeddings and the first layers of the encoder constant; None for neither."""
    if num_layers is None:
        return
    bert = model.get_layer("bert")
    for layer in [bert.embeddings, *bert.encoder.transformer_layers[:num_layers]]:
        layer.trainable = False


def learning_rate_scales(model: keras.Model, decay: float) -> dict[str, float]:
    """Returns by path what multiplies the learning rate: `decay` once per layer from the top.

    The head and the pooler have 1, the top layer `decay`, the one below its square, and so on down
    to the embeddings (Clark et al., ELECTRA, appendix B).
    """
    num_layers = len(model.get_layer("bert").encoder.transformer_layers)
    scales = {}
    for variable in model.weights:
        if match := re.match(r"bert/encoder/layer_(\d+)/", variable.path):
            scales[variable.path] = decay ** (num_layers - int(match[1]))
        elif variable.path.startswith("bert/embeddings/"):
            scales[variable.path] = decay ** (num_layers + 1)
    return scales


def make_trainer(
    settings: Settings,
    model: keras.Model,
    objective: training.Objective,
    batches: input_pipeline.Batches,
    num_train_steps: int,
) -> training.Trainer:
    """Returns a trainer with the optimizer that the settings ask for."""
    optimizer = optimization.bert_optimizer(
        settings.learning_rate,
        num_train_steps,
        int(num_train_steps * settings.warmup_proportion),
    )
    if settings.layerwise_lr_decay != 1.0:
        optimizer.learning_rate_scales = learning_rate_scales(model, settings.layerwise_lr_decay)
    return training.Trainer(
        model,
        optimizer,
        objective,
        seed=settings.seed,
        num_micro_batches=settings.gradient_accumulation_steps,
        loss_scale=training.LossScale() if settings.precision == "mixed_float16" else None,
        signature=batches.signature,
    )


def _at_steps(evaluation: Evaluation, every: int, last: int) -> training.Observer:
    def observe(step: int, _: Mapping[str, float]) -> bool:
        return (step % every == 0 or step == last) and evaluation(step)

    return observe


def _keep_weights(
    settings: Settings, model: keras.Model, step: int, evaluation: Evaluation | None
) -> int:
    """Writes the weights-only checkpoint, after going back to the best if that is asked for."""
    weights = {variable.path: variable for variable in model.weights}
    if settings.early_stopping_patience and evaluation and evaluation.best:
        best = os.path.join(settings.output_dir, BEST, f"model.ckpt-{evaluation.best['step']}")
        step = checkpoint.Checkpoints(settings.output_dir).restore(weights, best)
        logging.info("The weights are those of step %d, the best.", step)
    if training.is_chief(tf.distribute.get_strategy()):
        prefix = os.path.join(settings.output_dir, checkpoint.WEIGHTS)
        checkpoint.save_variables(prefix, weights, step)
        logging.info("Saved the weights without the optimizer's slots to %s.", prefix)
    return step


def find_weights(folder: str) -> str | None:
    """Returns the prefix of the weights that a training has left in its folder, or None."""
    weights = os.path.join(folder, checkpoint.WEIGHTS)
    if tf.io.gfile.exists(f"{weights}.index"):
        return weights
    return checkpoint.Checkpoints(folder).latest()


def load(settings: Settings, model: keras.Model) -> int:
    """Sets the model's weights without training, and returns the step that they are from.

    They come from `--output_dir`, or else from `--init_checkpoint`, which must hold the head, too.
    """
    prefix = find_weights(settings.output_dir)
    if prefix is None:
        assert settings.init_checkpoint is not None
        checkpoint.load_weights(model.weights, settings.init_checkpoint, with_head=True)
        return 0
    weights = {variable.path: variable for variable in model.weights}
    step = checkpoint.Checkpoints(settings.output_dir).restore(weights, prefix)
    unread = "; --init_checkpoint is not read" if settings.init_checkpoint else ""
    logging.info("The weights are those of step %d in %s%s.", step, prefix, unread)
    return step


def repeat(
    settings: SettingsType, run: Callable[[SettingsType], Mapping[str, Any]], metric: str
) -> dict[str, Any]:
    """Runs with several seeds, in folders `run_1`, `run_2` and so on, and sums up in `runs.json`.

    Args:
      settings: Those of the script, with `num_runs`.
      run: Runs once and returns its scores, among them `baseline`: the metric of guessing.
      metric: The score by which a run has failed to train.

    Returns:
      What `runs.json` holds: `runs`, each with seed, folder and scores; `mean` and
      `standard_deviation` (of the sample) of each score; and `failed`, the seeds whose runs are
      no better than guessing.
    """
    runs = []
    for index in range(settings.num_runs):
        seed = settings.seed + index
        folder = os.path.join(settings.output_dir, f"run_{index + 1}")
        logging.info("***** Run %d of %d, seed %d *****", index + 1, settings.num_runs, seed)
        keras.utils.clear_session()
        keras.utils.set_random_seed(seed)
        scores = run(dataclasses.replace(settings, output_dir=folder, seed=seed, num_runs=1))
        runs.append({"seed": seed, "folder": os.path.basename(folder), "scores": dict(scores)})
    summary = _summarize(runs, metric)
    text = json.dumps(summary, indent=2, ensure_ascii=False) + "\n"
    checkpoint.write_text(os.path.join(settings.output_dir, "runs.json"), text)
    return summary


def _summarize(runs: Sequence[Mapping[str, Any]], metric: str) -> dict[str, Any]:
    names = [name for name, value in runs[0]["scores"].items() if isinstance(value, int | float)]
    values = {name: [run["scores"][name] for run in runs] for name in names}
    mean = {name: statistics.fmean(each) for name, each in values.items()}
    deviation = {name: statistics.stdev(each) for name, each in values.items()}
    failed = [run["seed"] for run in runs if run["scores"][metric] <= run["scores"]["baseline"]]
    logging.info("***** %d runs: mean and standard deviation *****", len(runs))
    for name in names:
        each = ", ".join(f"{value:.4f}" for value in values[name])
        logging.info("  %s = %.4f ± %.4f  (%s)", name, mean[name], deviation[name], each)
    if failed:
        logging.warning(
            "%d of %d runs did not learn: %s is no better than guessing (%.4f) with the seeds %s. "
            "A smaller --learning_rate or more --num_train_epochs may help.",
            len(failed),
            len(runs),
            metric,
            mean["baseline"],
            failed,
        )
    return {
        "runs": list(runs),
        "metric": metric,
        "mean": mean,
        "standard_deviation": deviation,
        "failed": failed,
    }
