import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from helpers.forks import ROOT
from helpers.logs import log  # noqa: F401
from helpers.waiting import LONGEST, wait_until

from bert.files import owned
from bert.files.paths import index_path
from paper.estimates import Clock, Machine
from paper.jobs import Job, digest_all
from paper.ledger import Entry, Ledger
from paper.plan import Plan
from paper.recipe import LADDER
from paper.running import Runner, start_process
from paper.tables import Cell, Column, Row, Table

MACHINE = Machine("a processor, 2 cores", 200.0, "float32")
TEXT = "The first is here. The second is there.\n\n" * 9


def entry(name="a", **given):
    values = {
        "name": name,
        "kind": "classifier",
        "command": "python run_classifier.py",
        "scores": {"accuracy": 0.5},
        "seed": 1,
        "seconds": 60.0,
        "guessed": 30.0,
        "machine": "a processor, 2 cores",
        "versions": {"keras": "3"},
        "date": "2026-01-01",
    }
    return Entry(**{**values, **given})


def test_a_ledger_holds_what_was_added_for_whoever_opens_it_next(tmp_path):
    path = str(tmp_path / "ledger.json")
    ledger = Ledger(path)
    ledger.recipes["2h"] = LADDER[3].to_dict()
    ledger.add("1", entry("a"))
    ledger.add("2", entry("b", scores={}))
    again = Ledger(path)
    assert again.entries == {"1": entry("a"), "2": entry("b", scores={})}
    assert again.recipes["2h"] == json.loads(json.dumps(LADDER[3].to_dict()))
    assert again.scored({"a": "1", "b": "2", "c": "3"}) == {"a"}
    assert again.times("a processor, 2 cores") == [("classifier", 60.0, 30.0)] * 2
    assert again.times("another") == []


def test_a_job_that_ran_again_and_led_elsewhere_has_all_its_results(tmp_path):
    first, second, third = ({"perplexity": each} for each in (156.8, 85.0, 156.2))
    other, path = str(tmp_path / "other.json"), str(tmp_path / "ledger.json")
    Ledger(other).add("1", entry(scores=first))
    ledger = Ledger(path, [other])
    ledger.add("1", entry(scores=second))
    # On the same processor, the same comes of it, which tells nothing more.
    ledger.add("1", entry(scores=first))
    ledger.add("1", entry(scores=second))
    ledger.add("1", entry(scores=third))
    for again in (ledger, Ledger(path), Ledger(path, [other])):
        assert sorted(each["perplexity"] for each in again.entries["1"].results) == [
            85,
            156.2,
            156.8,
        ]
        assert again.entries["1"].scores == third


def test_ledgers_of_others_are_read_and_never_written(tmp_path):
    other = str(tmp_path / "other.json")
    Ledger(other).add("1", entry("theirs"))
    before = (tmp_path / "other.json").read_bytes()
    mine = Ledger(str(tmp_path / "mine.json"), [other])
    mine.add("2", entry("mine"))
    assert set(Ledger(str(tmp_path / "mine.json")).entries) == {"1", "2"}
    assert (tmp_path / "other.json").read_bytes() == before


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"recipes": {}, "runs": {"1": {"name": "a"}}}'])
def test_what_is_no_ledger_is_refused_by_its_name(tmp_path, text):
    (tmp_path / "ledger.json").write_text(text)
    with pytest.raises(ValueError, match=r"ledger.json' must be a ledger of reproduce_paper.py"):
        Ledger(str(tmp_path / "ledger.json"))
    with pytest.raises(ValueError, match="`--ledger` must name files that can be read"):
        Ledger(str(tmp_path / "mine.json"), [str(tmp_path / "nowhere.json")])


def command(name, flags, **given):
    given = {"has_scores": False, **given}
    return Job(name, "text", "split_sentences", tuple(flags), 0.0, "out.txt", **given)


class Ended:
    """A process that has ended."""

    def __init__(self, status):
        self.status = status

    def poll(self):
        return self.status


def runner_of(folder, jobs, start=start_process, num_workers=1):
    """A runner of some commands, all of which are wanted."""
    by_name = {job.name: job for job in jobs}
    cells = tuple(Cell((job.name,), "f1") for job in jobs)
    row = Row("", "", cells, (None,) * len(cells))
    table = Table("table5", "", "", (Column("", ""),) * len(cells), (row,))
    plan = Plan(LADDER[0], by_name, {}, [table], digest_all(by_name, {}))
    ledger = Ledger(str(folder / "ledger.json"))
    given = {"num_workers": num_workers, "start": start}
    return Runner(plan, ledger, Clock(MACHINE), str(folder), MACHINE.name, **given)


