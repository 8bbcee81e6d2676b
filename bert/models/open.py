"""Opens any model: fine-tuned, pre-trained or exported, in a folder or by its name on the hub.

Only the modules that the kind of the model needs are loaded.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tokenization
from bert.export.formats import MODEL_FILES
from bert.files.paths import find_file, paths_from
from bert.files.stored_models import TASK_FILE
from bert.log import logger
from bert.models.answering import AnsweringModel
from bert.models.fine_tuned import (
    LoadedModel,
    check_no_overrides,
    find_architecture,
    open_fine_tuned,
    open_stored_task,
    read_task,
)
from bert.models.model import Model
from bert.models.options import (
    ENGINE_PRECISIONS,
    INT8,
    OVERRIDES,
    EngineModel,
    Overrides,
    check_absent,
    check_engine,
)
from bert.options import Message, Option, OptionError, typed_value
from bert.weights import readers, saved_models
from bert.weights.folder import ModelFolder
from bert.weights.options import AUTO, FINE_TUNED
from bert.weights.readers import weight_files

if TYPE_CHECKING:
    from bert.models.exported import ExportedModel
    from bert.models.pretrained import PretrainedModel

# The reason for messages why an export takes no options.
FIXED = "for an exported model, in whose graph it is fixed"


@dataclasses.dataclass(frozen=True)
class Export:
    """The folder of an exported model.

    Attributes:
      path: The folder.
      form: The format, one of `MODEL_FILES`.
    """

    path: str
    form: str = "saved_model"

    @property
    def files(self) -> list[str]:
        """The files of the export."""
        folders = (self.path, os.path.join(self.path, "variables"))
        return [path for folder in folders for path in paths_from(os.path.join(folder, ""))]


def load(  # noqa: PLR0913 (what a folder may not say)
    model: str | os.PathLike[str],
    *,
    batch_size: int = 32,
    precision: str = "float32",
    engine: str = "tensorflow",
    bert_config_file: str | os.PathLike[str] | None = None,
    vocab_file: str | os.PathLike[str] | None = None,
    do_lower_case: bool | None = None,
    architecture: str | None = None,
    task_name: str | None = None,
    labels: str | Sequence[str] | None = None,
    is_pair: bool | None = None,
    max_seq_length: int | None = None,
    version_2_with_negative: bool | None = None,
    null_score_diff_threshold: float | None = None,
) -> Model:
    """Returns a model in memory: fine-tuned, which predicts, or pre-trained, which fills masks.

    Args:
      model: The `--output_dir` of a script; a checkpoint of the original with its configuration and
        its vocabulary; a Hugging Face folder, or a file of weights that docs/weights.md lists; the
        name of a BERT on the hub, owner/model; or a folder that `--do_export` has written, for
        which no other option may be given.
      batch_size: Maximum sequences that go through the model together.
      precision: Name of a dtype policy: "float32", "mixed_bfloat16" or "mixed_float16"; or
        "bfloat16", which also stores the weights in that type: half the memory, and fastest where
        the hardware has instructions for it. With another engine "float32" or "int8".
      engine: What computes the answers of a fine-tuned model: "tensorflow"; "litert" or "onnx",
        faster on a CPU, for which the model is converted once, into a cache of the user; or "auto",
        the fastest that is installed and can compute them, by a measurement.
      bert_config_file: The model's configuration; by default the one in the folder.
      vocab_file: The model's vocabulary; by default the one in the folder.
      do_lower_case: Whether the model is uncased. By default as the folder says; a pre-trained
        model of which nothing says it is taken for uncased, but not against the name of a released
        model.
      architecture: The class in transformers of a fine-tuned model that has no `task.json`, as for
        the next three arguments.
      task_name: A task of GLUE, or XNLI, whose labels and number of texts the model has.
      labels: Names of the outputs in their order, in a sequence or separated by commas.
      is_pair: Whether a classifier takes two texts.
      max_seq_length: Maximum tokens of a sequence, including [CLS] and [SEP]; for a pre-trained
        model, of a text that is encoded.
      version_2_with_negative: Whether a question may have no answer, as in SQuAD 2.0; by default as
        the folder says.
      null_score_diff_threshold: By how much the absence of an answer must score higher than the
        best answer; by default as the folder says.

    Raises:
      ValueError: where files are missing, or do not fit each other or the options.
    """
    batch_size = typed_value("batch_size", batch_size, int, lower_bound=1)
    given = _make_options(
        model,
        "model",
        precision=precision,
        engine=engine,
        bert_config_file=bert_config_file,
        vocab_file=vocab_file,
        do_lower_case=do_lower_case,
        architecture=architecture,
        task_name=task_name,
        labels=labels,
        is_pair=is_pair,
        max_seq_length=max_seq_length,
        version_2_with_negative=version_2_with_negative,
        null_score_diff_threshold=null_score_diff_threshold,
    )
    return open_model(given, "model", batch_size)


def load_fine_tuned(
    model_dir: str | os.PathLike[str],
    *,
    batch_size: int = 32,
    precision: str = "float32",
    **overrides: Any,
) -> LoadedModel:
    """Returns a fine-tuned model, with the arguments of `load`; other models are refused."""
    if unknown := sorted(overrides.keys() - {*OVERRIDES}):
        raise TypeError(f"load_fine_tuned() got an unexpected keyword argument {unknown[0]!r}")
    batch_size = typed_value("batch_size", batch_size, int, lower_bound=1)
    given = _make_options(model_dir, "model_dir", precision=precision, **overrides)
    if export := find_export(given.model_dir):
        must, remedy = "be the folder of a training run", "`bert.load` opens exports."
        raise OptionError("model_dir", must, Message("%r, an export", export.path), remedy)
    folder = find_folder(given.model_dir, "model_dir", given)
    return open_fine_tuned(folder, given, batch_size=batch_size, precision=precision)


def _make_options(model: str | os.PathLike[str], option: str, **given: Any) -> EngineModel:
    return EngineModel(model_dir=typed_value(option, model, str), **given)


def find_export(path: str) -> Export | None:
    """Returns the export in a folder; None where there is none, or weights lie beside it.

    Weights are preferred, since reading them runs no graph. An ONNX model without a `task.json` is
    one of another program.
    """
    if weight_files(path) or saved_models.has_only_weights(path):
        return None
    for form, name in MODEL_FILES.items():
        if find_file(path, [name]) and (form == "saved_model" or find_file(path, [TASK_FILE])):
            return Export(path, form)
    return None


def open_model(
    given: EngineModel, option: str = "model_dir", batch_size: int = 32, *, dry: bool = False
) -> "AnsweringModel | ExportedModel | PretrainedModel":
    """Returns a model of any kind.

    Args:
      given: The model, and options in place of what its files say.
      option: The option that gave it, for messages.
      batch_size: Maximum sequences that go through the model together.
      dry: Whether this is a dry run: the graph of an exported model is not run, no model is
        converted for an engine, and no model of the hub is fetched.

    Raises:
      ValueError: as `load`.
    """
    found = _find(given, option, fetches=not dry)
    if isinstance(found, Export) or found.task:
        return open_answering(given, found, batch_size, option, runs=not dry)
    if find_architecture(found, given.architecture) not in FINE_TUNED.values():
        return _open_pretrained(found, given, batch_size)
    return open_answering(given, found, batch_size, option, runs=not dry)


def _find(given: EngineModel, option: str, *, fetches: bool) -> ModelFolder | Export:
    check_engine(given.engine, given.precision)
    if not (export := find_export(given.model_dir)):
        return find_folder(given.model_dir, option, given, fetches=fetches)
    given.check_absent(OVERRIDES, FIXED, export.path)
    precision = None if given.precision == "float32" else given.precision
    check_absent("precision", precision, FIXED, export.path)
    if given.engine == AUTO:
        logger.info("The engine is the one of the export, %s.", export.form)
    elif given.engine != "tensorflow":
        check_absent("engine", given.engine, FIXED, export.path)
    return export


def _open_pretrained(folder: ModelFolder, given: EngineModel, batch_size: int) -> "PretrainedModel":
    from bert.models.pretrained import PretrainedModel  # noqa: PLC0415

    if given.engine == AUTO:
        logger.info("The engine is tensorflow: the model is only pre-trained.")
    elif given.engine != "tensorflow":
        raise OptionError(
            "engine", "be tensorflow for a model that is only pre-trained", given.engine
        )
    if given.precision == INT8:
        must = "be another one for a model that is only pre-trained"
        raise OptionError("precision", must, given.precision)
    check_no_overrides(folder, given, but=("architecture", "max_seq_length"))
    if folder.do_lower_case is None:
        logger.warning(
            "Nothing in %s says whether the model is uncased: it is taken for uncased. For a cased "
            "one, give %s.",
            folder.path,
            Option("do_lower_case", False),
        )
        # Not against the name of a released model.
        tokenization.validate_case_matches_checkpoint(True, folder.stored.path)
    if vectors := folder.text_vectors:
        names = ("pooling", "normalize", "max_seq_length")
        vectors.log({} if vectors.unknown else vectors.fill(dict.fromkeys(names)))
        vectors.warn()
    model = PretrainedModel(folder, batch_size, given.precision, given.max_seq_length)
    model.text_vectors = folder.text_vectors
    return model


def find_answering(given: EngineModel, *, fetches: bool = True) -> ModelFolder | Export:
    """Returns the folder of a fine-tuned model or an export, without loading the model.

    With `fetches`, a model of the hub that is not in the local cache is fetched.

    Raises:
      ValueError: where files are missing, or the model is only pre-trained.
    """
    found = _find(given, "model_dir", fetches=fetches)
    if isinstance(found, ModelFolder):
        read_task(found, given)
    return found


def open_answering(
    given: EngineModel,
    folder: ModelFolder | Export,
    batch_size: int,
    option: str = "model_dir",
    *,
    runs: bool = True,
) -> "AnsweringModel | ExportedModel":
    """Returns the model in a folder that `find_answering` has found.

    Args:
      given: As for `find_answering`.
      folder: The folder.
      batch_size: Maximum sequences that go through the model together.
      option: The option that gave it, for messages.
      runs: Whether the graph of an exported model is run, and a model converted for an engine.
    """
    if isinstance(folder, Export):
        return _open_export(folder, option, batch_size, runs=runs)
    is_known = given.precision in ENGINE_PRECISIONS
    if given.engine == AUTO and not is_known:
        logger.info("The engine is tensorflow, which alone computes in %s.", given.precision)
    if given.engine == "tensorflow" or not is_known or not runs:
        dtype = "float32" if given.precision == INT8 else given.precision
        return open_fine_tuned(folder, given, batch_size=batch_size, precision=dtype)
    from bert.models.engines import open_with_engine  # noqa: PLC0415

    return open_with_engine(folder, given, batch_size)


def _open_export(
    export: Export, option: str, batch_size: int, *, runs: bool
) -> "AnsweringModel | ExportedModel":
    if export.form != "saved_model":
        from bert.export.portable import open_runtime  # noqa: PLC0415

        folder = ModelFolder(export.path, option)
        task = open_stored_task(folder, folder.task)
        runtime = open_runtime(export.path, export.form, Option(option, export.path))
        return AnsweringModel(task, runtime, batch_size)
    from bert.models.exported import ExportedModel  # noqa: PLC0415

    saved_models.check_encodes(export.path, option)
    return ExportedModel(export.path, batch_size, option, runs=runs)


def find_folder(
    model: str, option: str, overrides: Overrides, *, fetches: bool = True
) -> ModelFolder:
    """Returns the folder of a model: of a training run, or any other folder with weights.

    Args:
      model: As for `load`.
      option: The option that gave it, for messages.
      overrides: Options in place of what the folder says.
      fetches: Whether a model of the hub that is not in the local cache is fetched.

    Raises:
      ValueError: where there are no weights.
    """
    folder = ModelFolder(model, option, **overrides.files)
    if folder.task and (folder.find_weights() or not readers.find(model, option)):
        return folder
    return ModelFolder.open(model, option, fetches=fetches, **overrides.files)
