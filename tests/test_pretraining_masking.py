"""Words as spaces part them: what is masked together, and that no token is another one."""

import random
from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf
from helpers.pretraining_records import read_records
from hypothesis import given
from hypothesis import strategies as st

import create_pretraining_data as data
import tokenization
from bert.pretraining import objectives, records
from bert.pretraining.corpus import read_corpus
from bert.pretraining.masking import FIRST, FOLLOWING, SpacedTokenizer
from bert.pretraining.objectives import Masker, pretraining_features
from bert.text.added_tokens import AddedToken
from bert.training.records import Records

# Words of two characters, none of which is in another word.
CHARACTERS = [chr(0x4E00 + number) for number in range(40)]
WORDS = ["".join(CHARACTERS[place : place + 2]) for place in range(0, 40, 2)]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCAB = [*SPECIALS, *CHARACTERS, *"ab\u03c3\u03c2.", "##b", "##\u03c3", "##\u03c2"]

pieces = st.sampled_from(
    [
        *WORDS[:3],
        "<e1>",
        "[É]",
        "[e]",
        "abb",
        "A",
        "Σ",
        "aΣ",
        ".",
        "é",
        "\u0301",
        "\x85",
        "\0",
        "龍",
    ]
)
texts = st.lists(st.one_of(pieces, st.sampled_from(" \t\u3000\u2028\x1c")), max_size=12).map(
    "".join
)


ADDED = [AddedToken("<e1>", normalized=False), AddedToken("[É]"), AddedToken("bb", special=True)]


@pytest.mark.parametrize("added", [[], ADDED])
@given(lines=st.lists(texts, max_size=5))
def test_tokens_are_the_same_and_each_word_begins_where_a_space_ends(lines, added):
    encoded = [f"{token}\n".encode() for token in VOCAB]
    plain = tokenization.FullTokenizer(encoded, added_tokens=added)
    spaced = SpacedTokenizer.of(plain)
    ids, counts = spaced.tokenize_lines_to_ids(lines)
    expected, expected_counts = plain.tokenize_lines_to_ids(lines)
    np.testing.assert_array_equal(ids % spaced.offset, expected)
    np.testing.assert_array_equal(counts, expected_counts)
    tokens = [plain.tokenize(word) for line in lines for word in tokenization.split_at_spaces(line)]
    goes_on = [place > 0 for word in tokens for place in range(len(word))]
    np.testing.assert_array_equal(ids >= spaced.offset, goes_on)
    assert spaced.convert_ids_to_tokens(ids.tolist()) == plain.convert_ids_to_tokens(expected)


@pytest.fixture
def make(tmp_path):
    """A function that makes records of words of two characters, and returns their path."""
    rng = random.Random(3)
    documents = [
        "\n".join(" ".join(rng.choices(WORDS, k=rng.randint(2, 9))) for _ in range(5))
        for _ in range(20)
    ]
    (tmp_path / "text.txt").write_text("\n\n".join(documents))
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB) + "\n")

    def make(name="out", **changes):
        values = {
            "input_file": str(tmp_path / "text.txt"),
            "output_file": str(tmp_path / name),
            "vocab_file": str(tmp_path / "vocab.txt"),
            "max_seq_length": 32,
            "max_predictions_per_seq": 7,
            "masked_lm_prob": 0.3,
            "do_whole_word_mask": True,
            "mask_ratios": "100,0,0",
            "words": "spaces",
            "dupe_factor": 3,
            "overwrite": True,
            **changes,
        }
        data.run(data.Settings(**values))
        return values["output_file"]

    return make


def count_cut(records):
    """Returns how many words are masked in part, and how many of those that are whole are masked.

    Args:
      records: The ids before and after masking of each.
    """
    first = VOCAB.index(WORDS[0][0])
    cut = masked = 0
    for before, after in records:
        is_masked = np.array(after) != before
        for place, (one, other) in enumerate(pairwise(before)):
            if one >= first and (one - first) % 2 == 0 and other == one + 1:
                cut += is_masked[place] != is_masked[place + 1]
                masked += is_masked[place] and is_masked[place + 1]
    return cut, masked


def both_sides(path):
    for record in read_records(path):
        before = list(record["input_ids"])
        for place, number in zip(
            record["masked_lm_positions"], record["masked_lm_ids"], strict=True
        ):
            if number:
                before[place] = number
        yield before, record["input_ids"]


