import io
import json
import re
import shutil

import pytest
from conftest import GOLDEN
from helpers.forks import fork_python
from helpers.served_models import save_model
from helpers.tagging_runs import write_task
from helpers.word_vector_files import write_vectors

import inspect_text
import run_ner
import run_pretraining
from bert.commands.checks import UNCHECKED, WRONG, Checks

TEXT = "the Old [MASK] told"


@pytest.fixture
def settings(tmp_path):
    def make(**changes):
        values = {"model_dir": str(GOLDEN), "do_lower_case": True}
        return inspect_text.Settings(
            **{**values, "output_file": str(tmp_path / "page.html"), **changes}
        )

    return make


def piped(text):
    return io.TextIOWrapper(io.BytesIO(text))


def check(settings, texts):
    """Returns what `--check` shows, mark and text by the name of a line."""
    checks = Checks()
    inspect_text.check(settings, checks, texts)
    return {line.name: (line.mark, line.text) for line in checks.lines}


def content_of(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="content">(.*?)</script>', text, re.DOTALL)[1])


def test_it_is_printed_and_written(settings, tmp_path, capsys):
    inspection = inspect_text.run(settings(text_b="who heard?", top_k=2), [TEXT])
    page = content_of(tmp_path / "page.html")
    assert page["tokens"] == inspection.reading.tokens
    assert page["masks"][0]["position"] == 3
    assert len(page["masks"][0]["layers"]) == 3
    assert all(len(guesses) == 2 for guesses in page["masks"][0]["layers"])
    assert page["is_next"] == pytest.approx(inspection.is_next, rel=1e-5)
    printed = capsys.readouterr().out
    assert printed.startswith(f"{TEXT} ||| who heard?\n")
    assert f"{inspection.is_next:.4f}  is the probability" in printed


def test_without_a_page_nothing_is_written(settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", piped(f"\ufeff{TEXT}\r\n\n".encode()))
    inspection = inspect_text.run(settings(output_file=""), [])
    assert inspection.reading.texts == (TEXT, "")
    assert not list(tmp_path.iterdir())


def test_a_wrong_standard_input_is_told_before_a_model_is_opened(settings, tmp_path, monkeypatch):
    nowhere = settings(model_dir=str(tmp_path / "nowhere"))
    monkeypatch.setattr("sys.stdin", piped("the first\nthe caf\u00e9".encode("latin-1")))
    with pytest.raises(ValueError, match=r"^standard input:2: text must be UTF-8.*caf\\xe9"):
        inspect_text.run(nowhere, [])
    monkeypatch.setattr("sys.stdin", piped(b" \n\n"))
    with pytest.raises(ValueError, match=r"There must be a text, .*standard input, which is empty"):
        inspect_text.run(nowhere, [])
    monkeypatch.setattr("sys.stdin", piped(b"the"))
    with pytest.raises(ValueError, match="`model_dir`"):
        inspect_text.run(nowhere, [])


def test_a_second_text_too_many_is_shown_by_check_wherever_the_first_is(settings, tmp_path):
    folder = save_model("labels", tmp_path / "model")
    message = "text_b` must not be given for a model that takes one text. Received 'b'."
    values = {"model_dir": folder, "do_lower_case": None}
    for texts, name in ((["a"], "tokens"), ([], "second text")):
        lines = check(settings(**values, text_b="b"), texts)
        assert lines[name] == (WRONG, f"`--{message}")
        assert [mark for mark, _ in lines.values()].count(WRONG) == 1
        good = check(settings(**values), texts)
        assert WRONG not in [mark for mark, _ in good.values()]
    assert good["tokens"] == (UNCHECKED, "not counted, for standard input is left to the run")
    with pytest.raises(ValueError, match=re.escape(message)):
        inspect_text.run(settings(**values, text_b="b"), ["a"])


@pytest.mark.usefixtures("eager")
def test_a_model_of_lstms_shows_its_pieces_and_says_what_it_lacks(
    pretraining_run, settings, tmp_path, capsys
):
    run_pretraining.run(pretraining_run(objective="bilstm_lm", num_train_steps=1))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "##s", *map(str, range(99))]
    output = tmp_path / "output"
    size = json.loads((output / "bert_config.json").read_text())["vocab_size"]
    (output / "vocab.txt").write_text("".join(f"{word}\n" for word in words[:size]))
    capsys.readouterr()
    lstms = settings(model_dir=str(output))
    assert WRONG not in [mark for mark, _ in check(lstms, ["thes"]).values()]
    inspection = inspect_text.run(lstms, ["thes"])
    assert inspection.reading.tokens == ["[CLS]", "the", "##s", "[SEP]"]
    assert inspection.attention.shape == (0, 0, 4, 4) and inspection.masks == {}
    notes = [
        "The model has no attention: its layers are LSTMs.",
        "The model reads each side of a token by itself: it fills no [MASK].",
    ]
    assert inspection.notes == notes
    assert "\n".join(notes) in capsys.readouterr().out
    page = content_of(tmp_path / "page.html")
    assert page["notes"] == notes and page["attention"] == [] and "heads" not in page["facts"]
    assert page["tokens"] == inspection.reading.tokens


@pytest.mark.usefixtures("eager")
def test_a_tagger_on_word_vectors_is_told_to_have_no_encoder(settings, tmp_path):
    write_task(tmp_path, count=8)
    run_ner.run(
        run_ner.Settings(
            data_dir=str(tmp_path),
            output_dir=str(tmp_path / "tagger"),
            do_train=True,
            feature_based=True,
            word_vectors=write_vectors(tmp_path / "vectors.txt"),
            lstm_size=2,
            max_seq_length=32,
            train_batch_size=8,
            num_train_epochs=1.0,
        )
    )
    tagger = settings(model_dir=str(tmp_path / "tagger"), do_lower_case=None)
    with pytest.raises(ValueError, match=r"`model_dir` must have an encoder.*word vectors alone"):
        inspect_text.run(tagger, ["Ada saw Bo ."])
    mark, message = check(tagger, ["Ada saw Bo ."])["model"]
    assert mark == WRONG and "word vectors alone" in message


def test_an_older_page_goes_and_what_is_mine_stays(settings, tmp_path):
    path = tmp_path / "page.html"
    inspect_text.run(settings(), [TEXT])
    older = path.read_text(encoding="utf-8")
    inspect_text.run(settings(), ["the [MASK]"])
    assert path.read_text(encoding="utf-8") != older
    path.write_text("mine")
    with pytest.raises(ValueError, match=r"`output_file` must name a new file.*`overwrite=True`"):
        inspect_text.run(settings(), [TEXT])
    assert path.read_text() == "mine"
    shutil.copytree(GOLDEN, tmp_path / "model", ignore=lambda *_: ["squad_v1", "squad_v2"])
    vocab = tmp_path / "model/vocab.txt"
    with pytest.raises(ValueError, match="`output_file` must not name a file of a model"):
        inspect_text.run(settings(output_file=str(vocab)), [TEXT])


def test_several_texts_are_an_error(settings, tmp_path):
    with pytest.raises(ValueError, match=r"one text, in quotes. Received \['He', 'went'\]"):
        inspect_text.run(settings(), ["He", "went"])
    assert not list(tmp_path.iterdir())


def test_the_text_stands_on_the_command_line_among_flags(tmp_path):
    flags = [f"--model_dir={GOLDEN}", "--do_lower_case", f"--output_file={tmp_path / 'page.html'}"]
    as_bert = "import sys; from bert.__main__ import main; sys.argv[0] = 'bert'; main()"
    result = fork_python("-c", as_bert, "inspect", flags[0], TEXT, *flags[1:])
    assert result.stdout.startswith(f"{TEXT}\n")
    assert content_of(tmp_path / "page.html")["texts"] == [TEXT]
