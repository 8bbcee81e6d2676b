import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys

import pytest
import tensorflow as tf
from conftest import ROOT
from helpers.waiting import LONGEST, wait_until

import bert
from bert.commands.launch import (
    TRAINING,
    make_command,
    read_command,
    split_arguments,
    without_overwriting,
)
from bert.files.machine import usable_cores
from bert.files.owned import LIST_FILE
from bert.scale import launch
from bert.scale.launch import Workers, find_cause, share_machine
from bert.training.link import LOST
from bert.training.meeting import SAVE_LIMIT

# What a worker of these tests knows of itself; each start of it adds a line to a file of its own.
WORKER = """
import json, os, signal, sys, time
from pathlib import Path
config = json.loads(os.environ["TF_CONFIG"])
config["token"] = os.environ["BERT_WORKERS_TOKEN"]
index, folder = config["task"]["index"], Path(sys.argv[1])
with open(folder / f"starts_{index}", "a") as file:
    file.write(json.dumps(config) + "\\n")
start = len((folder / f"starts_{index}").read_text().splitlines())
print("worker", index, "speaks", flush=True)
def wait():
    # Until it is killed; should nobody do so, not for ever.
    for _ in range(60_000):
        time.sleep(0.01)
"""


@pytest.fixture
def run(tmp_path, monkeypatch, log):
    """Returns a function that runs Python code as workers, and returns the exit status."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    # Where they fail, their logs stay.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(launch, "_SECONDS_ALONE", 0.2)
    monkeypatch.setattr(launch, "_SECONDS_TO_OBEY", 0.3)
    monkeypatch.setenv(SAVE_LIMIT, "1")

    def run(code, workers=3, arguments=(), **settings):
        command = [sys.executable, "-c", WORKER + code, str(tmp_path), *arguments]
        return launch.launch(Workers(workers=workers, **settings), read_command(command))

    return run


def starts(folder, index=0):
    return [json.loads(line) for line in (folder / f"starts_{index}").read_text().splitlines()]


def test_workers_have_a_common_cluster_and_token(tmp_path, run, capfd):
    assert run("print(os.environ['TF_NUM_INTRAOP_THREADS'])") == 0
    told = [starts(tmp_path, index) for index in range(3)]
    assert [each[0]["task"] for each in told] == [{"type": "worker", "index": i} for i in range(3)]
    [clusters] = {json.dumps(each[0]["cluster"]) for each in told}
    addresses = json.loads(clusters)["worker"]
    assert len({*addresses}) == 3
    assert all(re.fullmatch(r"localhost:\d+", each) for each in addresses)
    [token] = {each[0]["token"] for each in told}
    assert len(token) >= 32
    # What the others say is not shown.
    assert capfd.readouterr().out == f"worker 0 speaks\n{max(1, usable_cores() // 3)}\n"


def test_worker_that_is_killed_makes_all_start_again(tmp_path, run, log):
    code = """
if start == 1:
    if index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.1)
    sys.exit(75)
"""
    assert run(code) == 0
    assert [len(starts(tmp_path, index)) for index in range(3)] == [2] * 3
    # A worker of before cannot meet those that are started now.
    assert len({each["token"] for each in starts(tmp_path)}) == 2
    assert log.messages == [
        "Worker 1 was killed by SIGKILL. All are restarted, to resume from the last checkpoint "
        "(1 of 3)."
    ]


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ([], "the same command"),
        (["--overwrite_output_dir"], "the same command without `overwrite_output_dir`"),
    ],
)
def test_restarts_have_an_end(tmp_path, run, log, arguments, command):
    code, given = "os.kill(os.getpid(), signal.SIGKILL)", {"arguments": arguments}
    assert run(code, 1, max_restarts=1, **given) == 128 + signal.SIGKILL
    assert len(starts(tmp_path)) == 2
    assert log.messages[-1] == (
        "Worker 0 (the chief) was killed by SIGKILL. Nothing is restarted after 1 restarts; "
        f"{command} resumes."
    )


def test_a_command_that_has_not_deleted_the_files_of_before_starts_over(tmp_path, run, log):
    (tmp_path / LIST_FILE).write_text("[]")
    arguments = ["--overwrite_output_dir", "--output_dir", f"{tmp_path}"]
    run("os.kill(os.getpid(), signal.SIGKILL)", 1, max_restarts=1, arguments=arguments)
    killed = "Worker 0 (the chief) was killed by SIGKILL."
    assert log.messages == [
        f"{killed} All are restarted, to start over (1 of 1).",
        f"{killed} Nothing is restarted after 1 restarts; the same command starts over.",
    ]


def said(capfd):
    """Returns what is on the terminal but the launcher's own lines, which may be there, too."""
    lines = capfd.readouterr().err.splitlines(keepends=True)
    return "".join(line for line in lines if not re.match(r"\d\d:\d\d:\d\d ", line))


