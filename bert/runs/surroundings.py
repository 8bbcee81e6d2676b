"""What a training runs with, as `run.json` tells for whoever wants to run it again.

Nothing is compared of it, and it holds no times: two runs of a command leave the same.
"""

import contextlib
import dataclasses
import functools
import os
import platform
import re
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from bert.commands.settings import TrainingSettings
from bert.files import fingerprints
from bert.files.owned import is_of_model_folder
from bert.files.paths import file_size, is_file, list_folder, match_files

_ROOT = Path(__file__).parents[2]
# Flags that give a path.
_PATH = re.compile("_(checkpoint|dir|file|handle)$|^--(teacher|word_vectors)$")
# Of a folder, the files whose names say that they are a part of a data set.
_DATA = re.compile(r"(?i).*(train|dev|val|test).*\.(tsv|csv|txt|json|jsonl|parquet)")


def describe(settings: TrainingSettings, strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """Returns the flags, versions, devices and data of a training, fit for JSON."""
    gpus = tf.config.list_physical_devices("GPU")
    names = [tf.config.experimental.get_device_details(each).get("device_name") for each in gpus]
    return {
        "flags": flags_of(settings),
        "data": dict(_data_files(settings)),
        "versions": _versions(),
        "commit": _commit(),
        "devices": {
            "used": strategy.num_replicas_in_sync,
            "gpus": [str(name) for name in names],
            "cpu_cores": os.cpu_count(),
        },
        "precision": settings.precision,
    }


def flags_of(settings: TrainingSettings) -> dict[str, Any]:
    """Returns the flags by name."""
    return {
        f"--{name}": value
        for name, value in vars(settings).items()
        # A folder knows its own place, and may be moved.
        if name != "output_dir" and not is_of_model_folder(value)
    }


def _versions() -> dict[str, str | None]:
    return {
        "bert": _version(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "python": platform.python_version(),
    }


def shared_by_workers(settings: TrainingSettings) -> dict[str, Any]:
    """Returns what workers must have in common before they read anything, by name.

    Files may lie elsewhere on other machines, so that not their names count, but what is in them,
    which is compared when they are read.
    """
    flags = {name: value for name, value in flags_of(settings).items() if not _PATH.search(name)}
    versions = {f"the version of {name}": value for name, value in _versions().items()}
    return {**flags, **versions, "the code": _digest_code()}


@functools.cache
def _digest_code() -> str:
    """Returns a digest of the project's own modules that a training may run."""
    paths = [*_ROOT.glob("*.py"), *(_ROOT / "bert").rglob("*.py")]
    if not (_ROOT / "pyproject.toml").is_file():
        # Beside installed modules lie those of others.
        paths = [path for path in paths if "bert" in path.relative_to(_ROOT).parts]
    return fingerprints.of_files([str(path) for path in sorted(paths)])[:12]


def _data_files(settings: TrainingSettings) -> Iterator[tuple[str, int]]:
    """Yields the files of data as the user named them, with their bytes."""
    for name in (field.name for field in dataclasses.fields(settings)):
        value = getattr(settings, name)
        if value and name == "data_dir":
            paths = [os.path.join(value, each) for each in sorted(list_folder(value))]
            paths = [path for path in paths if _DATA.fullmatch(os.path.basename(path))]
        elif value and name.endswith("_file") and name not in ("vocab_file", "bert_config_file"):
            paths = []
            # Of a model that is trained further, the file for predictions may be gone.
            with contextlib.suppress(ValueError):
                paths = match_files(value, name)
        else:
            continue
        yield from ((path, file_size(path)) for path in paths if is_file(path))


def _version() -> str | None:
    """Returns that of the project, which need not be installed."""
    project = _ROOT / "pyproject.toml"
    if project.is_file():
        match = re.search(r'^version = "(.*)"$', project.read_text(encoding="utf-8"), re.M)
        return match[1] if match else None
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version("bert")
    return None


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
