"""Running pipelines of Apache Beam: options, errors and counters.

Beam is an extra of the package, `pip install '.[beam]'`, and is imported when a pipeline is run.
"""

import contextlib
import importlib.util
import io
import logging
import os
import re
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bert.files.paths import is_file
from bert.files.process import is_script
from bert.log import logger
from bert.options import Message, MessageError, Option, OptionError
from bert.scale.options import BeamOptions

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
            raise OptionError(
                "beam_options",
                Message("go with %s", Option("runner")),
                beam.beam_options,
                Message("%s runs on this machine.", Option("runner", "DirectRunner")),
            )
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
        reason = Message("%r is %s, an option of its own", words[0], Option("runner"))
        raise _refusal(beam, reason)
    with _quiet():
        # On import, Beam warns of missing packages for Google's cloud.
        from apache_beam.options.pipeline_options import PipelineOptions  # noqa: PLC0415

        # The last value of an option counts.
        quiet = "--default_sdk_harness_log_level=WARNING"
        options = PipelineOptions([f"--runner={beam.runner}", quiet, *given])
        with _caught_usage(beam):
            known = options.get_all_options()
            everything = options.get_all_options(retain_unknown_options=True)
    unknown = everything.keys() - known.keys()
    # Options of another runner may be known only to its server.
    if unknown and beam.runner == "DirectRunner":
        raise _refusal(beam, f"unknown: {', '.join(sorted(unknown))}")
    return options


def _refusal(beam: BeamOptions, reason: str | Message) -> OptionError:
    received = Message("%r: %s", beam.beam_options, reason)
    return OptionError("beam_options", "be options of Beam", received)


@contextlib.contextmanager
def _caught_usage(beam: BeamOptions) -> Iterator[None]:
    """Raises an error of argparse as an `OptionError`."""
    with contextlib.redirect_stderr(io.StringIO()) as printed:
        try:
            yield
        except SystemExit:
            reason = printed.getvalue().strip().rpartition("error: ")[2]
            raise _refusal(beam, reason) from None


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
            raise _failure(beam, _describe(error)) from error
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


def _describe(error: Exception) -> str:
    if type(error).__name__ == "FutureTimeoutError":
        return "Nothing answers where `beam_options` says that it is."
    return str(error) or repr(error)


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


def _failure(beam: BeamOptions, reason: str) -> MessageError:
    return MessageError(
        "%s must bring the work to its end. %s %s shows where it arose.",
        Option("runner", beam.runner),
        _reason(reason),
        Option("verbosity", 1),
    )


def _reason(text: str) -> str:
    """Returns a message of Beam without the stack traces of its workers."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The last error of a stack trace is that of the worker.
    raised = [match for match in map(_RAISED.match, lines) if match]
    traced = any(line.startswith("Traceback (most recent call last)") for line in lines)
    text = raised[-1]["message"] if traced and raised else " ".join(lines)
    text = re.sub(r" \[while running .*\]$", "", text)
    shown = text if len(text) <= _MESSAGE_LENGTH else f"{text[:_MESSAGE_LENGTH].rstrip()}…"
    return shown if shown.endswith((".", "?", "…")) else f"{shown}."


# The last line of a stack trace: `ValueError: …`, `grpc.FutureTimeoutError: …`.
_RAISED = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit): (?P<message>.*)")


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