def test_an_error_of_the_user_is_not_retried(tmp_path, run, capfd, log):
    code = """
if index == 2:
    sys.exit("Error: no such file")
wait()
"""
    assert run(code) == 1
    assert [len(starts(tmp_path, index)) for index in range(3)] == [1] * 3
    assert log.messages[0] == "Worker 2 ended with exit status 1."
    shown = said(capfd)
    assert shown == "worker 2 | worker 2 speaks\nworker 2 | Error: no such file\n"


def test_the_same_error_of_all_workers_is_shown_once(run, capfd, log):
    assert run("sys.exit('Error: no such file')") == 1
    [message] = log.messages
    assert message.startswith("The logs of the workers except the chief are in ")
    assert said(capfd) == "Error: no such file\n"


def test_worker_that_hangs_is_killed_with_the_others(tmp_path, run, log):
    code = """
if start == 1 and index == 0:
    sys.exit(75)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if start == 1 and index == 1:
    wait()
"""
    assert run(code, 2) == 0
    assert len(starts(tmp_path)) == 2
    assert log.messages[0].startswith("Worker 1 hung. All are restarted")


# The chief, which does not obey, and one more, which is killed once it is ready.
STUBBORN_CHIEF = """
if start == 1 and index == 1:
    for _ in range(60_000):
        if (folder / "ready").exists():
            break
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
(folder / "ready").touch()
"""
CHIEF_IS_AWAITED = (
    "Worker 0 (the chief) is still saving or ending. It has {:g} s to, or as many as "
    "BERT_SAVE_TIMEOUT says."
)


def test_chief_that_saves_is_waited_for_as_long_as_that_is_allowed(tmp_path, run, monkeypatch, log):
    monkeypatch.setenv(SAVE_LIMIT, "60")
    code = """
if start == 1:
    # It saves longer than another may take to end.
    time.sleep(4)
    (folder / "saved").touch()
    sys.exit(75)
"""
    assert run(STUBBORN_CHIEF + code, 2) == 0
    assert (tmp_path / "saved").exists()
    assert log.messages[0] == CHIEF_IS_AWAITED.format(60)
    assert log.messages[1].startswith("Worker 1 was killed by SIGKILL. All are restarted")


def test_chief_that_never_ends_is_killed_but_did_not_fail_first(tmp_path, run, log):
    assert run(STUBBORN_CHIEF + "if start == 1: wait()", 2) == 0
    assert [len(starts(tmp_path, index)) for index in range(2)] == [2, 2]
    assert log.messages[0] == CHIEF_IS_AWAITED.format(1)
    assert log.messages[1].startswith("Worker 1 was killed by SIGKILL. All are restarted")


def test_invalid_seconds_to_save_are_refused_before_workers_start(tmp_path, run, monkeypatch):
    monkeypatch.setenv(SAVE_LIMIT, "soon")
    with pytest.raises(ValueError, match=r"`BERT_SAVE_TIMEOUT` must be a number .* 'soon'"):
        run("", 2)
    assert not [*tmp_path.iterdir()]


def test_logs_stay_only_where_workers_fail(tmp_path, run, log):
    assert run("", 2) == 0
    assert not [*tmp_path.glob("bert-launch-*")]
    assert run("sys.exit(1)", 2) == 1
    [folder] = tmp_path.glob("bert-launch-*")
    assert (folder / "worker_1.log").read_text().startswith("worker 1 speaks")
    assert log.messages[-1] == f"The logs of the workers except the chief are in {folder}."


