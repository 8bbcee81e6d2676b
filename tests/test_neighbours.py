import dataclasses
import io
import json
import os
import sys

import numpy as np
import pytest
from conftest import GOLDEN, exhaustive
from helpers.remembered import remembered

import extract_features
import neighbours
import tokenization
from bert.commands.checks import WRONG, Checks
from bert.models import neighbours as neighbours_module
from bert.weights.checkpoint import Stored
from bert.weights.saving import save_tensors

TEXTS = ["the old house", "he told it", "who heard?", "the house was old", "cat and dog"]


@pytest.fixture(autouse=True, scope="module")
def _opened_once():
    def key_of(folder, batch_size=32, *, with_heads):
        return folder.stored.prefix, batch_size, with_heads

    with remembered(neighbours_module, "PretrainedModel", key_of):
        yield


def extract(input_file, output_file, **changes):
    """Writes vectors of texts, pooled, for queries among them."""
    values = {
        "init_checkpoint": str(GOLDEN / "bert_model.ckpt"),
        "layers": "-1",
        "pooling": "mean",
        "max_seq_length": 16,
        **changes,
    }
    files = {"input_file": str(input_file), "output_file": str(output_file)}
    extract_features.run(extract_features.Settings(**files, **values))
    return str(output_file)


@pytest.fixture
def ask(tmp_path):
    """A function that returns what is found for each query."""
    (tmp_path / "text.txt").write_text("".join(f"{text}\n" for text in ["", *TEXTS]))

    def ask(**changes):
        values = {
            "init_checkpoint": str(GOLDEN / "bert_model.ckpt"),
            "input_file": str(tmp_path / "text.txt"),
            "output_file": str(tmp_path / "out"),
            "max_seq_length": 16,
            "overwrite": True,
            **changes,
        }
        neighbours.run(neighbours.Settings(**values))
        return [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]

    return ask


def piped(content):
    return io.TextIOWrapper(io.BytesIO(content))


def names(answer):
    return [each["text"] for each in answer["neighbours"]]


@pytest.mark.parametrize("center", [False, True])
def test_a_sentence_is_nearest_to_itself_and_all_are_sorted(ask, center):
    (answer,) = ask(query=TEXTS[1], center=center)
    assert answer["query"] == names(answer)[0] == TEXTS[1]
    assert sorted(names(answer)) == sorted(TEXTS)
    cosines = [each["cosine"] for each in answer["neighbours"]]
    assert cosines[0] == pytest.approx(1, abs=1e-5)
    assert cosines == sorted(cosines, reverse=True)


@pytest.mark.parametrize("kind", ["sentences", "vectors", "words"])
def test_a_pair_is_asked_for_as_it_stands_in_a_file(ask, tmp_path, kind):
    pair = "the old house ||| he told it"
    (tmp_path / "text.txt").write_text("".join(f"{text}\n" for text in [*TEXTS, pair]))
    changes = {"query": pair}
    if kind == "vectors":
        changes["input_file"] = extract(tmp_path / "text.txt", tmp_path / "v.npz")
    if kind == "words":
        changes = {"word": "told", "context": pair}
    (answer,) = ask(**changes)
    assert answer["neighbours"][0]["cosine"] == pytest.approx(1, abs=1e-5)
    assert names(answer)[0] == ("the old house he [told] it" if kind == "words" else pair)


def test_a_query_that_is_not_utf_8_is_written_as_json_has_it(ask):
    query = os.fsdecode(b"the house \xff")
    (answer,) = ask(query=query)
    assert answer["query"] == query
    assert sorted(names(answer)) == sorted(TEXTS)


