import collections
import random
from pathlib import Path

import pytest
from conftest import run_python
from hypothesis import given
from hypothesis import strategies as st

import create_vocab
import tokenization
from bert.pretraining import vocabulary
from bert.pretraining.vocabulary import (
    SPECIAL_TOKENS,
    choose_alphabet,
    count_words,
    learn,
    measure,
    special_entries,
)

ROOT = Path(__file__).parents[1]
SAMPLE = str(ROOT / "sample_text.txt")


def create(tmp_path, text=None, name="vocab.txt", **changes):
    """Returns the entries that are learned from a text, or from the sample, and the summary."""
    input_file = SAMPLE
    if text is not None:
        (tmp_path / "text.txt").write_text(text, encoding="utf-8")
        input_file = str(tmp_path / "text.txt")
    values = {"vocab_size": 600, "num_unused": 0, "num_processes": 1, "overwrite": True, **changes}
    settings = create_vocab.Settings(
        **{"input_file": input_file, "output_file": str(tmp_path / name), **values}
    )
    summary = create_vocab.run(settings)
    return (tmp_path / name).read_text(encoding="utf-8").splitlines(), summary


def test_summary_is_what_the_tokenizer_makes_of_the_text(tmp_path):
    entries, summary = create(tmp_path)
    assert len(entries) == len(set(entries)) == summary.num_entries == 600
    tokenizer = tokenization.FullTokenizer(str(tmp_path / "vocab.txt"))
    text = Path(SAMPLE).read_text(encoding="utf-8")
    words, pieces = tokenizer.basic_tokenizer.tokenize(text), tokenizer.tokenize(text)
    assert summary.num_words == len(words)
    assert summary.pieces_per_word == len(pieces) / len(words)
    assert summary.unknown_rate == pieces.count("[UNK]") == 0


def test_every_entry_is_used_or_a_single_character(tmp_path):
    entries, _ = create(tmp_path)
    tokenizer = tokenization.FullTokenizer(str(tmp_path / "vocab.txt"))
    used = set(tokenizer.tokenize(Path(SAMPLE).read_text(encoding="utf-8")))
    unused = set(entries) - used - set(SPECIAL_TOKENS)
    assert [entry for entry in unused if len(entry.removeprefix("##")) > 1] == []


def test_number_of_processes_and_order_of_files_do_not_matter(tmp_path, monkeypatch):
    lines = Path(SAMPLE).read_text(encoding="utf-8").splitlines(keepends=True)
    for name, part in (("a", lines[:250]), ("b", lines[250:])):
        (tmp_path / name).write_text("".join(part), encoding="utf-8")
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    monkeypatch.setattr(vocabulary, "_CHUNK_BYTES", 2000)
    one, _ = create(tmp_path, input_file=f"{a},{b}")
    two, _ = create(tmp_path, input_file=f"{b},{a}", num_processes=2)
    assert one == two


def test_another_process_learns_the_same(tmp_path):
    here, _ = create(tmp_path)
    there = tmp_path / "there.txt"
    run_python(
        "create_vocab.py",
        f"--input_file={SAMPLE}",
        f"--output_file={there}",
        "--vocab_size=600",
        "--num_unused=0",
        PYTHONHASHSEED="3",
        TOKENIZERS_PARALLELISM="false",
    )
    assert there.read_text(encoding="utf-8").splitlines() == here


@given(st.dictionaries(st.text("abc", min_size=1, max_size=6), st.integers(1, 9), min_size=1))
def test_order_of_the_counts_does_not_matter(counts):
    shuffled = list(counts.items())
    random.Random(0).shuffle(shuffled)
    options = {"vocab_size": 20, "do_lower_case": True, "min_frequency": 1}
    entries = learn(counts, **options)
    assert learn(dict(shuffled), **options) == entries
    assert measure(entries, counts).unknown_rate == 0


def test_pieces_meet_as_often_as_is_asked_before_they_are_joined(tmp_path):
    text = "\n".join(["abab"] * 3 + ["cdcd"] * 5 + ["ef"] * 2)
    entries = {n: set(create(tmp_path, text, f"{n}.txt", min_frequency=n)[0]) for n in (2, 3, 6)}
    assert {"ef", "abab", "cdcd"} <= entries[2]
    assert "ef" not in entries[3]
    assert {"abab", "cdcd"} <= entries[3]
    # Within a word they may meet twice.
    assert "abab" not in entries[6]