@pytest.mark.parametrize("spelling", ["--overwrite_output_dir", "-overwrite_output_dir=true"])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_restarted_workers_do_not_delete_their_own_files(tmp_path, run, spelling, is_deleted):
    (tmp_path / LIST_FILE).write_text("[]")
    code = """
with open(folder / "told", "a") as file:
    file.write(json.dumps(sys.argv[2:]) + "\\n")
if start < 3:
    if is_deleted:
        (folder / "new").write_text("[]")
        (folder / "new").rename(folder / list_file)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    code = f"is_deleted, list_file = {is_deleted}, {LIST_FILE!r}" + code
    rest = ["--output_dir", f"{tmp_path}", "--do_train"]
    assert run(code, 1, arguments=[spelling, *rest]) == 0
    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    later = rest if is_deleted else [spelling, *rest]
    assert told == [[spelling, *rest], later, later]


def test_restarted_workers_do_not_delete_by_a_flag_file(tmp_path, run):
    file = tmp_path / "flags.txt"
    file.write_text(f"--overwrite_output_dir\n--output_dir={tmp_path}\n")
    (tmp_path / LIST_FILE).write_text("[]")
    code = f"""
with open(folder / "told", "a") as file:
    file.write(json.dumps(sys.argv[2:]) + "\\n")
if start == 1:
    (folder / "new").write_text("[]")
    (folder / "new").rename(folder / {LIST_FILE!r})
    os.kill(os.getpid(), signal.SIGKILL)
"""
    # As a worker gets them.
    words = make_command(["run_ner", f"--flagfile={file}"])[3:]
    assert run(code, 1, arguments=words) == 0
    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    rest = [f"--output_dir={tmp_path}"]
    assert told == [["--overwrite_output_dir", *rest], rest]


def test_logs_are_kept_on_request(tmp_path, run):
    logs = tmp_path / "logs"
    assert run("", 2, worker_logs=str(logs)) == 0
    assert [path.name for path in logs.iterdir()] == ["worker_1.log"]
    assert (logs / "worker_1.log").read_text() == "worker 1 speaks\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_reaches_all_and_nothing_is_started_again(tmp_path, number):
    # A package of the same name whose script saves when it is told to stop.
    code = f"""
def save(number, frame):
    time.sleep(0.2)
    (folder / f"saved_{{index}}").touch()
    sys.exit(128 + number)
signal.signal({number}, save)
(folder / f"ready_{{index}}").touch()
wait()
"""
    command = [sys.executable, "-c", WORKER + code, str(tmp_path)]
    starter = f"""
from bert.commands.console import run_script
from bert.commands.launch import read_command
from bert.scale.launch import Workers, launch
run_script(lambda _: launch(Workers(workers=2), read_command({command!r})))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", starter], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    ready = [tmp_path / f"ready_{index}" for index in range(2)]
    wait_until(lambda: all(each.exists() for each in ready) or process.poll() is not None, LONGEST)
    process.send_signal(number)
    errors = process.communicate(timeout=LONGEST)[1]
    assert process.returncode == 128 + number
    assert all((tmp_path / f"saved_{index}").exists() for index in range(2))
    assert f"Stopped by {signal.Signals(number).name}." in errors
    assert len(starts(tmp_path)) == 1


@pytest.mark.parametrize(
    ("statuses", "hung", "cause"),
    [
        ({0: 0, 1: 0}, [], (0, 0)),
        ({1: -9, 0: LOST}, [], (1, -9)),
        ({0: LOST, 1: -9}, [], (1, -9)),
        ({0: LOST, 2: LOST, 1: -9}, [1], (1, -9)),
        ({2: LOST, 0: LOST, 1: LOST}, [], (2, LOST)),
        # A line that all say, the chief says.
        ({2: 1, 1: 1, 0: 1}, [], (0, 1)),
        ({2: 1, 1: 75, 0: 75}, [], (2, 1)),
        ({2: 1, 0: -15}, [], (2, 1)),
    ],
)
def test_cause_of_the_end_is_found(statuses, hung, cause):
    assert find_cause(statuses, hung) == cause


