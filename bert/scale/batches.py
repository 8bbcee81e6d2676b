"""Pipelines of Apache Beam, and the outputs of files that they compute on many machines.

One step reads the inputs and distributes them in complete chunks, which are rounded as in a single
process. Each file holds the output of some consecutive chunks, in a folder that all machines reach;
files of an earlier run of the same command are not computed again.

Beam is an extra of the package, `pip install '.[beam]'`, and is imported when a pipeline is run.
"""

import abc
import contextlib
import dataclasses
import functools
import importlib.util
import io
import itertools
import logging
import os
import re
import shlex
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from bert.files import durable, fingerprints
from bert.files.paths import is_file, is_folder, is_remote, split_patterns
from bert.files.process import is_script
from bert.log import logger
from bert.options import Message, MessageError, Option, OptionError
from bert.scale.options import BeamOptions, Part

if TYPE_CHECKING:
    from typing_extensions import Self

# The namespace of the counters that are logged.
NAMESPACE = "bert"

_ROOT = str(Path(__file__).resolve().parents[2])
_MESSAGE_LENGTH = 800


def check_beam(beam: BeamOptions) -> None:
    """Checks that Beam is installed and has the options, if a pipeline is requested.

    Raises:
      MessageError: where Beam is not installed or does not have the options.
    """
    if beam.runner is None:
        if beam.beam_options:
            must = Message("go with %s", Option("runner"))
            remedy = Message("%s runs on this machine.", Option("runner", "DirectRunner"))
            raise OptionError("beam_options", must, beam.beam_options, remedy)
        return
    if importlib.util.find_spec("apache_beam") is None:
        raise MessageError(
            "%s needs the package apache-beam, which is not installed. Install it with `pip "
            "install '.[beam]'` in an environment of its own: it requires an older protobuf.",
            Option("runner", beam.runner),
        )
    _options(beam)


def _options(beam: BeamOptions) -> Any:
    """Returns `PipelineOptions`."""
    try:
        given = shlex.split(beam.beam_options)
    except ValueError as error:
        raise _refusal(beam, str(error)) from None
    if words := [word for word in given if re.match("--?runner(=|$)", word)]:
        own = Message("%r is %s, an option of its own", words[0], Option("runner"))
        raise _refusal(beam, own)
    with _quiet():
        # On import, Beam warns of missing packages for Google's cloud.
        from apache_beam.options.pipeline_options import PipelineOptions  # noqa: PLC0415

        # The last value of an option counts.
        quiet = "--default_sdk_harness_log_level=WARNING"
        options = PipelineOptions([f"--runner={beam.runner}", quiet, *given])
        try:
            with contextlib.redirect_stderr(io.StringIO()) as printed:
                known = options.get_all_options()
                everything = options.get_all_options(retain_unknown_options=True)
        except SystemExit:
            # Of argparse.
            reason = printed.getvalue().strip().rpartition("error: ")[2]
            raise _refusal(beam, reason) from None
    unknown = everything.keys() - known.keys()
    # Options of another runner may be known only to its server.
    if unknown and beam.runner == "DirectRunner":
        raise _refusal(beam, f"unknown: {', '.join(sorted(unknown))}")
    return options


def _refusal(beam: BeamOptions, reason: str | Message) -> OptionError:
    received = Message("%r: %s", beam.beam_options, reason)
    return OptionError("beam_options", "be options of Beam", received)


def run_pipeline(
    beam: BeamOptions, build: Callable[[Any], Any], clear: Callable[[], None] | None = None
) -> dict[str, int]:
    """Runs a pipeline to its end, and returns the counters of `NAMESPACE` by name.

    Args:
      beam: What runs it.
      build: Adds the steps to the pipeline. Their functions must be in modules that workers can
        import, so not in a script.
      clear: Removes unfinished files where the script ends without an exception.

    Raises:
      ValueError: where the pipeline cannot be run, or ends with an error.
    """
    options = _options(beam)
    with _quiet(), _found_by_workers():
        import apache_beam  # noqa: PLC0415

        try:
            runner = _local_runner(options) if beam.runner == "DirectRunner" else None
            pipeline = apache_beam.Pipeline(runner, options)
            build(pipeline)
            with _ended_with_processes(beam, clear):
                result = pipeline.run()
                state = result.wait_until_finish()
        # A runner may raise any exception.
        except Exception as error:
            reason = str(error) or repr(error)
            if type(error).__name__ == "FutureTimeoutError":
                reason = "Nothing answers where `beam_options` says that it is."
            raise _failure(beam, reason) from error
        if state != "DONE":
            raise _failure(beam, f"it ended as {state}")
        counters = _counters(result)
    if counters:
        logger.info("Counted: %s.", ", ".join(f"{n} {name}" for name, n in counters.items()))
    return counters


