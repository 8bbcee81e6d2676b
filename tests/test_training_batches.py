import contextlib
import os
import re
import resource

import numpy as np
import pytest
import tensorflow as tf
from conftest import (
    LENGTH,
    PREDICTIONS,
    exhaustive,
    make_examples,
    serialize,
    split_examples,
    write_examples,
    write_records,
)
from hypothesis import given
from hypothesis import strategies as st

from bert.files import records as files_records
from bert.files.paths import match_files
from bert.pretraining.objectives import pretraining_features
from bert.training.batches import Batches
from bert.training.records import Feature, Records, encoder_features


@pytest.fixture
def features(tiny_config):
    return pretraining_features(
        max_seq_length=LENGTH,
        max_predictions_per_seq=PREDICTIONS,
        vocab_size=tiny_config.vocab_size,
        type_vocab_size=tiny_config.type_vocab_size,
    )


@pytest.fixture
def examples(tiny_config):
    return make_examples(tiny_config, 10)


@pytest.fixture
def file(tmp_path, examples):
    return write_examples(tmp_path / "train.tfrecord", examples)


class _Numbers:
    """Stands for records where only their number is of interest."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count


def make_batches(files, features, batch_size, seed=None):
    return Batches(Records(files), features, batch_size, seed)


def read_all(batches, first_step, end_step):
    return [
        {name: values.numpy() for name, values in batch.items()}
        for batch in batches.iterate(first_step, end_step)
    ]


def assert_same_batches(ones, others):
    assert len(ones) == len(others)
    for one, other in zip(ones, others, strict=True):
        assert one.keys() == other.keys()
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name])


@given(
    count=st.integers(1, 40),
    batch_size=st.integers(1, 50),
    block=st.integers(0, 60),
    seed=st.integers(0, 2**31),
    data=st.data(),
)
def test_every_epoch_reads_every_record_once(count, batch_size, block, seed, data):
    batches = Batches(_Numbers(count), {}, batch_size, seed, shuffle_block=block)
    epochs = data.draw(st.integers(1, 4))
    steps = -(-epochs * count // batch_size)
    numbers = np.concatenate([batches.numbers(step) for step in range(steps)])
    passes = np.concatenate([batches.epochs(step) for step in range(steps)])
    assert len(numbers) == len(passes) == steps * batch_size
    assert [*passes] == sorted(passes)
    for epoch in range(epochs):
        assert sorted(numbers[passes == epoch]) == list(range(count))


@given(
    count=st.integers(1, 40),
    batch_size=st.integers(1, 5),
    seed=st.none() | st.integers(0, 9),
    parts=st.lists(
        st.integers(1, 3).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1)))
    ),
)
def test_a_part_of_a_part_has_its_own_batches_of_the_whole(count, batch_size, seed, parts):
    batches = part = Batches(_Numbers(count), {}, batch_size, seed)
    steps = [*range(batches.num_batches)]
    for num_parts, index in parts:
        part, steps = part.every(num_parts, index), steps[index::num_parts]
    assert part.num_batches == len(steps)
    for own, step in enumerate(steps):
        assert [*part.numbers(own)] == [*batches.numbers(step)]
        assert [*part.epochs(own)] == [*batches.epochs(step)]


@given(
    count=st.integers(1, 40),
    batch_size=st.integers(1, 50),
    block=st.integers(0, 60),
    step=st.integers(0, 10**6),
)
def test_order_is_a_function_of_seed_and_step(count, batch_size, block, step):
    fresh = Batches(_Numbers(count), {}, batch_size, 7, shuffle_block=block)
    used = Batches(_Numbers(count), {}, batch_size, 7, shuffle_block=block)
    for other in (step + 1, 0, step):
        used.numbers(other)
    np.testing.assert_array_equal(fresh.numbers(step), used.numbers(step))


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = {
        tuple(Batches(_Numbers(50), {}, 50, seed).numbers(epoch))
        for seed in (0, 1, 2)
        for epoch in range(4)
    }
    assert len(orders) == 12
    assert tuple(range(50)) not in orders


def test_order_never_changes_between_versions():
    # A run that is resumed with a later version must read what it would have read.
    batches = Batches(_Numbers(10), {}, 8, 12345)
    assert batches.numbers(0).tolist() == [0, 2, 8, 5, 6, 7, 3, 9]
    assert batches.numbers(1).tolist() == [4, 1, 8, 3, 6, 0, 1, 2]


@pytest.mark.parametrize("block", [0, 3])
def test_batches_hold_the_records_of_their_numbers(file, features, examples, block):
    batches = Batches(Records([file, file]), features, 4, 3, shuffle_block=block)
    for step, batch in enumerate(read_all(batches, 0, 6)):
        numbers = batches.numbers(step) % 10
        assert_same_batches([batch], [{name: values[numbers] for name, values in examples.items()}])
        assert batches.serialized(step) == [
            serialize(split_examples(examples)[number]) for number in numbers
        ]


def test_reading_may_start_anywhere(file, features):
    whole = read_all(make_batches([file], features, 4, seed=3), 0, 9)
    for start in (1, 4, 8):
        rest = read_all(make_batches([file], features, 4, seed=3), start, 9)
        assert_same_batches(rest, whole[start:])
    assert read_all(make_batches([file], features, 4, seed=3), 9, 9) == []


@pytest.mark.parametrize(("batch_size", "sizes"), [(4, [4, 4, 2]), (5, [5, 5]), (99, [10])])
def test_evaluation_reads_every_record_once_in_order(file, features, examples, batch_size, sizes):
    batches = make_batches([file], features, batch_size)
    assert batches.num_batches == len(sizes)
    read = read_all(batches, 0, batches.num_batches)
    assert [len(batch["input_ids"]) for batch in read] == sizes
    together = {name: np.concatenate([batch[name] for batch in read]) for name in examples}
    assert_same_batches([together], [examples])


def test_several_files_are_read_as_one(tmp_path, features, examples):
    parts = [
        {name: values[rows] for name, values in examples.items()}
        for rows in (slice(0, 3), slice(3, 3), slice(3, 4), slice(4, 10))
    ]
    files = [write_examples(tmp_path / f"{i}.tfrecord", part) for i, part in enumerate(parts)]
    records = Records(files)
    assert [records[number] for number in range(len(records))] == [
        serialize(example) for example in split_examples(examples)
    ]
    assert records.place(2) == f"Record 2 of {files[0]!r}"
    assert records.place(3) == f"Record 0 of {files[2]!r}"
    assert records.place(9) == f"Record 5 of {files[3]!r}"
    one = write_examples(tmp_path / "one.tfrecord", examples)
    assert_same_batches(
        read_all(make_batches(files, features, 4, seed=5), 0, 5),
        read_all(make_batches([one], features, 4, seed=5), 0, 5),
    )


def test_more_files_may_be_given_than_may_be_open(tmp_path, examples):
    file = str(tmp_path / "train.tfrecord")
    with files_records.write_records([file], {}) as (writer,):
        for example in split_examples(examples):
            writer.write(serialize(example))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        # What a program has open already leaves no fewer for the records.
        for _ in range(400):
            stack.enter_context(open(file, "rb"))
        open_files = max(map(int, os.listdir("/dev/fd"))) + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files + 40, limits[1]))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        records = Records([file] * 80)
    assert len(records) == 800
    assert records.read([799, 12, 13, 12, 0]) == [
        serialize(split_examples(examples)[number]) for number in (9, 2, 3, 2, 0)
    ]


def test_files_may_be_on_any_file_system(features, examples):
    files = [f"ram://test_training_batches/{i}.tfrecord" for i in range(2)]
    halves = [{k: v[rows] for k, v in examples.items()} for rows in (slice(0, 6), slice(6, 10))]
    for name, half in zip(files, halves, strict=True):
        write_examples(name, half)
    assert match_files("ram://test_training_batches/*.tfrecord", "x") == files
    batches = make_batches(files, features, 10)
    assert_same_batches(read_all(batches, 0, 1), [examples])


def test_integers_are_int32_and_weights_float32(file, features):
    (batch,) = make_batches([file], features, 10).iterate(0, 1)
    types = {name: values.dtype.name for name, values in batch.items()}
    assert types.pop("masked_lm_weights") == "float32"
    assert set(types.values()) == {"int32"}


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2], [1, 2, 0]])
def test_the_first_record_of_each_file_is_checked_wherever_an_empty_file_is(
    tmp_path, file, features, examples, order
):
    empty = write_records(tmp_path / "empty", [])
    change = replace("input_ids", np.array([1]))
    wrong = write_records(tmp_path / "wrong", [change(split_examples(examples)[0])])
    files = [(empty, file, wrong)[index] for index in order]
    Records([each for each in files if each != wrong]).check_first(features)
    with pytest.raises(ValueError, match=r"Record 0 of .*wrong': `input_ids` must have"):
        Records(files).check_first(features)


def test_files_without_any_record_are_refused(tmp_path):
    files = [write_records(tmp_path / name, []) for name in "ab"]
    with pytest.raises(ValueError, match="must hold records") as caught:
        Records(files)
    assert files[0] in str(caught.value)


def replace(name, values):
    return lambda example: serialize({**example, name: values})


def without(name):
    return lambda example: serialize({key: v for key, v in example.items() if key != name})


def change_at(name, index, value):
    def apply(example):
        values = example[name].copy()
        values[index] = value
        return serialize({**example, name: values})

    return apply


WRONG_RECORDS = {
    "not an Example": (lambda _: b"\xff\xff\xff not a protocol buffer", "tf.train.Example", ""),
    "empty": (lambda _: b"", "`input_ids`", ""),
    "no segment_ids": (without("segment_ids"), "`segment_ids`", ""),
    "no next_sentence_labels": (without("next_sentence_labels"), "`next_sentence_labels`", ""),
    "ids too short": (
        replace("input_ids", np.ones(LENGTH - 1, int)),
        "`input_ids` must have 12 values",
        "`max_seq_length`",
    ),
    "ids too long": (
        replace("input_ids", np.ones(LENGTH + 1, int)),
        "`input_ids` must have 12 values",
        "`max_seq_length`",
    ),
    "mask too long": (
        replace("input_mask", np.ones(128, int)),
        "`input_mask` must have 12 values",
        "`max_seq_length`",
    ),
    "too few predictions": (
        replace("masked_lm_ids", np.ones(PREDICTIONS - 1, int)),
        "`masked_lm_ids` must have 3 values",
        "`max_predictions_per_seq`",
    ),
    "too many weights": (
        replace("masked_lm_weights", np.ones(20, float)),
        "`masked_lm_weights` must have 3 values",
        "`max_predictions_per_seq`",
    ),
    "no values": (replace("input_ids", np.ones(0, int)), "`input_ids` must have 12", ""),
    "two labels": (
        replace("next_sentence_labels", np.ones(2, int)),
        "`next_sentence_labels` must have 1 value",
        "",
    ),
    "ids are floats": (replace("input_ids", np.ones(LENGTH)), "`input_ids`", "int64_list"),
    "weights are integers": (
        replace("masked_lm_weights", np.ones(PREDICTIONS, int)),
        "`masked_lm_weights`",
        "float_list",
    ),
    "id of another vocabulary": (
        change_at("input_ids", 3, 29),
        "`input_ids` must be at least 0 and less than 29",
        "`vocab_size` in `bert_config_file`",
    ),
    "negative id": (change_at("input_ids", 3, -1), "It has -1", "`vocab_size`"),
    "id beyond 32 bits": (
        lambda e: serialize({**e, "input_ids": np.full(LENGTH, 2**32 + 1)}),
        f"It has {2**32 + 1}",
        "`vocab_size`",
    ),
    "masked id of another vocabulary": (
        change_at("masked_lm_ids", 0, 30000),
        "`masked_lm_ids`",
        "`vocab_size` in `bert_config_file`",
    ),
    "position behind the end": (
        change_at("masked_lm_positions", 0, LENGTH),
        "`masked_lm_positions` must be at least 0 and less than 12",
        "`max_seq_length`",
    ),
    "negative position": (change_at("masked_lm_positions", 0, -1), "`masked_lm_positions`", ""),
    "unknown segment": (
        change_at("segment_ids", 0, 3),
        "`segment_ids` must be at least 0 and less than 3",
        "`type_vocab_size` in `bert_config_file`",
    ),
    "negative weight": (
        change_at("masked_lm_weights", 0, -0.5),
        "`masked_lm_weights` must be finite and at least 0. It has -0.5.",
        "",
    ),
    "weight that is no number": (
        change_at("masked_lm_weights", 2, np.nan),
        "`masked_lm_weights` must be finite and at least 0. It has nan.",
        "",
    ),
    "infinite weight": (change_at("masked_lm_weights", 1, np.inf), "It has inf.", ""),
    "mask of 2": (change_at("input_mask", 0, 2), "`input_mask`", ""),
    "label of 2": (change_at("next_sentence_labels", 0, 2), "`next_sentence_labels`", ""),
}


@pytest.mark.parametrize("kind", WRONG_RECORDS)
@pytest.mark.parametrize("seed", [4, *exhaustive(None)])
def test_wrong_record_is_named_when_it_is_read(tmp_path, file, features, examples, kind, seed):
    make_wrong, message, source = WRONG_RECORDS[kind]
    records = [serialize(example) for example in split_examples(examples)]
    records[6] = make_wrong(split_examples(examples)[6])
    wrong = write_records(tmp_path / "wrong.tfrecord", records)
    batches = make_batches([file, wrong], features, 4, seed)
    batches.records.check_first(features)
    step = next(step for step in range(5) if 16 in batches.numbers(step))
    iterator = batches.iterate(0, 5)
    for _ in range(step):
        next(iterator)
    with pytest.raises(ValueError, match="Record 6 of") as caught:
        next(iterator)
    text = str(caught.value)
    if kind == "mask of 2":
        # Wherever reading began.
        with pytest.raises(ValueError, match=re.escape(text)):
            next(batches.iterate(step, step + 1))
    for part in (wrong, message, source):
        assert part in text
    assert "\n" not in text
    # Read first, it is found before the first step.
    first = write_records(tmp_path / "first.tfrecord", [records[6]])
    with pytest.raises(ValueError, match="Record 0 of") as caught:
        Records([file, first]).check_first(features)
    assert first in str(caught.value)


def test_floats_that_are_no_weights_may_be_negative_and_not_infinite(tmp_path, long_features):
    path = make_long_file(tmp_path / "x", [5, 6, 7])
    (batch,) = read_all(make_batches([path], long_features, 3), 0, 1)
    assert batch["label"][:, 0].tolist() == [0, 1, 2]
    for value, is_allowed in ((-3.5, True), (-np.inf, False), (np.nan, False)):
        examples = {"label": np.float32([[1], [2], [value]])}
        batches = make_batches(
            [write_examples(tmp_path / "y", examples)], {"label": long_features["label"]}, 3
        )
        if is_allowed:
            assert read_all(batches, 0, 1)[0]["label"][2, 0] == value
        else:
            with pytest.raises(ValueError, match=f"Record 2 of .* must be finite. It has {value}"):
                read_all(batches, 0, 1)


def test_a_file_cut_while_it_is_trained_on_is_named(file, features):
    batches = make_batches([file], features, 4, seed=3)
    iterator = batches.iterate(0, 100)
    next(iterator)
    os.truncate(file, 100)
    with pytest.raises(ValueError, match="It was written to while it was read") as caught:
        list(iterator)
    assert file in str(caught.value) and "\n" not in str(caught.value)


def test_more_features_than_needed_do_no_harm(tmp_path, features, examples):
    extended = [
        serialize({**example, "unused": np.ones(5, int)}) for example in split_examples(examples)
    ]
    path = write_records(tmp_path / "extended.tfrecord", extended)
    assert_same_batches(read_all(make_batches([path], features, 10), 0, 1), [examples])


def test_records_of_the_original_are_read(golden):
    with np.load(golden / "pretrain_records.npz") as stored:
        expected = {name: stored[name] for name in stored.files}
    length, predictions = expected["input_ids"].shape[1], expected["masked_lm_ids"].shape[1]
    wanted = pretraining_features(
        max_seq_length=length,
        max_predictions_per_seq=predictions,
        vocab_size=30522,
        type_vocab_size=2,
    )
    records = Records([str(golden / "pretrain_batch.tfrecord")])
    batches = Batches(records, wanted, len(records))
    first = {name: values[: len(records)] for name, values in expected.items()}
    assert_same_batches(read_all(batches, 0, 1), [first])


@pytest.fixture
def long_features(tiny_config):
    encoder = encoder_features(
        max_seq_length=64,
        vocab_size=tiny_config.vocab_size,
        type_vocab_size=tiny_config.type_vocab_size,
    )
    return {**encoder, "label": Feature(1, "the test")}


def make_long_file(path, lengths, rows=1):
    """Writes records of 64 tokens a row, of which `lengths` are real; the label is the number."""
    mask = (np.arange(64) < np.asarray(lengths).reshape(-1, 1)).astype(np.int64)
    mask = mask.reshape(len(lengths) // rows, -1)
    return write_examples(
        path,
        {
            "input_ids": mask * 5,
            "input_mask": mask,
            "segment_ids": mask * 0,
            "label": np.arange(len(mask), dtype=np.float32)[:, None],
        },
    )


@given(
    lengths=st.lists(st.integers(1, 64), min_size=1, max_size=60),
    batch_size=st.integers(1, 9),
    data=st.data(),
)
def test_forming_by_length_reads_every_record_once_an_epoch(lengths, batch_size, data):
    count = len(lengths)
    batches = Batches(_Numbers(count), {}, batch_size, seed=3, lengths=np.array(lengths))
    epochs = data.draw(st.integers(1, 4))
    steps = -(-epochs * count // batch_size)
    numbers = np.concatenate([batches.numbers(step) for step in range(steps)])
    assert len(numbers) == steps * batch_size
    for epoch in range(epochs):
        assert sorted(numbers[epoch * count : (epoch + 1) * count]) == list(range(count))


def test_batches_formed_by_length_hardly_pad_and_are_shuffled():
    lengths = np.random.RandomState(0).randint(1, 129, size=1000)
    batches = Batches(_Numbers(1000), {}, 16, seed=3, lengths=lengths)
    # 125 steps are 2 epochs, and the border between them is not one between batches.
    steps = [lengths[batches.numbers(step)] for step in range(125)]
    padded = sum(16 * max(each) for each in steps)
    assert padded < 1.08 * lengths.sum() * 2
    longest = [max(each) for each in steps[:60]]
    assert abs(np.corrcoef(longest, range(60))[0, 1]) < 0.4
    second = [tuple(sorted(batches.numbers(step))) for step in range(63, 125)]
    assert not {tuple(sorted(batches.numbers(step))) for step in range(62)} & set(second)


def test_numbers_give_the_order_of_an_evaluation_by_length(tmp_path, long_features):
    lengths = [30, 2, 64, 9, 10, 1, 33]
    records = Records([make_long_file(tmp_path / "x", lengths)])
    batches = Batches(records, long_features, 3, lengths=np.array(lengths))
    numbers = [batches.numbers(step).tolist() for step in range(batches.num_batches)]
    assert numbers == [[5, 1, 3], [4, 0, 6], [2]]
    read = read_all(batches, 0, 3)
    assert [batch["label"][:, 0].tolist() for batch in read] == numbers


def test_trimming_cuts_only_what_is_padding_in_the_whole_batch(tmp_path, long_features):
    lengths = [30, 2, 64, 9, 10, 1, 33]
    records = Records([make_long_file(tmp_path / "x", lengths)])
    whole = Batches(records, long_features, 3, lengths=np.array(lengths))
    trimmed = Batches(records, long_features, 3, lengths=np.array(lengths), trim=True)
    read = read_all(trimmed, 0, 3)
    assert [batch["input_ids"].shape for batch in read] == [(3, 16), (3, 40), (1, 64)]
    for short, long in zip(read, read_all(whole, 0, 3), strict=True):
        size = short["input_ids"].shape[1]
        for name in ("input_ids", "input_mask", "segment_ids"):
            np.testing.assert_array_equal(short[name], long[name][:, :size])
            assert not long["input_mask"][:, size:].any()
        np.testing.assert_array_equal(short["label"], long["label"])


def test_a_share_without_records_has_a_length(tmp_path, long_features):
    """As the last share of a replica may be, on which a model is called, too."""
    batches = Batches(Records([make_long_file(tmp_path / "x", [9])]), long_features, 3, trim=True)
    parsed = batches.parse(tf.constant([], tf.string))
    assert parsed["label"].shape == (0, 1) and parsed["input_ids"].shape[1] > 0


def test_rows_of_choices_are_trimmed_together(tmp_path, tiny_config):
    lengths = [3, 12, 7, 20, 5, 1]
    path = make_long_file(tmp_path / "x", lengths, rows=2)
    features = encoder_features(
        max_seq_length=64,
        vocab_size=tiny_config.vocab_size,
        type_vocab_size=tiny_config.type_vocab_size,
        rows=2,
    )
    batches = Batches(Records([path]), features, 2, trim=True)
    read = read_all(batches, 0, 2)
    assert [batch["input_ids"].shape for batch in read] == [(2, 2, 24), (1, 2, 8)]
    assert read[0]["input_mask"].sum(axis=2).tolist() == [[3, 12], [7, 20]]


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("trim", [False, True])
def test_signature_fits_every_batch(tmp_path, long_features, trim, seed):
    lengths = [30, 2, 64, 9, 10, 1, 33]
    records = Records([make_long_file(tmp_path / "x", lengths)])
    batches = Batches(records, long_features, 3, seed, lengths=np.array(lengths), trim=trim)
    assert batches.signature["input_ids"].shape.as_list() == [3 if seed else None, [64, None][trim]]
    for batch in batches.iterate(0, 3):
        for name, spec in batches.signature.items():
            assert spec.is_compatible_with(batch[name])


class _Visited(Batches):
    """Batches that tell which records they are."""

    def finish(self, batch, visits):
        return {**batch, "visits": visits}


@pytest.mark.parametrize(("num_workers", "num_replicas"), [(1, 2), (2, 2), (2, 4)])
def test_workers_and_their_replicas_share_each_batch_in_order(
    file, features, examples, num_workers, num_replicas
):
    # The second of these steps reads records of two epochs.
    first, end, here = 1, 4, num_replicas // num_workers
    batches = _Visited(Records([file]), features, 4, 3)
    contexts = [
        tf.distribute.InputContext(num_workers, worker, num_replicas)
        for worker in range(num_workers)
    ]
    read = [[*batches._dataset(context, first, end)] for context in contexts]
    for place, step in enumerate(range(first, end)):
        shares = [share for worker in read for share in worker[place * here :][:here]]
        assert {len(share["visits"]) for share in shares} == {4 // num_replicas}
        visits = np.concatenate([share["visits"] for share in shares])
        numbers = batches.numbers(step)
        np.testing.assert_array_equal(visits, np.stack([batches.epochs(step), numbers], axis=1))
        ids = np.concatenate([share["input_ids"] for share in shares])
        np.testing.assert_array_equal(ids, examples["input_ids"][numbers])


def test_no_tuner_holds_up_the_end_of_a_run(file, features):
    """tf.data's tuner would sleep on for as long as the run took, at most a minute."""
    dataset = make_batches([str(file)], features, 2)._dataset(tf.distribute.InputContext(), 0, 5)
    assert dataset.options().autotune.enabled is False
