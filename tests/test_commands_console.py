import errno
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import keras
import pytest
import sklearn.base
import tensorflow as tf
from absl import flags
from conftest import ROOT, exhaustive, run_python
from helpers.waiting import LONGEST, wait_until

from bert.commands.console import explain
from bert.files.display import Progress, clock
from bert.files.process import Stop, deferred_stop, is_script, watched_signals


def test_progress_is_logged_with_the_time_to_go(monkeypatch, log):
    times = iter([0.0, 5.0, 20.0, 25.0, 30.0, 45.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    progress = Progress("Reading", 100)
    for done in (10, 40, 50, 75, 100):
        progress(done)
    assert log.messages == ["Reading: 40 %  ETA 0:00:30", "Reading: 75 %  ETA 0:00:10"]


def test_work_that_is_soon_done_logs_nothing(monkeypatch, log):
    times = iter([0.0, 4.0, 9.9, 10.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    progress = Progress("Reading", 3)
    for done in (1, 2, 3):
        progress(done)
    assert log.messages == []


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00:00"), (59.6, "0:01:00"), (3 * 3600 + 62, "3:01:02")]
)
def test_a_clock_has_hours_minutes_and_seconds(seconds, text):
    assert clock(seconds) == text


SCRIPT = """
from absl import flags
from bert.commands.console import run_script

flags.DEFINE_bool("do_lower_case", True, "Uncased.")
flags.DEFINE_bool("do_train", False, "Train.")
flags.DEFINE_integer("count", 3, "How many.")
run_script(lambda arguments: print("ran with", arguments[1:]), takes_arguments={takes})
"""


@pytest.mark.parametrize("takes", [True, False])
@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (
            ["--do_lower_case", "False", "--count=1"],
            "Write `--do_lower_case False` as `--do_lower_case=false` or `--nodo_lower_case`.",
        ),
        (["--count", "0", "--do_train", "1"], "Write `--do_train 1` as `--do_train=1` or `--do_tr"),
        (["-do_train", "true"], "Write `-do_train true` as `--do_train=true` or `--do_train`."),
    ],
)
def test_the_value_of_a_boolean_flag_behind_a_space_is_answered(takes, arguments, remedy):
    result = run_python("-c", SCRIPT.format(takes=takes), *arguments, check=False)
    assert result.returncode != 0
    assert remedy in " ".join(result.stdout.split()) + " ".join(result.stderr.split())
    assert "ran with" not in result.stdout


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("--learning_rate=2e-5 3e-5 4e-5", "--learning_rate=2e-5,3e-5,4e-5"),
        ("--learning_rate 2e-5 3e-5 4e-5", "--learning_rate=2e-5,3e-5,4e-5"),
        ("--save_checkpoints_steps 4 --train_batch_size=2 4", "--train_batch_size=2,4"),
    ],
)
def test_several_values_behind_spaces_are_answered(words, meant):
    result = run_python("run_swag.py", *words.split(), "--output_dir=nowhere", check=False)
    assert f"Write several values with commas: `{meant}`." in result.stderr
    assert result.returncode == 1


def test_words_of_a_flag_file_that_are_no_flags_are_named(tmp_path):
    (tmp_path / "flags").write_text("--count=1\n0\n")
    (tmp_path / "marked").write_text("--count=1\n", encoding="utf-8-sig")
    (tmp_path / "misspelled").write_text("--counts=1\n")
    results = [
        run_python("-c", SCRIPT.format(takes=False), f"--flagfile={tmp_path / name}", check=False)
        for name in ("flags", "marked", "misspelled")
    ]
    assert all(result.returncode != 0 for result in results)
    said = [result.stdout + result.stderr for result in results]
    assert "Arguments must be flags. Received ['0']. `--help`" in said[0]
    assert "Save the flag file without a byte order mark." in said[1]
    assert "`--counts` must be a flag of" in said[2]


def test_other_arguments_are_named_as_they_are():
    result = run_python("-c", SCRIPT.format(takes=False), "--count", "1", "0", check=False)
    assert result.returncode != 0
    assert "Arguments must be flags. Received ['0']. `--help`" in result.stdout + result.stderr
    result = run_python("-c", SCRIPT.format(takes=True), "--do_train", "text", "0")
    assert result.stdout == "ran with ['text', '0']\n"