def test_ports_are_free_and_of_no_outgoing_connection(tmp_path):
    first, second = launch.free_ports(2)
    assert first != second
    for port in (first, second):
        with socket.socket() as tried:
            tried.bind(("localhost", port))
    (tmp_path / "range").write_text("15000\t60999\n")
    found = launch.free_ports(50, str(tmp_path / "range"))
    assert all(10000 <= port < 15000 for port in found)


def test_a_port_that_is_taken_at_any_interface_is_not_free(monkeypatch):
    [free] = launch.free_ports(1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.2", 0))
        ports = [taken.getsockname()[1], free]
        monkeypatch.setattr("random.sample", lambda *_: ports)
        assert launch.free_ports(1) == [free]


def test_more_workers_than_any_machine_has_use_for_are_refused_at_once(tmp_path):
    command = [sys.executable, "-m", "bert", "launch", "--workers=5000", "run_ner"]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run(
        command, check=False, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1
    assert "`--workers` must be" in ended.stderr and "1024" in ended.stderr
    assert not [*tmp_path.iterdir()]


def test_what_earlier_runs_have_left_is_seen_elsewhere_too():
    command = ["run_pretraining", "--output_dir=ram://test_scale_launch"]
    assert launch._find_list(read_command(command).output_dir) is None
    path = f"ram://test_scale_launch/{LIST_FILE}"
    found = []
    for text in ("[]", "[1]"):
        with tf.io.gfile.GFile(path, "w") as file:
            file.write(text)
        found.append(launch._find_list(read_command(command).output_dir))
        assert launch._find_list(read_command(command).output_dir) == found[-1]
    assert found[0] != found[1] and None not in found


def test_an_unnamed_signal_is_shown_by_number():
    assert launch.describe_end(1, -35, False) == "Worker 1 was killed by signal 35."


def test_threads_and_gpus_are_shared(monkeypatch, tmp_path):
    # As `taskset` and SLURM leave it: a machine of many cores, of which this process has seven.
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(10, 17)})
    shares = share_machine({"A": "b"}, 3, [])
    assert shares == [{"A": "b", "TF_NUM_INTRAOP_THREADS": "2"}] * 3
    assert share_machine({"TF_NUM_INTRAOP_THREADS": "5"}, 1, []) == [
        {"TF_NUM_INTRAOP_THREADS": "5"}
    ]
    gpus = [each["CUDA_VISIBLE_DEVICES"] for each in share_machine({}, 2, ["4", "5", "7", "8"])]
    assert gpus == ["4,5", "7,8"]
    with pytest.raises(ValueError, match=r"a GPU for each worker.*Received 1 for 2 workers"):
        share_machine({}, 2, ["0"])
    for number in range(2):
        (tmp_path / f"proc/driver/nvidia/gpus/0000:0{number}").mkdir(parents=True)
    assert launch.list_gpus({}, str(tmp_path)) == ["0", "1"]
    assert launch.list_gpus({"CUDA_VISIBLE_DEVICES": "3"}, str(tmp_path)) == ["3"]
    assert launch.list_gpus({}, str(tmp_path / "none")) == []


@pytest.mark.parametrize(
    ("chosen", "gpus"),
    [
        # As SLURM hides GPUs, then others.
        *(("NoDevFiles", []), ("void", []), ("none", []), ("", []), (" ", []), ("-1", [])),
        *(("0,-1,1", ["0"]), ("2,none,3", ["2"]), ("0,", ["0"]), (",0", [])),
        *((" 0 , 1 ", ["0", "1"]), ("10,0", ["10", "0"])),
        ("GPU-8932f937-d72c,MIG-GPU-8932/1/2", ["GPU-8932f937-d72c", "MIG-GPU-8932/1/2"]),
    ],
)
def test_the_first_invalid_entry_ends_the_list_of_gpus(chosen, gpus):
    assert launch.list_gpus({"CUDA_VISIBLE_DEVICES": chosen}) == gpus


def test_script_is_run_as_bert_runs_it():
    script = str(ROOT / "run_squad.py")
    expected = [sys.executable, script, "--strategy=multi_worker", "--do_train"]
    assert make_command(["run_squad", "--do_train"]) == expected
    assert make_command(["./run_squad.py", "--do_train"]) == expected
    for given in (["--strategy=multi_worker"], ["-strategy", "multi_worker"]):
        assert make_command(["run_squad", *given, "--do_train"]) == expected


