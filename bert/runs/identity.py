"""The identity of a training run, and the environment that `run.json` records beside it.

A run resumes the training run in its output folder if both have the same identity: the options that
shape the model, the data and the initial weights. Workers compare their options before they read
any data, and the rest afterwards.
"""

import contextlib
import functools
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from bert.files import fingerprints
from bert.files.owned import is_of_model_folder
from bert.files.paths import file_size, is_file, list_folder, match_files
from bert.runs.recipes import in_order
from bert.runs.resumption import Training
from bert.weights.checkpoint import Stored, describe_weights
from modeling import BertConfig

_ROOT = Path(__file__).parents[2]
# Flags whose value is a path.
_PATH = re.compile("_(checkpoint|dir|file|handle)$|^--(teacher|word_vectors)$")
# The names of files of data sets.
_DATA = re.compile(r"(?i).*(train|dev|val|test).*\.(tsv|csv|txt|json|jsonl|parquet)")


def of_training(
    shaping: Mapping[str, Any], init: Stored | None, data: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the identity of a training run: by name, the values that shape the model.

    Args:
      shaping: The options that shape the model.
      init: The initial weights.
      data: By name, descriptions of the data, with `sha256`.
    """
    options = {f"--{name}": value for name, value in in_order(shaping).items()}
    return {**options, "--init_checkpoint": describe_weights(init), **data}


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
    """Returns options by flag."""
    return {
        f"--{name}": value
        for name, value in in_order(options).items()
        # The folder may be moved.
        if name != "output_dir" and not is_of_model_folder(value)
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
    training: Training | None,
    find_weights: Callable[[], str | None],
) -> dict[str, Any]:
    """Returns by name what workers must have in common once a plan has read its files.

    Args:
      config: The shape of the model.
      vocabulary: The content of its vocabulary.
      training: The training run, if there is one.
      find_weights: Returns the prefix of the weights in the output folder, if there are any.
    """
    # A folder that starts over may list files of another training run that were deleted.
    starts_over = training is not None and training.starts_over
    return {
        "the configuration": config.to_dict(),
        "the vocabulary": fingerprints.of_bytes(vocabulary),
        "the weights in --output_dir": os.path.basename((not starts_over and find_weights()) or ""),
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
        if value and name == "data_dir":
            paths = [os.path.join(value, file) for file in sorted(list_folder(value))]
            paths = [path for path in paths if _DATA.fullmatch(os.path.basename(path))]
        elif value and name.endswith("_file") and name not in ("vocab_file", "bert_config_file"):
            paths = []
            # A file that is not used by this run may be gone.
            with contextlib.suppress(ValueError):
                paths = match_files(value, name)
        else:
            continue
        yield from ((path, file_size(path)) for path in paths if is_file(path))


@functools.cache
def _commit() -> str | None:
    """Returns the commit that is checked out, None where the project is no checkout."""
    if not (_ROOT / ".git").exists():
        return None
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=40"]
    command += ["--exclude=*"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()
    return None