# The work of a script, and what of it is to be whole.
SCRIPTS = {
    "waits": "time.sleep(60)",
    "computes": "while True: pass",
    "writes": """
with replace_files([os.path.join(sys.argv[1], "half")]) as [file]:
    file.write(b"half")
    say("ready")
    time.sleep(60)
""",
    "defers": """
with deferred_stop():
    say("ready")
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        time.sleep(0.1)
    say("whole")
say("never")
""",
    "streams": """
for number in range(10**9):
    sys.stdout.buffer.write(b"0123456789" * 10 + b"\\n")
    if number == 100:
        say("ready")
""",
}
START = """
import os, sys, time
from bert.files.process import deferred_stop
from bert.commands.console import run_script
from bert.files.durable import replace_files

def say(text):
    print(text, flush=True)

def main(_):
    if {says}:
        say("ready")
    exec({work!r})

run_script(main, takes_arguments=True)
"""


def start(name, folder, **options):
    code = START.format(says=name in ("waits", "computes"), work=SCRIPTS[name])
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # What is read of a line must not take more with it.
        bufsize=0,
        **options,
    )


def stop(process, *numbers):
    """Sends signals when the work has begun; returns output and errors behind "ready"."""
    try:
        assert process.stdout.readline() == b"ready\n"
        for number in numbers:
            process.send_signal(number)
            if number != numbers[-1]:
                # Signals that come together count as one.
                time.sleep(0.8)
        return [each.decode() for each in process.communicate(timeout=30)]
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("waits", signal.SIGTERM),
        ("waits", signal.SIGINT),
        ("waits", signal.SIGHUP),
        ("waits", signal.SIGUSR1),
        ("computes", signal.SIGINT),
        ("writes", signal.SIGTERM),
    ],
)
def test_a_signal_ends_a_script_with_one_line(tmp_path, name, number):
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("`nohup` has this test and what it starts ignore the signal.")
    process = start(name, tmp_path)
    output, errors = stop(process, number)
    assert process.returncode == 128 + number
    assert output == ""
    assert re.fullmatch(rf"[\d:]{{8}} Warning: Stopped by {number.name}\.\n", errors)
    assert os.listdir(tmp_path) == []


# Modules of TensorFlow that are interrupted: in a function, and where Python clears up.
INTERRUPTED = {
    "function": """
def interrupted():
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(3):
        told.append("within")
""",
    "__del__": """
class Cleared:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(3):
            told.append("within")

def interrupted():
    Cleared()
""",
}


@pytest.mark.parametrize("code", INTERRUPTED.values(), ids=INTERRUPTED)
def test_a_signal_lets_tensorflow_return_and_stops_its_caller(code):
    told = []
    module = {"__name__": "tensorflow.python.some", "os": os, "signal": signal, "told": told}
    exec(code, module)

    def work():
        module["interrupted"]()
        told.append("behind")

    with watched_signals(), pytest.raises(Stop, match="Stopped by SIGTERM"):
        work()
    assert told == ["within"] * 3
    assert sys.gettrace() is None


def test_what_a_thread_makes_whole_keeps_the_main_one_from_nothing():
    begun, ends = threading.Event(), threading.Event()

    def write():
        with deferred_stop():
            begun.set()
            ends.wait()

    thread = threading.Thread(target=write)
    thread.start()
    begun.wait()
    try:
        with watched_signals(), pytest.raises(Stop):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        ends.set()
        thread.join()


LETS_GO = """
import atexit, os, signal
from bert.commands.console import run_script

class Reader:
    def __del__(self):
        print("let go")

def read():
    reader = Reader()
    yield
    del reader

def work():
    reading = read()
    next(reading)
    {fails}

def main(_):
    try:
        work()
    except ValueError as error:
        raise OSError("no") from error

atexit.register(print, "end")
run_script(main)
"""


