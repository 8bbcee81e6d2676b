"""How a script starts and ends, and how far its work is."""

import atexit
import contextlib
import errno
import gc
import itertools
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, NoReturn

from absl import app, flags, logging

from bert.command_line.help import parse_flags, refuse
from bert.command_line.lines import open_bar, write_lines

_SECONDS_BETWEEN_LINES = 10
_TRUTH_VALUES = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}

# What asks a script to end; not all systems have all of them.
STOP_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1")
    if hasattr(signal, name)
)

# Packages in whose code no signal raises `Stop`.
_NOT_INTERRUPTED = ("tensorflow", "keras")

# Some who stop a process send the signal to it and to its group, so that it comes twice.
_SECONDS_OF_ONE_SIGNAL = 0.5


class Progress:
    """Tells how far the work is and how long it may still take.

    On a terminal, a bar does; elsewhere, a line every 10 seconds.

    Args:
      what: What is done, to begin the line.
      total: How much there is to do, in any unit.
      done: How much of it was done before.
    """

    def __init__(self, what: str, total: float, done: float = 0) -> None:
        self._what = what
        self._total = total
        self._bar = open_bar(what, total)
        self.restart(done)

    def restart(self, done: float) -> None:
        """Goes by the speed from here on, where so much is done."""
        self._first = done
        self._start = self._last = time.monotonic()

    def __call__(self, done: float, tell: Callable[[], str] | None = None) -> None:
        """Takes how much of the total is done.

        Args:
          done: As it says.
          tell: Returns what to say instead of what is done and the share of it.
        """
        now = time.monotonic()
        is_over = done >= self._total
        if self._bar and is_over:
            self.close()
        elif self._bar:
            share = tell or (lambda: self._share(done))
            self._bar.show(now, done, lambda: share() + self._left(now, done))
        elif now - self._last >= _SECONDS_BETWEEN_LINES and self._first < done < self._total:
            said = tell() if tell else f"{self._what}: {self._share(done)}"
            self.write(f"{said}{self._left(now, done)}", now)

    def announce(self, told: str) -> None:
        """Tells at once, on a terminal, what comes before the work."""
        if self._bar:
            self._bar.draw(self._first, told)

    def write(self, line: str, now: float | None = None) -> None:
        """Writes a line of its own, after which none is due for a while."""
        self._last = time.monotonic() if now is None else now
        logging.info("%s", line)

    def left(self, done: float) -> str:
        """Returns how long what is left may take, to end a line; "" where nothing tells."""
        return self._left(time.monotonic(), done)

    def _share(self, done: float) -> str:
        return f"{100 * done / self._total:.0f} %"

    def _left(self, now: float, done: float) -> str:
        if not self._first < done < self._total:
            return ""
        each = (now - self._start) / (done - self._first)
        return f"  ETA {clock(each * (self._total - done))}"

    def close(self) -> None:
        """Removes the bar, if there is one."""
        if self._bar:
            self._bar.close()


def clock(seconds: float) -> str:
    """Returns a time as hours, minutes and seconds, such as 0:01:30."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


class Stop(KeyboardInterrupt):
    """A signal asks the script to end, which it does as after any exception.

    Args:
      number: Of the signal.
      message: The last line to be seen.

    Attributes:
      number: As given.
    """

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(message or f"Stopped by {signal.Signals(number).name}.")
        self.number = number


class _Signals:
    """Turns the first signal of `STOP_SIGNALS` into `Stop`; a second one ends the process."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.num_deferring = 0
        self._is_raised = False
        self._taken: list[int] = []

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Takes the signals over for a block, apart from those that are ignored, as nohup does."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self.first, self._is_raised = None, False
        before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        self._taken = [n for n, handler in before.items() if handler != signal.SIG_IGN]
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        old_writer = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self.take()
        arguments = (reader, list(self._taken))
        threading.Thread(target=_end_at_second, args=arguments, daemon=True).start()
        try:
            yield
        finally:
            for number in self._taken:
                signal.signal(number, before[number])
            self.first, self._taken = None, []
            signal.set_wakeup_fd(old_writer)
            os.close(writer)

    def take(self) -> None:
        """Takes the signals, if they are watched; again where somebody else has taken them."""
        for number in self._taken:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.first is None:
            self.first = number
            self._check_outside_tensorflow(frame)

    def _check_outside_tensorflow(self, frame: FrameType | None) -> None:
        """Checks where an exception reaches the caller: now, or when TensorFlow has returned.

        What a signal raises within TensorFlow's own code can be lost, in a `__del__`, or leave a
        call into its library half done, which then frees memory that is not its own.
        """
        caller = frame
        while caller and _module_of(caller) in _NOT_INTERRUPTED:
            caller = caller.f_back
        if not caller or caller is frame:
            self.check()
            return

        def check_once(place: FrameType, *_: Any) -> None:
            sys.settrace(None)
            place.f_trace = None
            self.check()

        # Python calls it at the caller's next line, or where the caller returns.
        caller.f_trace = check_once
        sys.settrace(lambda *_: None)

    def check(self) -> None:
        """Raises `Stop`, once, if a signal came, unless that is deferred."""
        if self.first is not None and not self._is_raised and not self.num_deferring:
            self._is_raised = True
            raise Stop(self.first)


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _end_at_second(reader: int, numbers: list[int]) -> None:
    """Ends the process at a second signal, even while it is busy in code that is not Python's."""
    first = None
    while byte := os.read(reader, 1):
        if byte[0] not in numbers:
            continue
        now = time.monotonic()
        first = first or now
        if now - first > _SECONDS_OF_ONE_SIGNAL:
            os._exit(128 + byte[0])
    os.close(reader)


