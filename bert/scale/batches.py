"""Computes outputs for the inputs of files as a pipeline of Apache Beam, on many machines.

One step reads the inputs and distributes them in complete chunks, which are rounded as in a single
process. Each file holds the output of some consecutive chunks, in a folder that all machines reach;
files of an earlier run of the same command are not computed again.
"""

import abc
import contextlib
import dataclasses
import functools
import itertools
import os
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Self, TypeVar

from bert.files import durable, fingerprints
from bert.files.paths import is_file, is_folder, is_remote
from bert.options import MessageError, Option, OptionError
from bert.scale.beam import NAMESPACE, check_beam, check_shared, run_pipeline
from bert.scale.options import BeamOptions
from bert.scale.parts import Part

# Maximum number of files, within a factor of two, for any number of inputs.
_FILES = 1024

# Digits of a fingerprint in the name of what is not finished.
KEY_LENGTH = 12

_MODEL_PATHS = ("model_dir", "init_checkpoint", "bert_config_file", "vocab_file")
# Options that do not change the output: paths, whose files are compared instead; what concerns this
# process alone; and `on_error`, since inputs without an answer are answered again.
_WITHOUT_DIFFERENCE = frozenset(
    [
        *(*_MODEL_PATHS, "input_file", "output_file"),
        *("check", "overwrite", "runner", "beam_options", "use_tpu", "on_error"),
    ]
)
# These options come first in the keys of unfinished files, which depend on their order.
_FIRST = (
    *("shard", "version_2_with_negative", "null_score_diff_threshold", "precision"),
    *("do_lower_case", "architecture", "task_name", "labels"),
)
# The lock file in the folder of the files.
_LOCK = "lock"

_Options = TypeVar("_Options")


