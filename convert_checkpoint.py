"""Converts a model between TF1 checkpoints, Hugging Face folders and Keras weights.

    python convert_checkpoint.py --input=uncased_L-12_H-768_A-12 --output=converted \
      --format=huggingface --do_lower_case

The result appears when it is whole and, unless --noverify is given, has been run beside the
original on the same input.
"""

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from bert.command_line import quiet_import  # isort: skip  # noqa: F401

import keras
import numpy as np
from absl import logging

import modeling
from bert.command_line import flags as common_flags
from bert.command_line.console import run_script
from bert.command_line.flags import REQUIRED, flag
from bert.files import huggingface as huggingface_files
from bert.files.paths import is_remote, make_folder, read_file
from bert.tasks.heads import choice_model, classifier_model, span_model, tagging_model
from bert.tasks.pretraining import heads as pretraining_heads
from bert.weights import checkpoint, huggingface
from bert.weights import folder as model_folder

KERAS_FILE = "bert_model.weights.h5"
FORMATS = {
    "tf": (checkpoint.WEIGHTS, ".ckpt"),
    "huggingface": (huggingface.WEIGHTS_FILE, ".safetensors"),
    "keras": (KERAS_FILE, ".weights.h5"),
}

# By the `kind` in `task.json`.
_KINDS = {
    "classification": "BertForSequenceClassification",
    "question_answering": "BertForQuestionAnswering",
    "tagging": "BertForTokenClassification",
    "multiple_choice": "BertForMultipleChoice",
}

