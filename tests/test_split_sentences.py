import gzip
import re

import pytest
from conftest import run_python
from hypothesis import given
from hypothesis import strategies as st

import split_sentences
from bert.text import sentences as definition


@pytest.mark.parametrize(
    "sentences",
    [
        ["One.", "Two!", "Three?", "Four"],
        ["Mr. Bennet saw Mrs. Long and Dr. No.", "He left."],
        ["It was J. R. R. Tolkien of the U.S. Army.", "He wrote."],
        ["It is I.", "Who else?"],
        ["Use e.g. Tea or i.e. Leaves.", "Then wait."],
        ["He came at 5 p.m.", "She left."],
        ["See No. 5, vol. IV and p. 12.", "It says no.", "Nothing more."],
        ["Lee et al. (2019) and Kim et al. [12] saw ca. 50.", "See Eq. (3) and Ref. 4.", "It is."],
        ["It cost 3.50 in 1999.", "In 2000 it was less."],
        ['"My dear Mr. Bennet," said she.', '"How so?" cried her wife.', '"It is."'],
        ["“Single, my dear!”", "‘Really?’", "(So he said.)", "_Indeed._"],  # noqa: RUF001
        ["And then....", "Nothing.", "Well . . . nothing.", "So…", "Yes."],
        ["Wait . . .", "No."],
        ["He said so.[12]", "She did not.[3][4]", "End."],
        ["“What?” he asked.", "The end."],
        ["Really?!", "Yes."],
        ["今天下雨。", "我们走吧！", "「好吗？」", "他说。"],  # noqa: RUF001
        ["他说。", "“好。”", "她走了。", "“‘走！’", "‘好。’”", "「『好。』」", "《走吧！》"],  # noqa: RUF001
        ["Он пришёл.", "Она ушла."],
        ["वह घर गया।", "वह सो गया।"],
        ["هل نام؟", "نعم نام."],
        ["Hola.", "¿Qué tal?", "¡Bien!"],
        ["Er ging.", "„Wohin?“, fragte sie.", "„Nach Hause.“", "»Gut.«", "Sie nickte."],
        ["Il partit.", "« Où ? » dit-elle.", "« Chez moi. »", "Elle sourit."],
        ["No stop here"],
        ["etc. is no end, nor is St. Paul"],
    ],
)
def test_sentences_are_found(sentences):
    separator = "" if "。" in sentences[0] else " "
    assert split_sentences.split_sentences(separator.join(sentences)) == sentences


@given(st.text(st.sampled_from("aA1.!?…\"')]» \n\t。」IVXp"), max_size=60))
def test_splitting_only_cuts(text):
    sentences = split_sentences.split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    for sentence in sentences:
        assert sentence
        assert sentence == " ".join(sentence.split())


WRAPPED = """\
A TITLE



Chapter 1

It was cold. Mr.
Bennet was
old.

"Who is it?"



Chapter 2

The end came. It
was late.
"""


def test_gaps_end_documents_of_wrapped_text():
    documents = list(split_sentences.wrapped_paragraphs(WRAPPED.splitlines(), 3))
    assert documents == [
        ["A TITLE"],
        ["Chapter 1", "It was cold. Mr. Bennet was old.", '"Who is it?"'],
        ["Chapter 2", "The end came. It was late."],
    ]
    # More blank lines end one, too.
    assert [*split_sentences.wrapped_paragraphs(WRAPPED.splitlines(), 2)] == documents
    [whole] = split_sentences.wrapped_paragraphs(WRAPPED.splitlines(), 4)
    assert whole == [paragraph for document in documents for paragraph in document]


@given(st.lists(st.lists(st.integers(), max_size=6)), st.integers(1, 9))
def test_short_documents_join_the_next(documents, least):
    joined = list(split_sentences.join_short(documents, least))
    assert [s for d in joined for s in d] == [s for d in documents for s in d]
    assert all(len(document) >= least for document in joined[:-1])
    assert all(joined)


