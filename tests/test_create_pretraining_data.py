import dataclasses
import gzip
import json
import os
import random
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import GOLDEN, LARGE_GOLDEN, ROOT, run_python, serialize, write_records
from helpers.pretraining_records import read_records, warnings_of
from hypothesis import HealthCheck, given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

import create_pretraining_data as data
import tokenization
from bert.commands.checks import GOOD, WARNED, Checks
from bert.files import durable
from bert.files.paths import index_path
from bert.files.records import Index, decode_index, encode_index
from bert.pretraining import corpus as corpora
from bert.pretraining import masking
from bert.pretraining.draws import Pair
from bert.pretraining.instances import BATCH, InstanceTable

VOCAB = str(GOLDEN / "vocab.txt")
LARGE_VOCAB = ROOT.parent / "shared" / "data" / "vocab" / "bert-base-uncased-vocab.txt"

CORPUS = """The cat sat here.
She went to the sea, and it was cold.
"What is this?" he said.

One day, a man came.
He was old.
Nobody knew his name.
"""


@pytest.fixture(scope="module")
def tokenizer():
    return tokenization.FullTokenizer(VOCAB)


@pytest.fixture
def settings(tmp_path):
    """A function that makes settings for a small corpus."""
    (tmp_path / "text.txt").write_text(CORPUS)

    def make(**changes):
        values = {
            "input_file": str(tmp_path / "text.txt"),
            "output_file": str(tmp_path / "out.tfrecord"),
            "vocab_file": VOCAB,
            "max_seq_length": 32,
            "max_predictions_per_seq": 5,
            "dupe_factor": 3,
            **changes,
        }
        return data.Settings(**values)

    return make


def flags_of(settings):
    return [f"--{name}={value}" for name, value in vars(settings).items() if value is not None]


def parse_flags(path):
    types = {field.name: field.type for field in dataclasses.fields(data.Settings)}
    values = {}
    for flag in json.loads(path.read_text())["flags"]:
        name, value = flag.removeprefix("--").split("=")
        is_switch = types[name] in {bool, bool | None}
        values[name] = value == "True" if is_switch else types[name](value)
    return values


def assert_equals_golden(tmp_path, folder, name, flags_name, vocab_file):
    output = tmp_path / "out.tfrecord"
    data.run(
        data.Settings(
            input_file=str(folder / "corpus.txt"),
            output_file=str(output),
            vocab_file=str(vocab_file),
            **parse_flags(folder / flags_name),
        )
    )
    records = read_records(output)
    with np.load(folder / name) as golden:
        assert set(golden.files) == set(records[0])
        for feature in golden.files:
            np.testing.assert_array_equal([r[feature] for r in records], golden[feature])


def test_records_equal_the_original(tmp_path):
    assert_equals_golden(tmp_path, GOLDEN, "pretrain_records.npz", "pretrain_flags.json", VOCAB)


@pytest.mark.skipif(not LARGE_GOLDEN.exists(), reason="needs ../shared/golden")
@pytest.mark.parametrize(
    ("name", "flags_name"),
    [
        ("pretrain_records.npz", "pretrain_flags.json"),
        ("pretrain_records_whole_word.npz", "pretrain_records_whole_word_flags.json"),
    ],
)
def test_records_of_real_text_equal_the_original(tmp_path, name, flags_name):
    assert_equals_golden(tmp_path, LARGE_GOLDEN, name, flags_name, LARGE_VOCAB)


@given(st.integers(0, 300), st.integers())
def test_shuffle_draws_as_python_does(length, seed):
    ours, theirs = random.Random(seed), random.Random(seed)
    items, expected = list(range(length)), list(range(length))
    masking.shuffle(items, ours)
    theirs.shuffle(expected)
    assert items == expected
    assert ours.getstate() == theirs.getstate()


@given(st.integers(1, 1 << 40), st.integers())
def test_numbers_are_drawn_as_python_does(limit, seed):
    ours, theirs = random.Random(seed), random.Random(seed)
    assert masking.below(limit, ours) == theirs.randint(0, limit - 1)
    assert ours.getstate() == theirs.getstate()


def test_nothing_is_drawn_from_nothing():
    with pytest.raises(ValueError, match="There must be something to draw from"):
        masking.below(0, random.Random(1))


tokens = st.lists(st.sampled_from(["a", "b", "c", "##d", "##e"]), min_size=1, max_size=30)


@given(tokens, tokens, st.integers(2, 40), st.integers())
def test_truncation_drops_tokens_one_by_one(a, b, limit, seed):
    ours, theirs = random.Random(seed), random.Random(seed)
    expected_a, expected_b = list(a), list(b)
    while len(expected_a) + len(expected_b) > limit:
        longer = expected_a if len(expected_a) > len(expected_b) else expected_b
        del longer[0 if theirs.random() < 0.5 else -1]
    data.truncate_seq_pair(a, b, limit, ours)
    assert (a, b) == (expected_a, expected_b)
    assert ours.getstate() == theirs.getstate()