_signals = _Signals()


def watched_signals() -> contextlib.AbstractContextManager[None]:
    """Makes a first signal raise `Stop` in a block, and a second one end the process."""
    return _signals.watched()


def take_signals_again() -> None:
    """Takes back what TensorFlow, with several workers, takes for itself: SIGTERM."""
    _signals.take()


def stop_signal() -> int | None:
    """Returns the signal that asked the script to stop, None while there was none."""
    return _signals.first


@contextlib.contextmanager
def deferred_stop() -> Iterator[None]:
    """Keeps a first signal from ending what is to be whole; `Stop` is raised behind it."""
    if threading.current_thread() is not threading.main_thread():
        # It ends the main thread alone, as Python has it.
        yield
        return
    _signals.num_deferring += 1
    try:
        yield
    finally:
        _signals.num_deferring -= 1
    _signals.check()


_is_script = False


def is_script() -> bool:
    """Returns whether the process is a script's own, so that there is no program to disturb."""
    return _is_script


def run_script(main: Callable[[list[str]], None], *, takes_arguments: bool = False) -> None:
    """Runs `main`; what the user can mend ends as one line and exit status 1, not as a traceback.

    An exception may have another status, as `exit_status`.

    A first signal to end, such as Ctrl-C, ends it as `Stop` with 128 and the signal's number as
    status; a second one ends it at once. With --verbosity=1 the traceback is shown, too.
    `takes_arguments` allows what is not a flag.
    """

    def checked_main(arguments: list[str]) -> None:
        write_lines()
        remedy = _remedy_for_spaces(arguments[1:])
        if remedy or (len(arguments) > 1 and not takes_arguments):
            refuse(f"Arguments must be flags. Received {arguments[1:]}.{remedy}")
        _run(main, arguments)

    global _is_script  # noqa: PLW0603
    _is_script = True
    _open_streams()
    try:
        app.run(checked_main, flags_parser=parse_flags)
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
            # The lowest number that is free, which is that of the stream.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _leave(status: int) -> NoReturn:
    """Ends the process; Python's own end would take a second to clear TensorFlow's modules away."""
    # As Python begins its own end: pools of threads are told to end, then threads are waited for.
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


def _run(main: Callable[[list[str]], None], arguments: list[str]) -> None:
    try:
        with watched_signals():
            main(arguments)
            sys.stdout.flush()
    except KeyboardInterrupt as stop:
        logging.debug("It was stopped here:", exc_info=True)
        _let_go(stop)
        number = stop.number if isinstance(stop, Stop) else signal.SIGINT
        for each in STOP_SIGNALS:
            # What is left to do then ends at a second signal without a word.
            if signal.getsignal(each) != signal.SIG_IGN:
                signal.signal(each, signal.SIG_DFL)
        logging.warning("%s", stop if isinstance(stop, Stop) else Stop(number))
        sys.exit(128 + number)
    except BrokenPipeError:
        logging.debug("Nobody reads on:", exc_info=True)
        # What Python would still write there at its end has no reader, either.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except Exception as error:
        line = explain(error)
        if line is None:
            raise
        logging.debug("The error arose here:", exc_info=True)
        logging.error("%s", line)
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
            " `--gradient_accumulation_steps` and `--gradient_checkpointing` train the same in "
            "less memory."
        )
    return advice


def explain(error: Exception) -> str | None:
    """Returns the line that tells a user what to mend, None for what only a bug can cause."""
    tf = sys.modules.get("tensorflow")
    errors = tf.errors if tf else None
    text = str(error)
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
