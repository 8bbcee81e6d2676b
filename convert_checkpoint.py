r"""Converts a model between TF1 checkpoints, Hugging Face folders and Keras weights.

    python convert_checkpoint.py --input=uncased_L-12_H-768_A-12 --output=converted \
      --format=huggingface --do_lower_case

The result appears only when it is complete and, unless --noverify is given, has been run and
compared with the original on the same input.
"""

import dataclasses
import os
import tempfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from bert.commands import flags as common_flags
from bert.commands.checks import FAILED, Checks, start
from bert.commands.console import run_script
from bert.commands.lines import show_lines
from bert.commands.settings import CheckSettings
from bert.files import huggingface as huggingface_files
from bert.files import sentence_transformers
from bert.files.durable import rename, sync, sync_tree
from bert.files.outputs import check_folder, make_folder
from bert.files.paths import find_file, is_remote, read_file
from bert.files.process import import_tensorflow
from bert.files.weight_names import KERAS_ENDING, KERAS_FILE, SAFETENSORS_FILE, WEIGHTS
from bert.models.options import NoAnswer
from bert.options import REQUIRED, option
from bert.weights.options import BESIDE, CHECKPOINT_FORMS

if TYPE_CHECKING:
    import keras

    import modeling
    from bert.weights import checkpoint
    from bert.weights.folder import ModelFolder

FORMATS = {
    "tf": (WEIGHTS, ".ckpt"),
    "huggingface": (SAFETENSORS_FILE, ".safetensors"),
    "keras": (KERAS_FILE, KERAS_ENDING),
}

# What reads the weights of a format.
_LIBRARIES = {"tf": "tensorflow", "huggingface": "transformers", "keras": "keras"}

# How far outputs of the same weights may be apart. They are computed by the same code.
TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(CheckSettings, NoAnswer):
    """The flags of this script, by name."""

    input: str = option(
        REQUIRED,
        f"Model to convert: an --output_dir of this project; a checkpoint: {CHECKPOINT_FORMS}; or "
        "a .weights.h5 that Keras has saved of a model of make_model, or its folder.",
        group="model",
    )
    output: str = option(
        REQUIRED,
        "Folder to write, with configuration and vocabulary; or only the file of weights: "
        ".../name.ckpt, .../name.safetensors or .../name.weights.h5.",
        group="output",
    )
    format: str = option(
        REQUIRED,
        "tf: a TF1 checkpoint, for this project and the original. huggingface: model.safetensors, "
        "for transformers. keras: weights for Keras' load_weights.",
        choices=tuple(FORMATS),
        group="output",
    )
    architecture: str | None = option(
        None,
        "Class of the model in transformers. Default: as its files say, or else by its heads. "
        "With --format=keras, weights that only another class needs are left out.",
        choices=tuple(huggingface_files.ARCHITECTURES),
        group="model",
    )
    weights_only: bool = option(
        False, "Leave out the optimizer's variables (slots).", group="output"
    )
    verify: bool = option(
        True,
        "Run the original and the result on the same input, and compare the outputs.",
        group="output",
    )
    bert_config_file: str | None = option(
        None, f"The model's configuration, bert_config.json.{BESIDE}", group="model"
    )
    vocab_file: str | None = option(
        None, f"WordPiece vocabulary, one entry per line.{BESIDE}", group="model"
    )
    do_lower_case: bool | None = option(
        None, "Whether the model is uncased. Default: as the model's folder says.", group="model"
    )
    without_vocabulary: bool = option(
        False,
        "Write a folder without a vocabulary, for a model whose vocabulary is not available.",
        group="output",
    )
    is_pair: bool | None = option(
        None,
        "The Hugging Face classifier takes pairs of texts, which none of its files says.",
        group="model",
    )


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings)


def open_folder(settings: Settings) -> "ModelFolder":
    """Returns what is to be converted.

    Raises:
      ValueError: where its parts are missing or do not fit.
    """
    from bert.weights import keras_weights
    from bert.weights.folder import ModelFolder

    given: dict[str, Any] = {
        "bert_config_file": settings.bert_config_file,
        "vocab_file": settings.vocab_file,
        "do_lower_case": settings.do_lower_case,
    }
    if file := keras_weights.find(settings.input):
        folder = keras_weights.open_folder(file, make_model, settings.architecture, **given)
    else:
        folder = ModelFolder.open(settings.input, "input", fetches=not settings.check, **given)
    folder.stored.check_fit(folder.config)
    if settings.format == "huggingface":
        huggingface_files.check_known(folder.config.to_dict())
    if settings.format != "tf" and folder.task.get("add_bilstm"):
        raise ValueError(
            "`--format` must be tf for a model with a BiLSTM on it, which transformers and the "
            f"models of `make_model` have not. Received {settings.format!r}; {settings.input!r} "
            "was trained with --add_bilstm."
        )
    return folder