@given(tokens, tokens, st.floats(0, 1), st.integers(1, 30), st.booleans(), st.integers())
def test_masking_is_reversible_and_within_bounds(a, b, prob, limit, whole_word, seed):
    packed, _ = tokenization.pack(a, b, max_length=99)
    masked, positions, labels = data.create_masked_lm_predictions(
        packed, prob, limit, ["x", "y"], random.Random(seed), do_whole_word_mask=whole_word
    )
    assert positions == sorted(set(positions))
    assert len(positions) == len(labels) <= min(limit, max(1, round(len(packed) * prob)))
    restored = list(masked)
    for position, label in zip(positions, labels, strict=True):
        assert packed[position] not in ("[CLS]", "[SEP]")
        assert masked[position] in ("[MASK]", "x", "y", label)
        restored[position] = label
    assert restored == packed
    if not whole_word:
        expected = min(limit, max(1, round(len(packed) * prob)), len(a) + len(b))
        assert len(positions) == expected


@given(tokens, st.integers(1, 30), st.integers())
def test_whole_words_are_masked_whole_or_not_at_all(a, limit, seed):
    packed, _ = tokenization.pack(a, max_length=99)
    _, positions, _ = data.create_masked_lm_predictions(
        packed, 1.0, limit, ["x"], random.Random(seed), do_whole_word_mask=True
    )
    words = []
    for position, token in enumerate(packed[1:-1], start=1):
        if token.startswith("##") and words:
            words[-1].append(position)
        else:
            words.append([position])
    left_out = [word for word in words if not set(word) & set(positions)]
    assert all(set(word) <= set(positions) for word in words if word not in left_out)
    # Masked are as many as possible: a word is left out only where it does not fit.
    room = min(limit, len(packed)) - len(positions)
    assert all(len(word) > room for word in left_out)


@pytest.mark.parametrize("ratios", ["80,10,10", "100,0,0", "0,0,100", "0,20,80"])
def test_a_million_masked_tokens_are_of_the_ratios_asked_for(ratios):
    count, num_words = 1_000_000, 7
    drawn = masking.Masking(
        masked_lm_prob=1.0,
        max_predictions_per_seq=count,
        do_whole_word_mask=False,
        mask_ratios=ratios,
    )
    _, words = drawn.draw(bytes([masking.FIRST]) * count, num_words, masking.KeyedRandom(0))
    counts = np.bincount(np.array(words) + 2, minlength=num_words + 2)
    mask, same, other = (float(number) / 100 for number in ratios.split(","))
    shares = np.array([same, mask, *[other / num_words] * num_words])
    assert len(words) == count
    # Three standard errors; nothing is drawn that has no share.
    errors = 3 * np.sqrt(shares * (1 - shares) / count)
    assert (np.abs(counts / count - shares) <= errors).all(), counts


@pytest.mark.parametrize("how", [{}, {"streaming": True}])
def test_the_ratios_reach_the_records_their_index_and_what_is_told(settings, log, how, tokenizer):
    made = settings(mask_ratios="0,20,80", dupe_factor=100, masked_lm_prob=0.3, **how)
    data.run(made)
    records = read_records(made.output_file)
    seen, labels = [], []
    for record in records:
        count = int(sum(record["masked_lm_weights"]))
        seen += [record["input_ids"][place] for place in record["masked_lm_positions"][:count]]
        labels += record["masked_lm_ids"][:count]
    # A random word may be the one that stood there.
    share = 0.2 + 0.8 / len(tokenizer.vocab)
    same = np.mean(np.array(seen) == labels)
    assert len(seen) > 1000
    assert abs(same - share) < 3 * (share * (1 - share) / len(seen)) ** 0.5
    index = decode_index(Path(index_path(made.output_file)).read_bytes())
    assert index.made_with["mask_ratios"] == "0,20,80"
    [told] = [message for message in log.messages if message.startswith("Made ")]
    assert "tokens masked, 0 % as [MASK], 20 % as they are, 80 % random;" in told


documents = st.lists(
    st.lists(
        st.lists(st.sampled_from(["the", "cat", "sat", "##s", "."]), min_size=1, max_size=12),
        min_size=1,
        max_size=9,
    ),
    min_size=1,
    max_size=4,
)


@given(documents, st.integers(5, 40), st.floats(0, 1), st.integers())
def test_instances_are_pairs_of_segments_of_the_documents(documents, length, short, seed):
    for index, document in enumerate(documents):
        instances = data.create_instances_from_document(
            documents, index, length, short, 0.15, 5, ["x"], random.Random(seed)
        )
        assert instances
        flat = [" ".join(t for s in d for t in s) for d in documents]
        for instance in instances:
            restored = list(instance.tokens)
            for position, label in zip(
                instance.masked_lm_positions, instance.masked_lm_labels, strict=True
            ):
                restored[position] = label
            middle = restored.index("[SEP]")
            first, second = restored[1:middle], restored[middle + 1 : -1]
            assert len(restored) <= length
            assert list(instance.segment_ids) == [0] * (middle + 1) + [1] * (len(second) + 1)
            assert first and " ".join(first) in flat[index]
            sources = flat
            if not instance.is_random_next:
                # Behind the first one, which may be cut at its end.
                place = flat[index].index(" ".join(first)) + len(" ".join(first))
                sources = [flat[index][place:]]
            assert second and any(" ".join(second) in source for source in sources)
        if len(document) == 1:
            assert all(instance.is_random_next for instance in instances)