def test_tokens_and_documents_are_counted_wherever_words_and_documents_end(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(f"龍龍 龍{CHARACTERS[0]}\n\na .\n龍\n\nb\n")
    plain = tokenization.FullTokenizer([f"{token}\n".encode() for token in VOCAB])
    for tokenizer, num_following in ((plain, 0), (SpacedTokenizer.of(plain), 2)):
        _, counts = read_corpus([str(path)], tokenizer)
        assert (counts.num_tokens, counts.num_unknown) == (8, 4)
        assert (counts.num_documents, counts.num_sentences, counts.num_single) == (3, 4, 2)
        assert counts.num_following == num_following


@pytest.mark.parametrize("how", [{}, {"streaming": True}])
def test_characters_between_spaces_are_masked_together(make, how):
    cut, masked = count_cut(both_sides(make(**how)))
    assert cut == 0 and masked > 100
    # Where words are pieces, each character is one.
    assert count_cut(both_sides(make(**how, words="pieces")))[0] > 100


@pytest.mark.parametrize("late", [False, True])
def test_records_say_where_words_go_on_where_masks_are_to_come(make, late):
    [names] = {frozenset(record) for record in read_records(make(mask_at_training=late))}
    assert ("goes_on" in names, "masked_lm_ids" in names) == (late, not late)


@pytest.mark.parametrize("how", [{}, {"streaming": True}])
def test_records_have_the_ids_of_the_text_as_it_is(make, how):
    plain = {**how, "mask_at_training": True}
    pieces, spaces = (
        read_records(make(words, **plain, words=words)) for words in ("pieces", "spaces")
    )
    goes_on = [record.pop("goes_on") for record in spaces]
    assert pieces == spaces
    first = VOCAB.index(WORDS[0][0])
    for record, seen in zip(spaces, goes_on, strict=True):
        expected = [number >= first and (number - first) % 2 for number in record["input_ids"]]
        assert seen == expected
    if how:
        # Masks are drawn behind all else.
        masked = both_sides(make(**how))
        assert [before for before, _ in masked] == [record["input_ids"] for record in pieces]


def test_words_between_spaces_are_masked_together_in_training(make):
    path = make(mask_at_training=True)
    made = records.read_descriptions([path])
    assert "whole words between spaces" in made.summary()
    features = pretraining_features(
        max_seq_length=32, max_predictions_per_seq=7, vocab_size=len(VOCAB), type_vocab_size=2
    )
    masking = made.masking([path])
    assert masking is not None
    masker = Masker(masking, made.vocab)
    features = objectives.plain_features(features)
    batches = objectives.MaskedBatches(Records([path]), features, 16, 5, masker=masker)
    stored = [record["input_ids"] for record in read_records(path)]
    pairs = []
    for step, batch in enumerate(batches.iterate(0, 8)):
        assert {name: tf.TensorSpec.from_tensor(each, name) for name, each in batch.items()} == (
            batches.signature
        )
        numbers = batches.numbers(step)
        masked = batch["input_ids"].numpy().tolist()
        pairs += [(stored[n], row) for n, row in zip(numbers, masked, strict=True)]
    cut, masked = count_cut(pairs)
    assert cut == 0 and masked > 100


def test_what_begins_a_word_is_counted_with_the_rest(tmp_path):
    (tmp_path / "text.txt").write_text(f"{WORDS[0]}龍 龍龍\n")
    encoded = [f"{token}\n".encode() for token in VOCAB]
    spaced = SpacedTokenizer.of(tokenization.FullTokenizer(encoded))
    corpus, counts = read_corpus([str(tmp_path / "text.txt")], spaced)
    assert (counts.num_tokens, counts.num_unknown) == (5, 3)
    assert corpus.kinds == bytes([FIRST, FOLLOWING, FOLLOWING, FIRST, FOLLOWING])


def test_words_are_of_no_use_where_single_tokens_are_masked(make):
    with pytest.raises(ValueError, match="`words` must be 'pieces' without `do_whole_word_mask`"):
        make(do_whole_word_mask=False)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("streaming", [False, True])
def test_a_warning_asks_whether_text_is_segmented_whenever_masks_are_drawn(
    make, tmp_path, log, late, streaming
):
    how = {"mask_at_training": late, "streaming": streaming}

    def warnings(**changes):
        log.clear()
        make(**{**how, **changes})
        return [each for each in log.messages if "where `masked_lm_prob` is" in each]

    assert not warnings() and not warnings(words="pieces")
    verb = "will be" if late else "are"
    [few] = warnings(words="pieces", max_predictions_per_seq=1)
    assert f"{verb} masked" in few and "`max_predictions_per_seq` should be about" in few
    text = (tmp_path / "text.txt").read_text().replace(" ", "")
    (tmp_path / "text.txt").write_text(text)
    assert not warnings(words="pieces")
    [told] = warnings()
    assert f"{verb} masked" in told and "Is the text segmented" in told
    # About as many as where they are drawn at once, other draws apart.
    [drawn] = warnings(mask_at_training=False)
    shares = [float(each.split(" %")[0]) for each in (told, drawn)]
    assert 5 < min(shares) <= max(shares) < 15 and abs(shares[0] - shares[1]) < 3