def run(runner, **given):
    reports = []
    wanted = runner.plan.wanted(["table5"])
    runner.run(wanted, lambda failures: reports.append(len(failures)), **given)
    return reports


def test_commands_run_once_one_behind_the_other_and_failures_stop_only_what_needs_them(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    jobs = [
        command("good", [f"--input_file={tmp_path}/text.txt", "--output_file=<>/out.txt"]),
        command("bad", [f"--input_file={tmp_path}/nowhere", "--output_file=<>/out.txt"]),
        command("behind_bad", ["--input_file=<bad>/out.txt", "--output_file=<>/out.txt"]),
        command("behind_good", ["--input_file=<good>/out.txt", "--output_file=<>/out.txt"]),
    ]
    runner = runner_of(tmp_path / "run", jobs)
    assert run(runner) == [0, 1, 2, 2]
    first, second = runner.failures
    assert first.name == "bad" and "nowhere" in first.line
    assert first.line.startswith("`--input_file` must name")
    assert (second.name, second.line) == ("behind_bad", "It needs bad, which failed.")
    made = sorted(path.parent.name for path in tmp_path.glob("run/runs/*/out.txt"))
    assert [name.rpartition("-")[0] for name in made] == ["behind_good", "good"]
    # Again: what is in the ledger is not run, not even where its files are gone.
    again = runner_of(tmp_path / "run", jobs)
    assert [job.name for job in again.missing(again.plan.wanted(["table5"]))] == [
        *("bad", "behind_bad")
    ]
    noted = Ledger(str(tmp_path / "run/ledger.json")).entries.values()
    assert [each.name for each in noted] == ["good", "behind_good"]
    assert all(each.seconds > 0 and each.versions["tensorflow"] for each in noted)
    assert str(tmp_path / "run") not in "".join(each.command for each in noted)


def leave_scores(command, log, num_threads):
    """What a script does, as far as the runner sees it: it leaves files, and its status."""
    folder = command[-1].removeprefix("--output_dir=")
    os.makedirs(folder, exist_ok=True)
    name = os.path.basename(folder).rpartition("-")[0]
    if name == "silent":
        return Ended(0)
    values = {"f1": 0.25, "labels": {"x": 1}, "is_good": True}
    for part in ("eval", "test"):
        path = owned.claim(folder, f"{part}_results.json")
        with open(path, "w") as file:
            json.dump(values, file)
    with open(owned.claim(folder, "model.ckpt-1.index"), "w") as file:
        file.write("weights")
    with open(os.path.join(folder, "mine.txt"), "w") as file:
        file.write("of a user")
    return Ended(0)


def scored(name, *needs):
    flags = [f"--name={name}", *(f"--init=<{each}>" for each in needs), "--output_dir=<>"]
    return dataclasses.replace(command(name, flags, has_scores=True), makes="model.ckpt-1.index")


def test_scores_of_both_parts_are_noted_and_a_run_without_any_fails(tmp_path):
    runner = runner_of(tmp_path, [scored("loud"), scored("silent")], leave_scores)
    assert run(runner) == [0, 1]
    assert runner.ledger.scored(runner.plan.digests) == {"loud"}
    [loud] = [each for each in runner.ledger.entries.values() if each.name == "loud"]
    assert loud.results == [{"f1": 0.25, "test_f1": 0.25}]
    assert runner.failures[0].name == "silent"


@pytest.mark.parametrize("deletes", [True, False])
def test_weights_go_only_with_consent_and_when_nothing_begins_with_them(tmp_path, deletes):
    jobs = [scored("model"), scored("one", "model"), scored("silent", "model"), scored("other")]
    runner = runner_of(tmp_path, jobs, leave_scores)
    run(runner, deletes=deletes)
    weights = {
        path.parent.name.split("-")[0] for path in tmp_path.glob("runs/*/model.ckpt-1.index")
    }
    # What failed needs its model still.
    assert weights == ({"model"} if deletes else {"model", "one", "other"})
    kept = {path.parent.name.split("-")[0] for path in tmp_path.glob("runs/*/mine.txt")}
    assert kept == {"model", "one", "other"}
    assert runner.ledger.scored(runner.plan.digests) == {"model", "one", "other"}


def test_weights_go_when_nothing_is_left_to_run_too(tmp_path, log):
    jobs = [scored("model"), scored("one", "model"), scored("other")]
    run(runner_of(tmp_path, jobs, leave_scores))
    assert len(list(tmp_path.glob("runs/*/model.ckpt-1.index"))) == 3
    assert run(runner_of(tmp_path, jobs, leave_scores), deletes=True) == []
    assert not list(tmp_path.glob("runs/*/model.ckpt-1.index"))
    assert len(list(tmp_path.glob("runs/*/mine.txt"))) == 3
    assert sum("which nothing needs any more" in each for each in log.messages) == 3


def test_records_go_with_their_index_when_nothing_is_made_of_them_any_more(tmp_path):
    flags = {"records": [], "more": ["--input_file=<records>/out.txt"]}
    jobs = [command(name, [*each, "--output_file=<>/out.txt"]) for name, each in flags.items()]

    def start(command, log, num_threads):
        path = command[-1].removeprefix("--output_file=")
        for each in (path, index_path(path), os.path.join(os.path.dirname(path), "mine.txt")):
            with open(each, "w") as file:
                file.write("records")
        return Ended(0)

    run(runner_of(tmp_path, jobs, start))
    assert len(list(tmp_path.glob("runs/*/out.txt"))) == 2
    run(runner_of(tmp_path, jobs, start), deletes=True)
    left = [path.name for path in tmp_path.glob("runs/*/*")]
    assert left == ["mine.txt", "mine.txt"]


def test_a_model_that_is_made_again_keeps_what_it_begins_with(tmp_path):
    jobs = [scored("short"), scored("model", "short"), scored("one", "model")]
    run(runner_of(tmp_path, jobs, leave_scores), deletes=True)
    jobs.append(scored("new", "model"))
    seen = []

    def start(command, log, num_threads):
        seen.append(command[1])
        begins = [each.removeprefix("--init=") for each in command if each.startswith("--init=")]
        assert all(os.path.exists(f"{each}/model.ckpt-1.index") for each in begins)
        return leave_scores(command, log, num_threads)

    run(runner_of(tmp_path, jobs, start), deletes=True)
    assert seen == ["--name=short", "--name=model", "--name=new"]
    assert not list(tmp_path.glob("runs/*/model.ckpt-1.index"))


class Slow(Ended):
    """A process that ends when it is told to."""

    def __init__(self):
        super().__init__(None)


def test_several_run_at_once_each_behind_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.setattr("paper.running._SECONDS_BETWEEN_LOOKS", 0.001)
    jobs = [scored("a"), scored("b", "a"), scored("c"), scored("d"), scored("e", "b", "c")]
    order, running = [], {}

    def start(command, log, num_threads):
        name = command[1].removeprefix("--name=")
        leave_scores(command, log, num_threads)
        needs = {"b": "a", "e": "bc"}.get(name, "")
        # Whatever it needs is over, and no more than two are at it.
        assert all(running[each].status == 0 for each in needs)
        running[name] = Slow()
        alive = [each for each, process in running.items() if process.status is None]
        order.append(alive)
        if len(alive) == 2:
            # The second of them ends first.
            running[alive[-1]].status = 0
        if name in "bde":
            for each in running.values():
                each.status = 0
        return running[name]

    runner = runner_of(tmp_path, jobs, start, num_workers=2)
    run(runner)
    assert order == [["a"], ["a", "c"], ["a", "d"], ["b"], ["e"]]
    assert not runner.failures
    assert len(runner.ledger.entries) == 5


def test_the_times_of_jobs_at_once_add_up_to_the_time_that_passed(tmp_path):
    class Lasting(Ended):
        """A process that ends when it has been looked at some times."""

        def poll(self):
            self.status -= 1
            return 0 if self.status <= 0 else None

    def start(command, log, num_threads):
        leave_scores(command, log, num_threads)
        return Lasting(5)

    began = time.monotonic()
    runner = runner_of(tmp_path, [scored(name) for name in "abcd"], start, num_workers=4)
    run(runner)
    seconds = time.monotonic() - began
    noted = [each.seconds for each in runner.ledger.entries.values()]
    assert len(noted) == 4
    # Each is rounded to hundredths.
    assert sum(noted) <= seconds + 4 * 0.005
    assert min(noted) > 0


@pytest.mark.parametrize(("script", "is_kept"), [("run_squad", True), ("create_vocab", False)])
def test_what_goes_on_where_it_stopped_has_the_seconds_of_all_its_parts(tmp_path, script, is_kept):
    job = dataclasses.replace(scored("a"), script=script)
    runner = runner_of(tmp_path, [job], lambda *_: Ended(1))
    run(runner)
    ledger = runner.ledger
    assert [seconds > 0 for seconds in ledger.stopped.values()] == [True] * is_kept
    ledger.stopped = dict.fromkeys(ledger.stopped, 1000.0)
    ledger.save()
    mine, other = (str(tmp_path / name) for name in ("ledger.json", "other.json"))
    # What was stopped there does not go on here.
    assert Ledger(other, [mine]).stopped == {}
    run(runner_of(tmp_path, [job], leave_scores))
    [noted] = Ledger(mine).entries.values()
    assert (noted.seconds > 1000) == is_kept
    assert Ledger(mine).stopped == {}


@pytest.mark.parametrize(("num_workers", "expected"), [(1, "abcdefxy"), (2, "abcxdeyf")])
def test_what_would_run_alone_in_the_end_begins_before_its_turn(tmp_path, num_workers, expected):
    short = [dataclasses.replace(scored(name), gflop=1e4) for name in "abcdef"]
    long = [dataclasses.replace(job, gflop=1.6e4) for job in (scored("x"), scored("y", "x"))]
    order, running = [], []

    def start(command, log, num_threads):
        leave_scores(command, log, num_threads)
        order.append(command[1].removeprefix("--name="))
        process = Slow()
        running.append(process)
        # As soon as there is no room for another, or no other, the first of them ends.
        if len(running) == num_workers or len(order) == len(short + long):
            running.pop(0).status = 0
        if len(order) == len(short + long):
            process.status = 0
        return process

    run(runner_of(tmp_path, [*short, *long], start, num_workers=num_workers))
    assert "".join(order) == expected


STOPPED = """
import sys
import time
sys.path[:0] = [*{tests!r}, {root!r}]
from pathlib import Path
from absl import app
from bert.commands.console import run_script
import test_paper_running as tests
def main(_):
    flags = ["--input_file={folder}/text.txt", "--output_file=<>/out.txt"]
    tests.run(tests.runner_of(Path("{folder}/run"), [tests.command("waits", flags)]))
run_script(main)
"""


def test_a_signal_ends_the_command_too_and_nothing_is_noted(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT * 100_000)
    code = STOPPED.format(
        tests=[str(ROOT / "tests"), str(ROOT / "paper" / "tests")],
        root=str(ROOT),
        folder=str(tmp_path),
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    try:
        # What it has begun to write.
        begun = "run/runs/*/.out.txt.*.tmp"
        wait_until(lambda: [*tmp_path.glob(begun)] or process.poll() is not None, LONGEST)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    finally:
        process.kill()
    assert not (tmp_path / "run" / "ledger.json").exists()
    assert list(tmp_path.glob("run/runs/*/*out.txt*")) == []


def test_a_command_is_of_this_project_whatever_lies_in_the_folder(tmp_path, monkeypatch):
    (tmp_path / "bert.py").write_text("print('another program')\n")
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "log").open("wb") as log:
        assert start_process(["split_sentences", "--help"], log, 1).wait() == 0
    said = (tmp_path / "log").read_text()
    assert "--document_gap" in said and "another program" not in said


KILLED = """
import sys, time
sys.path.insert(0, {root!r})
from paper.running import start_process
with open({log!r}, "wb") as log:
    flags = ["--input_file={fifo}", "--output_file={fifo}.out"]
    print(start_process(["split_sentences", *flags], log, 1).pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends them")
def test_a_command_ends_with_a_parent_that_is_killed(tmp_path):
    fifo, log = tmp_path / "fifo", tmp_path / "log"
    os.mkfifo(fifo)
    code = KILLED.format(root=str(ROOT), log=str(log), fifo=fifo)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with process:
        child = int(process.stdout.readline())
        assert is_alive(child)
        process.kill()
    # It reads what nobody writes.
    wait_until(lambda: not is_alive(child))


def is_alive(number):
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
