"""How a script starts and ends."""

import atexit
import contextlib
import errno
import functools
import gc
import itertools
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from absl import app, flags

from bert.commands.flags import as_typed, takes_several
from bert.commands.help import parse_flags, refuse
from bert.commands.lines import write_lines
from bert.files.process import STOP_SIGNALS, Stop, own_process, watched_signals
from bert.log import logger
from bert.options import MessageError

_TRUTH_VALUES = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def run_script(main: Callable[[list[str]], None], *, takes_arguments: bool = False) -> None:
    """Runs `main`; what the user can mend ends as one line and exit status 1, not as a traceback.

    An exception may have another status, as `exit_status`.

    A first signal to end, such as Ctrl-C, ends it as `Stop` with 128 and the signal's number as
    status; a second one ends it at once. With --verbosity=1 the traceback is shown, too.
    `takes_arguments` allows what is not a flag.
    """
    own_process()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until `_run` handles signals, Ctrl-C ends the script without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _open_streams()
    try:
        app.run(functools.partial(_run, main, takes_arguments), flags_parser=parse_flags)
    except SystemExit as end:
        if "tensorflow" not in sys.modules or not isinstance(end.code, int | None):
            raise
        _leave(end.code or 0)


def _open_streams() -> None:
    """Opens what the process was started without, as `>&-` does, so that nobody reads or writes it.

    Files that are opened later would else take the stream's place, and get what is written there.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest number that is free, which `open` takes, is the stream's.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _leave(status: int) -> NoReturn:
    """Ends the process; Python's own end would take a second to clear TensorFlow's modules away."""
    # As Python begins its own end: pools of threads are asked to end, then threads are joined.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        # Who reads it may have gone, or it was closed.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _remedy_for_spaces(arguments: Sequence[str]) -> str:
    """Returns how to write `--flag False`: the value of a boolean flag is no argument of its own.

    Args:
      arguments: Those that are no flags.
    """
    for before, word in itertools.pairwise(sys.argv):
        name, value = before.lstrip("-"), _TRUTH_VALUES.get(word.lower())
        if word not in arguments or value is None or not before.startswith("-"):
            continue
        if name in flags.FLAGS and flags.FLAGS[name].boolean:
            short = f"--{name}" if value else f"--no{name}"
            return f" Write `{before} {word}` as `--{name}={word.lower()}` or `{short}`."
    return ""


def _remedy_for_several(arguments: Sequence[str]) -> str:
    """Returns how to write `--flag=1 2`: several values have commas between them.

    Args:
      arguments: The words of the command line that are neither flags nor their values.
    """
    if not arguments or arguments[0] not in sys.argv:
        # Of a flag file.
        is_marked = any(word.startswith("\ufeff") for word in arguments)
        return " Save the flag file without a byte order mark." if is_marked else ""
    place = len(sys.argv) - sys.argv[::-1].index(arguments[0])
    before, last = ["", *sys.argv][place - 2 : place]
    word, _, value = last.partition("=") if last.startswith("-") else (before, "", last)
    name = word.lstrip("-")
    if name not in flags.FLAGS or not takes_several(flags.FLAGS[name]):
        return ""
    more = itertools.takewhile(lambda word: not word.startswith("-"), arguments)
    return f" Write several values with commas: `--{name}={','.join([value, *more])}`."


def _run(main: Callable[[list[str]], None], takes_arguments: bool, arguments: list[str]) -> None:
    write_lines()
    remedy = _remedy_for_spaces(arguments[1:]) or _remedy_for_several(arguments[1:])
    if remedy or (len(arguments) > 1 and not takes_arguments):
        refuse(f"Arguments must be flags. Received {arguments[1:]}.{remedy}")
    try:
        with watched_signals():
            main(arguments)
            sys.stdout.flush()
    except KeyboardInterrupt as stop:
        logger.debug("It was stopped here:", exc_info=True)
        _let_go(stop)
        number = stop.number if isinstance(stop, Stop) else signal.SIGINT
        for each in STOP_SIGNALS:
            # What is left to do then ends at a second signal without a word.
            if signal.getsignal(each) != signal.SIG_IGN:
                signal.signal(each, signal.SIG_DFL)
        message, *_ = (stop if isinstance(stop, Stop) else Stop(number)).args
        logger.warning("%s", message)
        sys.exit(128 + number)
    except BrokenPipeError:
        logger.debug("Nobody reads on:", exc_info=True)
        # What Python would still write there at its end has no reader, either.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except Exception as error:
        # A plan may have several faults.
        lines = [explain(fault) for fault in getattr(error, "faults", [error])]
        if None in lines:
            raise
        logger.debug("The error arose here:", exc_info=True)
        for line in lines:
            logger.error("%s", line)
        _let_go(error)
        sys.exit(getattr(error, "exit_status", 1))


def _let_go(error: BaseException) -> None:
    """Drops what the functions that an exception came through still hold.

    Threads of TensorFlow's that read ahead for them would else call Python while it ends, and the
    process would hang or crash instead.
    """
    each: BaseException | None = error
    while each is not None:
        traceback.clear_frames(each.__traceback__)
        each = each.__cause__ or each.__context__
    gc.collect()


_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_ROOM_MESSAGES = tuple(os.strerror(number) for number in _NO_ROOM)
_WRITTEN = ("keep_checkpoint_max", "dupe_factor")
_SIZES = (
    "train_batch_size",
    "eval_batch_size",
    "predict_batch_size",
    "batch_size",
    "max_batch_size",
    "max_seq_length",
)


def _known(names: Iterable[str]) -> list[str]:
    """Returns those flags that the script has."""
    return [f"`--{name}`" for name in names if name in flags.FLAGS]


def _more_room() -> str:
    """Returns how to make room for files."""
    known = _known(_WRITTEN)
    less = f", or write less ({', '.join(known)})" if known else ""
    return (
        "Files that were there before are whole. Make room or give a folder on another disk"
        f"{less}; a limit on the size of files is what `ulimit -f` says."
    )


def _less_memory() -> str:
    """Returns how to need less memory."""
    advice = f"Lower {' or '.join([*_known(_SIZES), 'the number of processes'])}."
    if "gradient_accumulation_steps" in flags.FLAGS:
        advice += (
            " `--gradient_accumulation_steps` and `--gradient_checkpointing` train on the same "
            "batches in less memory."
        )
    return advice


def explain(error: Exception) -> str | None:
    """Returns a line that says what a user can mend, None for what only a bug can cause."""
    tf = sys.modules.get("tensorflow")
    errors = tf.errors if tf else None
    text = error.spell(as_typed) if isinstance(error, MessageError) else str(error)
    if errors and isinstance(error, errors.OpError):
        text = _reason(error.message)
    elif isinstance(error, OSError) and error.strerror:
        text = ": ".join([error.strerror, *map(repr, filter(None, [error.filename]))])
    if getattr(error, "errno", None) in _NO_ROOM or any(each in text for each in _NO_ROOM_MESSAGES):
        return f"There must be room for what is written. {text}. {_more_room()}"
    if isinstance(error, MemoryError) or (
        errors and isinstance(error, errors.ResourceExhaustedError)
    ):
        needed = f" {text}." if text else ""
        return f"There must be memory for what is computed.{needed} {_less_memory()}"
    if isinstance(error, RecursionError):
        return f"What is read must not be nested so deeply. {text}."
    if isinstance(error, ValueError | ArithmeticError | OSError):
        return text
    if errors and isinstance(error, errors.OpError):
        return f"TensorFlow could not go on: {text}"
    return None


# How lines of TensorFlow's begin that say where, and not what.
_PLACES = ("Graph execution error", "Detected at node", "<stack traces", "Hint:", "[[", "File ")
_PLACE = re.compile(r"\{\{\w+ [^}]*\}\} ?| ?\[Op:\w+\]")


def _reason(message: str) -> str:
    """Returns the line of an error of TensorFlow's that says what is wrong."""
    lines = [line.strip() for line in message.splitlines()]
    said = [line for line in lines if line and not line.startswith(_PLACES)]
    return _PLACE.sub("", (said or lines or [""])[0]).rstrip(".")