def check_shared(path: str) -> None:
    """Checks that a file that another machine has written is on this one.

    Raises:
      MessageError: where it is not.
    """
    if not is_file(path):
        raise MessageError(
            "All machines must write into the folder %r. %r is not there on this one: give an %s "
            "on a file system that all share.",
            os.path.dirname(path),
            path,
            Option("output_file"),
        )


def _local_runner(options: Any) -> Any:
    """Returns the runner on this machine.

    Beam's DirectRunner would first try to download another runner, Prism; and its worker processes
    would log dozens of lines.
    """
    from apache_beam.options.pipeline_options import DirectOptions  # noqa: PLC0415
    from apache_beam.runners.portability import fn_api_runner  # noqa: PLC0415
    from apache_beam.transforms.environments import SubprocessSDKEnvironment  # noqa: PLC0415

    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode != "multi_processing":
        return fn_api_runner.FnApiRunner()
    # Otherwise it would start processes by Beam's own command.
    direct.direct_running_mode = "in_memory"
    _end_late_processes()
    command = shlex.join([sys.executable, "-m", "bert.commands.beam_worker"])
    # Replaces the shell that Beam starts, so that this process is the parent.
    command = f"exec {command}" if os.name == "posix" else command
    return fn_api_runner.FnApiRunner(SubprocessSDKEnvironment.from_command_string(command))


def _end_late_processes() -> None:
    """Makes Beam end a process that connects after the work is done.

    Beam ends connected processes only, and would wait for the other one forever.
    """
    from apache_beam.portability import python_urns  # noqa: PLC0415
    from apache_beam.runners.portability.fn_api_runner import worker_handlers  # noqa: PLC0415

    @worker_handlers.WorkerHandler.register_environment(python_urns.SUBPROCESS_SDK, bytes)
    class _Process(worker_handlers.SubprocessSdkWorkerHandler):
        def close(self) -> None:
            # The message waits in a queue until the process connects.
            self.control_conn.push(worker_handlers.BeamFnControlServicer._DONE_MARKER)
            super().close()


@contextlib.contextmanager
def _ended_with_processes(beam: BeamOptions, clear: Callable[[], None] | None) -> Iterator[None]:
    """Ends the script if a process of the DirectRunner dies: Beam would wait for it forever."""
    previous = threading.excepthook

    def end(raised: Any) -> None:
        if not is_script():
            previous(raised)
        elif "subprocess exited" in str(raised.exc_value):
            reason = f"{raised.exc_value}. Was there memory for it?"
            logger.error("%s", _failure(beam, reason))
            if clear:
                clear()
            # Python would wait for the threads that wait for the process.
            os._exit(1)
        elif logger.isEnabledFor(logging.DEBUG):
            previous(raised)

    threading.excepthook = end
    try:
        yield
    finally:
        threading.excepthook = previous


def _counters(result: Any) -> dict[str, int]:
    try:
        found = result.metrics().query()["counters"]
    except NotImplementedError:
        logger.warning("This runner counts nothing.")
        return {}
    counted: dict[str, int] = {}
    for counter in found:
        if counter.key.metric.namespace == NAMESPACE:
            name = counter.key.metric.name
            # Several steps may count under a name; not all runners have committed values.
            counted[name] = counted.get(name, 0) + (counter.result or 0)
    return dict(sorted(counted.items()))


# The last line of a stack trace: `ValueError: …`, `grpc.FutureTimeoutError: …`.
_RAISED = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit): (?P<message>.*)")


