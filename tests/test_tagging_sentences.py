import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from bert.tasks.tagging.sentences import (
    Columns,
    Sentence,
    _tags_of_lines,
    check_scheme,
    detect_scheme,
    has_tags,
    read,
    split_characters,
    write_predictions,
)
from bert.tasks.tagging.tags import SCHEMES, convert, score_entities

CONLL_2003 = ROOT.parent / "shared" / "data" / "conll2003"

TEXT = """\
-DOCSTART- -X- -X- O

EU NNP I-NP B-ORG
rejects VBZ I-VP O

Peter NNP I-NP B-PER
Blackburn NNP I-NP I-PER
-DOCSTART- -X- -X- O

BRUSSELS NNP I-NP B-LOC
"""


def write(tmp_path, text, name="x.txt"):
    path = tmp_path / name
    path.write_bytes(text.encode())
    return str(path)


def test_sentences_have_words_tags_lines_and_documents(tmp_path):
    path = write(tmp_path, TEXT)
    first, second, third = read(path, Columns())
    assert first == Sentence(["EU", "rejects"], ["B-ORG", "O"], 1, path, [3, 4])
    assert second == Sentence(["Peter", "Blackburn"], ["B-PER", "I-PER"], 1, path, [6, 7])
    assert third == Sentence(["BRUSSELS"], ["B-LOC"], 2, path, [10])
    assert second.place(1) == f"{path}:7"
    assert Sentence(["a", "b"]).place(1) == "text, word 2"


def test_the_same_sentences_are_read_from_any_columns(tmp_path):
    expected = [
        (sentence.words, sentence.tags) for sentence in read(write(tmp_path, TEXT), Columns())
    ]
    for separator, name in (("\t", "tab"), ("\t", "\\t"), (",", "comma"), ("::", "::")):
        for order, columns in (
            ((0, 3), Columns(0, 1, name)),
            ((3, 1, 0), Columns(2, 0, name)),
            ((2, 0, 3), Columns(-2, -1, name)),
        ):
            lines = [
                separator.join(line.split()[column] for column in order) if line else ""
                for line in TEXT.splitlines()
            ]
            path = write(tmp_path, "\ufeff" + "\r\n".join(lines))
            found = [(sentence.words, sentence.tags) for sentence in read(path, columns)]
            assert found == expected, (name, order)


def test_cells_may_hold_spaces_where_tabs_separate(tmp_path):
    path = write(tmp_path, "New York\tB-LOC\nx\u00a0y\tO\n")
    [sentence] = read(path, Columns(separator="tab"))
    assert sentence.words == ["New York", "x\u00a0y"]
    [sentence] = read(write(tmp_path, "x\u00a0y \t O\n"), Columns())
    assert sentence.words == ["x\u00a0y"]


def test_documents_may_begin_as_in_conll_2012(tmp_path):
    text = "#begin document (x); part 0\na O\n\n#end document\n#begin document (y)\nb O\n"
    first, second = read(write(tmp_path, text), Columns())
    assert first.words == ["a"]
    assert first.document != second.document


def test_empty_sentences_are_skipped_and_counted(tmp_path, log):
    path = write(tmp_path, "-DOCSTART- O\n\na O\n\n\n\nb O\n\n")
    assert [sentence.words for sentence in read(path, Columns())] == [["a"], ["b"]]
    assert f"{path}: skipped 2 empty sentences" in log.messages[0]
    assert "the first is line 5" in log.messages[0]
    log.clear()
    read(write(tmp_path, TEXT), Columns())
    assert not log.messages


# Other faults of columns and tags are in the table of `test_run_ner`.
@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("a O\n", Columns(word=-3), r"x.txt:1: must have a column -3.*`text_column`"),
        ("a\tO\n\tO\n", Columns(separator="tab"), r"x.txt:2: must have a word in column 0"),
        ("a\tO\nb\t\n", Columns(separator="tab"), r"x.txt:2: must have a tag in column -1"),
    ],
)
def test_missing_cells_are_errors_with_their_line(tmp_path, text, columns, message):
    with pytest.raises(ValueError, match=message):
        read(write(tmp_path, text), columns)