class Splitter:
    """What the original's tokenizer has, and no more; the text's words are its tokens."""

    def __init__(self, words):
        self.vocab = {word: number for number, word in enumerate(words)}
        self.inv_vocab = dict(enumerate(words))

    def tokenize(self, text):
        return text.split()

    def convert_tokens_to_ids(self, tokens):
        return [self.vocab[token] for token in tokens]

    def convert_ids_to_tokens(self, ids):
        return [self.inv_vocab[number] for number in ids]


texts = st.lists(
    st.lists(
        st.lists(st.sampled_from(["the", "cat", "sat", "##s", ".", "[SEP]"]), min_size=1),
        min_size=1,
        max_size=9,
    ),
    min_size=1,
    max_size=4,
)


@settings_of_hypothesis(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(texts, st.integers(5, 40), st.booleans(), st.integers(1, 3), st.integers(0, 3))
def test_instances_drawn_from_files_are_those_of_the_steps_of_the_original(
    tmp_path, documents, length, whole_word, dupe_factor, seed
):
    splitter = Splitter(["[CLS]", "[MASK]", "x", "the", "cat", "sat", "##s", ".", "[SEP]"])
    (tmp_path / "text.txt").write_text(
        "\n\n".join("\n".join(map(" ".join, document)) for document in documents)
    )
    ours, theirs = random.Random(seed), random.Random(seed)
    instances = data.create_training_instances(
        [str(tmp_path / "text.txt")],
        splitter,
        length,
        dupe_factor,
        0.3,
        0.3,
        7,
        ours,
        do_whole_word_mask=whole_word,
    )
    theirs.shuffle(documents)
    expected = []
    for _ in range(dupe_factor):
        for index in range(len(documents)):
            expected += data.create_instances_from_document(
                documents,
                index,
                length,
                0.3,
                0.3,
                7,
                list(splitter.vocab),
                theirs,
                do_whole_word_mask=whole_word,
            )
    theirs.shuffle(expected)
    assert instances == expected
    assert ours.getstate() == theirs.getstate()


def test_a_table_is_shuffled_as_a_list_is(settings):
    table = data.run(settings())
    instances = list(table)
    ours, theirs = random.Random(3), random.Random(3)
    table.shuffle(ours)
    theirs.shuffle(instances)
    assert table[:] == instances
    assert table[-1] == instances[-1]
    assert ours.getstate() == theirs.getstate()


def test_a_table_holds_ids_beyond_16_bits():
    vocab = {"[UNK]": 0, "[CLS]": 70001, "[SEP]": 65535, "a": 70000}
    table = InstanceTable(tokenization.FullTokenizer.from_vocab(vocab), 6, 2)
    pair = Pair(0, 1, 1, 2, True, 70000, 0)
    table.extend(np.array([70000, 70000], np.uint32), [(pair, ([1], [masking.ITSELF]))])
    assert table[0] == data.TrainingInstance(
        ["[CLS]", "a", "[SEP]", "a", "[SEP]"], [0, 0, 0, 1, 1], [1], ["a"], True, 70000
    )
    assert table.features(0, 1)["input_ids"].tolist() == [[70001, 70000, 65535, 70000, 65535, 0]]


def test_a_table_holds_lengths_beyond_16_bits():
    vocab = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3}
    table = InstanceTable(tokenization.FullTokenizer.from_vocab(vocab), 70_000, 1)
    masks = ([66_000], [masking.ITSELF])
    table.extend(np.full(69_000, 3, np.uint16), [(Pair(0, 65_000, 0, 4000, True, 0, 0), masks)])
    assert table[0].segment_ids == [0] * 65_002 + [1] * 4001
    assert table[0].masked_lm_positions == [66_000]


def test_instances_do_not_depend_on_the_numbers_of_the_ids(settings, tokenizer):
    """Random words are drawn from a vocabulary with unused ids as from one without."""
    spread = {token: 7 * number for token, number in tokenizer.vocab.items()}
    tokenizers = tokenizer, tokenization.FullTokenizer.from_vocab(spread)
    made = [
        data.create_training_instances(
            [settings().input_file], each, 32, 40, 0.1, 0.3, 9, random.Random(5)
        )
        for each in tokenizers
    ]
    assert made[0] == made[1]


def test_tokens_cut_off_beyond_what_the_table_holds_count_as_the_most(tmp_path, tokenizer):
    (tmp_path / "long.txt").write_text("cat " * 70_000 + "\nThe sea.\n")
    numbers = (32, 1, 0.0, 0.15, 5, random.Random(1))
    [drawn, *_] = data.create_training_instances([str(tmp_path / "long.txt")], tokenizer, *numbers)
    assert drawn.num_truncated == 65_535


def test_instances_of_the_programming_interface_are_written_like_the_scripts(settings, tokenizer):
    made = settings()
    instances = data.run(made)
    data.write_instance_to_example_files(
        list(instances), tokenizer, 32, 5, [made.output_file + ".2"]
    )
    assert read_records(made.output_file + ".2") == read_records(made.output_file)