def _failure(beam: BeamOptions, reason: str) -> MessageError:
    """Returns an error with a message of Beam, without the stack traces of its workers."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    # The last error of a stack trace is that of the worker.
    raised = [match for match in map(_RAISED.match, lines) if match]
    traced = any(line.startswith("Traceback (most recent call last)") for line in lines)
    text = raised[-1]["message"] if traced and raised else " ".join(lines)
    text = re.sub(r" \[while running .*\]$", "", text)
    shown = text if len(text) <= _MESSAGE_LENGTH else f"{text[:_MESSAGE_LENGTH].rstrip()}…"
    return MessageError(
        "%s must bring the work to its end. %s %s shows where it arose.",
        Option("runner", beam.runner),
        shown if shown.endswith((".", "?", "…")) else f"{shown}.",
        Option("verbosity", 1),
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides what Beam logs, unless the verbosity is 1."""
    if logger.isEnabledFor(logging.DEBUG):
        yield
        return
    hidden = [logging.getLogger(name) for name in (None, "apache_beam", "grpc")]
    levels = {each: each.level for each in (logger, *hidden)}
    # The project's logger may inherit its level from the root, to which Beam logs, too.
    logger.setLevel(logger.getEffectiveLevel())
    for each in hidden:
        each.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for each, level in levels.items():
            each.setLevel(level)


@contextlib.contextmanager
def _found_by_workers() -> Iterator[None]:
    """Lets worker processes on this machine import the project."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_ROOT, before]))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


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
# Options that earlier versions did not have, with their defaults.
_LATER = {"min_probability": 0.0, "engine": "tensorflow"}


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
    def plan(
        cls, folder: str, options: Any, starts: Sequence[int], count: int, *rest: Any
    ) -> "Self":
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
    models = {name: getattr(options, name, None) for name in _MODEL_PATHS}
    paths = {
        name: absolute_path(path)
        for name, path in models.items()
        # A model may also be a name on the hub, or the prefix of the files of a checkpoint.
        if path and (os.path.exists(path) or os.path.exists(f"{path}.index"))
    }
    given = options.input_file  # type: ignore[attr-defined]
    files = [given] if os.path.exists(given) else split_patterns(given)
    paths["input_file"] = ",".join(map(absolute_path, files))
    return dataclasses.replace(options, **paths)  # type: ignore[type-var]


def absolute_path(path: str) -> str:
    """Returns a path for machines with other working directories."""
    return path if is_remote(path) else os.path.abspath(path)


def folder_of(output_file: str, key: str) -> str:
    """Returns the folder of the files of an unfinished output."""
    return absolute_path(f"{output_file}.{key}.parts")


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
    # A later option counts where it is given, so that files of earlier versions are still found.
    later = {name for name, default in _LATER.items() if values.get(name, default) == default}
    names = sorted(values.keys() - _WITHOUT_DIFFERENCE - later, key=[*_FIRST, *values].index)
    return {name: values[name] for name in names}


def check_machines(beam: BeamOptions, part: Part | None) -> None:
    """Checks what a pipeline needs, if one is requested.

    Raises:
      MessageError: naming the option.
    """
    if beam.runner and part:
        text = "%s divides the work itself, without %s. Received %r."
        raise MessageError(text, Option("runner"), Option("shard"), str(part))
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


def _locked(folder: str) -> contextlib.AbstractContextManager[Any]:
    """Locks a folder against other runs in a context."""
    if is_remote(folder):
        return contextlib.nullcontext()
    try:
        return durable.open_locked(os.path.join(folder, "lock"))
    except BlockingIOError as error:
        remedy = f"Another one is at work in {folder!r}; wait for it or stop it."
        raise OptionError("output_file", "be that of one run", remedy=remedy) from error


def _build(pipeline: Any, work: Work, done: Collection[int]) -> Any:
    import apache_beam as beam  # noqa: PLC0415

    return (
        pipeline
        | "Start" >> beam.Create([None])
        | "Read" >> beam.FlatMap(work.read, done)
        | "Deal out" >> beam.Reshuffle()
        | "Make" >> beam.MapTuple(work.make)
    )