def make_model(
    architecture: str, config: "modeling.BertConfig", num_labels: int = 2
) -> "keras.Model":
    """Returns a model with the variables of an architecture; Keras' load_weights fits it.

    Args:
      architecture: One of `bert.files.huggingface.ARCHITECTURES`.
      config: The shape of the encoder.
      num_labels: Outputs of a classifier or tagger.
    """
    import_tensorflow()
    import keras

    import modeling
    from bert.network.heads import choice_model, classifier_model, span_model, tagging_model
    from bert.pretraining.heads import pretraining_model

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
    return makers.get(architecture, lambda: pretraining_model(config))()


def _assign(model: "keras.Model", stored: "checkpoint.Stored") -> list[str]:
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
      missing: Variables of the architecture that the source lacks.
      difference: Between outputs of the source and of the result, at most; None if not verified.
    """

    found: list[str]
    converted: list[str]
    missing: list[str]
    difference: float | None

    @property
    def left_out(self) -> list[str]:
        """Those that the result has not, optimizer slots apart."""
        from bert.weights.checkpoint import is_slot

        return [n for n in self.found if n not in self.converted and not is_slot(n)]

    @property
    def num_slots(self) -> int:
        """How many optimizer slots the result has not."""
        from bert.weights.checkpoint import is_slot

        return sum(n not in self.converted and is_slot(n) for n in self.found)

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
    import_tensorflow()
    from bert.models.kinds import find_architecture

    show_lines()
    _split_output(settings)
    source = open_folder(settings)
    architecture = find_architecture(source, settings.architecture)
    logging.info("Converting %s, which is a %s.", source.stored.prefix, architecture)
    folder, name, texts = _check_output(settings, source, architecture)
    make_folder(folder)
    # Beside the output, so that files are moved in one step; a killed run leaves a .partial.
    with tempfile.TemporaryDirectory(prefix="convert.partial", dir=folder) as staging:
        path = os.path.join(staging, name)
        report = _write(settings, source, architecture, path)
        for text_name, text in texts.items():
            os.makedirs(os.path.dirname(os.path.join(staging, text_name)), exist_ok=True)
            with open(os.path.join(staging, text_name), "wb") as file:
                file.write(text)
        sync_tree(staging)
        # A checkpoint's index comes last: without it, there is no checkpoint.
        written = [os.path.relpath(each, staging) for each in _files_in(staging)]
        for each in sorted(written, key=lambda n: (n.startswith(name), n[::-1])):
            path = os.path.join(folder, each)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            rename(os.path.join(staging, each), path)
            for changed in dict.fromkeys((os.path.dirname(path), folder)):
                sync(changed)
    report.log()
    logging.info("Wrote %s.", os.path.join(folder, name))
    return report


def _files_in(folder: str) -> list[str]:
    return [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names]


def check(settings: Settings, checks: Checks) -> None:
    """Checks what `run` needs."""
    import_tensorflow()
    from bert.models.kinds import find_architecture

    place = checks("output", _split_output, settings, tells=lambda place: place[0])
    source = checks("input", open_folder, settings, tells=lambda each: each.stored.prefix)
    given = settings.architecture
    architecture = checks("architecture", find_architecture, source, given, tells=str)
    arguments = (settings, source, architecture)
    if place is not FAILED:
        checks(
            "files to write", _check_output, *arguments, tells=lambda made: ", ".join(_names(made))
        )


def _names(made: tuple[str, str, Mapping[str, bytes]]) -> list[str]:
    _, name, texts = made
    return [name, *texts]


def _check_output(
    settings: Settings, source: "ModelFolder", architecture: str
) -> tuple[str, str, dict[str, bytes]]:
    """Returns the folder to write to, the name of the weights, and the other files by name."""
    folder, name = _split_output(settings)
    texts = {} if name else _texts(settings, source, architecture)
    name = name or FORMATS[settings.format][0]
    _check_free(folder, name, texts, settings.output)
    check_folder(folder)
    return folder, name, texts


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


def _texts(settings: Settings, source: "ModelFolder", architecture: str) -> dict[str, bytes]:
    """Returns the other files of the result by name."""
    from bert.weights import model_card
    from bert.weights.model_files import CONFIG_FILE, make_files

    vocabulary = _find_vocabulary(settings, source)
    task = _find_task(settings, source, architecture)
    casing, options = source.do_lower_case, _tokenizer_options(source)
    texts = make_files(source.config, vocabulary, task or None, casing, options)
    # How vectors of texts are made stays as it is.
    for each in sentence_transformers.FILES:
        if path := find_file(source.path, [each]):
            texts[each] = read_file(path)
    if settings.format == "huggingface":
        del texts[CONFIG_FILE]
        values = _huggingface_config(source, architecture)
        texts[huggingface_files.CONFIG_FILE] = huggingface_files.json_text(values)
    if not os.path.lexists(os.path.join(settings.output, model_card.CARD_FILE)):
        # What is there already may be anybody's.
        card = model_card.make(source.path, library=_LIBRARIES[settings.format], files=texts)
        texts[model_card.CARD_FILE] = card.encode()
    if settings.format == "huggingface" and vocabulary and casing is None:
        raise ValueError(
            "`--do_lower_case` must be given, as true or false, for nothing in the folder of "
            f"{source.stored.prefix!r} says whether the model is uncased."
        )
    return texts


def _find_vocabulary(settings: Settings, source: "ModelFolder") -> bytes | None:
    """Returns the text of `vocab.txt`, which must be there unless none is asked for."""
    if source.find("vocab_file"):
        source.load_tokenizer(())
        return source.vocabulary
    if not settings.without_vocabulary:
        raise ValueError(
            "`--vocab_file` must be given, for there is neither 'vocab.txt' nor 'tokenizer.json' "
            f"in {source.path!r}; without a vocabulary, nobody can use the result for texts. "
            "`--without_vocabulary` writes it all the same."
        )
    return None


def _tokenizer_options(source: "ModelFolder") -> dict[str, Any]:
    """Returns how the tokenizer differs from the original's, with the ids of added tokens."""
    from bert.weights import tokenizers

    if not source.find("vocab_file"):
        return source.tokenizer_options
    casing = source.do_lower_case is not False
    return tokenizers.options_of(
        tokenizers.make(source.vocab_file, casing, source.tokenizer_options)
    )


