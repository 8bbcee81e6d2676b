"""The story of every fine-tuning script: read, make inputs, train, evaluate, predict, export.

The folder `--output_dir` holds all that a later prediction needs: `task.json`, `vocab.txt`,
`bert_config.json` and the weights, `bert_model.ckpt`. While training, it also holds checkpoints to
resume from; `best/` keeps the weights of the best evaluation.
"""

import contextlib
import functools
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import keras
import tensorflow as tf

import modeling
import tokenization
from bert.commands.lines import show_lines
from bert.commands.settings import FineTuningSettings
from bert.export.formats import check_exports, read_exports
from bert.files import fingerprints, owned
from bert.files.outputs import check_folder, check_saved_model, make_folder
from bert.options import changed_options, read_grid, shaping_options
from bert.reports.parts import report_part
from bert.reports.sections import Section
from bert.runs import exports, fit, identity, tuning
from bert.runs.hints import tell_whether_learned
from bert.runs.recipes import in_order
from bert.runs.report import title_of, write_report
from bert.runs.resumption import Training, check_apart, find_weights, plan_training
from bert.runs.shown import show_examples
from bert.runs.training import log_set_up, open_strategy
from bert.tasks.task import Arrays, ExampleFile, Inputs, Part, Task
from bert.training import strategies
from bert.training.evaluation import EarlyStopping, Predictor
from bert.training.seeds import seeded
from bert.weights import checkpoint, model_card, tokenizers
from bert.weights.checkpoint import describe_weights
from bert.weights.folder import ModelFolder
from bert.weights.model_files import MODEL_FILES, TOKENIZER, make_files

Settings = FineTuningSettings
SettingsType = TypeVar("SettingsType", bound=Settings)
OpenTask = Callable[[SettingsType, modeling.BertConfig, tokenization.FullTokenizer], Task]

# How the files of a split's examples are called.
_FILE_NAMES = {"train": "train", "dev": "eval", "test": "predict"}


def run(settings: SettingsType, open_task: OpenTask[SettingsType]) -> dict[str, Any]:
    """Trains, evaluates, predicts and exports once, as the settings say.

    Args:
      settings: Those of the script, of each flag one value.
      open_task: Returns the task, checked against the configuration and the tokenizer of the model.

    Returns:
      The scores of the dev set, and those of the test set, if it has any, as `test_f1` and so on;
      empty without evaluation.

    Raises:
      ValueError: before the expensive part, where settings, files and model do not fit.
    """
    show_lines()
    check_verbs(settings)
    # Of several workers, one that cannot go on is missed by the others from here on.
    open_strategy(settings)
    source = ModelFolder.of(settings, settings, settings.output_dir)
    if settings.do_train:
        # As the plan will, but that of each of several runs knows its own folder alone.
        check_apart(settings.output_dir, read_paths(settings))
    _, scores, exported = run_once(settings, source, open_task)
    exports.check_refused(exported)
    return scores


def check_verbs(settings: Settings) -> None:
    """Checks that something is to be done, and that what goes by scores has some."""
    verbs = ("do_train", "do_eval", "do_predict", "do_export")
    *first, last = (verb for verb in verbs if hasattr(settings, verb))
    if not any(getattr(settings, verb) for verb in (*first, last)):
        raise ValueError(
            f"At least one of {', '.join(f'`--{verb}`' for verb in first)} and `--{last}` must be "
            "given."
        )
    check_exports(settings)
    scoring = "do_eval" if "do_eval" in first else "do_predict"
    if settings.do_train and getattr(settings, scoring):
        return
    by_score = {
        "early_stopping_patience": settings.early_stopping_patience,
        "num_runs": settings.num_runs > 1,
        **read_grid(settings),
    }
    if wrong := [flag for flag, is_set in by_score.items() if is_set]:
        several = (
            "" if wrong[0] in ("early_stopping_patience", "num_runs") else " of several values"
        )
        raise ValueError(f"`--{wrong[0]}`{several} needs `--do_train` and `--{scoring}`.")