def test_the_alphabet_has_no_more_characters_than_is_asked(tmp_path):
    text = "\n".join(["a"] * 4 + ["b"] * 3 + ["c"] * 2 + ["d"])
    for limit in (1, 2, 3):
        entries, _ = create(tmp_path, text, f"{limit}.txt", limit_alphabet=limit)
        letters = [entry for entry in entries if len(entry) == 1]
        assert letters == list("abcd")[:limit]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_of_characters_as_frequent_the_first_ones_of_unicode_are_taken(limit):
    for order in ("abcd", "dcba", "cadb"):
        counts = dict.fromkeys(order, 2)
        assert choose_alphabet(counts, limit=limit) == set("abcd"[:limit])


def test_frequent_words_become_pieces_and_rare_ones_are_split():
    counts = {"hugging": 50, "hug": 9, "pug": 2, "huh": 1}
    entries = learn(counts, vocab_size=5 + 12 + 2, do_lower_case=True)
    letters = sorted(set("".join(counts)))
    assert entries[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert entries[5:17] == letters + [f"##{letter}" for letter in letters]
    assert sorted(entries[17:]) == ["hug", "hugging"]
    tokenizer = tokenization.WordpieceTokenizer({e: i for i, e in enumerate(entries)})
    assert tokenizer.split_word("huggin") == ["hug", "##g", "##i", "##n"]


def test_special_tokens_and_unused_slots_stand_as_in_the_released_vocabulary(tmp_path):
    entries, _ = create(tmp_path, vocab_size=1200, num_unused=101)
    assert entries[0] == "[PAD]"
    assert entries[1:100] == [f"[unused{index}]" for index in range(99)]
    assert entries[100:104] == ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert entries[104:106] == ["[unused99]", "[unused100]"]
    assert entries[106] == "'"
    released = ROOT.parent / "shared/data/vocab/bert-base-uncased-vocab.txt"
    if released.exists():
        lines = released.read_text(encoding="utf-8").splitlines()
        assert special_entries(994) == lines[:999]


def test_cased_text_keeps_capitals_and_accents(tmp_path):
    text = "Élan Élan vital. élan vital Vital\n" * 3
    cased, summary = create(tmp_path, text, vocab_size=40, do_lower_case=False)
    assert summary.unknown_rate == 0
    assert {"É", "é", "V", "v"} <= set(cased)
    uncased, _ = create(tmp_path, text, vocab_size=40)
    assert {"É", "é", "V", "##é"} & set(uncased) == set()
    assert {"elan", "vital"} <= set(uncased)


def test_cjk_characters_and_punctuation_stand_alone(tmp_path):
    entries, summary = create(tmp_path, "今天下雨。今天 rain, かな かな\n" * 4, vocab_size=80)
    assert summary.unknown_rate == 0
    assert {"今", "天", "下", "雨", "。", ",", "rain", "かな"} <= set(entries)
    assert {"##今", "##雨", "##。", "##,", "今天"} & set(entries) == set()
    assert {"##な", "##r"} <= set(entries)


def test_alphabet_is_the_smallest_that_spells_enough_words():
    counts = {"aa": 90, "ab": 6, "cb": 3, "d": 1}
    assert choose_alphabet(counts, 1.0) == set("abcd")
    assert choose_alphabet(counts, 0.99) == set("abc")
    assert choose_alphabet(counts, 0.96) == set("ab")
    assert choose_alphabet(counts, 0.95) == set("ab")
    assert choose_alphabet(counts, 0.9) == set("a")
    assert choose_alphabet(counts, 1.0, limit=2) == set("ab")


@given(
    st.dictionaries(st.text(min_size=1, max_size=5), st.integers(1, 99), min_size=1),
    st.floats(0, 1),
)
def test_coverage_holds_for_any_words(counts, coverage):
    alphabet = choose_alphabet(counts, coverage)
    spelled = sum(count for word, count in counts.items() if alphabet.issuperset(word))
    assert spelled >= coverage * sum(counts.values()) - 1e-6


def test_words_as_long_as_the_tokenizer_takes_are_learned_and_longer_ones_are_not(tmp_path):
    text = f"plain words here\n{'y' * 200} {'z' * 201}\n"
    entries, _ = create(tmp_path, text, vocab_size=60)
    assert {"y", "##y"} <= {*entries}
    assert not any("z" in entry for entry in entries)


def test_words_with_rare_characters_and_long_ones_are_unknown(tmp_path, log):
    text = "plain words here\n" * 30 + "ødd\n" + "x" * 201
    entries, summary = create(tmp_path, text, vocab_size=60, coverage=0.98)
    assert not any("ø" in entry or len(entry) > 50 for entry in entries)
    assert summary.unknown_rate == 2 / (92 * summary.pieces_per_word)
    assert any("[UNK], because of `coverage` or `limit_alphabet`" in m for m in log.messages)


def test_text_is_counted_as_the_tokenizer_cuts_it_whatever_the_chunks(tmp_path, monkeypatch, log):
    texts = [b"\xef\xbb\xbfA b\r\nc\xffd ", b"e-f\x85g\nJ\xc3\x96RG \xe4\xbb\x8a\xe5\xa4\xa9\n"]
    for index, text in enumerate(texts):
        (tmp_path / f"{index}.txt").write_bytes(text)
    expected = collections.Counter(
        word for text in texts for word in tokenization.BasicTokenizer().tokenize(text)
    )
    for chunk_bytes in (1, 10, 1000):
        monkeypatch.setattr(vocabulary, "_CHUNK_BYTES", chunk_bytes)
        files = [str(tmp_path / "0.txt"), str(tmp_path / "1.txt")]
        assert count_words(files, True) == expected
    assert "What is not UTF-8 was left out of 2 lines." in log.messages


def test_vocabulary_shorter_than_asked_for_is_told(tmp_path, log):
    entries, _ = create(tmp_path, "one word, one word\n", vocab_size=500)
    assert len(entries) < 30
    assert any("`vocab_size=500` asks for more entries, but" in m for m in log.messages)


@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        (None, {"input_file": "nothing/*.txt"}, r"`input_file` must name existing files"),
        ("", {}, "must hold text"),
        (" \n\x00\n", {}, "must hold text"),
        ("abc\n", {"vocab_size": 5}, "`vocab_size` must be at least 6"),
        ("abc\n", {"coverage": 1.5}, r"`coverage` must be at most 1\.0"),
        ("abc\n", {"limit_alphabet": 0}, "`limit_alphabet` must be at least 1"),
        ("abc\n", {"vocab_size": 100, "num_unused": 99}, "must be at least 105"),
        ("abc,\n", {"vocab_size": 11}, "`vocab_size` must be at least 12: 5 special.*4 characters"),
        (
            "abc\n",
            {"output_file": "/nowhere/vocab.txt"},
            "`output_file` must name files",
        ),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_written(tmp_path, text, changes, message):
    with pytest.raises(ValueError, match=message):
        create(tmp_path, text, **changes)
    assert {path.name for path in tmp_path.iterdir()} <= {"text.txt"}


def test_counts_beyond_what_the_trainer_holds_are_scaled(monkeypatch):
    """It adds up in 32 bits, and would never join what is more frequent, without a word of it."""
    counts = {"the": 5000, "then": 1000, "cat": 4000, "dog": 3, "xyz": 1}
    options = {"vocab_size": 40, "do_lower_case": True, "min_frequency": 3}
    entries = learn(counts, **options)
    assert {"the", "then", "cat", "dog"} <= {*entries} and "xyz" not in entries
    monkeypatch.setattr(vocabulary, "_MOST_PAIRS", 2000)
    handed, repeat = [], vocabulary._repeat
    monkeypatch.setattr(
        vocabulary, "_repeat", lambda counts: handed.append(counts) or repeat(counts)
    )
    assert {"the", "then", "cat"} <= {*learn(counts, **options)}
    # "th" stands there 6,000 times, which is to be at most 2,000.
    assert handed == [{"the": 1250, "then": 250, "cat": 1000, "dog": 1, "xyz": 1}]


def test_a_file_that_is_named_as_standard_output_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("a few words\n")
    (tmp_path / "-").write_text("mine\n")
    with pytest.raises(ValueError, match="`output_file` must name a new file"):
        create_vocab.run(create_vocab.Settings(input_file="text.txt", output_file="-"))
    assert (tmp_path / "-").read_text() == "mine\n"