@pytest.fixture
def flag_file(tmp_path):
    """Returns a file of flags that names another one."""
    (tmp_path / "inner.txt").write_text("# of this machine\n\n--output_dir=inner\n")
    file = tmp_path / "flags.txt"
    file.write_text(
        f"--do_train\n// what follows is read in place\n--flagfile={tmp_path}/inner.txt\n"
    )
    return file


@pytest.mark.parametrize("words", [["--flagfile={}"], ["-flagfile={}"], ["--flagfile", "{}"]])
def test_workers_get_the_flags_of_flag_files(flag_file, words):
    words = ["run_ner", "--seed", "7", *(word.format(flag_file) for word in words), "--do_eval"]
    rest = ["--seed", "7", "--do_train", "--output_dir=inner", "--do_eval"]
    assert make_command(words)[2:] == ["--strategy=multi_worker", *rest]


def test_strategy_in_a_flag_file_is_the_launchers_or_refused(flag_file):
    words = ["run_ner", f"--flagfile={flag_file}"]
    expected = make_command(words)
    flag_file.with_name("inner.txt").write_text("--strategy=multi_worker\n--output_dir=inner\n")
    assert make_command(words) == expected
    flag_file.with_name("inner.txt").write_text("--strategy\nmirrored\n")
    with pytest.raises(ValueError, match="Received `--strategy=mirrored`: leave it out"):
        make_command(words)


def test_missing_flag_file_is_named_in_a_line(tmp_path):
    line = rf"^Flags must be as `--help` .* No such file or directory: '{tmp_path}/none'\.$"
    with pytest.raises(ValueError, match=line):
        make_command(["run_ner", f"--flagfile={tmp_path}/none"])
    (tmp_path / "binary").write_bytes(b"--do_train\n\xff")
    with pytest.raises(ValueError, match=r"^Flags must be as `--help` .* codec can't decode"):
        make_command(["run_ner", f"--flagfile={tmp_path}/binary"])


@pytest.mark.parametrize(
    ("words", "rest"),
    [
        (["--do_train"], ["--do_train"]),
        (["--overwrite_output_dir", "--do_train"], ["--do_train"]),
        (["--overwrite_output_dir", "--nooverwrite_output_dir"], []),
        (["--nooverwrite_output_dir", "-overwrite_output_dir=True", "--"], ["--"]),
        (["--output_dir", "overwrite_output_dir"], ["--output_dir", "overwrite_output_dir"]),
    ],
)
def test_a_resumed_command_never_overwrites(words, rest):
    command = [sys.executable, "run_ner.py"]
    assert without_overwriting([*command, *words]) == [*command, *rest]


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ([], "must be given a script that trains.*Received ''"),
        (["run_sqad"], r"Received 'run_sqad'. Did you mean 'run_squad'\?"),
        (["predict", "--x"], "Received 'predict'. Give run_pretraining or run_classifier"),
        (["run_ner", "--strategy=mirrored"], "gives `--strategy=multi_worker` itself"),
        (["run_ner", "--strategy", "mirrored"], "gives `--strategy=multi_worker` itself"),
        (["run_ner", "--strategy"], "must be as `--help` .* Missing value for flag --strategy"),
    ],
)
def test_what_cannot_be_launched_is_refused(arguments, wrong):
    with pytest.raises(ValueError, match=wrong):
        make_command(arguments)


def test_flags_behind_the_script_are_its_own():
    own = ["--workers", "2", "--worker_logs=x"]
    behind = ["run_ner", "--do_train", "--help"]
    assert split_arguments([*own, *behind]) == [*own, "--", *behind]
    assert split_arguments(["run_nr", "--do_train"]) == ["--", "run_nr", "--do_train"]
    assert split_arguments(["--workers", "2", "--help"]) == ["--workers", "2", "--help"]


def test_all_scripts_that_take_a_strategy_can_be_launched():
    scripts = {name for name in bert.SCRIPTS if name.startswith("run_")}
    assert {*TRAINING} == scripts
    # It has the flags of run_classifier, too.
    others = scripts - {"run_classifier_with_tfhub"}
    assert all(hasattr(importlib.import_module(name).Settings, "strategy") for name in others)