@pytest.mark.parametrize(
    "fails", ["raise ValueError('no')", "os.kill(os.getpid(), signal.SIGTERM); signal.pause()"]
)
def test_what_reads_ahead_ends_before_python_does(fails):
    """Else it would call Python while that ends, and the process would hang or crash."""
    result = run_python("-c", LETS_GO.format(fails=fails), check=False)
    assert result.returncode in (1, 128 + signal.SIGTERM)
    assert result.stdout.split("\n") == ["let go", "end", ""]


def test_what_is_to_be_whole_is_ended_first(tmp_path):
    process = start("defers", tmp_path)
    output, errors = stop(process, signal.SIGTERM)
    assert process.returncode == 128 + signal.SIGTERM
    assert output == "whole\n"
    assert len(errors.splitlines()) == 1


def test_the_line_of_a_stopped_script_spells_its_flags():
    code = """
from bert.commands.console import run_script
from bert.files.process import Stop
from bert.options import Message, Option

def main(arguments):
    raise Stop(2, Message("Stopped; leave %s out.", Option("overwrite_output_dir")))

run_script(main)
"""
    result = run_python("-c", code, check=False)
    assert result.returncode == 130
    assert result.stderr.endswith(" Warning: Stopped; leave `--overwrite_output_dir` out.\n")


def test_a_second_signal_ends_it_at_once(tmp_path):
    process = start("defers", tmp_path)
    output, errors = stop(process, signal.SIGTERM, signal.SIGINT)
    assert process.returncode == 128 + signal.SIGINT
    assert (output, errors) == ("", "")


def test_signals_that_are_ignored_stay_so(tmp_path):
    """As nohup starts a script."""
    process = start(
        "defers", tmp_path, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    output, errors = stop(process, signal.SIGHUP)
    assert process.returncode == 0
    assert (output, errors) == ("whole\nnever\n", "")


def test_what_is_streamed_ends_with_a_whole_line(tmp_path):
    process = start("streams", tmp_path)
    for _ in range(101):
        assert process.stdout.readline() == b"0123456789" * 10 + b"\n"
    output, errors = stop(process, signal.SIGTERM)
    assert process.returncode == 128 + signal.SIGTERM
    assert set(output.split("\n")) <= {"0123456789" * 10, ""}
    assert len(errors.splitlines()) == 1


def test_a_reader_that_leaves_is_no_error(tmp_path):
    process = start("streams", tmp_path)
    assert process.stdout.readline() == b"0123456789" * 10 + b"\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 128 + signal.SIGPIPE


STREAMS = """
import os, sys
from bert.commands.console import run_script

def main(_):
    print("told")
    # As TensorFlow's import is kept quiet.
    os.close(os.dup({number}))
    with open(sys.argv[0], "w") as file:
        os.write({number}, b"chatter")
        file.write("written")

sys.argv = sys.argv[1:]
run_script(main, takes_arguments=True)
"""


@pytest.mark.parametrize("number", [1, 2])
def test_a_stream_that_is_closed_takes_no_files_place(tmp_path, number):
    path = tmp_path / "file"
    command = shlex.join([sys.executable, "-c", STREAMS.format(number=number), str(path)])
    result = subprocess.run(
        f"{command} {number}>&-", cwd=ROOT, shell=True, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert path.read_text() == "written"


def test_ctrl_c_before_a_script_handles_signals_leaves_no_traceback():
    code = """
import os, signal
from bert.commands import console
console.parse_flags = lambda arguments: os.kill(os.getpid(), signal.SIGINT)
console.run_script(print)
"""
    ended = run_python("-c", code, check=False)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


def test_without_a_script_signals_are_left_alone():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with deferred_stop():
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert before == [signal.default_int_handler, signal.SIG_DFL]


OUT_OF_MEMORY = """Graph execution error:

Detected at node model/dense defined at (most recent call last):
<stack traces unavailable>
OOM when allocating tensor with shape[32,512,30522] and type float on /device:GPU:0
\t [[{{node model/dense}}]]
Hint: If you want to see a list of allocated tensors"""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("`--x` must be y."), r"^`--x` must be y\.$"),
        (OSError(errno.EACCES, "Permission denied", "/a"), r"^Permission denied: '/a'$"),
        (OSError("a sentence"), r"^a sentence$"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/a"),
            r"room.*device: '/a'\. Files.*whole",
        ),
        (OSError(errno.EFBIG, "File too large"), r"room.*File too large.*ulimit"),
        (
            tf.errors.OutOfRangeError(
                None, None, "{{function_node __wrapped__SaveV2}} /a/b; File too large [Op:SaveV2]"
            ),
            r"room for what is written\. /a/b; File too large\. ",
        ),
        (
            tf.errors.ResourceExhaustedError(None, None, "/a/b.data; No space left on device"),
            r"room for what is written\. /a/b.data; No space",
        ),
        (
            tf.errors.ResourceExhaustedError(None, None, OUT_OF_MEMORY),
            r"^There must be memory.* OOM when allocating tensor with shape\[32,512,30522\] and "
            r"type float on /device:GPU:0\. Lower ",
        ),
        (MemoryError("Unable to allocate 3 GiB"), r"memory.*Unable to allocate 3 GiB\. Lower"),
        (MemoryError(), r"memory for what is computed\. Lower"),
        (RecursionError("maximum depth"), r"nested so deeply\. maximum depth"),
        (tf.errors.UnavailableError(None, None, "Socket closed"), r"go on: Socket closed$"),
    ],
)
def test_what_ends_a_script_is_told_in_one_line(error, line):
    said = explain(error)
    assert "\n" not in said
    with pytest.raises(RuntimeError, match=line):
        raise RuntimeError(said)


