import itertools
import os
import signal

import pytest
from conftest import run_python
from helpers.power_loss import PowerLoss

from bert.files.row_writer import ResumableFile, open_resumable


def is_double(line, number):
    return line.strip() == b"%d" % (2 * number)


def write_doubles(path, numbers, key="key", stop_at=None, make=None):
    """Writes the doubles, and returns those that were made for it."""
    made = []
    with open_resumable(str(path), key, make) as output:
        for number in output.skip_answered(iter(numbers), is_double):
            if number == stop_at:
                raise KeyboardInterrupt
            made.append(number)
            output.write(b"%d\n" % (2 * number))
    return made


def test_a_second_run_resumes_after_the_lines_of_the_first(tmp_path):
    path = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        write_doubles(path, range(9), stop_at=4)
    assert os.listdir(tmp_path) == ["out.key.unfinished"]
    assert write_doubles(path, range(9)) == [4, 5, 6, 7, 8]
    assert os.listdir(tmp_path) == ["out"]
    assert path.read_text() == "".join(f"{2 * number}\n" for number in range(9))


@pytest.mark.parametrize(
    ("kept", "made"),
    [
        (b"0\n2\n4\n", [3, 4]),
        (b"0\n2\n4", [2, 3, 4]),
        (b"0\n5\n4\n", [1, 2, 3, 4]),
        (b"0\n2\n4\n6\n8\n10\n", []),
        (b"\xff", [0, 1, 2, 3, 4]),
    ],
)
def test_lines_are_reused_up_to_the_first_wrong_one(tmp_path, kept, made):
    (tmp_path / "out.key.unfinished").write_bytes(kept)
    assert write_doubles(tmp_path / "out", range(5)) == made
    assert (tmp_path / "out").read_bytes() == b"0\n2\n4\n6\n8\n"


@pytest.mark.parametrize("kept", range(8))
def test_the_chunk_that_was_begun_is_given_again(tmp_path, kept):
    (tmp_path / "out.key.unfinished").write_bytes(b"".join(b"%d\n" % (2 * n) for n in range(kept)))
    with open_resumable(str(tmp_path / "out"), "key") as output:
        left = [*output.skip_answered(iter(range(8)), is_double, chunk=3)]
        assert (output.count, output.num_rewritten) == (kept, kept % 3)
        assert left == [*range(kept - kept % 3, 8)]
        for number in left[output.num_rewritten :]:
            output.write(b"%d\n" % (2 * number))
    assert (tmp_path / "out").read_text() == "".join(f"{2 * n}\n" for n in range(8))


def test_what_another_run_has_written_meanwhile_is_not_replaced(tmp_path):
    def refuse():
        raise ValueError("mine")

    path = tmp_path / "out"
    path.write_text("mine")
    with (
        pytest.raises(ValueError, match="mine"),
        open_resumable(str(path), "key", None, refuse) as out,
    ):
        out.write(b"0\n")
    assert path.read_text() == "mine"
    assert (tmp_path / "out.key.unfinished").read_bytes() == b"0\n"


def test_lines_of_another_run_are_not_changed(tmp_path):
    (tmp_path / "out.other.unfinished").write_bytes(b"0\n")
    assert write_doubles(tmp_path / "out", range(3)) == [0, 1, 2]
    assert (tmp_path / "out.other.unfinished").read_bytes() == b"0\n"


def test_a_run_without_a_line_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        write_doubles(tmp_path / "out", range(3), stop_at=0)
    assert os.listdir(tmp_path) == []


def test_a_run_that_ends_while_it_reads_saved_lines_does_not_lose_them(tmp_path):
    kept = tmp_path / "out.key.unfinished"
    kept.write_bytes(b"0\n2\n4\n")
    # The second time, behind a line.
    for inputs in ([], [0]):
        reader = itertools.chain(inputs, map(interrupt, [1]))
        with (
            pytest.raises(KeyboardInterrupt),
            open_resumable(str(tmp_path / "out"), "key") as output,
        ):
            output.skip_answered(reader, is_double)
        assert kept.read_bytes() == b"0\n2\n4\n"


def interrupt(_):
    raise KeyboardInterrupt


def test_two_runs_do_not_write_one_file(tmp_path):
    lines = ResumableFile(str(tmp_path / "out"), "key")
    with pytest.raises(ValueError, match="must be written by one run at a time"):
        ResumableFile(str(tmp_path / "out"), "key")
    lines.leave()
    ResumableFile(str(tmp_path / "out"), "key").leave()


@pytest.mark.parametrize("make", [None, lambda lines, file: file.write(lines.read())])
def test_a_loss_of_power_leaves_all_lines_or_no_file(tmp_path, monkeypatch, make):
    whole = b"0\n2\n4\n"
    with monkeypatch.context() as patch, PowerLoss(tmp_path, patch) as power:
        write_doubles(tmp_path / "out", range(3), make=make)
    assert {state.get("out") for state in power.states.values()} == {None, whole}
    # Once it is written, it stays.
    assert {state["out"] for state in power.last} == {whole}


def test_lines_survive_a_kill(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from bert.files.row_writer import open_resumable\n"
        "with open_resumable(sys.argv[1], 'key') as output:\n"
        "    output.write(b'0\\n2\\n')\n"
        "    output.flush()\n"
        "    output.write(b'never')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    result = run_python("-c", code, str(tmp_path / "out"), check=False)
    assert result.returncode == -signal.SIGKILL
    assert write_doubles(tmp_path / "out", range(4)) == [2, 3]