def _huggingface_config(source: "ModelFolder", architecture: str) -> dict[str, Any]:
    from bert.models.kinds import labels_of

    has_labels = source.labels or "output_weights" in source.stored.shapes
    return huggingface_files.from_bert(
        source.config.to_dict(),
        architecture,
        labels=labels_of(source) if has_labels else None,
        task_type=source.task.get("task", {}).get("task_type"),
    )


def _find_task(settings: Settings, source: "ModelFolder", architecture: str) -> dict[str, Any]:
    """Returns the `task.json` of the result, or {} where the files tell too little."""
    from bert.models.kinds import check_no_overrides, make_task, override_answers
    from bert.models.options import Overrides

    overrides = Overrides(
        is_pair=settings.is_pair,
        version_2_with_negative=settings.version_2_with_negative,
        null_score_diff_threshold=settings.null_score_diff_threshold,
    )
    if source.task:
        check_no_overrides(
            source, overrides, but=("version_2_with_negative", "null_score_diff_threshold")
        )
        return override_answers(source, source.task, overrides)
    can_ask = source.do_lower_case is not None and source.find("vocab_file")
    task = make_task(source, architecture, overrides) if can_ask else {}
    if not task and overrides != Overrides():
        raise ValueError(
            "A model must be fine-tuned, with vocabulary and casing, for `--is_pair` and the like "
            f"to be kept. {source.path!r} is a {architecture}; give `--vocab_file` and "
            "`--do_lower_case` where its files lack them, or leave out what is told."
        )
    return task


def _write(settings: Settings, source: "ModelFolder", architecture: str, path: str) -> Report:
    """Writes the weights to `path`, verifies them, and returns what to report."""
    from bert.models.kinds import num_labels
    from bert.pretraining.goals import find_untrained
    from bert.weights import checkpoint, huggingface

    names = sorted(source.stored.shapes)
    untrained = find_untrained(source.stored.folder, names)
    kept = [name for name in names if name not in untrained]
    model = make_model(architecture, source.config, num_labels(source))
    missing = _assign(model, source.stored)
    if settings.format == "keras":
        converted = [variable.path for variable in model.weights if variable.path in names]
        model.save_weights(path)
    elif settings.format == "huggingface":
        known, _ = huggingface.split(kept)
        converted = [name for name in kept if name in known or name == checkpoint.GLOBAL_STEP]
        with open(path, "wb") as file:
            huggingface.write(file, source.stored.read(converted), architecture)
    else:
        converted = [n for n in kept if not (settings.weights_only and checkpoint.is_slot(n))]
        # Readers of a run's checkpoints ask for a step.
        step = {checkpoint.GLOBAL_STEP: np.asarray(0, np.int64)}
        checkpoint.save_tensors(path, {**step, **source.stored.read(converted)})
    unread = [*missing, *untrained]
    difference = verify(source, architecture, model, unread, path) if settings.verify else None
    return Report(names, converted, missing, difference)


def verify(
    source: "ModelFolder", architecture: str, model: "keras.Model", missing: list[str], path: str
) -> float:
    """Runs the model and what is read from `path` on the same input.

    Args:
      source: What was converted.
      architecture: What it is.
      model: With the weights of the source.
      missing: Its variables that the result lacks.
      path: The result.

    Returns:
      How far outputs are apart at most.

    Raises:
      ArithmeticError: where that is too far.
    """
    from bert.models.kinds import num_labels
    from bert.weights import checkpoint
    from bert.weights.comparison import find_difference

    other = make_model(architecture, source.config, num_labels(source))
    if path.endswith(FORMATS["keras"][1]):
        other.load_weights(path)
    else:
        _assign(other, checkpoint.Stored(path, "output"))
    values = {variable.path: variable for variable in model.weights}
    for variable in other.weights:
        if variable.path in missing:
            variable.assign(values[variable.path])
    difference = find_difference(model, other, source.config)
    if not difference <= TOLERANCE:
        raise ArithmeticError(
            f"The result must compute what {source.stored.prefix!r} does. On the same input, "
            f"outputs differ by {difference}, and nothing is written."
        )
    return difference


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


if __name__ == "__main__":
    define_flags()
    run_script(main)
