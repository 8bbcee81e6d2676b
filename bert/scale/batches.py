"""Computes outputs of the inputs of files as a pipeline of Apache Beam, on many machines.

One step reads the inputs and deals them out in complete chunks, which are rounded as in a single
process. The output of some consecutive chunks is a file, in a folder that all machines reach; files
that an earlier run has left there are not computed again.
"""

import abc
import contextlib
import dataclasses
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from bert.files import durable, fingerprints
from bert.files.paths import is_file, is_folder, is_remote
from bert.options import MessageError, Option, OptionError
from bert.scale.beam import NAMESPACE, check_beam, run_pipeline
from bert.scale.options import BeamOptions
from bert.scale.parts import Part

# About so many files at most, within a factor of two, for any number of inputs.
_FILES = 1024

# Digits of a fingerprint in the name of what is not finished.
KEY_LENGTH = 12

_MODEL_PATHS = ("model_dir", "init_checkpoint", "bert_config_file", "vocab_file")
# Options that change nothing of the output: paths, for the files count; what only this process
# does; and `on_error`, for inputs without an answer are answered again.
_WITHOUT_DIFFERENCE = frozenset(
    [
        *(*_MODEL_PATHS, "input_file", "output_file"),
        *("check", "overwrite", "runner", "beam_options", "use_tpu", "on_error"),
    ]
)
# Keys of unfinished files depend on the order of options: these come first, wherever groups have
# them.
_FIRST = ("shard", "version_2_with_negative", "null_score_diff_threshold", "precision")
# The lock file in the folder of the files.
_LOCK = "lock"

_Settings = TypeVar("_Settings")


@dataclasses.dataclass(frozen=True)
class Work(abc.ABC):
    """The work that machines share.

    Args:
      folder: The folder of the files; its name differs for every model.
    """

    folder: str

    @property
    @abc.abstractmethod
    def num_files(self) -> int:
        """How many files there are when all is done."""

    @abc.abstractmethod
    def open(self) -> Any:
        """Returns the model, with what goes with it; a process loads it once."""

    @abc.abstractmethod
    def read(self, _: Any, done: Collection[int]) -> Iterator[tuple[int, list[Any]]]:
        """Yields the inputs of each file that is not done, with its number."""

    @abc.abstractmethod
    def make(self, number: int, inputs: Sequence[Any]) -> None:
        """Writes a file, again if another machine has written it: the content is the same."""

    def path(self, number: int) -> str:
        """Returns the path of a file."""
        return os.path.join(self.folder, f"{number:06}")

    @staticmethod
    def num_chunks(count: int) -> int:
        """Returns how many of `count` chunks have their output in one file."""
        return max(count // _FILES, 1)

    @staticmethod
    def with_whole_paths(settings: _Settings) -> _Settings:
        """Returns the settings for processes in other folders."""
        paths = {name: _whole_path(getattr(settings, name, None)) for name in _MODEL_PATHS}
        given = settings.input_file  # type: ignore[attr-defined]
        files = [given] if os.path.exists(given) else [each.strip() for each in given.split(",")]
        paths["input_file"] = ",".join(
            path if is_remote(path) else os.path.abspath(path) for path in files
        )
        return dataclasses.replace(
            settings,  # type: ignore[type-var]
            **{name: path for name, path in paths.items() if path},
        )


def _whole_path(path: str | None) -> str | None:
    """Returns the absolute path of a model, which may also be a name on the hub."""
    if not path or is_remote(path):
        return path
    # A checkpoint is named by what its files begin with.
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


def describe_part(
    options: Mapping[str, Any], form: str, inputs: Sequence[str], model_files: Sequence[str]
) -> dict[str, Any]:
    """Returns what a part has in common with the others of its output, for its description.

    Args:
      options: As `key_of`.
      form: The format of the output, such as "csv".
      inputs: The files that are read.
      model_files: The files of the model.
    """
    return {
        **{name: value for name, value in options.items() if name != "shard"},
        "form": form,
        "input": fingerprints.of_whole_files(inputs),
        "model": fingerprints.of_files([*filter(is_file, model_files)]),
    }


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
def made_files(beam: BeamOptions, work: Work) -> Iterator[list[str]]:
    """Gives the files of the work in their order, once all are there, and removes them afterwards.

    After a failure, they stay for the same command.

    Raises:
      ValueError: where the pipeline cannot be run, or leaves some out.
    """
    if not is_folder(work.folder):
        durable.make_folders(work.folder)
    paths = [work.path(number) for number in range(work.num_files)]
    with _locked(work.folder):
        done = {number for number, path in enumerate(paths) if is_file(path)}
        if len(done) < len(paths):
            run_pipeline(beam, lambda pipeline: _build(pipeline, work, done))
        for path in paths:
            if not is_file(path):
                raise MessageError(
                    "All machines must write into the folder %r. %r is not there on this one: give "
                    "an %s on a file system that all share.",
                    work.folder,
                    path,
                    Option("output_file"),
                )
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
    from apache_beam.ml.inference.base import RunInference  # noqa: PLC0415

    return (
        pipeline
        | "Start" >> beam.Create([None])
        | "Read" >> beam.FlatMap(work.read, done)
        | "Deal out" >> beam.Reshuffle()
        | "Make" >> RunInference(_handler(work))
    )


def _handler(work: Work) -> Any:
    """Returns the model handler of `RunInference`."""
    from apache_beam.metrics import Metrics  # noqa: PLC0415
    from apache_beam.ml.inference.base import ModelHandler  # noqa: PLC0415

    class Handler(ModelHandler):
        def load_model(self) -> Any:
            work.open()
            # Beam holds the returned object, which cannot be any model.
            return self

        def batch_elements_kwargs(self) -> dict[str, int]:
            # An element is a list of inputs already.
            return {"min_batch_size": 1, "max_batch_size": 1}

        def get_num_bytes(self, batch: Sequence[Any]) -> int:
            # Else all would be pickled, to be measured.
            return sum(len(inputs) for _, inputs in batch)

        def run_inference(
            self, batch: Sequence[tuple[int, list[Any]]], model: Any, inference_args: Any = None
        ) -> Iterator[int]:
            del model, inference_args
            for number, inputs in batch:
                work.make(number, inputs)
                yield number
                Metrics.counter(NAMESPACE, "inputs").inc(len(inputs))

    return Handler()
