import codecs
import gzip
import io

import numpy as np
import pytest
from gensim.models import KeyedVectors

from bert.files.word_vectors import WordVectors, read_word_vectors, write_word_vectors

WORDS = ["the", "Oslo", "oslo", "é"]
VALUES = np.array([[1, 2.5], [-3e-5, 4], [5, 6], [0.123456, -7]], np.float32)


def as_text(vectors):
    file = io.BytesIO()
    write_word_vectors(file, vectors)
    return file.getvalue()


@pytest.fixture
def read(tmp_path):
    """A function that reads what a file of some text holds."""

    def read(text):
        (tmp_path / "v.txt").write_bytes(text.encode() if isinstance(text, str) else text)
        return read_word_vectors(str(tmp_path / "v.txt"))

    return read


def test_what_is_written_is_read_here_and_by_gensim_with_or_without_a_header(read, tmp_path):
    text = as_text(WordVectors(WORDS, VALUES))
    plain = (text, text.partition(b"\n")[2])
    marked = [codecs.BOM_UTF8 + each for each in plain]
    ended = [each + b"\r\n\n" for each in plain]
    for each in (*plain, gzip.compress(text), text.replace(b"\n", b"\r\n"), *marked, *ended):
        found = read(each)
        assert found.words == WORDS
        np.testing.assert_allclose(found.values, VALUES, rtol=1e-5)
    (tmp_path / "v.txt").write_bytes(text)
    theirs = KeyedVectors.load_word2vec_format(str(tmp_path / "v.txt"))
    assert theirs.index_to_key == WORDS
    np.testing.assert_array_equal(theirs.vectors, found.values)


def test_words_are_found_as_they_are_written_then_in_lower_case(read):
    vectors = read(as_text(WordVectors(WORDS, VALUES)))
    found = [vectors.find(word) for word in ("Oslo", "OSLO", "The", "É", "Rome")]
    assert found == [1, 2, 0, 3, None]
    vectors = read(as_text(WordVectors(WORDS[1:3], VALUES[1:3])))
    assert [vectors.find(word) for word in ("Oslo", "oslo", "OSLO")] == [0, 1, 1]


def test_the_unknown_vector_is_the_one_that_is_named_so_or_the_mean(read):
    np.testing.assert_array_equal(read("a 1 2\nb 3 6\n").unknown, [2, 4])
    np.testing.assert_array_equal(read("a 1 2\n<unk> 3 6\n").unknown, [3, 6])


def test_a_pattern_of_several_files_is_refused_and_of_one_is_read(tmp_path):
    for name in ("v1.txt", "v2.txt"):
        (tmp_path / name).write_text("a 1 2\n")
    with pytest.raises(
        ValueError, match=r"`word_vectors` must name a single file.*names 2: .*v1\.txt"
    ):
        read_word_vectors(str(tmp_path / "v*.txt"))
    assert read_word_vectors(str(tmp_path / "*1.txt")).words == ["a"]


def test_words_with_spaces_and_repeated_words_are_skipped(read, log):
    vectors = read("a 1 2\n. . . 3 4\na 5 6\nb\N{NO-BREAK SPACE}c 7 8\nd 9 10\n")
    assert vectors.words == ["a", "d"]
    assert vectors.values.tolist() == [[1, 2], [9, 10]]
    assert [message for message in log.messages if message.startswith("3 lines of")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2\nb 3\n", "line 2: must have a word and its 2 finite numbers"),
        ("2 2\na 1 2\nb 3 4 5\n", "line 3: must have a word and its 2 finite numbers"),
        ("a 1 2\nb 3 x\n", "line 2"),
        ("a 1 nan\n", "line 1"),
        ("3 2\na 1 2\nb 3 4\n", "must have the 3 vectors .* It has 2; was it cut"),
        ("1 2\na 1 2\nb 3 4\n", "must have the 1 vectors .* It has 2"),
        ("0 2\n", "has none"),
        ("", "line 1: `N D`"),
        ("word\n", "line 1: `N D`"),
        (b"2 4\nab \x00\x01\x80?\x00\x00\n", "line 2"),
    ],
)
def test_an_error_names_the_line(read, text, message):
    with pytest.raises(ValueError, match=message):
        read(text)
