"""The story of every fine-tuning script: read, make inputs, train, evaluate, predict, export.

The folder `--output_dir` holds all that a later prediction needs: `task.json`, `vocab.txt`,
`bert_config.json` and the weights, `bert_model.ckpt`. While training, it also holds checkpoints to
resume from; `best/` keeps the weights of the best evaluation.
"""

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import keras
import tensorflow as tf
from absl import logging

import modeling
import optimization
import tokenization
from bert.command_line import flags as common_flags
from bert.files import huggingface as huggingface_files
from bert.files.paths import (
    check_saved_model,
    make_folder,
    read_file,
    replace_files,
    write_text,
)
from bert.training import loop, repeats
from bert.training.batches import Batches
from bert.training.evaluation import EarlyStopping, Predictor
from bert.training.task import ExampleFile, Inputs, Part, Task
from bert.weights import checkpoint
from bert.weights import folder as model_folder

# What a run leaves in its folder, for --overwrite_output_dir: nothing else is deleted.
_OWN_FILES = re.compile(
    r"(model|bert_model)\.ckpt.*|checkpoint|events\.out\.tfevents.*|.*\.tf_record|eval|best"
    r"|(train|eval)\.windows\.npz|nbest_predictions\.json|null_odds\.json"
    r"|saved_model|submission|run_\d+|runs\.json|evaluations\.jsonl|task\.json|vocab\.txt"
    r"|bert_config\.json|eval_results.*|test_results.*|predictions.*|.*\.features\.npy"
)

Settings = common_flags.FineTuningSettings
SettingsType = TypeVar("SettingsType", bound=Settings)
OpenTask = Callable[[SettingsType, modeling.BertConfig, tokenization.FullTokenizer], Task]

# How the files of a split's examples are called.
_FILE_NAMES = {"train": "train", "dev": "eval", "test": "predict"}


def run(settings: SettingsType, open_task: OpenTask[SettingsType]) -> dict[str, Any]:
    """Trains, evaluates, predicts and exports as the settings say.

    Args:
      settings: Those of the script.
      open_task: Returns the task, checked against the configuration and the tokenizer of the model.

    Returns:
      The scores of the dev set, and those of the test set, if it has any, as `test_f1` and so on;
      with several runs, what `repeats.repeat` gives; empty without evaluation.

    Raises:
      ValueError: before the expensive part, where settings, files and model do not fit.
    """
    _check_verbs(settings)
    settings = model_folder.complete(settings)
    if settings.num_runs == 1:
        _, scores = _run(settings, open_task)
        return scores
    return repeats.repeat(settings, lambda each: _run(each, open_task))


def _check_verbs(settings: Settings) -> None:
    """Checks that something is to be done, and that what goes by scores has some."""
    verbs = ("do_train", "do_eval", "do_predict", "do_export")
    *first, last = (verb for verb in verbs if hasattr(settings, verb))
    if not any(getattr(settings, verb) for verb in (*first, last)):
        raise ValueError(
            f"At least one of {', '.join(f'`--{verb}`' for verb in first)} and `--{last}` must be "
            "given."
        )
    scoring = "do_eval" if "do_eval" in first else "do_predict"
    for flag, is_set in (
        ("early_stopping_patience", settings.early_stopping_patience),
        ("num_runs", settings.num_runs > 1),
    ):
        if is_set and not (settings.do_train and getattr(settings, scoring)):
            raise ValueError(f"`--{flag}` needs `--do_train` and `--{scoring}`.")


def _run(settings: SettingsType, open_task: OpenTask[SettingsType]) -> tuple[str, dict[str, Any]]:
    """Runs once; returns the task's metric and the scores."""
    strategy, config, tokenizer = set_up(settings)
    task = open_task(settings, config, tokenizer)
    splits = [split for split, is_wanted in settings.splits().items() if is_wanted]
    examples = task.read(splits)
    stored = task.stored()
    fixed = task.fixed(is_training=settings.do_train)
    open_folder(settings, config, {key: stored[key] for key in fixed})
    is_chief = loop.is_chief(strategy)
    with record_folder(settings, is_chief) as folder, strategy.scope():
        # What is wrong with any part is said before a file is written.
        made = [task.make_inputs(part, each) for part, each in examples.items()]
        model = task.make_model(settings.precision)
        inputs = [
            task.open_inputs(each, _example_file(settings, each.part, folder, is_chief))
            for each in made
        ]
        if is_chief and settings.do_train:
            keep_task(settings, config, stored)
        loop.log_set_up(model, strategy, settings)
        return task.metric, _use_model(settings, task, model, inputs, is_chief)


def _example_file(settings: Settings, part: Part, folder: str, is_chief: bool) -> ExampleFile:
    name = f"{_FILE_NAMES[part.split]}{part.suffix}.tf_record"
    return ExampleFile(
        os.path.join(folder, name),
        settings.batch_size(part.split),
        settings.seed if part.split == "train" else None,
        trim=not settings.pad_to_max_length,
        is_kept=is_chief,
    )