def test_a_table_is_written_with_the_lengths_that_are_given(settings, tokenizer, tmp_path):
    table = data.run(settings())
    paths = [str(tmp_path / name) for name in ("table", "list")]
    for instances, path in zip((table, list(table)), paths, strict=True):
        data.write_instance_to_example_files(instances, tokenizer, 64, 10, [path])
    assert read_records(paths[0]) == read_records(paths[1])
    with pytest.raises(ValueError, match=r"1 to 8 tokens, the `max_seq_length`"):
        data.write_instance_to_example_files(table, tokenizer, 8, 10, paths)


def test_a_table_without_masks_is_written_without_masks(settings, tokenizer, tmp_path):
    made = settings(mask_at_training=True)
    table = data.run(made)
    path = str(tmp_path / "again")
    data.write_instance_to_example_files(table, tokenizer, 32, 5, [path])
    assert read_records(path) == read_records(made.output_file)
    with pytest.raises(ValueError, match=r"`max_seq_length` must be 32 .*without masks.* 64"):
        data.write_instance_to_example_files(table, tokenizer, 64, 5, [path])


def test_numbers_of_numpy_and_paths_of_pathlib_are_taken(settings, tokenizer, tmp_path):
    path = settings().input_file
    numbers = (32, 3, 0.5, 0.25, 5)
    expected = data.create_training_instances([path], tokenizer, *numbers, random.Random(1))
    kinds = (np.int64, np.int64, np.float32, np.float32, np.int64)
    others = [kind(number) for kind, number in zip(kinds, numbers, strict=True)]
    made = data.create_training_instances([Path(path)], tokenizer, *others, random.Random(1))
    assert made == expected
    data.write_instance_to_example_files(made, tokenizer, others[0], others[-1], [tmp_path / "out"])
    ids = [record["input_ids"][: len(made[0].tokens)] for record in read_records(tmp_path / "out")]
    assert ids[0] == tokenizer.convert_tokens_to_ids(made[0].tokens)


def test_a_tokenizer_of_another_make_needs_its_vocabulary_alone(settings, tokenizer):
    """The original's function asks for `tokenize` and `vocab`, the writing for the ids."""
    own = SimpleNamespace(
        vocab=dict(tokenizer.vocab),
        tokenize=tokenizer.tokenize,
        convert_tokens_to_ids=tokenizer.convert_tokens_to_ids,
    )
    path, numbers = settings().input_file, (32, 3, 0.5, 0.25, 5)
    expected = data.create_training_instances([path], tokenizer, *numbers, random.Random(1))
    assert data.create_training_instances([path], own, *numbers, random.Random(1)) == expected


def test_instances_may_be_changed_before_they_are_written(settings, tokenizer):
    made = settings()
    numbers = (32, 1, 0.1, 0.15, 5, random.Random(1))
    instances = data.create_training_instances([made.input_file], tokenizer, *numbers)
    random.Random(2).shuffle(instances)
    instances = [*instances, *instances[:1]]
    for instance in instances:
        instance.is_random_next = True
        instance.masked_lm_labels = ["the"] * len(instance.masked_lm_labels)
    data.write_instance_to_example_files(instances, tokenizer, 32, 5, [made.output_file])
    for record, instance in zip(read_records(made.output_file), instances, strict=True):
        assert record["next_sentence_labels"] == [1]
        labels = [tokenizer.vocab["the"]] * len(instance.masked_lm_positions)
        assert record["masked_lm_ids"][: len(labels)] == labels


def test_segments_of_ones_own_are_written_as_they_are(tmp_path, tokenizer):
    tokens = ["[CLS]", "the", "[SEP]", "sea", "[SEP]", "was", "[SEP]"]
    kinds = ([0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 2, 2], [2, 2, 2, 3, 3, 3, 3], [0, 1] * 3 + [0])
    instances = [data.TrainingInstance(tokens, each, [], [], False) for each in kinds]
    path = str(tmp_path / "out.tfrecord")
    data.write_instance_to_example_files(instances, tokenizer, 8, 2, [path])
    assert [each["segment_ids"] for each in read_records(path)] == [[*each, 0] for each in kinds]


@pytest.mark.parametrize(
    ("tokens", "segments", "positions", "labels", "message"),
    [
        (7, 7, 1, 1, r"1 to 6 tokens, the `max_seq_length`.*Received 7 and 7"),
        (5, 4, 1, 1, r"as many `segment_ids`.*Received 5 and 4"),
        (0, 0, 0, 0, r"1 to 6 tokens.*Received 0 and 0"),
        (6, 6, 3, 3, r"at most 2 `masked_lm_positions`.*Received 3 and 3"),
        (6, 6, 2, 1, r"as many `masked_lm_labels`.*Received 2 and 1"),
    ],
)
def test_an_instance_that_does_not_fit_is_refused(
    tmp_path, tokenizer, tokens, segments, positions, labels, message
):
    instance = data.TrainingInstance(
        ["the"] * tokens, [0] * segments, list(range(positions)), ["the"] * labels, False
    )
    with pytest.raises(ValueError, match=message):
        data.write_instance_to_example_files(
            [instance], tokenizer, 6, 2, [str(tmp_path / "out.tfrecord")]
        )
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(("token", "label"), [("zzzz", "the"), ("the", "zzzz")])
def test_a_token_that_the_vocabulary_lacks_is_named(tmp_path, tokenizer, token, label):
    instance = data.TrainingInstance(["[CLS]", token], [0, 0], [1], [label], False)
    with pytest.raises(ValueError, match=r"The vocabulary must hold every token.*'zzzz'"):
        data.write_instance_to_example_files([instance], tokenizer, 6, 2, [str(tmp_path / "out")])
    assert not any(tmp_path.iterdir())


