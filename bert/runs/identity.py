"""The identity of a training run, and whether it resumes the one in its output folder.

A run resumes that one if both have the same identity: the options that shape the model, the data
and the initial weights. Workers compare their options before they read any data, and the rest
afterwards. `run.json` records the identity, and the environment beside it.
"""

import contextlib
import dataclasses
import functools
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from bert.files import fingerprints, owned
from bert.files.paths import file_size, is_file, list_folder, match_files
from bert.files.stored_models import WEIGHTS, step_of
from bert.log import logger
from bert.options import Message, Option, OptionError, joined
from bert.runs.order import in_order
from bert.training.options import Output
from bert.weights import checkpoint, provenance, saving
from bert.weights.checkpoint import Stored
from bert.weights.folder import ModelFolder
from bert.weights.options import ModelSource
from bert.weights.readers import weight_files
from modeling import BertConfig

_ROOT = Path(__file__).parents[2]
# Flags whose value is a path.
_PATH = re.compile("_(checkpoint|dir|file|handle)$|^--(teacher|word_vectors)$")
# The names of files of data sets.
_DATA = re.compile(r"(?i).*(train|dev|val|test).*\.(tsv|csv|txt|json|jsonl|parquet)(\.gz)?")
_FOLDER = Option("output_dir")
# The name of the folder of one of several runs.
_RUN = re.compile(r"([^/]+-)?run_\d+")