@seeded
def run_once(
    settings: SettingsType,
    source: ModelFolder,
    open_task: OpenTask[SettingsType],
    ready: Callable[[Task, Sequence[Inputs]], None] | None = None,
    first: Sequence[Section] = (),
) -> tuple[str, dict[str, Any], Sequence[exports.Parity]]:
    """Runs, from the model in a folder; returns the task's metric, the scores and the exports.

    Args:
      settings: As for `run`.
      source: The folder of the model to begin with.
      open_task: As for `run`.
      ready: Called when all is checked, before anything is deleted or written.
      first: What the page of the run shows before what it shows of the model.
    """
    strategy = open_strategy(settings)
    fit.check_settings(settings, source, strategy.num_replicas_in_sync)
    task = open_task(settings, source.config, source.load_tokenizer())
    examples = task.read(wanted_splits(settings))
    # Where there is no --init_checkpoint, the source may be the folder that is filled.
    kept = (source.config, source.vocabulary)
    filled = open_folder(settings, source, fixed(settings, task))
    is_chief = strategies.is_chief(strategy)
    with record_folder(settings, is_chief) as folder:
        with strategy.scope():
            # What is wrong with any part is said before a file is deleted or written.
            made = [task.make_inputs(part, each) for part, each in examples.items()]
            plan = plan_of(settings, source, made) if settings.do_train else None
            strategies.agree(strategy, _made_of(settings, source, made, plan))
            # Variables are made with the others.
            with strategies.together(strategy):
                model = task.make_model(settings.precision)
            if ready:
                ready(task, made)
            if _overwrites(settings) and is_chief:
                owned.clear(filled.path, but=MODEL_FILES)
            inputs = [
                task.open_inputs(each, _example_file(settings, each.part, folder, is_chief))
                for each in made
            ]
            if is_chief and settings.do_train:
                filled.save(*kept, stored_task(task))
            for part in made[:1]:
                show_examples(task, part)
            log_set_up(model, settings, changed_options(settings))
            step, results, sections = _use_model(settings, source, task, model, inputs, plan)
        if is_chief:
            shown = in_order(vars(settings)) if settings.do_train else {}
            title = title_of(task.kind, getattr(settings, "data_dir", None))
            page = functools.partial(write_report, settings.output_dir, shown, title, step, results)
            told = [*first, *sections]
            # What only predicts a test set does not replace the page of an evaluation.
            is_told = plan or any(each.part.split == "dev" for each in made)
            if is_told:
                page(told, task.metric)
            _write_card(settings, task, inputs, is_trained=plan is not None)
            # What is exported is for one device, whatever the model was trained on.
            exported = _export(settings, task, model, made, kept) if settings.do_export else []
            if is_told and (sections := exports.make_sections(exported)):
                page([*told, *sections], task.metric)
            return task.metric, results, exported
        return task.metric, results, ()


def _export(
    settings: Settings,
    task: Task,
    model: keras.Model,
    made: Sequence[Inputs],
    kept: tuple[modeling.BertConfig, bytes],
) -> list[exports.Parity]:
    """Writes what is asked for, compared on the dev set if there is one."""
    dev = next((each for each in made if each.part == Part("dev")), None)
    return exports.run(settings, task, model, dev, make_files(*kept, stored_task(task)))


def wanted_splits(settings: Settings) -> list[str]:
    """Returns the parts of the data that are asked for."""
    return [split for split, is_wanted in settings.splits().items() if is_wanted]


def fixed(settings: Settings, task: Task) -> dict[str, Any]:
    """Returns what of `task.json` may not change from one run in a folder to the next."""
    stored = stored_task(task)
    keys = (*task.fixed(is_training=settings.do_train), TOKENIZER)
    return {key: stored[key] for key in keys}


def stored_task(task: Task) -> dict[str, Any]:
    """Returns what `task.json` keeps."""
    return {**task.stored(), TOKENIZER: tokenizers.options_of(task.tokenizer)}