def test_the_index_tells_all_that_the_records_depend_on(settings, tokenizer):
    made = settings()
    data.run(made)
    with open(index_path(made.output_file), "rb") as file:
        content = file.read()
    index = decode_index(content)
    assert len(index.ends) == len(read_records(made.output_file))
    flags = {field.name for field in dataclasses.fields(made)}
    no_part = {"input_file", "output_file", "vocab_file", "overwrite", "check"}
    no_part |= {"num_shards", "num_workers", "memory_gb", "runner", "beam_options"}
    others = {"vocab_size", "vocabulary", "text", "num_files"}
    assert index.made_with.keys() == flags - no_part | others
    assert index.made_with["max_seq_length"] == made.max_seq_length
    assert index.made_with["vocab_size"] == len(tokenizer.vocab)
    elsewhere = settings(output_file=made.output_file + ".2")
    data.run(elsewhere)
    with open(index_path(elsewhere.output_file), "rb") as file:
        assert file.read() == content


def test_records_are_dealt_to_the_outputs_in_turn(settings, tmp_path):
    data.run(settings())
    paths = [tmp_path / f"part{i}" for i in range(3)]
    data.run(settings(output_file=",".join(map(str, paths))))
    parts = [read_records(path) for path in paths]
    whole = read_records(tmp_path / "out.tfrecord")
    assert whole == [parts[i % 3][i // 3] for i in range(len(whole))]
    names = ["out.tfrecord", "part0", "part1", "part2"]
    indexes = [f".{name}.index" for name in names]
    assert sorted(os.listdir(tmp_path)) == sorted([*indexes, *names, "text.txt"])


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: gzip.compress(text.encode()),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.replace("\n\n", "\n \t\n\n").encode(),
        lambda text: text.replace("man", "m\x00an").encode(),
    ],
    ids=["gzip", "crlf", "bom", "more blank lines", "control character"],
)
def test_the_same_text_in_another_form_gives_the_same_records(settings, tmp_path, encode):
    data.run(settings())
    (tmp_path / "other").write_bytes(encode(CORPUS))
    data.run(
        settings(input_file=str(tmp_path / "other"), output_file=str(tmp_path / "other.tfrecord"))
    )
    assert (tmp_path / "other.tfrecord").read_bytes() == (tmp_path / "out.tfrecord").read_bytes()