def test_memory_and_room_are_to_be_had_by_flags_that_there_are(monkeypatch):
    values = flags.FlagValues()
    monkeypatch.setattr(flags, "FLAGS", values)
    flags.DEFINE_integer("batch_size", 32, "Size.", flag_values=values)
    assert explain(MemoryError()).endswith("Lower `--batch_size` or the number of processes.")
    assert "--" not in explain(OSError(errno.ENOSPC, "No space left", "/a"))
    flags.DEFINE_integer("keep_checkpoint_max", 5, "Number.", flag_values=values)
    assert "write less (`--keep_checkpoint_max`)" in explain(OSError(errno.ENOSPC, "No space"))


@pytest.mark.parametrize("error", [KeyError("a"), TypeError("b"), AssertionError()])
def test_a_bug_keeps_its_traceback(error):
    assert explain(error) is None


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="What is loaded is told there.")
def test_a_signal_while_tensorflow_is_imported_leaves_no_trace():
    process = subprocess.Popen(
        [sys.executable, "run_squad.py", "--output_dir=nowhere"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    maps = Path(f"/proc/{process.pid}/maps")
    wait_until(lambda: "libtensorflow" in maps.read_text(encoding="utf-8"), LONGEST, pause=0.001)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    [line] = output.splitlines()
    assert line.endswith(b"Stopped by SIGINT.")


ENDS = """
import atexit, concurrent.futures, gc, sys
from bert.commands.console import run_script
from bert.files.process import import_tensorflow

class Left:
    def __del__(self):
        print("cleared away")

left = Left()

def main(_):
    assert "keras" not in sys.modules
    import_tensorflow()
    assert "sklearn" not in sys.modules
    assert gc.get_freeze_count() > 100_000 and gc.isenabled()
    import sklearn, tensorflow as tf
    tf.ones([1 << 20])
    # TensorFlow counts for an allocator of its own alone.
    assert tf.config.experimental.get_memory_info("CPU:0")["peak"] >= 1 << 22
    print("done")
    atexit.register(print, "end")
    # Nobody tells this pool to end.
    pool = concurrent.futures.ThreadPoolExecutor(1)
    pool.submit(print, end="").result()
    sys.exit({status})

run_script(main)
"""


@pytest.mark.parametrize("status", [3, *exhaustive(None)])
def test_a_script_with_tensorflow_ends_without_clearing_it_away(status):
    """And imports it without what Keras would import for others; see `import_tensorflow`."""
    result = run_python("-c", ENDS.format(status=status), check=False)
    assert (result.returncode, result.stdout.split()) == (status or 0, ["done", "end"])
    assert result.stderr == ""


def test_programs_keep_what_scripts_do_without():
    assert not is_script()
    assert issubclass(keras.wrappers.SKLearnClassifier, sklearn.base.BaseEstimator)