def _use_model(
    settings: Settings,
    task: Task,
    model: keras.Model,
    inputs: Sequence[Inputs],
    is_chief: bool,
) -> dict[str, Any]:
    """Does with the model what is asked for; returns the scores."""
    asked = [each for each in inputs if each.part.split != "train"]
    predictions = _Predictions(task, model)
    if settings.do_train:
        step = _train(settings, task, model, inputs, predictions)
    else:
        step = load(settings, model)
    results: dict[str, Any] = {}
    for each in asked:
        predicted, scores = predictions(each, step)
        if is_chief:
            task.write(settings.output_dir, step, each, predicted, scores)
        results |= _named(each.part, scores)
    if settings.do_export and is_chief:
        task.export(saved_model(settings), task.whole_model(model))
    return results


def _named(part: Part, scores: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a part's scores under the names that they have among those of all parts."""
    if part.suffix:
        return {}
    if part.split == "dev":
        return scores
    return {
        f"{part.split}_{name}": value
        for name, value in scores.items()
        if isinstance(value, float) and name != "baseline"
    }


class _Predictions:
    """Predictions of a model as it is, and their scores.

    Those of weights of the same step are found once: at the end of a training, the last evaluation
    may have found them already.
    """

    def __init__(self, task: Task, model: keras.Model) -> None:
        self._task = task
        self._model = model
        self._predictors: dict[str, Predictor] = {}
        self._found: dict[Part, tuple[int, Any, dict[str, Any]]] = {}

    def __call__(self, inputs: Inputs, step: int) -> tuple[Any, dict[str, Any]]:
        """Returns predictions and scores with the weights of a step."""
        found = self._found.get(inputs.part)
        if found is None or found[0] != step:
            predictions = self._task.decode(inputs, self._outputs(inputs))
            found = (step, predictions, self._task.score(inputs, predictions))
            self._found[inputs.part] = found
        return found[1:]

    def _outputs(self, inputs: Inputs) -> Iterator[Any]:
        if inputs.batches is None:
            return iter(())
        signature = inputs.batches.signature
        # Parts whose batches have the same signature share the function, which is built once.
        key = repr(sorted(signature.items()))
        if key not in self._predictors:
            self._predictors[key] = Predictor(self._model, signature)
        return self._predictors[key].predict(inputs.batches)


def _train(
    settings: Settings,
    task: Task,
    model: keras.Model,
    inputs: Sequence[Inputs],
    predictions: _Predictions,
) -> int:
    """Trains the model; returns the step of its weights."""
    main = {each.part.split: each for each in inputs if not each.part.suffix}
    evaluation = None
    if settings.evaluates_in_training():

        def evaluate() -> dict[str, Any]:
            assert evaluation is not None
            return predictions(main["dev"], evaluation.step)[1]

        evaluation = EarlyStopping(evaluate, task.metric, settings.early_stopping_patience)
    batches = main["train"].batches
    assert batches is not None
    return train(
        settings,
        model,
        task.objective(main["train"]),
        batches,
        evaluation,
        main["train"].num_examples,
    )


def set_up(
    settings: Settings,
) -> tuple[tf.distribute.Strategy, modeling.BertConfig, tokenization.FullTokenizer]:
    """Returns what every script begins with, checked: devices, configuration and tokenizer.

    Raises:
      ValueError: naming the flag.
    """
    strategy = loop.make_strategy(
        "tpu" if settings.use_tpu else settings.strategy, settings.tpu_name
    )
    config = modeling.BertConfig.from_json_file(settings.bert_config_file)
    tokenizer = tokenization.FullTokenizer(settings.vocab_file, settings.do_lower_case)
    check_settings(settings, config, tokenizer.vocab, strategy.num_replicas_in_sync)
    return strategy, config, tokenizer


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
    model_folder.check_vocabulary(vocab, settings.vocab_file, config.vocab_size, ["[CLS]", "[SEP]"])
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
    make_folder(folder)
    if settings.overwrite_output_dir and settings.do_train:
        clear_folder(folder)
    model_folder.check_config(folder, config)
    stored = (
        read_task(folder) if tf.io.gfile.exists(os.path.join(folder, checkpoint.TASK_FILE)) else {}
    )
    # A trained model may serve other lengths, but training cannot go on with another.
    ignored = set() if settings.do_train else {"max_seq_length"}
    differences = [
        f"`{key}` is {stored[key]!r} there and {value!r} now"
        for key, value in _plain(task).items()
        if key in stored and stored[key] != value and key not in ignored
    ]
    if stored and read_file(os.path.join(folder, checkpoint.VOCAB_FILE)) != _read_vocabulary(
        settings
    ):
        differences.append(f"its {checkpoint.VOCAB_FILE} differs from `--vocab_file`")
    if differences:
        raise ValueError(
            f"`--output_dir` must belong to the same task. In {folder!r}, "
            f"{'; '.join(differences)}. Give another `--output_dir`, or "
            "`--do_train --overwrite_output_dir` to delete what is there."
        )
    labels = task.get("task", {}).get("labels")
    if labels and settings.init_checkpoint and not settings.do_train and not find_weights(folder):
        model_folder.check_labels(settings.init_checkpoint, labels)
    if settings.do_export:
        check_saved_model(saved_model(settings))


def saved_model(settings: Settings) -> str:
    """Returns the folder of what --do_export writes."""
    return os.path.join(settings.output_dir, "saved_model")


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values as JSON gives them back, lists for tuples."""
    return json.loads(json.dumps(values))


def _read_vocabulary(settings: Settings) -> bytes:
    text = read_file(settings.vocab_file)
    if not huggingface_files.is_tokenizer(settings.vocab_file):
        return text
    return huggingface_files.vocab_text(huggingface_files.read_vocab(text, settings.vocab_file))


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
    model_folder.keep_config(folder, config)
    with replace_files([os.path.join(folder, checkpoint.VOCAB_FILE)]) as (file,):
        file.write(_read_vocabulary(settings))
    text = json.dumps(task, indent=2, ensure_ascii=False) + "\n"
    write_text(os.path.join(folder, checkpoint.TASK_FILE), text)


def read_task(folder: str, *, flag: str = "output_dir") -> dict[str, Any]:
    """Returns what `keep_task` stored.

    Raises:
      ValueError: where it is absent or damaged.
    """
    path = os.path.join(folder, checkpoint.TASK_FILE)
    if not tf.io.gfile.exists(path):
        raise ValueError(
            f"`--{flag}` must be the `--output_dir` of a fine-tuning script. {folder!r} has no "
            f"{checkpoint.TASK_FILE}. Fine-tune first, with `--do_train`; convert_checkpoint.py "
            "makes such a folder of a fine-tuned Hugging Face model; fill_mask.py and "
            "extract_features.py ask models that are only pre-trained."
        )
    try:
        return dict(json.loads(read_file(path)))
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


def train(
    settings: Settings,
    model: keras.Model,
    objective: loop.Objective,
    batches: Batches,
    evaluation: EarlyStopping | None = None,
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
    writes = loop.is_chief(trainer.strategy)
    checkpoints = checkpoint.Checkpoints(settings.output_dir, settings.keep_checkpoint_max)
    step = loop.initialize(model, trainer.state(), checkpoints, settings.init_checkpoint)
    if step > num_train_steps:
        raise ValueError(
            f"`--num_train_epochs` must reach step {step}, where {settings.output_dir!r} is. It "
            f"gives {num_train_steps} steps; give more epochs or `--overwrite_output_dir`."
        )
    observers: list[loop.Observer] = []
    if writes:
        observers.append(
            loop.ProgressLog(
                settings.output_dir,
                first_step=step,
                num_train_steps=num_train_steps,
                batch_size=settings.train_batch_size,
                every=settings.log_every_steps,
            )
        )
    if evaluation:
        evaluation.open(settings.output_dir, model, step, writes=writes)
        observers.append(evaluation.at_steps(settings.save_checkpoints_steps, num_train_steps))
    if evaluation and evaluation.is_over:
        logging.warning("Nothing to train: early stopping ended it at step %d.", step)
    else:
        _log_plan(settings, len(batches.records), num_train_steps)
        if writes and step < num_train_steps:
            # They are of an earlier training: a prediction must not take them for this one's.
            checkpoint.remove(os.path.join(settings.output_dir, checkpoint.WEIGHTS))
        loop.train(
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
    objective: loop.Objective,
    batches: Batches,
    num_train_steps: int,
) -> loop.Trainer:
    """Returns a trainer with the optimizer that the settings ask for."""
    optimizer = optimization.bert_optimizer(
        settings.learning_rate,
        num_train_steps,
        int(num_train_steps * settings.warmup_proportion),
    )
    if settings.layerwise_lr_decay != 1.0:
        optimizer.learning_rate_scales = learning_rate_scales(model, settings.layerwise_lr_decay)
    return loop.Trainer(
        model,
        optimizer,
        objective,
        seed=settings.seed,
        num_micro_batches=settings.gradient_accumulation_steps,
        loss_scale=loop.LossScale() if settings.precision == "mixed_float16" else None,
        signature=batches.signature,
    )


def _keep_weights(
    settings: Settings, model: keras.Model, step: int, evaluation: EarlyStopping | None
) -> int:
    """Writes the weights-only checkpoint, after going back to the best if that is asked for."""
    weights = {variable.path: variable for variable in model.weights}
    if settings.early_stopping_patience and evaluation and evaluation.best_weights:
        folder = checkpoint.Checkpoints(settings.output_dir)
        step = folder.restore(weights, evaluation.best_weights)
        logging.info("The weights are those of step %d, the best.", step)
    if loop.is_chief(tf.distribute.get_strategy()):
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