def test_a_separator_of_nothing_is_refused():
    with pytest.raises(ValueError, match=r"^`separator` must not be empty\. Received ''\.$"):
        Columns(separator="").split("a O")


def sentence(tags, path="x.txt"):
    tags = tags.split()
    return Sentence(["w"] * len(tags), tags, 0, path, list(range(5, 5 + len(tags))))


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        (["B-X I-X O", "O"], "iob2"),
        (["O O"], "iob2"),
        (["I-X I-X O", "I-X B-X"], "iob1"),
        (["S-X O B-X I-X E-X"], "iobes"),
        (["B M E S", "B E"], "bmes"),
        (["B-N M-N E-N O"], "bmes"),
        # Without O, every character is in a word, of which none has three.
        (["B E S", "B E"], "bmes"),
        (["B-N E-N S-V"], "bmes"),
        (["S O B E"], "iobes"),
        # BMES has no I.
        (["B-X I-X E-X S-X"], "iobes"),
    ],
)
def test_the_detected_scheme_allows_all_tags(tags, scheme):
    sentences = [sentence(each) for each in tags]
    assert detect_scheme(sentences) == scheme
    check_scheme(sentences, scheme)


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        # The scheme with the latest fault is named first.
        (["B-X I-X", "S-Y"], r"one scheme.* x.txt:5: IOB2 has no tag 'S-Y'; .*in IOB1"),
        (["B-X L-X", "U-X"], "These look like BILOU: write S- for U- and E- for L-"),
    ],
)
def test_tags_of_no_scheme_are_an_error_with_a_remedy(tags, message):
    with pytest.raises(ValueError, match=message):
        detect_scheme([sentence(each) for each in tags])


def test_characters_share_the_line_and_the_entity_of_their_word():
    words = Sentence(
        ["我", "在", "北京市", "iPhone"], ["O", "O", "S-LOC", "S-X"], 3, "p", [1, 2, 3, 4]
    )
    characters = split_characters(words)
    assert characters.words == ["我", "在", "北", "京", "市", "iPhone"]
    assert characters.tags == ["O", "O", "B-LOC", "I-LOC", "I-LOC", "B-X"]
    assert characters.lines == [1, 2, 3, 3, 3, 4]
    assert (characters.document, characters.path) == (3, "p")


def test_a_word_without_a_character_leaves_nothing():
    words = Sentence(["我", "\u3000", "京"], ["O", "B-LOC", "B-X"], 0, "p", [1, 2, 3])
    characters = split_characters(words)
    assert (characters.words, characters.tags) == (["我", "京"], ["O", "B-X"])
    assert characters.lines == [1, 3]


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("a O\nb O\n", Columns(), True),
        ("-DOCSTART- O\n\na NNP\nb B-X\n", Columns(), True),
        ("-DOCSTART- O\n\na NNP\nb VBD\n", Columns(), False),
        ("a _\n", Columns(), False),
        ("a\n", Columns(), False),
        ("O\n", Columns(), False),
        ("a O\n", Columns(tag=2), False),
        ("B-X O\n", Columns(word=1, tag=0), True),
    ],
)
def test_a_file_has_tags_where_its_column_holds_any(tmp_path, text, columns, expected):
    assert has_tags(write(tmp_path, text), columns) is expected


@pytest.mark.parametrize("scheme", SCHEMES)
def test_predictions_are_written_after_the_lines_that_were_read(tmp_path, scheme):
    path = write(tmp_path, TEXT)
    output = str(tmp_path / "out.txt")
    sentences = read(path, Columns())
    predictions = [(each, each.tags) for each in sentences]
    write_predictions(output, path, Columns(), predictions, scheme)
    with open(output, encoding="utf-8") as file:
        lines = file.read().splitlines()
    assert [line.rpartition(" ")[0] for line in lines if line] == [
        line for line in TEXT.splitlines() if line
    ]
    assert lines[0] == "-DOCSTART- -X- -X- O O"
    written = read(output, Columns())
    assert [each.words for each in written] == [each.words for each in sentences]
    for each, original in zip(written, sentences, strict=True):
        assert each.tags == convert(original.tags, scheme)
    # The file is one that conlleval reads: the last two columns are gold and predicted.
    gold = [each.tags for each in read(output, Columns(tag=-2))]
    assert score_entities(gold, [each.tags for each in written])["f1"] == 1