def test_the_same_flags_give_the_same_bytes_in_another_process(settings, tmp_path):
    made = settings(output_file=str(tmp_path / "other.tfrecord"))
    values = flags_of(made)
    run_python("create_pretraining_data.py", *values)
    data.run(settings())
    assert (tmp_path / "other.tfrecord").read_bytes() == (tmp_path / "out.tfrecord").read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_file": "none.txt"}, r"`input_file` must name existing files\. 'none.txt'"),
        ({"input_file": "none*"}, r"`input_file` must name existing files\. 'none\*'"),
        ({"input_file": "empty.txt"}, "The input files must hold text"),
        ({"input_file": "blank.txt"}, "The input files must hold text"),
        ({"output_file": "a,a"}, "`output_file` must name each file once"),
        ({"output_file": "a,"}, "`output_file` must name files"),
        ({"output_file": "nowhere/a"}, "`output_file` must name files that can be written"),
        ({"vocab_file": "none.txt"}, "`vocab_file` must be a readable file"),
        ({"vocab_file": "empty.txt"}, "`vocab_file` must hold a token a line"),
        ({"vocab_file": "few.txt"}, r"must hold '\[CLS\]', .* without \['\[CLS\]', '\[MASK\]'\]"),
        ({"max_seq_length": 4}, "`max_seq_length` must be at least 5. Received 4"),
        ({"max_predictions_per_seq": 0}, "`max_predictions_per_seq` must be at least 1"),
        ({"dupe_factor": 0}, "`dupe_factor` must be at least 1"),
        ({"masked_lm_prob": 1.5}, "`masked_lm_prob` must be at most 1. Received 1.5"),
        ({"masked_lm_prob": float("nan")}, "`masked_lm_prob` must be a finite number"),
        ({"short_seq_prob": -0.1}, "`short_seq_prob` must be at least 0. Received -0.1"),
        ({"mask_ratios": "80,10"}, "`mask_ratios` must be three numbers from 0 whose sum is 100"),
        ({"mask_ratios": "80,20,10"}, "sum is 100.* Received '80,20,10'"),
        ({"mask_ratios": "120,-10,-10"}, "sum is 100.* Received '120,-10,-10'"),
        ({"mask_ratios": "80,ten,10"}, "sum is 100.* Received '80,ten,10'"),
        ({"mask_ratios": "nan,nan,nan"}, "sum is 100.* Received 'nan,nan,nan'"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_no_file(
    settings, tmp_path, monkeypatch, changes, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").touch()
    (tmp_path / "blank.txt").write_text("\n \n\x00\n")
    (tmp_path / "few.txt").write_text("[UNK]\n[SEP]\n")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(ValueError, match=message):
        data.run(settings(**{"input_file": "text.txt", "output_file": "out.tfrecord", **changes}))
    assert sorted(os.listdir(tmp_path)) == before


def test_do_lower_means_do_lower_case(settings, tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n")
    made = settings(vocab_file=str(tmp_path / "vocab.txt"))
    given = [each for each in flags_of(made) if not each.startswith("--do_lower_case")]
    run_python("create_pretraining_data.py", *given, "--do_lower=False")
    ids = [i for record in read_records(made.output_file) for i in record["input_ids"]]
    cased = data.run(settings(vocab_file=made.vocab_file, do_lower_case=False))
    assert ids == cased.features(0, len(cased))["input_ids"].ravel().tolist()


@pytest.mark.parametrize("name", ["tokenizer_config.json", "task.json"])
def test_the_casing_is_that_of_the_folder_of_the_vocabulary(settings, tmp_path, name):
    vocab_file = tmp_path / "vocab.txt"
    vocab_file.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n")

    def make(**changes):
        data.run(settings(vocab_file=str(vocab_file), overwrite=True, **changes))
        return contents(tmp_path)

    lowered, cased = make(), make(do_lower_case=False)
    assert lowered == make(do_lower_case=True) != cased
    stated = tmp_path / name
    stated.write_text('{"do_lower_case": false}')
    before = cased | {name: stated.read_bytes()}
    assert make() == make(do_lower_case=False) == before
    message = rf"`do_lower_case` must be False for this model, as '.*{name}' says. Received True"
    with pytest.raises(ValueError, match=message):
        make(do_lower_case=True)
    assert contents(tmp_path) == before
    stated.unlink()
    assert make() == lowered


def test_local_files_do_not_need_tensorflow(settings):
    code = (
        "import sys, create_pretraining_data as data\n"
        "data.run(data.Settings(**eval(sys.argv[1])))\n"
        "assert 'tensorflow' not in sys.modules"
    )
    run_python("-c", code, repr(vars(settings())))


@pytest.mark.parametrize(("level", "count"), [("INFO", 2), ("DEBUG", 20)])
def test_a_few_instances_are_shown_readably(settings, log, level, count):
    log.set_level(level, logger="bert")
    table = data.run(settings(dupe_factor=20))
    shown = [message for message in log.messages if message.startswith("Example ")]
    assert len(shown) == count
    for message, instance in zip(shown, table, strict=False):
        said, _, text = message.partition(": ")
        words = text.split(" ")
        assert said.endswith(" random" if instance.is_random_next else " the next")
        hidden = [word.split("=") for word in words if "=" in word]
        assert [label for _, label in hidden] == instance.masked_lm_labels
        assert [word.partition("=")[0] for word in words] == instance.tokens
    written = f"Wrote {len(read_records(settings().output_file))} total instances"
    assert log.messages[-2] == written
    assert log.messages[-1].startswith("Made ")


def test_statistics_are_those_of_the_records(settings, log):
    made = settings(dupe_factor=50)
    data.run(made)
    records = read_records(made.output_file)
    [corpus] = [message for message in log.messages if message.startswith("Read ")]
    assert corpus.startswith("Read 2 documents, 6 sentences, ")
    [statistics] = [message for message in log.messages if message.startswith("Made ")]
    random_next = sum(record["next_sentence_labels"][0] for record in records)
    masked = sum(sum(record["masked_lm_weights"]) for record in records)
    length = sum(sum(record["input_mask"]) for record in records)
    assert f"Made {len(records):,} instances of {length / len(records):.1f} tokens" in statistics
    assert f"{100 * random_next / len(records):.1f} % with a random next segment" in statistics
    assert f"{100 * masked / (length - 3 * len(records)):.1f} % of the tokens masked" in statistics


@pytest.mark.parametrize(
    ("text", "changes", "warning"),
    [
        (CORPUS.replace("\n", "\n\n"), {}, "documents are a single sentence"),
        (
            CORPUS.replace("\n", "\n\n"),
            {},
            "`next_sentence=False`, and train with `objective='masked_lm'`",
        ),
        (CORPUS.replace("\n", "\n\n"), {}, "of the next segments are random"),
        (CORPUS.replace("\n\n", "\n"), {}, "There is one document only"),
        (CORPUS + "\n\U0001f600 \U0001f601 \U0001f602\n", {}, "of the tokens are [UNK]"),
        (CORPUS * 30, {"max_predictions_per_seq": 1}, "where `masked_lm_prob` is 15.0 %"),
        (CORPUS.replace(".\n", ". " * 99 + "\n"), {}, "of the tokens were cut off"),
        (CORPUS.replace(".\n", ". " * 99 + "\n"), {}, "split_sentences.py makes them"),
    ],
)
def test_what_looks_wrong_is_said(settings, tmp_path, log, text, changes, warning):
    (tmp_path / "text.txt").write_text(text)
    data.run(settings(dupe_factor=30, **changes))
    assert any(warning in message for message in warnings_of(log)), warnings_of(log)


def test_text_as_it_should_be_gets_no_warning(settings, log):
    data.run(settings(dupe_factor=30))
    assert warnings_of(log) == []


@pytest.mark.parametrize(
    ("changes", "mark", "told"),
    [
        ({"dupe_factor": 1}, GOOD, r"about 50 MB to hold all text and records, of .* free"),
        ({"dupe_factor": 10**12}, WARNED, r"the run may be killed\. Give `--streaming`, which"),
        ({"dupe_factor": 10**12, "streaming": True}, GOOD, "at most 4 GB"),
    ],
)
def test_the_memory_that_holds_all_records_is_told(settings, changes, mark, told):
    checks = Checks()
    data.check(settings(**changes), checks)
    [line] = [line for line in checks.lines if line.name == "memory"]
    assert line.mark == mark
    assert re.search(told, line.text), line.text


@pytest.mark.parametrize(
    ("last_word", "words", "is_told"),
    [("x", "pieces", True), ("x", "spaces", False), ("xx", "pieces", False)],
)
def test_whole_words_of_one_token_each_are_told(settings, tmp_path, log, last_word, words, is_told):
    """As those of Chinese, which is cut into characters."""
    (tmp_path / "text.txt").write_text("x x x.\nx x x.\n\n" * 9 + f"{last_word}.\nx.\n")
    vocabulary = ["[UNK]", "[CLS]", "[SEP]", "[MASK]", "x", "##x", "."]
    (tmp_path / "pieces.txt").write_text("\n".join(vocabulary))
    data.run(
        settings(vocab_file=str(tmp_path / "pieces.txt"), do_whole_word_mask=True, words=words)
    )
    told = [each for each in warnings_of(log) if "`do_whole_word_mask` does almost" in each]
    assert ["`words='spaces'`" in each for each in told] == [True] * is_told


def test_files_that_run_into_each_other_and_damaged_lines_are_counted(settings, tmp_path, log):
    (tmp_path / "a.txt").write_bytes(b"The cat.\nA \xff man.\n")
    (tmp_path / "b.txt").write_bytes(b"The sea.\n\nThe man.\nA day.\n\n")
    (tmp_path / "c.txt").write_bytes(b"The cat.\nA man.\n")
    files = ",".join(str(tmp_path / f"{name}.txt") for name in "abc")
    data.run(settings(input_file=files))
    assert any("Read 3 documents, 7 sentences" in message for message in log.messages)
    assert any("not UTF-8 was left out of 1 line." in message for message in warnings_of(log))
    assert any("1 input files begin within a document" in m for m in warnings_of(log))


def test_a_corpus_does_not_depend_on_where_batches_of_its_text_end(
    settings, monkeypatch, tokenizer
):
    """A batch of work may also end where the text does."""
    path = settings().input_file
    whole, _ = data.read_corpus([path, path], tokenizer)
    for size in (1, 20, sum(map(len, CORPUS.splitlines()))):
        monkeypatch.setattr(corpora, "_BATCH", size)
        corpus, _ = data.read_corpus([path, path], tokenizer)
        assert corpus.documents == whole.documents
        assert corpus.ids.tolist() == whole.ids.tolist()


def test_a_carriage_return_at_the_end_of_a_file_ends_no_document(settings, tmp_path, tokenizer):
    (tmp_path / "a.txt").write_bytes(b"The cat.\r\n\r")
    (tmp_path / "b.txt").write_bytes(b"The sea.\r\n\r\nThe\r man.")
    files = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
    the, *_ = tokenizer.tokenize("the")
    corpus, _ = data.read_corpus(files, tokenizer)
    assert [len(document) - 1 for document in corpus.documents] == [2, 1]
    assert corpus.ids[corpus.documents[1][0]] == tokenizer.vocab[the]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("how", [{}, {"streaming": True, "num_shards": 2}])
def test_records_are_replaced_by_the_same_command_and_by_no_other(settings, tmp_path, how):
    data.run(settings(**how))
    before = contents(tmp_path)
    data.run(settings(**how))
    (tmp_path / "moved.txt").write_text(CORPUS)
    (tmp_path / "moved.vocab").write_bytes(Path(VOCAB).read_bytes())
    same = {"input_file": str(tmp_path / "moved.txt"), "vocab_file": str(tmp_path / "moved.vocab")}
    data.run(settings(**how, **same, num_workers=2))
    (tmp_path / "other.txt").write_text(CORPUS.replace("cat", "dog"))
    (tmp_path / "other.vocab").write_text(Path(VOCAB).read_text() + "another\n")
    before |= contents(tmp_path)
    for changes, difference in (
        ({"random_seed": 1}, "`random_seed` is 12345, not 1"),
        ({"dupe_factor": 4}, "`dupe_factor` is 3, not 4"),
        ({"do_whole_word_mask": True}, "`do_whole_word_mask` is False, not True"),
        ({"streaming": not how}, f"`streaming` is {bool(how)}, not {not how}"),
        ({"input_file": str(tmp_path / "other.txt")}, "the text is another one"),
        ({"vocab_file": str(tmp_path / "other.vocab")}, "the vocabulary is another one"),
        ({"num_shards": None, "output_file": before_names(how, tmp_path)}, "`num_files` is"),
    ):
        with pytest.raises(ValueError, match=f"of the same text and flags.*{difference}"):
            data.run(settings(**{**how, **changes}))
        assert contents(tmp_path) == before
    data.run(settings(**how, random_seed=1, overwrite=True))
    assert contents(tmp_path).keys() == before.keys()
    assert contents(tmp_path) != before
    data.run(settings(**how, overwrite=True))
    assert contents(tmp_path) == before


@pytest.mark.parametrize("how", [{}, {"streaming": True}])
def test_shards_without_a_record_are_replaced_as_others_are(settings, tmp_path, how):
    (tmp_path / "text.txt").write_text("The cat sat.\nThe dog ran.\n\nThe sea.\nThe man.\n")
    made = settings(num_shards=8, dupe_factor=1, **how)
    data.run(made)
    before = contents(tmp_path)
    assert b"" in before.values()
    data.run(made)
    assert contents(tmp_path) == before
    with pytest.raises(ValueError, match=r"of the same text and flags.*`random_seed` is 12345"):
        data.run(dataclasses.replace(made, random_seed=1))


def before_names(how, folder):
    """Returns an output, of one file more or less, that holds records of `how`."""
    return f"{folder}/out.tfrecord-00000-of-00002" if how else f"{folder}/out.tfrecord,{folder}/b"


def test_records_of_which_nothing_says_what_they_are_made_of_stay(settings, tmp_path):
    made = settings()
    data.run(made)
    index = Path(index_path(made.output_file))
    known = decode_index(index.read_bytes())
    older = {name: known.made_with[name] for name in known.made_with.keys() - {"text"}}
    for content in (
        None,
        b"",
        encode_index(Index(known.ends, {})),
        encode_index(Index(known.ends, older)),
    ):
        index.unlink(missing_ok=True)
        if content is not None:
            index.write_bytes(content)
        before = contents(tmp_path)
        with pytest.raises(ValueError, match="nothing beside it says what it is made of"):
            data.run(made)
        assert contents(tmp_path) == before
    write_records(made.output_file, [serialize({"image": np.zeros(3)})])
    with pytest.raises(ValueError, match=r"`output_file` must name a new file.*`overwrite=True`"):
        data.run(made)
    data.run(settings(overwrite=True))
    data.run(made)
    assert decode_index(index.read_bytes()).made_with == known.made_with


@pytest.mark.parametrize("how", [{}, {"streaming": True}])
def test_a_run_that_was_killed_between_its_files_may_be_run_again(
    settings, tmp_path, monkeypatch, how
):
    asked = settings(num_shards=2, **how)
    rename = durable.rename
    data.run(asked)
    whole = contents(tmp_path)
    for count in range(4):
        for path in tmp_path.glob("*out*"):
            path.unlink()
        left = iter(range(count))

        def kill(*paths, left=left):
            if next(left, None) is None:
                raise KeyboardInterrupt
            rename(*paths)

        with monkeypatch.context() as patched:
            patched.setattr(durable, "rename", kill)
            with pytest.raises(KeyboardInterrupt):
                data.run(asked)
        assert len([*tmp_path.glob("*out*")]) == count
        data.run(asked)
        assert contents(tmp_path) == whole


@pytest.mark.parametrize("count", [BATCH - 1, BATCH, BATCH + 1, 2 * BATCH + 1])
@pytest.mark.parametrize("num_files", [1, 3])
def test_no_record_is_lost_where_a_batch_of_work_ends(tokenizer, tmp_path, count, num_files):
    tokens = list(tokenizer.vocab)[5:15]
    instances = [
        data.TrainingInstance(
            ["[CLS]", *(tokens[int(digit)] for digit in f"{number:04}"), "[SEP]"],
            [0] * 6,
            [1],
            [tokens[0]],
            False,
        )
        for number in range(count)
    ]
    paths = [str(tmp_path / str(number)) for number in range(num_files)]
    data.write_instance_to_example_files(instances, tokenizer, 6, 1, paths)
    expected = [tokenizer.convert_tokens_to_ids(instance.tokens) for instance in instances]
    for number, path in enumerate(paths):
        stored = [record["input_ids"] for record in read_records(path)]
        assert stored == expected[number::num_files]


def test_small_names_of_the_original_are_what_they_were():
    masked = data.MaskedLmInstance(index=3, label="cat")
    assert masked == (3, "cat") and masked.label == "cat"
    integers = data.create_int_feature(iter([1, 2]))
    assert list(integers.int64_list.value) == [1, 2]
    floats = data.create_float_feature((0.5, 1.0))
    assert list(floats.float_list.value) == [0.5, 1.0]