def test_wrapped_files_are_written_as_documents(tmp_path, log):
    (tmp_path / "a.txt").write_text(WRAPPED)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"Last one. Really."))
    output = tmp_path / "out.txt"
    flags = {"input_file": f"{tmp_path}/a.txt,{tmp_path}/b*", "output_file": output}
    counts = split_sentences.run(split_sentences.Settings(**flags, min_sentences=2))
    assert counts == (3, 10)
    assert f"Wrote 10 sentences in 3 documents to {output}." in log.messages
    # As the flags may be given, too.
    assert split_sentences.run(**flags, min_sentences=2, overwrite=True) == counts
    assert output.read_text().split("\n\n") == [
        'A TITLE\nChapter 1\nIt was cold.\nMr. Bennet was old.\n"Who is it?"',
        "Chapter 2\nThe end came.\nIt was late.",
        "Last one.\nReally.",
        "",
    ]


def test_a_blank_line_ends_a_document_of_paragraphs(tmp_path):
    (tmp_path / "in.txt").write_bytes("One. Two.\r\nThree.\r\n\r\nCaf\xe9. Five.\n".encode())
    run_python(
        "split_sentences.py",
        f"--input_file={tmp_path}/in.txt",
        f"--output_file={tmp_path}/out.txt",
        "--input_format=paragraphs",
    )
    expected = "One.\nTwo.\nThree.\n\nCaf\xe9.\nFive.\n\n"
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == expected


def test_lines_that_are_not_utf_8_are_told_for_what_is_written_tells_nothing(tmp_path, log):
    (tmp_path / "a.txt").write_text("Ein Caf\xe9.\n", encoding="utf-8")
    flags = {"input_file": f"{tmp_path}/*.txt", "output_file": str(tmp_path / "out")}
    split_sentences.run(**flags)
    assert not any("UTF-8" in message for message in log.messages)
    (tmp_path / "b.txt").write_text("Ein Caf\xe9.\nEin Tee.\nSch\xf6n.\n", encoding="latin-1")
    split_sentences.run(**flags, overwrite=True)
    assert (tmp_path / "out").read_text(encoding="utf-8").splitlines()[-4:-1] == [
        *("Ein Caf.", "Ein Tee.", "Schn.")
    ]
    told = f"What is not UTF-8 was left out of 2 lines, the first of them in {tmp_path}/b.txt."
    assert told in log.messages


# As WikiExtractor writes them; the second has a title alone.
ARTICLES = """<doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="Rust &amp; Co">
Rust &amp; Co

It is old. It is &lt; 9.
Nobody knows why.

</doc>
<doc id="13" url="https://en.wikipedia.org/wiki?curid=13" title="Nothing">
Nothing
</doc>
<doc id="14" url="https://en.wikipedia.org/wiki?curid=14" title="Tea">
Tea
Tea is warm.
</doc>
"""


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_articles_are_documents_without_their_titles(tmp_path, log, mark):
    (tmp_path / "wiki_00").write_text(mark + ARTICLES, encoding="utf-8")
    output = tmp_path / "out.txt"
    flags = {"input_file": str(tmp_path / "wiki_00"), "output_file": str(output)}
    assert split_sentences.run(**flags, input_format="wikiextractor") == (2, 4)
    expected = "It is old.\nIt is < 9.\nNobody knows why.\n\nTea is warm.\n\n"
    assert output.read_text() == expected
    assert not any("WikiExtractor" in message for message in log.messages)


@pytest.mark.parametrize("input_format", ["wrapped", "paragraphs"])
def test_articles_that_are_read_as_other_text_are_told_once(tmp_path, log, input_format):
    (tmp_path / "wiki_00").write_text("\n" + ARTICLES)
    split_sentences.run(
        input_file=str(tmp_path / "wiki_00"),
        output_file=str(tmp_path / "out.txt"),
        input_format=input_format,
    )
    [message] = [message for message in log.messages if "WikiExtractor" in message]
    assert message.startswith(f"{tmp_path}/wiki_00:2 begins with '<doc '")
    assert message.endswith("Give `input_format='wikiextractor'`.")