def test_only_the_sentences_of_a_part_of_a_file_are_written(tmp_path):
    path = write(tmp_path, "-DOCSTART- O\n\na B-X\nb O\n\nc O\n\nd B-X\n")
    first, _, last = read(path, Columns())
    predictions = [(first, ["O", "B-X"]), (last, ["B-X"])]
    output = str(tmp_path / "out")
    write_predictions(output, path, Columns(), predictions, "iob2", is_part=True)
    assert (tmp_path / "out").read_text() == "a B-X O\nb O B-X\n\nd B-X B-X\n"


def test_predictions_keep_the_separator(tmp_path):
    for text, columns in (
        ("a\tX Y\tO\n", Columns(separator="tab")),
        ("a\tO\n", Columns()),
    ):
        path = write(tmp_path, text)
        [sentence] = read(path, columns)
        write_predictions(str(tmp_path / "out"), path, columns, [(sentence, ["B-X"])], "iob1")
        assert (tmp_path / "out").read_text() == text.replace("\n", "\tI-X\n")
    # What ends a line is between no columns.
    assert Columns().append("a O\t", "B-X") == "a O B-X"


def test_a_line_of_characters_has_the_tag_of_the_first(tmp_path):
    path = write(tmp_path, "我在 O\n北京市 B-LOC\n上海 I-LOC\n来 O\n")
    [words] = read(path, Columns())
    characters = split_characters(words)
    assert characters.words == list("我在北京市上海来")
    predicted = ["O", "B-PER", "B-LOC", "I-LOC", "I-LOC", "I-LOC", "I-LOC", "B-LOC"]
    write_predictions(str(tmp_path / "out"), path, Columns(), [(characters, predicted)], "iob2")
    tags = [line.split()[-1] for line in (tmp_path / "out").read_text().splitlines()]
    assert tags == ["O", "B-LOC", "I-LOC", "B-LOC"]


tags = st.lists(st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y", "S-X", "E-X"]), min_size=1)


@given(tags)
def test_lines_of_single_characters_keep_their_entities(predicted):
    lines = list(range(1, len(predicted) + 1))
    characters = Sentence(["x"] * len(lines), None, 0, "p", lines)
    found = dict(_tags_of_lines(characters, predicted, "iob2"))
    assert list(found) == lines
    assert list(found.values()) == convert(predicted, "iob2")


class CountedLine(int):
    """The number of a line, which counts how often it is compared."""

    num_compared = 0

    def __eq__(self, other):
        CountedLine.num_compared += 1
        return int(self) == int(other)

    __hash__ = int.__hash__


def test_a_very_long_sentence_is_written_in_one_pass():
    # A file without blank lines is one sentence.
    lines = [CountedLine(number) for number in range(1, 1001)]
    long = Sentence(["x"] * len(lines), None, 0, "p", lines)
    found = dict(_tags_of_lines(long, ["S-X"] * len(lines), "iob2"))
    assert CountedLine.num_compared < 10 * len(lines)
    assert len(found) == len(lines)


@pytest.mark.parametrize(
    ("name", "count", "documents"), [("train", 14041, 946), ("dev", 3250, 216), ("test", 3453, 231)]
)
def test_conll_2003_is_read_whole(name, count, documents):
    if not CONLL_2003.exists():
        pytest.skip(f"{CONLL_2003} is not there.")
    sentences = read(str(CONLL_2003 / f"{name}.txt"), Columns())
    assert len(sentences) == count
    assert len({each.document for each in sentences}) == documents
    assert detect_scheme(sentences) == "iob2"