def test_each_line_of_standard_input_is_answered(ask, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", piped(f"{TEXTS[0]}\n\n{TEXTS[2]}\n".encode()))
    answers = ask(top_k=1)
    assert [names(answer) for answer in answers] == [[TEXTS[0]], [TEXTS[2]]]
    before = (tmp_path / "out").read_bytes()
    monkeypatch.setattr(sys, "stdin", piped(b"\n"))
    with pytest.raises(ValueError, match="There must be a query"):
        ask()
    assert (tmp_path / "out").read_bytes() == before
    monkeypatch.setattr(sys, "stdin", piped("the house\nthe caf\u00e9\n".encode("latin-1")))
    with pytest.raises(ValueError, match=r"^standard input:2: text must be UTF-8"):
        ask()


def test_ready_vectors_give_the_same_neighbours_and_their_ids(ask, tmp_path):
    table = "".join(f"{number}\t{text}\n" for number, text in enumerate(TEXTS))
    (tmp_path / "t.tsv").write_text(f"id\ttext\n{table}")
    given = {"input_file": str(tmp_path / "t.tsv"), "id_column": "id"}
    archive = extract(output_file=tmp_path / "v.NPZ", **given, layers="-2")
    (expected,) = ask(**given, query="a house", layer="-2")
    (found,) = ask(input_file=archive, query="a house")
    for one, other in zip(found["neighbours"], expected["neighbours"], strict=True):
        assert TEXTS[int(one["id"])] == one["text"]
        assert (one["id"], one["text"]) == (other["id"], other["text"])
        assert one["cosine"] == pytest.approx(other["cosine"], abs=1e-5)
    extract(output_file=archive, **given, layers="0,1", overwrite=True)
    with pytest.raises(ValueError, match="of one layer"):
        ask(input_file=archive, query="a house")
    with open(archive, "rb+") as file:
        file.truncate(os.path.getsize(archive) - 30)
    with pytest.raises(ValueError, match=r"v\.NPZ' must be a complete NumPy file"):
        ask(input_file=archive, query="a house")


@pytest.mark.parametrize(
    ("width", "message"),
    [
        (15, r"of the model, of 16 values\. It has 15 of each"),
        (17, r"of the model, of 16 values\. It has 17 of each"),
        (16, r"of the model\. That of 'a' and the model's have a cosine of [-0]"),
    ],
)
def test_ready_vectors_of_another_model_are_refused(ask, tmp_path, width, message):
    texts = {name: np.array([value]) for name, value in {"layers": "-1", "pooling": "mean"}.items()}
    vectors = np.ones((2, 1, width), np.float32)
    np.savez(tmp_path / "v.npz", values=vectors, texts=np.array(["a", "b"]), **texts)
    with pytest.raises(ValueError, match=message):
        ask(input_file=str(tmp_path / "v.npz"), query="a house")


def test_ready_vectors_have_a_layer_and_a_pooling_of_their_own(ask, tmp_path):
    archive = extract(tmp_path / "text.txt", tmp_path / "v.npz", layers="0", pooling="max")
    found = [ask(input_file=archive, query="a house", **given) for given in ({}, {"layer": "0"})]
    assert found == 2 * [ask(input_file=archive, query="a house", pooling="max")]
    for given, stored in (({"layer": "1"}, "layer` must be 0"), ({"pooling": "mean"}, "be max")):
        with pytest.raises(ValueError, match=f"{stored}, or absent, for the vectors in .*v.npz"):
            ask(input_file=archive, query="a house", **given)


@pytest.mark.parametrize(
    ("layers", "layer"), [("-1", "1"), ("1", "-1"), ("last", "-1"), ("0", "second_to_last")]
)
def test_ready_vectors_have_a_layer_by_any_of_its_names(ask, tmp_path, layers, layer):
    archive = extract(tmp_path / "text.txt", tmp_path / "v.npz", layers=layers)
    (answer,) = ask(input_file=archive, query=TEXTS[0], layer=layer)
    assert names(answer)[0] == TEXTS[0]


def test_ready_vectors_of_texts_that_the_archive_cuts_are_those_of_the_model(ask, tmp_path):
    # The archive has the first word alone of each.
    (tmp_path / "text.txt").write_text(f"who{' ' * 1000}heard?\nthe{' ' * 1000}house\n")
    archive = extract(tmp_path / "text.txt", tmp_path / "v.npz")
    (answer,) = ask(input_file=archive, query="who heard?")
    assert answer["neighbours"][0]["cosine"] == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("is_scaled", [False, *exhaustive(True)])
def test_a_sentence_is_itself_among_ready_vectors_of_any_length(ask, tmp_path, is_scaled):
    archive = extract(tmp_path / "text.txt", tmp_path / "v.npz", normalize=is_scaled)
    (answer,) = ask(input_file=archive, query=TEXTS[0], center=True)
    assert names(answer)[0] == TEXTS[0]
    assert answer["neighbours"][0]["cosine"] == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("center", [False, True])
def test_blank_texts_are_no_neighbours_among_ready_vectors(ask, tmp_path, center):
    rows = [{"text": text, "id": len(text)} for text in ["", *TEXTS, " \t", "\n"]]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    given = {"input_file": str(tmp_path / "t.jsonl"), "id_column": "id"}
    archive = extract(output_file=tmp_path / "v.npz", **given)
    (expected,) = ask(**given, query="a house", center=center)
    (found,) = ask(input_file=archive, query="a house", center=center)
    for one, other in zip(found["neighbours"], expected["neighbours"], strict=True):
        assert (one["id"], one["text"]) == (other["id"], other["text"])
        assert one["cosine"] == pytest.approx(other["cosine"], abs=1e-5)


@pytest.mark.parametrize("chunk", [2, *exhaustive(1, 4)])
def test_neighbours_do_not_depend_on_how_many_texts_are_read_at_a_time(
    ask, tmp_path, monkeypatch, chunk
):
    rows = [
        {"text": text, "id": f"é{number}"} for number, text in enumerate([*TEXTS, " ", "a\nline"])
    ]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    given = {"input_file": str(tmp_path / "t.jsonl"), "id_column": "id", "query": "a house"}
    (expected,) = ask(**given)
    monkeypatch.setattr(neighbours_module, "_CHUNK", chunk)
    (found,) = ask(**given)
    assert [(each["id"], each["text"]) for each in found["neighbours"]] == [
        (each["id"], each["text"]) for each in expected["neighbours"]
    ]
    assert {(each["id"], each["text"]) for each in found["neighbours"]} == {
        (row["id"], row["text"]) for row in rows if row["text"].strip()
    }
    cosines = [each["cosine"] for each in expected["neighbours"]]
    assert [each["cosine"] for each in found["neighbours"]] == pytest.approx(cosines, abs=1e-6)


def test_words_are_near_by_the_rows_of_the_table(ask):
    house, cat = ask(input_file=None, word="house,cat", top_k=400)
    found = names(house)
    assert "house" not in found
    assert "cat" in found
    assert not any(each.startswith(("[", "##")) or not each.isalnum() for each in found)
    vocab = (GOLDEN / "vocab.txt").read_text().splitlines()
    table = Stored.open(str(GOLDEN / "bert_model.ckpt")).read()["bert/embeddings/word_embeddings"]
    one, other = (table[vocab.index(word)] for word in ("house", found[0]))
    cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
    assert house["neighbours"][0]["cosine"] == pytest.approx(cosine, abs=1e-5)
    assert cat["query"] == "cat"


def test_a_word_alone_is_found_by_a_model_of_few_positions(ask):
    (expected,) = ask(input_file=None, word="house")
    # The default is more tokens than the model has positions.
    assert ask(input_file=None, word="house", max_seq_length=None) == [expected]
    with pytest.raises(ValueError, match="`max_seq_length` must be at least 3 and at most 64"):
        ask(query="a house", max_seq_length=None)


def test_a_word_is_no_neighbour_of_itself_however_it_is_written(ask, vectors, capfd):
    plain, capital = ask(input_file=None, word="house,House", top_k=5)
    assert capital["neighbours"] == plain["neighbours"]
    assert len(names(plain)) == 5
    neighbours.run(vectors(["the", "of"], word="The"))
    assert capfd.readouterr().out == "The\n  0.7071  of\n\n"


def test_pieces_that_stand_for_a_word_are_told(ask, log):
    (answer,) = ask(input_file=None, word="housecat")
    assert answer["query"] == "housecat"
    assert "'housecat' is no word of the vocabulary; its vector is the mean of ['" in log.text


def test_pieces_that_stand_for_a_word_are_no_neighbours_of_it(ask):
    pieces = tokenization.FullTokenizer(str(GOLDEN / "vocab.txt")).tokenize("housecat")
    own = {piece for piece in pieces if not piece.startswith("##")}
    (everything,) = ask(input_file=None, word="housecat", top_k=400)
    assert own and len(pieces) > 1
    assert own.isdisjoint(names(everything))
    (few,) = ask(input_file=None, word="housecat", top_k=5)
    assert names(few) == names(everything)[:5]
    # What is a piece of one word may be near to another one.
    (other,) = ask(input_file=None, word="cat", top_k=400)
    assert own <= {*names(other)}


def test_a_word_in_its_context_is_found_where_it_stands(ask):
    (answer,) = ask(word="house", context="The house was old", top_k=3)
    assert answer["query"] == "house: The house was old"
    assert names(answer)[0] == "the [house] was old"
    assert answer["neighbours"][0]["cosine"] == pytest.approx(1, abs=1e-5)
    # Standing elsewhere, it is not quite the same.
    (other,) = ask(word="house", context="an old house", top_k=3)
    assert other["neighbours"][0]["cosine"] < 1 - 1e-4


def test_a_word_is_shown_among_six_on_either_side(ask, tmp_path):
    line = "the old house was the old house who the old house was the cat"
    (tmp_path / "text.txt").write_text(f"{line}\n{line} dog\n")
    (answer,) = ask(word="who", context=line, max_seq_length=17, top_k=1)
    assert names(answer) == ["old house was the old house [who] the old house was the cat"]
    (answer,) = ask(word="dog", context=f"{line} dog", max_seq_length=17, top_k=1)
    assert names(answer) == ["the old house was the cat [dog]"]


def test_words_have_the_rows_of_their_numbers(tmp_path):
    table = np.array([[9, 9], [1, 0], [5, 5], [0, 2]], np.float32)
    save_tensors(str(tmp_path / "model.ckpt"), {"bert/embeddings/word_embeddings": table})
    # In another order, and with a number that no word has.
    tokenizer = tokenization.FullTokenizer.from_vocab({"[UNK]": 0, "b": 3, "a": 1})
    stored = Stored.open(str(tmp_path / "model.ckpt"))
    space = neighbours_module.table_space(stored, tokenizer, center=False)
    for word, vector in (("a", [1, 0]), ("b", [0, 2])):
        np.testing.assert_array_equal(space.look_up(word)[0], [vector])
        cosines, numbers = space.index.nearest(np.array([vector], np.float32), 1)
        assert (space.texts[numbers[0, 0]], cosines[0, 0]) == (word, 1)


def test_a_line_without_words_has_none_to_find(ask, tmp_path):
    given = {"word": "house", "context": "the old house", "top_k": 99}
    (expected,) = ask(**given)
    (tmp_path / "text.txt").write_text("".join(f"{text}\n" for text in ["* * *", *TEXTS, "..."]))
    (found,) = ask(**given)
    assert names(found) == names(expected)
    (tmp_path / "text.txt").write_text("* * *\n")
    assert ask(**given) == [{"query": "house: the old house", "neighbours": []}]


@pytest.fixture
def vectors(tmp_path):
    """A function that writes vectors of words, and returns settings to look one up."""

    def make(words, **changes):
        lines = [f"{word} {number} 1\n" for number, word in enumerate(words)]
        (tmp_path / "v.txt").write_text("".join(lines))
        return neighbours.Settings(word_vectors=str(tmp_path / "v.txt"), **changes)

    return make


@pytest.mark.parametrize(
    ("words", "word", "message"),
    [
        (["the", "of"], "the,zzz,of", "among the `word_vectors`. Received 'zzz', which has no"),
        (["the", "of"], "q,the,zzz", "Received 'q', 'zzz', which have no vector"),
        ([".", ","], ".", "`word_vectors` must have words, of letters or digits. Received '.'"),
    ],
)
def test_words_are_all_looked_up_before_one_is_told(vectors, capfd, words, word, message):
    settings = vectors(words, word=word)
    with pytest.raises(ValueError, match=message):
        neighbours.run(settings)
    assert not capfd.readouterr().out
    checks = Checks()
    neighbours.check(settings, checks)
    (line,) = (line for line in checks.lines if line.name == "word vectors")
    assert line.mark == WRONG


@pytest.mark.parametrize("changes", [{}, {"query": "unknown"}])
def test_without_a_word_no_vector_is_looked_up(vectors, monkeypatch, changes):
    monkeypatch.setattr(sys, "stdin", piped(b"unknown\n"))
    checks = Checks()
    neighbours.check(vectors(["the", "of"], **changes), checks)
    assert [line.name for line in checks.lines if line.mark == WRONG] == ["text"]
    assert sys.stdin.read() == "unknown\n"


def test_vectors_are_no_place_for_answers(vectors, tmp_path):
    settings = vectors(["the", "of"], word="the", overwrite=True)
    before = (tmp_path / "v.txt").read_bytes()
    with pytest.raises(ValueError, match="`output_file` must not name an input file"):
        neighbours.run(dataclasses.replace(settings, output_file=settings.word_vectors))
    assert (tmp_path / "v.txt").read_bytes() == before


def test_words_at_right_angles_have_a_cosine_of_0(vectors, tmp_path):
    settings = vectors(["one", "two"], word="one", output_file=str(tmp_path / "out"))
    (tmp_path / "v.txt").write_text("one 1 0\ntwo 0 1\n")
    neighbours.run(settings)
    [answer] = map(json.loads, (tmp_path / "out").read_text().splitlines())
    assert answer["neighbours"] == [{"cosine": 0.0, "text": "two"}]


@pytest.mark.parametrize("output", ["out", "-"])
def test_of_words_without_pieces_none_is_told(ask, tmp_path, capfd, output):
    output_file = output if output == "-" else str(tmp_path / output)
    with pytest.raises(ValueError, match="`word` must consist of pieces"):
        ask(word="house,\u4e00", input_file=None, output_file=output_file)
    assert not (tmp_path / "out").exists()
    assert not capfd.readouterr().out


def test_output_can_be_read(ask, capsysbinary, monkeypatch):
    settings = {"output_file": "-", "query": TEXTS[0], "top_k": 1}
    with pytest.raises(FileNotFoundError):
        ask(**settings)
    assert capsysbinary.readouterr().out.decode() == f"{TEXTS[0]}\n  1.0000  {TEXTS[0]}\n\n"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context": "the house"}, "`context` must be given with the `word`"),
        ({"word": "house", "query": "a"}, "Either `query` or `word`"),
        ({"word": "house"}, "`input_file` must be given with a `query` or a `context`"),
        ({"query": "a", "input_file": None}, "`input_file` must name the texts"),
        ({"word": "cat", "context": "a house"}, r"`word` must be a word of the `context`"),
        (
            {"word": "\u4e00", "context": "\u4e8c a \u4e00"},
            r"`word` must consist of pieces .* another word of the `context` may also be \[UNK\]",
        ),
        ({"word": "\u4e00", "input_file": None}, "`word` must consist of pieces of the vocab"),
        ({"query": "a", "layer": "9"}, "`layer` must be at least"),
        ({"query": "a", "layer": "last,0"}, "`layer` must name a single layer. Received 'last,0'"),
        ({"query": "a", "id_column": "x"}, "`id_column='x'` must be that of a table"),
    ],
)
def test_what_cannot_be_looked_for_is_refused(ask, changes, message):
    with pytest.raises(ValueError, match=message):
        ask(**changes)


def test_what_is_found_is_shown_in_a_line_that_no_terminal_obeys(ask, tmp_path):
    text = "the\x1b[2J\nold house"
    (tmp_path / "t.csv").write_text(f'text,name\n"{text}","a\nb"\nhe told it,c\n')
    with pytest.raises(json.JSONDecodeError):
        ask(
            format="text",
            input_file=str(tmp_path / "t.csv"),
            text_column="text",
            id_column="name",
            query=text,
        )
    query, first, second, blank = (tmp_path / "out").read_text().removesuffix("\n").split("\n")
    assert query == r"the\x1b[2J\nold house"
    assert first == r"  1.0000  the\x1b[2J\nold house  (a\nb)"
    assert second.endswith("  he told it  (c)")
    assert blank == ""