def test_text_outside_of_articles_is_refused(tmp_path):
    (tmp_path / "wiki_00").write_text(ARTICLES + "More.\n")
    with pytest.raises(ValueError, match=r"wiki_00:15: must be within `<doc …>`.*'More\.'"):
        split_sentences.run(
            input_file=str(tmp_path / "wiki_00"),
            output_file=str(tmp_path / "out.txt"),
            input_format="wikiextractor",
        )
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize(
    ("input_file", "output_file", "message"),
    [
        ("none", "out", "`input_file` must name existing files"),
        ("empty", "out", "`input_file` must hold text"),
        ("text", "nowhere/out", "`output_file` must name files that can be written"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_no_file(
    tmp_path, monkeypatch, input_file, output_file, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("\n \n")
    (tmp_path / "text").write_text("One. Two.")
    with pytest.raises(ValueError, match=message):
        split_sentences.run(input_file=input_file, output_file=output_file)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "text"]
    assert (tmp_path / "text").read_text() == "One. Two."


# A stop, what closes after it, footnote marks, whitespace, and what comes next, looked for from its
# beginning; and the last word before it.
CLOSING = r"[\"'“”‘’«»‹›)\]}_*』」）]*"  # noqa: RUF001
EAST_ASIAN_CLOSING = r"[\"'”’»›)\]}_*』」）》]*"  # noqa: RUF001
PLAIN_BOUNDARY = re.compile(
    rf"(?P<stop>\.(?:\s?\.)+|[.!?…।॥؟۔]+){CLOSING}(?: »(?= ))?(?:\[\d+\])*\s+"  # noqa: RUF001
    r"(?=(?:[\"'“‘«»„‚‹›¿¡(\[{_*—–-]|« )*(?P<next>\w))"  # noqa: RUF001
    rf"|[。！？]+{EAST_ASIAN_CLOSING}\s*"  # noqa: RUF001
)
PLAIN_WORD = re.compile(r"[^\W\d_][\w.]*$")


def plainly_ends(before, match):
    if match["stop"] is None or (match["stop"] != "." and not match["next"].islower()):
        return True
    if match["next"].islower():
        return False
    word = (PLAIN_WORD.search(before) or [""])[0]
    if not word:
        return True
    if "." in word or (len(word) == 1 and word.isupper() and word != "I"):
        return word.lower() in ("a.m", "p.m")
    is_counted = definition._COUNTED.fullmatch(word)
    following = match.string[match.start("next") :]
    return not (
        definition._TITLE.fullmatch(word) or (is_counted and definition._NUMBER.match(following))
    )


PIECES = [
    *"aA1I.!?…\"')]«» \n。」》_(“”„¿",
    " » ",
    "« ",
    "Mr",
    "No",
    "p.m",
    "e.g",
    ". . .",
    "[1]",
    "'' ",
    "? .",
    "é",
]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_boundaries_are_those_of_the_plain_definition(text):
    """Which takes time that grows with the square of a text's length."""
    text = " ".join(text.split())
    sentences = []
    start = 0
    for match in PLAIN_BOUNDARY.finditer(text):
        if plainly_ends(text[start : match.start()], match):
            sentences.append(text[start : match.end()].strip())
            start = match.end()
    plain = [sentence for sentence in [*sentences, text[start:]] if sentence]
    assert split_sentences.split_sentences(text) == plain


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("a. " * 300_000, 1),
        ("Aa. " * 300_000, 300_000),
        ("." * 1_000_000 + " A", 2),
        (". " * 500_000 + "A", 2),
        ("?." * 500_000 + "x A", 1),
        ("a" * 1_000_000 + "(b. C", 2),
        ("a.b" * 300_000 + ". A", 1),
        ("No. " + "X" * 1_000_000, 1),
        ("Go." + "[1]" * 300_000 + "'" * 300_000, 1),
    ],
)
def test_a_long_line_takes_time_that_grows_with_its_length(text, count):
    """Where it grew with its square, each of these would take hours."""
    assert len(split_sentences.split_sentences(text)) == count