def plan_of(settings: Settings, source: ModelFolder, made: Sequence[Inputs]) -> Training:
    """Returns the training that is asked for, checked against the one in the folder."""
    arrays = {each.part.split: each.arrays for each in made if not each.part.suffix}
    # What the best weights are depends on what they are tried on.
    names = ("train", "dev") if settings.early_stopping_patience else ("train",)
    data: dict[str, Any] = {f"the {name} set": _describe(arrays[name]) for name in names}
    for flag, path in settings.other_models().items():
        other = ModelFolder.open(path, flag).stored if path else None
        data[f"--{flag}"] = describe_weights(other)
    num_examples = count_examples(made)
    steps = tuning.count_steps(settings, num_examples)
    tuning.warn_of_patience(settings, steps, num_examples)
    return plan_steps(settings, source, steps, data)


def plan_steps(
    settings: Settings, source: ModelFolder, steps: int, data: Mapping[str, Any]
) -> Training:
    """Returns the training run of so many steps, checked against the one in the folder."""
    init = source.stored if settings.init_checkpoint else None
    made_of = identity.of_training(shaping_options(settings), init, data)
    return plan_training(settings, steps, init, made_of, read_paths(settings))


def read_paths(settings: Settings) -> dict[str, str | None]:
    """Returns by option what is read besides the model's files."""
    names = ("init_checkpoint", "teacher", "train_file", "dev_file", "test_file", "predict_file")
    return {name: getattr(settings, name, None) for name in (*names, "unlabeled_file")}


def _made_of(
    settings: Settings, source: ModelFolder, made: Sequence[Inputs], plan: Training | None
) -> dict[str, Any]:
    """Returns by name what all workers must have alike, where there are several."""
    if settings.strategy != "multi_worker":
        return {}
    # Of another training, files may be listed that were deleted.
    begins_anew = plan is not None and plan.begins_anew
    trained = None if begins_anew else checkpoint.find_trained(settings.output_dir)
    data = {f"the {_part_name(each)}": _describe(each.arrays) for each in made}
    return {
        "the configuration": source.config.to_dict(),
        "the vocabulary": fingerprints.of_bytes(source.vocabulary),
        "the weights in --output_dir": os.path.basename(trained or ""),
        **(plan.made_of if plan else {}),
        **data,
    }


def _part_name(inputs: Inputs) -> str:
    return f"{inputs.part.split} set{inputs.part.suffix}"


def count_examples(made: Sequence[Inputs]) -> int:
    """Returns how many examples there are to train on."""
    [train] = (each for each in made if each.part.split == "train")
    return train.num_examples or len(next(iter(train.arrays.values())))


def _describe(arrays: Arrays) -> dict[str, Any]:
    num_records = len(next(iter(arrays.values())))
    return {"records": f"{num_records} records", "sha256": fingerprints.of_arrays(arrays)}


def _example_file(settings: Settings, part: Part, folder: str, is_chief: bool) -> ExampleFile:
    name = f"{_FILE_NAMES[part.split]}{part.suffix}.tf_record"
    return ExampleFile(
        owned.claim(folder, name),
        settings.batch_size(part.split),
        settings.seed if part.split == "train" else None,
        trim=not settings.pad_to_max_length,
        is_kept=is_chief,
    )


def _use_model(
    settings: Settings,
    source: ModelFolder,
    task: Task,
    model: keras.Model,
    inputs: Sequence[Inputs],
    plan: Training | None,
) -> tuple[int, dict[str, Any], list[Section]]:
    """Trains or loads the model, and predicts.

    Returns:
      The step of the weights, the scores, and what the page of the run shows of them.
    """
    is_chief = strategies.is_chief(tf.distribute.get_strategy())
    asked = [each for each in inputs if each.part.split != "train"]
    predictions = _Predictions(task, model)
    if plan and not plan.has_ended:
        step = _train(settings, plan, task, inputs, predictions)
    else:
        step = tuning.load(settings, source, model)
    results: dict[str, Any] = {}
    sections: list[Section] = []
    for each in asked:
        predicted, scores = predictions(each, step)
        results |= _named(each.part, scores)
        if not is_chief:
            continue
        task.write(settings.output_dir, step, each, predicted, scores)
        sections += report_part(task, settings.output_dir, each, predicted, scores)
        if plan and each.part == Part("dev"):
            tell_whether_learned(settings, task, step, scores, source.config.hidden_size)
    return step, results, sections


