"""Converts models between TF1 checkpoints, Hugging Face folders and Keras weights."""

import dataclasses
import functools
import os
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from bert.export import huggingface, portable
from bert.export.formats import check_installed
from bert.files.durable import rename, sync, sync_tree
from bert.files.outputs import check_folder, make_folder
from bert.files.paths import find_file, is_remote, read_file, to_json
from bert.log import logger
from bert.models.fine_tuned import (
    check_no_overrides,
    find_architecture,
    labels_of,
    make_task,
    num_labels,
    override_answers,
)
from bert.models.keras_models import make_model, random_inputs
from bert.models.options import FORMATS, ConversionOutput, ConversionSource, Overrides
from bert.network.blank import blank_variables
from bert.options import Message, MessageError, Option, OptionError
from bert.weights import (
    checkpoint,
    huggingface_weights,
    model_card,
    saving,
    sentence_transformers,
    tokenizers,
)
from bert.weights.folder import ModelFolder
from bert.weights.model_files import (
    CONFIG_FILE,
    check_known_to_transformers,
    make_files,
    make_huggingface_config,
    read_task_type,
)
from bert.weights.provenance import find_untrained
from bert.weights.variables import GLOBAL_STEP, is_slot
from tokenization import FullTokenizer

# The library that reads the weights of a format.
_LIBRARIES = {
    "tf": "tensorflow",
    "huggingface": "transformers",
    "keras": "keras",
    "sentence_transformers": "sentence-transformers",
    "onnx": "onnx",
}
# Formats whose folders have a `config.json`, and those of them that this project does not ask.
_WITH_CONFIG = ("huggingface", "sentence_transformers", "onnx")
_FOR_OTHERS = _WITH_CONFIG[1:]
# How far outputs of the same weights may be apart. They are computed by the same code, but not in
# another runtime.
TOLERANCE, RUNTIME_TOLERANCE = 1e-6, 1e-4


@dataclasses.dataclass(frozen=True)
class Report:
    """The tensors of a conversion.

    Attributes:
      found: Tensors in the source.
      converted: Tensors in the result.
      missing: Variables of the architecture that the source lacks.
      difference: The largest difference between outputs of source and result; None if not verified.
    """

    found: list[str]
    converted: list[str]
    missing: list[str]
    difference: float | None

    @property
    def left_out(self) -> list[str]:
        """The tensors that the result lacks, optimizer slots apart."""
        lacking = [name for name in self.found if name not in self.converted]
        return [name for name in lacking if not is_slot(name)]

    @property
    def num_slots(self) -> int:
        """How many optimizer slots the result lacks."""
        return len(self.found) - len({*self.found} & {*self.converted}) - len(self.left_out)

    def log(self) -> None:
        """Logs the numbers of tensors, and the names of those that are left out."""
        logger.info("Found %d tensors, converted %d.", len(self.found), len(self.converted))
        for name in self.left_out:
            logger.info("Left out: %s", name)
        if self.num_slots:
            logger.info("Left out: %d optimizer slots.", self.num_slots)
        for name in self.missing:
            logger.info("Missing in the input: %s", name)
        if self.difference is not None:
            logger.info(
                "Verified: on the same input, outputs differ by %.1e at most.", self.difference
            )