@dataclasses.dataclass(frozen=True)
class Work(abc.ABC):
    """Inputs whose outputs machines compute, a file for some consecutive chunks of them.

    Attributes:
      folder: The folder of the files; its name differs for every model.
      options: The options that name the model and the inputs.
      bounds: The number of the first input of each file, and of all inputs.
    """

    folder: str
    options: Any
    bounds: Sequence[int]

    @classmethod
    def plan(cls, folder: str, options: Any, starts: Sequence[int], count: int, *rest: Any) -> Self:
        """Returns the work on `count` inputs, whose chunks begin at `starts`."""
        step = max(len(starts) // _FILES, 1)
        return cls(folder, _with_absolute_paths(options), [*starts[::step], count], *rest)

    @property
    def paths(self) -> list[str]:
        """The files, in the order of their inputs."""
        return [os.path.join(self.folder, f"{n:06}") for n in range(len(self.bounds) - 1)]

    @staticmethod
    @abc.abstractmethod
    def load(options: Any) -> Any:
        """Returns the model and whatever else the options name."""

    @abc.abstractmethod
    def inputs(self) -> Iterable[Any]:
        """Returns all inputs."""

    @abc.abstractmethod
    def write(self, file: BinaryIO, start: int, inputs: Sequence[Any]) -> None:
        """Writes the output of inputs, of which the first has the number `start`."""

    def model(self) -> Any:
        """Returns what `load` does, which a process loads once."""
        with _LOADING:
            return _load_once(type(self), self.options, self.folder)

    def read(self, _: Any, done: Collection[int]) -> Iterator[tuple[int, list[Any]]]:
        """Yields the inputs of each file that is not done, with its number."""
        inputs = iter(self.inputs())
        for number, (start, stop) in enumerate(itertools.pairwise(self.bounds)):
            consecutive = list(itertools.islice(inputs, stop - start))
            if number not in done:
                yield number, consecutive

    def make(self, number: int, inputs: Sequence[Any]) -> None:
        """Writes a file, again if another machine has written it: the content is the same."""
        from apache_beam.metrics import Metrics  # noqa: PLC0415

        with durable.replace_files([self.paths[number]]) as [file]:
            self.write(file, self.bounds[number], inputs)
        Metrics.counter(NAMESPACE, "inputs").inc(len(inputs))


# Threads of a process share a model.
_LOADING = threading.Lock()


@functools.lru_cache(maxsize=1)
def _load_once(work: type[Work], options: Any, folder: str) -> Any:
    # The folder differs for every model that was or will be at the same path.
    del folder
    return work.load(options)


def _with_absolute_paths(options: _Options) -> _Options:
    """Returns the options for processes in other folders."""
    paths = {name: _absolute_path(getattr(options, name, None)) for name in _MODEL_PATHS}
    given = options.input_file  # type: ignore[attr-defined]
    files = [given] if os.path.exists(given) else map(str.strip, given.split(","))
    paths["input_file"] = ",".join(
        path if is_remote(path) else os.path.abspath(path) for path in files
    )
    return dataclasses.replace(
        options,  # type: ignore[type-var]
        **{name: path for name, path in paths.items() if path},
    )


def _absolute_path(path: str | None) -> str | None:
    """Returns the absolute path of a model, which may also be a name on the hub."""
    if not path or is_remote(path):
        return path
    # The path of a checkpoint is the prefix of its files.
    is_here = os.path.exists(path) or os.path.exists(f"{path}.index")
    return os.path.abspath(path) if is_here else path


def folder_of(output_file: str, key: str) -> str:
    """Returns the folder of the files of an unfinished output."""
    folder = f"{output_file}.{key}.parts"
    return folder if is_remote(folder) else os.path.abspath(folder)


def key_of(options: Mapping[str, Any], *inputs: Any) -> str:
    """Returns a key of an output for the names of its unfinished files.

    Args:
      options: The values of the options by name, without those that change nothing.
      *inputs: Fingerprints of the model and the like.
    """
    return fingerprints.of_bytes(repr(([*options.items()], inputs)).encode())[:KEY_LENGTH]


def changing_options(options: Any) -> dict[str, Any]:
    """Returns by name the options of a group that change the output."""
    values = dataclasses.asdict(options)
    names = sorted(values.keys() - _WITHOUT_DIFFERENCE, key=[*_FIRST, *values].index)
    return {name: values[name] for name in names}


def check_machines(beam: BeamOptions, part: Part | None) -> None:
    """Checks what a pipeline needs, if one is requested.

    Raises:
      MessageError: naming the option.
    """
    if beam.runner and part:
        raise MessageError(
            "%s divides the work itself, without %s. Received %r.",
            Option("runner"),
            Option("shard"),
            str(part),
        )
    check_beam(beam)


@contextlib.contextmanager
def computed_files(beam: BeamOptions, work: Work) -> Iterator[list[str]]:
    """Computes the files of some work, yields their paths in order, and removes them afterwards.

    After a failure, they stay for the same command.

    Raises:
      ValueError: where the pipeline cannot be run, or a file is missing.
    """
    if not is_folder(work.folder):
        durable.make_folders(work.folder)
    paths = work.paths
    with _locked(work.folder):
        done = {number for number, path in enumerate(paths) if is_file(path)}
        if len(done) < len(paths):
            run_pipeline(beam, lambda pipeline: _build(pipeline, work, done))
        for path in paths:
            check_shared(path)
        yield paths
        durable.remove(work.folder)


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Locks a folder against other runs."""
    if is_remote(folder):
        yield
        return
    try:
        file = durable.open_locked(os.path.join(folder, _LOCK))
    except BlockingIOError as error:
        remedy = f"Another one is at work in {folder!r}; wait for it or stop it."
        raise OptionError("output_file", "be that of one run", remedy=remedy) from error
    with file:
        yield


def _build(pipeline: Any, work: Work, done: Collection[int]) -> Any:
    import apache_beam as beam  # noqa: PLC0415

    return (
        pipeline
        | "Start" >> beam.Create([None])
        | "Read" >> beam.FlatMap(work.read, done)
        | "Deal out" >> beam.Reshuffle()
        | "Make" >> beam.MapTuple(work.make)
    )