def _write_card(
    settings: Settings, task: Task, inputs: Sequence[Inputs], *, is_trained: bool
) -> None:
    if is_trained:
        counts = {f"{each.part.split}{each.part.suffix}": len(each.examples) for each in inputs}
        init = getattr(settings, "word_vectors", None) or settings.init_checkpoint
        changed = in_order(changed_options(settings))
        model_card.record(
            settings.output_dir, changed, init, kind=task.kind, counts=counts, metric=task.metric
        )
    model_card.update(settings.output_dir)


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
        self.model = model
        self._task = task
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
            self._predictors[key] = Predictor(self.model, signature)
        predictor = self._predictors[key]
        share = strategies.share_of(tf.distribute.get_strategy())
        return predictor.predict_with_others(inputs.batches, share)


def _train(
    settings: Settings,
    plan: Training,
    task: Task,
    inputs: Sequence[Inputs],
    predictions: _Predictions,
) -> int:
    """Trains the model that predicts; returns the step of its weights."""
    main = {each.part.split: each for each in inputs if not each.part.suffix}
    evaluation = None
    if settings.evaluates_in_training():
        evaluation = EarlyStopping(
            lambda step: predictions(main["dev"], step)[1],
            task.metric,
            settings.early_stopping_patience,
        )
    batches = main["train"].batches
    assert batches is not None
    return tuning.train(
        settings, plan, predictions.model, task.objective(main["train"]), batches, evaluation
    )


def open_folder(settings: Settings, source: ModelFolder, task: Mapping[str, Any]) -> ModelFolder:
    """Makes `--output_dir`, or checks that what is to stay there belongs to the same task.

    Args:
      settings: Those of the script.
      source: The folder of the model to begin with.
      task: What of `task.json` may not change.

    Raises:
      ValueError: where it cannot be written, or belongs to another task, naming the difference.
    """
    folder = check_output(settings)
    make_folder(folder.path)
    check_same(settings, source, task)
    return folder


def check_output(settings: Settings) -> ModelFolder:
    """Checks that the output folder can be filled by any model and task; writes nothing."""
    folder = ModelFolder(settings.output_dir)
    check_folder(folder.path)
    if settings.do_train:
        folder.check_fillable(overwrites=_overwrites(settings))
    for export in read_exports(settings) if settings.do_export else ():
        check_saved_model(os.path.join(settings.output_dir, export.name), export.file)
    return folder


def check_same(settings: Settings, source: ModelFolder, task: Mapping[str, Any]) -> None:
    """Does the part of `open_folder` that is about the task."""
    folder = ModelFolder(settings.output_dir)
    if not _overwrites(settings):
        folder.check_same(source.config, source.vocabulary, task)
    if settings.do_train or not settings.init_checkpoint:
        return
    labels = task.get("task", {}).get("labels")
    if not find_weights(settings, source.stored) and labels:
        source.check_labels(labels)


def _overwrites(settings: Settings) -> bool:
    return settings.overwrite_output_dir and settings.do_train


@contextlib.contextmanager
def record_folder(settings: Settings, is_chief: bool) -> Iterator[str]:
    """Gives the folder for the files of examples; workers that are not the chief keep theirs.

    Raises:
      ValueError: where another process trains in `--output_dir`.
    """
    if is_chief and settings.do_train:
        with owned.lock(settings.output_dir):
            yield settings.output_dir
        return
    if is_chief:
        yield settings.output_dir
        return
    with tempfile.TemporaryDirectory(prefix="bert-examples-") as folder:
        yield folder
