import subprocess
import sys

import pytest
from conftest import ROOT, run_python

import bert


def run(*arguments):
    """Runs this interpreter on the arguments."""
    return run_python(*map(str, arguments), check=False)


# Flags of the second come from two scripts.
@pytest.mark.parametrize("script", ["split_sentences", "run_classifier_with_tfhub"])
@pytest.mark.parametrize(("flag", "status"), [("--help", 0), ("--no_such_flag", 1)])
def test_script_speaks_as_it_does_by_itself(script, flag, status):
    by_itself, started = run(ROOT / f"{script}.py", flag), run("-m", "bert", script, flag)
    assert started.returncode == by_itself.returncode == status
    assert started.stdout == by_itself.stdout
    # Before that stands the time.
    assert started.stderr.partition("`")[2] == by_itself.stderr.partition("`")[2]
    expected = (
        "\nOutput:\n" if flag == "--help" else f"--no_such_flag` must be a flag of {script}.py"
    )
    assert expected in started.stdout + started.stderr


@pytest.mark.parametrize("arguments", [[], ["help"], ["--help"], ["-h"]])
def test_scripts_are_listed_with_what_they_say_of_themselves(arguments):
    result = run("-m", "bert", *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in result.stdout.splitlines()[4:])
    scripts = [script for script in bert.SCRIPTS if script != "inspect_text"]
    assert tuple(lines) == (*scripts, "launch", "inspect", "compare")
    assert lines["run_swag"] == (
        "Fine-tunes, evaluates and applies models that choose the ending of a text "
        "(paper, section 4.4)."
    )
    assert all(line.endswith(".") for line in lines.values())


def test_listing_imports_no_script():
    code = "import sys; from bert.__main__ import main; main(); print(*sys.modules)"
    loaded = set(run("-c", code).stdout.splitlines()[-1].split())
    assert {"tensorflow", "keras", "absl", *bert.SCRIPTS} & loaded == set()


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("run_sqad", "Did you mean `bert run_squad`?"),
        ("run_ner.py", "Did you mean `bert run_ner`?"),
        ("modeling", "`bert --help` lists them."),
        ("--output_dir=here", "`bert --help` lists them."),
    ],
)
def test_unknown_script_is_an_error(name, remedy):
    result = run("-m", "bert", name, "--help")
    expected = f"`bert` must be given one of the scripts. Received {name!r}. {remedy}\n"
    assert (result.returncode, result.stdout, result.stderr) == (1, "", expected)


def test_modules_of_the_user_are_not_taken_for_the_scripts(tmp_path):
    for name in ("predict", "tokenization"):
        (tmp_path / f"{name}.py").write_text('"""Mine."""\nprint("mine")\n')
    code = f"import sys; sys.path.append({str(ROOT)!r}); from bert.__main__ import main; main()"
    for arguments in (["predict", "--help"], ["--help"]):
        # The folder that one is in comes first, as an empty name in PYTHONPATH makes it.
        result = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (result.returncode, result.stderr) == (0, "")
        assert "Predicts with a fine-tuned model" in result.stdout
        assert "mine" not in result.stdout.lower()


def test_work_is_done_in_several_processes(tmp_path):
    vocabularies = []
    for command in (["-m", "bert", "create_vocab"], ["create_vocab.py"]):
        output = tmp_path / "vocab.txt"
        flags = ["--vocab_size=500", "--num_processes=2", "--input_file=sample_text.txt"]
        result = run(*command, *flags, f"--output_file={output}")
        assert result.returncode == 0, result.stderr
        vocabularies.append(output.read_text(encoding="utf-8").splitlines())
        output.unlink()
    assert vocabularies[0] == vocabularies[1]
    assert len(vocabularies[0]) == 500


def test_launcher_teaches_and_refuses_without_loading_what_is_slow():
    shown = run("-m", "bert", "launch", "--help")
    assert shown.returncode == 0, shown.stderr
    assert "bert launch --workers=2 run_pretraining" in shown.stdout
    assert "--max_restarts" in shown.stdout
    refused = run("-m", "bert", "launch", "--workers=2", "run_sqad", "--do_train")
    assert refused.returncode == 1
    assert refused.stderr.endswith(" Received 'run_sqad'. Did you mean 'run_squad'?\n")
    code = (
        "import sys, bert.commands.launch; print({'tensorflow', 'keras', 'numpy'} & {*sys.modules})"
    )
    assert run("-c", code).stdout == "set()\n"