# How far outputs of the same weights may be apart. They are computed by the same code.
TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The flags of this script, by name."""

    input: str = flag(
        REQUIRED,
        "What to convert: a TF1 checkpoint's prefix (.../bert_model.ckpt), .index file or folder, "
        "an --output_dir of this project, or a Hugging Face folder.",
    )
    output: str = flag(
        REQUIRED,
        "Folder to write, with configuration and vocabulary; or the weights' file alone: "
        ".../name.ckpt, .../name.safetensors or .../name.weights.h5.",
    )
    format: str = flag(
        REQUIRED,
        "tf: a TF1 checkpoint, which this project and the original read. huggingface: "
        "model.safetensors for transformers. keras: weights for Keras' load_weights.",
        choices=tuple(FORMATS),
    )
    architecture: str | None = flag(
        None,
        "What the model is, in the terms of transformers; absent, what its files say, or else by "
        "the heads that it has. What another head needs is left out.",
        choices=tuple(huggingface.ARCHITECTURES),
    )
    weights_only: bool = flag(False, "Leave out the optimizer's slots.")
    verify: bool = flag(True, "Run the original and the result on the same input, and compare.")
    bert_config_file: str | None = flag(None, f"The model's configuration{common_flags.BESIDE}.")
    vocab_file: str | None = flag(None, f"The model's vocabulary{common_flags.BESIDE}.")
    do_lower_case: bool | None = flag(
        None, "Whether the model is uncased; absent, what its folder says."
    )
    is_pair: bool = flag(
        False, "A Hugging Face classifier is one of pairs of texts, which no file says."
    )


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings)


@dataclasses.dataclass(frozen=True)
class Source:
    """What is converted.

    Attributes:
      stored: Its weights.
      config: The shape of the encoder.
      architecture: One of `huggingface.ARCHITECTURES`.
      vocabulary: The text of a `vocab.txt`, or None.
      do_lower_case: Whether the model is uncased, or None where nothing says.
      task: What `task.json` holds, or {}.
      labels: Names of the outputs, or None.
      problem_type: That of a Hugging Face configuration, or None.
    """

    stored: checkpoint.Stored
    config: modeling.BertConfig
    architecture: str
    vocabulary: bytes | None
    do_lower_case: bool | None
    task: Mapping[str, Any]
    labels: list[str] | None
    problem_type: str | None


def open_source(settings: Settings) -> Source:
    """Returns what the settings name.

    Raises:
      ValueError: where its parts are missing or do not fit.
    """
    weights = checkpoint.Stored.open(settings.input, "input")
    folder = weights.folder
    config_file = settings.bert_config_file or model_folder.find_file(
        folder, "bert_config_file", is_huggingface=weights.is_huggingface
    )
    config = modeling.BertConfig.from_json_file(config_file)
    weights.check_fit(config)
    task = _read_object(os.path.join(folder, checkpoint.TASK_FILE))
    stored = _read_object(os.path.join(folder, huggingface_files.CONFIG_FILE))
    casing = settings.do_lower_case
    if casing is not None:
        model_folder.check_casing(folder, casing)
    elif found := model_folder.read_casing(folder):
        casing = found[0]
    return Source(
        weights,
        config,
        _architecture(settings, weights.shapes, task, stored),
        _read_vocabulary(settings, folder),
        casing,
        task,
        task.get("task", {}).get("labels") or huggingface_files.labels(stored),
        stored.get("problem_type"),
    )


def _read_object(path: str) -> dict[str, Any]:
    return huggingface_files.read_json(path) if os.path.isfile(path) else {}


def _architecture(
    settings: Settings,
    shapes: Mapping[str, list[int]],
    task: Mapping[str, Any],
    stored: Mapping[str, Any],
) -> str:
    """Returns what the model is: as is given, as its files say, or by its heads."""
    named = (stored.get("architectures") or [None])[0]
    architecture = settings.architecture or _KINDS.get(task.get("kind", ""))
    if architecture is None and named in huggingface.ARCHITECTURES:
        architecture = named
    if architecture is None:
        architecture = huggingface.architecture_of(list(shapes))
        if "output_weights" in shapes:
            logging.warning(
                "Nothing says what the head `output_weights` is for, so it is taken for a "
                "classifier's; else give --architecture."
            )
    if missing := [n for n in huggingface.ARCHITECTURES[architecture] if n not in shapes]:
        raise ValueError(
            f"`--architecture` must be one whose head is there. {architecture} needs {missing}, "
            f"which {settings.input!r} lacks. By its heads, it is "
            f"{huggingface.architecture_of(list(shapes))}."
        )
    return architecture


def _read_vocabulary(settings: Settings, folder: str) -> bytes | None:
    path = settings.vocab_file
    if path is None:
        try:
            path = model_folder.find_file(folder, "vocab_file")
        except ValueError:
            logging.warning("There is no vocabulary in %s, and so none in the result.", folder)
            return None
    text = read_file(path)
    if huggingface_files.is_tokenizer(path):
        return huggingface_files.vocab_text(huggingface_files.read_vocab(text, path))
    return text


def make_model(architecture: str, config: modeling.BertConfig, num_labels: int = 2) -> keras.Model:
    """Returns a model with the variables of an architecture; Keras' load_weights fits it.

    Args:
      architecture: One of `huggingface.ARCHITECTURES`.
      config: The shape of the encoder.
      num_labels: Outputs of a classifier or tagger.
    """
    if architecture == "BertModel":
        inputs = modeling.encoder_inputs()
        encoded = modeling.BertModel(config)(inputs)
        names = ("sequence_output", "pooled_output")
        return keras.Model(inputs, {name: encoded[name] for name in names})
    makers: dict[str, Callable[[], keras.Model]] = {
        "BertForSequenceClassification": lambda: classifier_model(config, num_labels),
        "BertForTokenClassification": lambda: tagging_model(config, num_labels),
        "BertForQuestionAnswering": lambda: span_model(config),
        "BertForMultipleChoice": lambda: choice_model(config),
    }
    return makers.get(architecture, lambda: pretraining_heads.pretraining_model(config))()


def _make_model(source: Source) -> keras.Model:
    num_labels = source.stored.shapes.get("output_weights", [2])[0]
    return make_model(source.architecture, source.config, num_labels)


def _assign(model: keras.Model, stored: checkpoint.Stored) -> list[str]:
    """Sets the variables that are stored; returns the names of the others."""
    values = stored.read(v.path for v in model.weights if v.path in stored.shapes)
    for variable in model.weights:
        if variable.path in values:
            variable.assign(values[variable.path])
    return [v.path for v in model.weights if v.path not in values]


@dataclasses.dataclass(frozen=True)
class Report:
    """What became of the tensors.

    Attributes:
      found: Tensors in the source.
      converted: Those that the result has.
      left_out: Those that it has not, optimizer slots apart.
      num_slots: Optimizer slots that it has not.
      missing: Variables of the architecture that the source lacks.
      difference: Between outputs of the source and of the result, at most; None if not verified.
    """

    found: list[str]
    converted: list[str]
    left_out: list[str]
    num_slots: int
    missing: list[str]
    difference: float | None

    def log(self) -> None:
        """Logs what is worth knowing."""
        logging.info("Found %d tensors, converted %d.", len(self.found), len(self.converted))
        for name in self.left_out:
            logging.info("Left out: %s", name)
        if self.num_slots:
            logging.info("Left out: %d optimizer slots.", self.num_slots)
        for name in self.missing:
            logging.info("Missing in the input: %s", name)
        if self.difference is not None:
            logging.info(
                "Verified: on the same input, outputs differ by %.1e at most.", self.difference
            )


def run(settings: Settings) -> Report:
    """Converts as the settings say.

    Raises:
      ValueError: before anything is written, where the input cannot be converted or the output
        cannot be written.
      ArithmeticError: where the result does not compute what the original does.
    """
    folder, name = _split_output(settings)
    source = open_source(settings)
    logging.info("Converting %s, which is a %s.", source.stored.prefix, source.architecture)
    is_file = name is not None
    texts = {} if is_file else _texts(settings, source)
    name = name or FORMATS[settings.format][0]
    _check_free(folder, name, texts, settings.output)
    make_folder(folder)
    # Beside the output, so that files are moved in one step; a killed run leaves a .partial.
    with tempfile.TemporaryDirectory(prefix="convert.partial", dir=folder) as staging:
        path = os.path.join(staging, name)
        report = _write(settings, source, path)
        for text_name, text in texts.items():
            with open(os.path.join(staging, text_name), "wb") as file:
                file.write(text)
        # A checkpoint's index comes last: without it, there is no checkpoint.
        for each in sorted(os.listdir(staging), key=lambda n: (n.startswith(name), n[::-1])):
            shutil.move(os.path.join(staging, each), os.path.join(folder, each))
    report.log()
    logging.info("Wrote %s.", os.path.join(folder, name))
    return report


def _split_output(settings: Settings) -> tuple[str, str | None]:
    """Returns the folder to write to, and the name of the weights if only these are asked for."""
    if is_remote(settings.output):
        raise ValueError(f"`--output` must be a local path. Received {settings.output!r}.")
    _, ending = FORMATS[settings.format]
    if settings.output.endswith(ending):
        return os.path.dirname(settings.output) or ".", os.path.basename(settings.output)
    others = [each for _, each in FORMATS.values() if settings.output.endswith(each)]
    if others:
        raise ValueError(
            f"`--output` must be a folder or end in {ending!r} for `--format={settings.format}`. "
            f"Received {settings.output!r}."
        )
    return settings.output, None


def _check_free(folder: str, name: str, texts: Mapping[str, bytes], output: str) -> None:
    """Checks that nothing is replaced; texts that are the same already may be there."""
    taken = [n for n in (name, f"{name}.index") if os.path.lexists(os.path.join(folder, n))]
    for text_name, text in texts.items():
        path = os.path.join(folder, text_name)
        if os.path.lexists(path) and read_file(path) != text:
            taken.append(text_name)
    if taken:
        raise ValueError(
            f"`--output` must not hold other files of the names to write. {output!r} has {taken}; "
            "remove them, or give another folder."
        )


def _texts(settings: Settings, source: Source) -> dict[str, bytes]:
    """Returns the other files of the result by name."""
    texts: dict[str, Any] = {}
    if settings.format == "huggingface":
        values = huggingface_files.from_bert(source.config.to_dict(), source.architecture)
        if source.labels:
            values |= huggingface_files.label_keys(source.labels)
        elif "output_weights" in source.stored.shapes:
            count = source.stored.shapes["output_weights"][0]
            values |= huggingface_files.label_keys([f"LABEL_{n}" for n in range(count)])
        task_type = source.task.get("task", {}).get("task_type")
        if task_type in _PROBLEM_TYPES:
            values["problem_type"] = _PROBLEM_TYPES[task_type]
        texts[huggingface_files.CONFIG_FILE] = values
    if source.do_lower_case is not None:
        texts[huggingface_files.TOKENIZER_CONFIG_FILE] = huggingface_files.tokenizer_config(
            source.do_lower_case, source.config.max_position_embeddings
        )
    elif settings.format == "huggingface" and source.vocabulary:
        raise ValueError(
            "`--do_lower_case` must be given, as true or false, for nothing in the folder of "
            f"{source.stored.prefix!r} says whether the model is uncased."
        )
    if task := source.task or _new_task(source, settings.is_pair):
        texts[checkpoint.TASK_FILE] = task
    encoded = {
        name: (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()
        for name, values in texts.items()
    }
    if settings.format != "huggingface":
        encoded[checkpoint.CONFIG_FILE] = source.config.to_json_string().encode()
    if source.vocabulary is not None:
        encoded[checkpoint.VOCAB_FILE] = source.vocabulary
    return encoded


_PROBLEM_TYPES = {
    "classification": "single_label_classification",
    "multi_label": "multi_label_classification",
    "regression": "regression",
}


def _new_task(source: Source, is_pair: bool) -> dict[str, Any]:
    """Returns a `task.json` for a model that brings none, or {} where its files tell too little."""
    kind = {name: kind for kind, name in _KINDS.items()}.get(source.architecture)
    if kind is None or source.do_lower_case is None:
        return {}
    limit = source.config.max_position_embeddings
    common = {"kind": kind, "do_lower_case": source.do_lower_case}
    if kind == "question_answering":
        return {**common, **_QUESTIONS, "max_seq_length": min(limit, 384)}
    common |= {"max_seq_length": min(limit, 128)}
    if kind == "multiple_choice":
        return common
    if kind == "tagging":
        if not source.labels or {label[:2] for label in source.labels} - {"O", "B-", "I-"}:
            return {}
        task = {"labels": source.labels, "scheme": "iob2", "unit": "word"}
        return {**common, "task": task, "document_context": False}
    return {**common, "task": _new_classification(source, is_pair)}


# What run_squad.py takes where nothing is given.
_QUESTIONS = {
    "doc_stride": 128,
    "max_query_length": 64,
    "version_2_with_negative": False,
    "n_best_size": 20,
    "max_answer_length": 30,
    "null_score_diff_threshold": 0.0,
}


def _new_classification(source: Source, is_pair: bool) -> dict[str, Any]:
    count = source.stored.shapes["output_weights"][0]
    task_type = {value: key for key, value in _PROBLEM_TYPES.items()}.get(
        source.problem_type or "", "classification" if count > 1 else "regression"
    )
    labels = source.labels or [f"LABEL_{number}" for number in range(count)]
    return {
        "name": "custom",
        "task_type": task_type,
        "labels": [] if task_type == "regression" else labels,
        "is_pair": is_pair,
        "metric": "pearson" if task_type == "regression" else "accuracy",
    }


def _write(settings: Settings, source: Source, path: str) -> Report:
    """Writes the weights to `path`, verifies them, and returns what to report."""
    names = sorted(source.stored.shapes)
    slots = [name for name in names if checkpoint.is_slot(name)]
    model = _make_model(source)
    missing = _assign(model, source.stored)
    known, _ = huggingface.split(names)
    if settings.format == "tf":
        converted = [name for name in names if not (settings.weights_only and name in slots)]
    elif settings.format == "huggingface":
        converted = [name for name in names if name in known or name == checkpoint.GLOBAL_STEP]
    else:
        converted = [variable.path for variable in model.weights if variable.path in names]
    if settings.format == "keras":
        model.save_weights(path)
    else:
        _write_tensors(settings, source, path, source.stored.read(converted))
    left_out = sorted(set(names) - set(converted))
    difference = verify(source, model, missing, path) if settings.verify else None
    return Report(
        names,
        converted,
        [name for name in left_out if name not in slots],
        len(set(left_out) & set(slots)),
        missing,
        difference,
    )


def _write_tensors(
    settings: Settings, source: Source, path: str, tensors: Mapping[str, np.ndarray]
) -> None:
    if settings.format == "huggingface":
        with open(path, "wb") as file:
            huggingface.write(file, tensors, source.architecture)
        return
    # Readers of a run's checkpoints ask for a step.
    step = {checkpoint.GLOBAL_STEP: np.asarray(0, np.int64)}
    checkpoint.save_tensors(path, {**step, **tensors})


def verify(source: Source, model: keras.Model, missing: list[str], path: str) -> float:
    """Runs the model and what is read from `path` on the same input.

    Args:
      source: What was converted.
      model: With the weights of the source.
      missing: Its variables that the source lacks.
      path: The result.

    Returns:
      How far outputs are apart at most.

    Raises:
      ArithmeticError: where that is too far.
    """
    other = _make_model(source)
    if path.endswith(FORMATS["keras"][1]):
        other.load_weights(path)
    else:
        _assign(other, checkpoint.Stored(path, "output"))
    values = {variable.path: variable for variable in model.weights}
    for variable in other.weights:
        if variable.path in missing:
            variable.assign(values[variable.path])
    inputs = _random_inputs(source.config, model)
    one, two = (each(inputs, training=False) for each in (model, other))
    difference = max(float(np.abs(one[name] - two[name]).max()) for name in one)
    if not difference <= TOLERANCE:
        raise ArithmeticError(
            f"The result must compute what {source.stored.prefix!r} does. On the same input, "
            f"outputs differ by {difference}, and nothing is written."
        )
    return difference


def _random_inputs(config: modeling.BertConfig, model: keras.Model) -> dict[str, np.ndarray]:
    """Returns two rows of random ids, the second one with padding."""
    rng = np.random.RandomState(0)
    length = min(16, config.max_position_embeddings)
    mask = np.arange(length) < np.array([[length], [(length + 1) // 2]])
    inputs = {
        "input_ids": rng.randint(0, config.vocab_size, (2, length)),
        "input_mask": mask,
        "segment_ids": rng.randint(0, min(config.type_vocab_size, 2), (2, length)),
    }
    if "masked_lm_positions" in model.input:
        inputs["masked_lm_positions"] = np.array([[0], [length // 2 - 1]]).clip(0)
    inputs = {name: values.astype(np.int32) for name, values in inputs.items()}
    if len(model.input["input_ids"].shape) == 3:
        return {name: values[None] for name, values in inputs.items()}
    return inputs


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    run(common_flags.read_settings(Settings))


if __name__ == "__main__":
    define_flags()
    run_script(main)