def of_training(
    shaping: Mapping[str, Any], init: Stored | None, data: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the identity of a training run: by name, the values that shape the model.

    Args:
      shaping: The options that shape the model.
      init: The initial weights.
      data: By option, or by another name, descriptions of the data, with `sha256`.
    """
    values = {**in_order(shaping), "init_checkpoint": init and init.describe(), **data}
    # In `run.json`, options have the names of flags.
    return {f"--{name}" if name.isidentifier() else name: value for name, value in values.items()}


def read_source_task(model: ModelSource, output_dir: str) -> dict[str, Any]:
    """Returns the `task.json` of the model to evaluate, or {}.

    Its folder is `output_dir`, or where nothing was trained there, that of `init_checkpoint`.
    """
    task = ModelFolder(output_dir).task
    return task or ModelFolder.named_by(model, output_dir=output_dir).task


def read_resumed_task(output_dir: str) -> dict[str, Any]:
    """Returns the `task.json` of the folder in which a training run resumes, or {}.

    One of several runs without a `task.json` yet takes that of another run beside it.
    """
    task = ModelFolder(output_dir).task
    folder, name = os.path.split(output_dir.rstrip("/"))
    if task or not _RUN.fullmatch(name):
        return task
    names = [os.path.split(path) for path in owned.read_names(folder)]
    others = [run for run, last in names if last == owned.LIST_FILE and _RUN.fullmatch(run)]
    tasks = (ModelFolder(os.path.join(folder, run)).task for run in others)
    return next(filter(None, tasks), {})


def read_option(folder: str, name: str) -> Any:
    """Returns the value of an option in the identity of the training run in a folder, or None."""
    return _find_option(provenance.read(folder).get("made_of", {}), name)


def _find_option(made_of: Mapping[str, Any], name: str) -> Any:
    return made_of.get(f"--{name}")


def describe(options: Mapping[str, Any], strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """Returns the environment of a training run: options, versions, devices and data files.

    The values are fit for JSON and never compared. They contain no times, so that a repeated run
    records the same.
    """
    gpus = tf.config.list_physical_devices("GPU")
    names = [tf.config.experimental.get_device_details(gpu).get("device_name") for gpu in gpus]
    return {
        "flags": flags_of(options),
        "data": dict(_data_files(options)),
        "versions": _versions(),
        "commit": _commit(),
        "devices": {
            "used": strategy.num_replicas_in_sync,
            "gpus": [str(name) for name in names],
            "cpu_cores": os.cpu_count(),
        },
        "precision": options["precision"],
    }


def flags_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a run by flag."""
    return {f"--{name}": value for name, value in without_folders(options).items()}


def without_folders(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a run but for its own folders, which may be moved or removed."""
    return {
        name: value
        for name, value in in_order(options).items()
        if name != "output_dir" and not owned.is_of_model_folder(value)
    }


def _versions() -> dict[str, str]:
    return {
        # The package itself is above the layers that import each other.
        "bert": sys.modules["bert"].__version__,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "python": platform.python_version(),
    }


def shared_by_workers(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns by name what workers must have in common before they read anything.

    Paths may differ between machines. The content of files is compared when they have been read.
    """
    flags = {name: value for name, value in flags_of(options).items() if not _PATH.search(name)}
    versions = {f"the version of {name}": value for name, value in _versions().items()}
    return {**flags, **versions, "the code": _digest_code()}


def shared_after_reading(
    config: BertConfig,
    vocabulary: bytes,
    training: "Training | None",
    output_dir: str,
) -> dict[str, Any]:
    """Returns by name what workers must have in common once a plan has read its files.

    Args:
      config: The shape of the model.
      vocabulary: The content of its vocabulary.
      training: The training run, if there is one.
      output_dir: The output folder.
    """
    # A folder that starts over may list files of another training run that were deleted.
    starts_over = training is not None and training.starts_over
    weights = None if starts_over else checkpoint.find_trained(output_dir)
    return {
        "the configuration": config.to_dict(),
        "the vocabulary": fingerprints.of_bytes(vocabulary),
        "the weights in the output folder": os.path.basename(weights or ""),
        **(training.made_of if training else {}),
    }


@functools.cache
def _digest_code() -> str:
    """Returns a digest of the project's modules."""
    paths = [*_ROOT.glob("*.py"), *(_ROOT / "bert").rglob("*.py")]
    if not (_ROOT / "pyproject.toml").is_file():
        # The folder of installed packages holds other projects, too.
        paths = [path for path in paths if "bert" in path.relative_to(_ROOT).parts]
    return fingerprints.of_files([str(path) for path in sorted(paths)])[:12]


def _data_files(options: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yields the paths of data files as the user gave them, with their sizes."""
    for name, value in in_order(options).items():
        paths: list[str] = []
        if value and name == "data_dir":
            # The folder of a task of GLUE may be in it.
            task = (options.get("task_name") or "/").lower()
            inner = [each for each in list_folder(value) if each.lower().startswith(task)]
            folders = [os.path.join(value, each) for each in ("", *inner)]
            files = [os.path.join(each, file) for each in folders for file in list_folder(each)]
            paths = [path for path in files if _DATA.fullmatch(os.path.basename(path))]
        elif value and name.endswith("_file") and name not in ("vocab_file", "bert_config_file"):
            # A file that is not used by this run may be gone.
            with contextlib.suppress(ValueError):
                paths = match_files(value, name)
        yield from ((path, file_size(path)) for path in paths if is_file(path))


@functools.cache
def _commit() -> str | None:
    """Returns the commit that is checked out, None where the project is no checkout."""
    if not (_ROOT / ".git").exists():
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            command, cwd=_ROOT, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()
    return None


@dataclasses.dataclass(frozen=True)
class Training:
    """A training run in an output folder.

    Attributes:
      num_train_steps: The last step; None where a clock ends the run.
      made_of: The identity of the run: by name, the values that shape the model.
      init: The weights to start from; None for random ones.
      starts_over: Whether checkpoints in the folder are of another training run.
      has_ended: Whether nothing is left to train: the folder has the final weights of this run and
        no checkpoint any more.
      changes: How the run to resume differs from the one in the folder.
    """

    num_train_steps: int | None
    made_of: Mapping[str, Any]
    init: Stored | None
    starts_over: bool = False
    has_ended: bool = False
    changes: Sequence[str] = ()

    @property
    def last_step(self) -> int:
        """The last step of a run that counts steps."""
        assert self.num_train_steps is not None
        return self.num_train_steps

    def describe(self) -> str:
        """Returns the number of steps."""
        steps = self.num_train_steps
        return "as many as there is time for" if steps is None else f"{steps:,} in all"

    def record(self, folder: str, environment: Mapping[str, Any]) -> None:
        """Records the training run and its environment in `run.json`."""
        if self.starts_over:
            # If this run is killed before its first checkpoint, it must not resume another's.
            saving.Checkpoints(folder).remove(0)
        provenance.begin(
            folder,
            self.made_of,
            self.num_train_steps,
            environment,
            begins_anew=self.starts_over,
        )


def check_apart(output_dir: str, paths: Mapping[str, str | None]) -> None:
    """Checks that a training run reads none of the files that it deletes or replaces.

    Args:
      output_dir: The folder of the run.
      paths: By option, the path that is read.

    Raises:
      OptionError: naming the option.
    """
    for name, path in paths.items():
        if path and owned.is_own(output_dir, path):
            raise OptionError(
                name,
                Message("not be of the run in %s, which replaces its files", _FOLDER),
                path,
                Message(
                    "To resume that run, give the path that it started with, or none; to start "
                    "another run from this path, give another %s.",
                    _FOLDER,
                ),
            )


def plan_training(
    output: Output,
    num_train_steps: int | None,
    init: Stored | None,
    made_of: Mapping[str, Any],
    paths: Mapping[str, str | None],
) -> Training:
    """Returns a training run, checked against the one in the output folder, if there is one.

    Args:
      output: The folder, and whether its files are deleted or may be of another run.
      num_train_steps: The last step; None where a clock ends the run.
      init: The weights to start from, or None.
      made_of: The identity of the run, as `identity.of_training` returns it.
      paths: By option, other files that are read.

    Raises:
      ValueError: naming the difference where the run in the folder is another one.
    """
    if output.overwrite_output_dir and output.resume_with_changes:
        must = Message("not be given with %s", Option("resume_with_changes"))
        remedy = Message("Leave one out: it deletes the checkpoints that the other resumes from.")
        raise OptionError("overwrite_output_dir", must, remedy=remedy)
    check_apart(output.output_dir, {"init_checkpoint": init.path if init else None, **paths})
    if output.overwrite_output_dir and init:
        # Damaged weights must be found before anything is deleted.
        init.read()
    training = Training(num_train_steps, made_of, init)
    if output.overwrite_output_dir:
        return dataclasses.replace(training, starts_over=True)
    folder = output.output_dir
    latest = None if _were_deleted(folder) else checkpoint.CheckpointList(folder).latest()
    differences = provenance.differences(folder, made_of)
    if latest is None:
        return _plan_without_checkpoint(folder, differences, training)
    if differences and step_of(latest) == 0:
        logger.info("Nothing is trained yet in %s, so training starts over there.", folder)
        return dataclasses.replace(training, starts_over=True)
    if differences and not output.resume_with_changes:
        raise _describe_other(
            folder,
            differences,
            Message(
                "Give the same values; or give another %s, or %s to delete what is there; or %s "
                "to resume from its last checkpoint all the same.",
                _FOLDER,
                Option("overwrite_output_dir"),
                Option("resume_with_changes"),
            ),
        )
    optimizer, begun = _find_option(made_of, "optimizer"), read_option(folder, "optimizer")
    # Earlier versions had no other.
    begun = begun or "adam"
    if optimizer not in (None, begun):
        must = Message("be %s, as in the run in %s: its moments mislead another one", begun, folder)
        remedy = Message("Start another %s from it with %s.", _FOLDER, Option("init_checkpoint"))
        raise OptionError("optimizer", must, optimizer, remedy)
    if differences:
        logger.warning("Resuming with changes: %s.", "; ".join(differences))
    return dataclasses.replace(training, changes=differences)


def _were_deleted(folder: str) -> bool:
    """Returns whether the checkpoints of a training run that has ended were deleted by its user.

    They may still be listed. The checkpoint of step 0 does not count: no run resumes from it.
    """
    has_ended = bool(provenance.read(folder).get("ended"))
    return has_ended and not any(map(step_of, weight_files(folder)))


def _plan_without_checkpoint(folder: str, differences: Sequence[str], plan: Training) -> Training:
    """Returns the training run for a folder without checkpoints; it replaces no final weights.

    Raises:
      ValueError: where another training run, or an unknown one, has ended there.
    """
    run, has_weights = provenance.read(folder), f"{WEIGHTS}.index" in weight_files(folder)
    if not has_weights and not run.get("ended"):
        return dataclasses.replace(plan, starts_over=True)
    # Pre-training and fine-tuning record different data; without `run.json`, nothing is recorded.
    unknown = [
        f"{name} is not known"
        for name, value in plan.made_of.items()
        if isinstance(value, Mapping) and name not in run.get("made_of", {})
    ]
    if differences := [*differences, *unknown]:
        raise _describe_other(
            folder,
            differences,
            Message(
                "It has ended, and has no checkpoint to resume from. Give another %s, or %s to "
                "delete what is there and start over.",
                _FOLDER,
                Option("overwrite_output_dir"),
            ),
        )
    if has_weights:
        logger.warning("Nothing to train: the training run in %s has ended.", folder)
    return dataclasses.replace(plan, starts_over=not has_weights, has_ended=has_weights)


def _describe_other(folder: str, differences: Sequence[str], remedy: Message) -> OptionError:
    text = f"In {folder!r}, {'; '.join(differences)}."
    return OptionError(
        "output_dir", "hold the same training run, if any", remedy=joined([text, remedy], " ")
    )


def find_weights(output: Output, init: Stored | None) -> Stored | None:
    """Returns the weights in the output folder that a run without training uses, if any.

    Args:
      output: The folder, and whether its weights may be of another run.
      init: The weights that `init_checkpoint` names. If they are in that folder, they are used;
        else the weights in the folder must have been trained from them.

    Raises:
      ValueError: where the weights in the folder were trained from others.
    """
    folder = output.output_dir
    trained = checkpoint.find_trained(folder)
    if trained is None or init is None:
        return None if trained is None else Stored(trained, "output_dir")
    # Departs: the original uses the latest checkpoint of the folder, whatever is named.
    differences = provenance.differences(folder, of_training({}, init, {}))
    is_unknown = not provenance.read(folder)
    there, place = owned.resolve(folder, init.folder)
    is_within = f"{place}/".startswith(there) and not init.is_huggingface
    if is_within and (differences or is_unknown):
        return Stored(init.prefix, "output_dir")
    if differences and not output.resume_with_changes:
        raise OptionError(
            "init_checkpoint",
            Message("name weights in %s, or what they were trained from", _FOLDER),
            remedy=Message(
                "In %r, %s. Leave %s out to use the weights there, or give another %s.",
                folder,
                differences[0],
                Option("init_checkpoint"),
                _FOLDER,
            ),
        )
    return Stored(trained, "output_dir")


def load_weights(output: Output, source: ModelFolder, model: keras.Model, *, is_given: bool) -> int:
    """Sets the weights of a model that is not trained, and returns their step.

    The weights are those in the output folder, as `find_weights` finds them; or else those of
    `init_checkpoint`, which must include the head.

    Args:
      output: The output folder.
      source: The folder of the model to start from.
      model: The model.
      is_given: Whether `init_checkpoint` names weights.
    """
    named = source.stored if is_given else None
    trained = find_weights(output, named)
    if trained is None:
        source.stored.assign(model.weights, with_head=True)
        return 0
    is_named = named is not None and named.prefix == trained.prefix
    if not is_named:
        provenance.check_trained(output.output_dir, step_of(trained.prefix), "output_dir")
    weights = {variable.path: variable for variable in model.weights}
    step = checkpoint.CheckpointList(output.output_dir).restore(weights, trained.prefix)
    unread: str | Message = ""
    if named and not is_named:
        unread = Message("; %s is not read", Option("init_checkpoint"))
    logger.info("The weights are those of step %d in %s%s.", step, trained.prefix, unread)
    return step


@dataclasses.dataclass(frozen=True)
class FolderState:
    """The state of an output folder, which another run may change between planning and running.

    Attributes:
      digest: The fingerprint of `run.json`; "" where there is none.
      latest: The name of the latest checkpoint; "" where there is none.
    """

    digest: str
    latest: str

    @classmethod
    def of(cls, folder: str) -> "FolderState":
        """Returns the state of a folder as it is now."""
        path = os.path.join(folder, provenance.RUN_FILE)
        digest = fingerprints.of_files([path]) if is_file(path) else ""
        names = [name for name in weight_files(folder) if step_of(name) is not None]
        return cls(digest, max(names, key=lambda name: step_of(name) or 0, default=""))

    def check(self, folder: str) -> None:
        """Checks that the folder has not changed.

        Raises:
          OptionError: where another run has changed it.
        """
        now = FolderState.of(folder)
        if now != self:
            what = "`run.json`" if now.digest != self.digest else "the latest checkpoint"
            raise OptionError(
                "output_dir",
                "be as it was when the run was planned",
                remedy=Message(
                    "In %r, %s has changed. Plan again, or give another %s.",
                    folder,
                    what,
                    Option("output_dir"),
                ),
            )