@dataclasses.dataclass(frozen=True)
class Conversion:
    """A conversion whose source and output have been checked.

    Attributes:
      source: The folder of the model.
      architecture: One of `bert.weights.options.ARCHITECTURES`.
      output: The options of the output.
      folder: The folder to write to.
      name: The name of the weights there.
      files: The contents of the other files by name.
    """

    source: ModelFolder
    architecture: str
    output: ConversionOutput
    folder: str
    name: str
    files: Mapping[str, bytes]

    def write(self) -> Report:
        """Writes the result, which appears only when it is complete and verified.

        Raises:
          ArithmeticError: where the result does not compute what the source does.
        """
        logger.info("Converting %s, which is a %s.", self.source.stored.prefix, self.architecture)
        make_folder(self.folder, "output")
        # The folder is beside the output, so that files can be renamed; a killed run leaves it.
        with tempfile.TemporaryDirectory(prefix="convert.partial", dir=self.folder) as staging:
            report = self._write_weights(os.path.join(staging, self.name))
            for name, text in self.files.items():
                os.makedirs(os.path.dirname(os.path.join(staging, name)), exist_ok=True)
                with open(os.path.join(staging, name), "wb") as file:
                    file.write(text)
            sync_tree(staging)
            # A checkpoint's index comes last: without it, there is no checkpoint.
            names = [
                os.path.relpath(os.path.join(folder, name), staging)
                for folder, _, names in os.walk(staging)
                for name in names
            ]
            for name in sorted(names, key=lambda name: (name.startswith(self.name), name[::-1])):
                path = os.path.join(self.folder, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                rename(os.path.join(staging, name), path)
                for changed in dict.fromkeys((os.path.dirname(path), self.folder)):
                    sync(changed)
        report.log()
        logger.info("Wrote %s.", os.path.join(self.folder, self.name))
        return report

    def _write_weights(self, path: str) -> Report:
        stored = self.source.stored
        names = sorted(stored.shapes)
        untrained = find_untrained(stored.folder, names)
        trained = [name for name in names if name not in untrained]
        model, missing = _load(self.architecture, self.source, stored)
        is_read = self.output.format == "keras" or self.architecture in huggingface.READ_POOLER
        if missing and self.output.format in ("keras", "onnx") and is_read:
            heads = sorted({"/".join(name.split("/")[:2]) for name in missing})
            logger.warning(
                "%s lacks %s, which the output has with random numbers: what it computes with them "
                "means nothing. Convert a model that has them, or train the output first.",
                stored.prefix,
                ", ".join(heads),
            )
        if self.output.format == "onnx":
            idle = huggingface.UNREAD.get(self.architecture, "no variable")
            paths = [variable.path for variable in model.weights if variable.path in names]
            converted = [name for name in paths if not name.startswith(idle)]
            return Report(names, converted, missing, self._write_onnx(path, model))
        if self.output.format == "keras":
            converted = [variable.path for variable in model.weights if variable.path in names]
            model.save_weights(path)
        elif self.output.format in _WITH_CONFIG:
            known = huggingface_weights.find_known(trained)
            if self.output.format == "sentence_transformers":
                known = {name: known[name] for name in known if name.startswith("bert/")}
            converted = [name for name in trained if name in known or name == GLOBAL_STEP]
            with open(path, "wb") as file:
                huggingface_weights.write(file, stored.read(converted), self.architecture)
        else:
            is_left_out = is_slot if self.output.weights_only else lambda _: False
            converted = [name for name in trained if not is_left_out(name)]
            # Readers of a run's checkpoints need a step.
            step = {GLOBAL_STEP: np.asarray(0, np.int64)}
            saving.save_tensors(path, {**step, **stored.read(converted)})
        difference = None
        if self.output.verify:
            unread = [*missing, *untrained]
            difference = verify(self.source, self.architecture, model, unread, path)
        return Report(names, converted, missing, difference)

    def _write_onnx(self, path: str, model: keras.Model) -> float | None:
        """Writes the ONNX files; returns the difference of the first one's outputs if verified."""
        renamed = huggingface.rename(model, self.architecture)
        content = huggingface.convert(renamed)
        files = {path: content}
        if self.name == huggingface.MODEL_FILE:
            # A folder has the smaller file, too.
            other = path.removesuffix(huggingface.MODEL_FILE) + huggingface.QUANTIZED_FILE
            files[other] = portable.quantize(content)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        for name, text in files.items():
            with open(name, "wb") as file:
                file.write(text)
        if not self.output.verify:
            return None
        inputs = random_inputs(self.source.config, model)
        theirs = {name: inputs[ours].astype(np.int64) for name, ours in huggingface.INPUTS.items()}
        difference, *rounded = (
            _find_difference(renamed, portable.make_runtime(text, "onnx", name), theirs)
            for name, text in files.items()
        )
        for value in rounded:
            logger.info("With weights of 8 bits, outputs differ by %.1e at most.", value)
        _check_difference(difference, RUNTIME_TOLERANCE, self.source)
        return difference


def _find_difference(
    model: keras.Model,
    other: Callable[[Mapping[str, np.ndarray]], Mapping[str, Any]],
    inputs: Mapping[str, np.ndarray],
) -> float:
    """Returns how far outputs are apart at most; not a number where one of them is none."""
    # GPUs may round the factors of products, which other runtimes do not.
    with keras.device("cpu:0"):
        ours, others = model(inputs, training=False), other(inputs)
    # `max` of Python would pass over what is not a number, unless it came first.
    return float(np.max([np.abs(ours[name] - others[name]).max() for name in ours]))


def _check_difference(difference: float, tolerance: float, source: ModelFolder) -> None:
    if not difference <= tolerance:
        raise ArithmeticError(
            f"The result must compute what {source.stored.prefix!r} does. On the same input, "
            f"outputs differ by {difference}, and nothing is written."
        )


def _load(
    architecture: str, source: ModelFolder, stored: checkpoint.Stored
) -> tuple[keras.Model, list[str]]:
    """Returns a model with the values that are stored, and the names of its other variables."""
    with blank_variables() as blank:
        model = make_model(architecture, source.config, num_labels(source))
    found = [variable for variable in model.weights if variable.path in stored.shapes]
    stored.fill(found)
    blank.fill(but=found)
    return model, [v.path for v in model.weights if v.path not in stored.shapes]


def verify(
    source: ModelFolder, architecture: str, model: keras.Model, missing: list[str], path: str
) -> float:
    """Runs a model and its conversion on the same input; returns how far outputs are apart.

    Args:
      source: The folder of the model.
      architecture: The architecture of the model.
      model: The model with the weights of the source.
      missing: Variables of the model that the result lacks.
      path: The result.

    Raises:
      ArithmeticError: where outputs are too far apart.
    """
    other, _ = _load(architecture, source, checkpoint.Stored(path, "output"))
    values = {variable.path: variable for variable in model.weights}
    for variable in other.weights:
        if variable.path in missing:
            variable.assign(values[variable.path])
    inputs = random_inputs(source.config, model)
    difference = _find_difference(model, functools.partial(other, training=False), inputs)
    _check_difference(difference, TOLERANCE, source)
    return difference


def find_output(source: ConversionSource, form: str, folder: ModelFolder) -> str:
    """Returns the class of the model to write, one of `bert.weights.options.ARCHITECTURES`."""
    given = source.architecture
    if form == "sentence_transformers":
        if given not in (None, "BertModel"):
            raise OptionError("architecture", f"be BertModel for {form}", given)
        return find_architecture(folder, "BertModel")
    architecture = find_architecture(folder, given)
    # An ONNX model has one task.
    is_both = form == "onnx" and architecture == "BertForPreTraining"
    return "BertForMaskedLM" if is_both else architecture


def open_source(source: ConversionSource, form: str, *, fetches: bool = True) -> ModelFolder:
    """Returns the folder of the model to convert.

    Args:
      source: The options of the model.
      form: The format to convert to.
      fetches: Whether a model of the hub that is not in the local cache is fetched.

    Raises:
      ValueError: where its parts are missing or do not fit.
    """
    folder = ModelFolder.open(source.input, "input", fetches=fetches, **source.files)
    folder.stored.check_fit(folder.config)
    if form in _WITH_CONFIG:
        check_known_to_transformers(folder.config.to_dict())
    for name, layer in {"add_bilstm": "BiLSTM", "crf": "CRF"}.items():
        if form != "tf" and folder.task.get(name):
            raise OptionError(
                "format",
                f"be tf for a model with a {layer} on it, which transformers and the models of "
                "`make_model` have not",
                form,
                Message("%r was trained with %s.", source.input, Option(name, True)),
            )
    return folder


def split_output(output: ConversionOutput) -> tuple[str, str | None]:
    """Returns the folder to write to, and the name of the weights if only these are requested."""
    path, ending = output.output, FORMATS[output.format][1]
    if is_remote(path):
        raise OptionError("output", "be a local path", path)
    if path.endswith(ending):
        return os.path.dirname(path) or ".", os.path.basename(path)
    if any(path.endswith(other) for _, other in FORMATS.values()):
        form = Option("format", output.format)
        raise OptionError("output", Message("be a folder or end in %r for %s", ending, form), path)
    return path, None


def plan_conversion(
    source: ConversionSource, output: ConversionOutput, folder: ModelFolder, architecture: str
) -> Conversion:
    """Returns the conversion of the model in a folder; writes nothing.

    Raises:
      ValueError: where a file is missing, or the output would replace another file.
    """
    place, name = split_output(output)
    if output.format == "onnx":
        check_installed("onnx", Option("format", "onnx"))
    files = {} if name else _make_files(source, output, folder, architecture)
    name = name or FORMATS[output.format][0]
    _check_free(place, name, files, output.output)
    check_folder(place, "output")
    temperature = folder.task.get("temperature")
    if temperature and output.format in _WITH_CONFIG and architecture != "BertModel":
        text = (
            "Others do not know of the calibration: divide logits by %s for the same probabilities."
        )
        logger.warning(text, temperature)
    return Conversion(folder, architecture, output, place, name, files)


def convert(source: ConversionSource, output: ConversionOutput) -> Report:
    """Converts a model.

    Raises:
      ValueError: before anything is written, where the source cannot be converted or the output
        cannot be written.
      ArithmeticError: where the result does not compute what the source does.
    """
    split_output(output)
    folder = open_source(source, output.format)
    architecture = find_output(source, output.format, folder)
    return plan_conversion(source, output, folder, architecture).write()


def _check_free(folder: str, name: str, files: Mapping[str, bytes], output: str) -> None:
    """Checks that no file is replaced but by the same content."""
    names = [name, f"{name}.index"]
    if name == huggingface.MODEL_FILE:
        names.append(huggingface.QUANTIZED_FILE)
    taken = [n for n in names if os.path.lexists(os.path.join(folder, n))]
    for other, text in files.items():
        path = os.path.join(folder, other)
        if os.path.lexists(path) and read_file(path) != text:
            taken.append(other)
    if taken:
        remedy = f"{output!r} has {taken}; remove them, or give another folder."
        raise OptionError("output", "not hold other files of the names to write", remedy=remedy)


def _make_files(
    source: ConversionSource, output: ConversionOutput, folder: ModelFolder, architecture: str
) -> dict[str, bytes]:
    """Returns the contents of the files beside the weights by name."""
    tokenizer = _load_tokenizer(output, folder)
    vocabulary = folder.vocabulary if tokenizer else None
    options = tokenizers.options_of(tokenizer) if tokenizer else folder.tokenizer_options
    is_for_others = output.format in _FOR_OTHERS
    task = {} if is_for_others else _find_task(source, folder, architecture)
    casing = folder.do_lower_case
    files = make_files(folder.config, vocabulary, task or None, casing, options)
    if output.format == "sentence_transformers":
        if left_out := sentence_transformers.find_left_out(folder.path):
            must = "have no modules that are not copied for sentence-transformers"
            remedy = Message("For the encoder alone, give %s.", Option("format", "huggingface"))
            raise OptionError("input", must, left_out, remedy)
        config = folder.config
        sizes = (config.hidden_size, config.max_position_embeddings)
        files |= sentence_transformers.make_files(*sizes)
    if is_for_others and vocabulary:
        values = tokenizers.tokenizer_json(folder.load_tokenizer())
        files[tokenizers.TOKENIZER_FILE] = to_json(values)
    # The files of sentence-transformers are copied.
    for name in sentence_transformers.FILES:
        if path := find_file(folder.path, [name]):
            files[name] = read_file(path)
    if output.format in _WITH_CONFIG:
        del files[CONFIG_FILE]
        values = _huggingface_config(folder, architecture)
        files[tokenizers.HUGGINGFACE_CONFIG_FILE] = to_json(values)
    if not os.path.lexists(os.path.join(output.output, model_card.CARD_FILE)):
        # A card that is there already may be a user's.
        library = _LIBRARIES[output.format]
        card = model_card.make(folder.path, library=library, files=files, architecture=architecture)
        files[model_card.CARD_FILE] = card.encode()
    if output.format in _WITH_CONFIG and vocabulary and casing is None:
        raise OptionError(
            "do_lower_case",
            f"be given, as true or false, for nothing in the folder of {folder.stored.prefix!r} "
            "says whether the model is uncased",
        )
    return files


def _load_tokenizer(output: ConversionOutput, folder: ModelFolder) -> FullTokenizer | None:
    """Returns the tokenizer, whose vocabulary must be there unless the options do without."""
    if folder.find("vocab_file"):
        return folder.load_tokenizer(())
    if not output.without_vocabulary:
        raise OptionError(
            "vocab_file",
            f"be given, for there is neither 'vocab.txt' nor 'tokenizer.json' in {folder.path!r}; "
            "without a vocabulary, nobody can use the result for texts",
            remedy=Message("%s writes it all the same.", Option("without_vocabulary")),
        )
    return None


def _huggingface_config(folder: ModelFolder, architecture: str) -> dict[str, Any]:
    has_labels = folder.labels or "output_weights" in folder.stored.shapes
    task_type = folder.task.get("task", {}).get("task_type")
    if architecture == "BertForSequenceClassification":
        task_type = task_type or read_task_type(folder.huggingface_config)
    return make_huggingface_config(
        folder.config.to_dict(),
        architecture,
        labels=labels_of(folder) if has_labels and architecture != "BertModel" else None,
        task_type=task_type,
    )


def _find_task(source: ConversionSource, folder: ModelFolder, architecture: str) -> dict[str, Any]:
    """Returns the `task.json` of the result, or {} where the files do not describe the task."""
    answers = ("version_2_with_negative", "null_score_diff_threshold")
    given = {name: getattr(source, name) for name in ("is_pair", *answers)}
    overrides = Overrides(**given)
    if folder.task:
        check_no_overrides(folder, overrides, but=answers)
        return override_answers(folder, folder.task, overrides)
    can_predict = folder.do_lower_case is not None and folder.find("vocab_file")
    task = make_task(folder, architecture, overrides) if can_predict else {}
    if not task and overrides != Overrides():
        raise MessageError(
            "A model must be fine-tuned, with vocabulary and casing, for %s and the like to be "
            "saved. %r is a %s; give %s and %s where its files lack them, or leave out these "
            "options.",
            Option("is_pair"),
            folder.path,
            architecture,
            Option("vocab_file"),
            Option("do_lower_case"),
        )
    return task
