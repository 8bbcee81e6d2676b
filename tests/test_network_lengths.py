from itertools import chain

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bert.network.lengths import (
    by_length,
    group_by_length,
    pad_sequences,
    sort_by_length,
)


@given(st.lists(st.integers(1, 99)), st.integers(1, 7))
def test_batches_hold_every_item_once_by_falling_length(lengths, batch_size):
    batches = sort_by_length(lengths, batch_size)
    order = list(chain.from_iterable(batches))
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[item] for item in order] == sorted(lengths, reverse=True)
    assert all(len(batch) == batch_size for batch in batches[:-1])


@given(st.lists(st.integers(1, 20), min_size=1), st.integers(20, 24))
def test_padding_is_zeros_after_the_ids(lengths, max_seq_length):
    ids = [list(range(5, 5 + length)) for length in lengths]
    segments = [[1] * length for length in lengths]
    batch = pad_sequences(ids, segments, max_seq_length)
    width = batch["input_ids"].shape[1]
    assert max(lengths) <= width <= max_seq_length
    assert width == max_seq_length or width % 8 == 0
    assert width - max(lengths) < 8
    for name, rows in (("input_ids", ids), ("segment_ids", segments)):
        padded = [row + [0] * (width - len(row)) for row in rows]
        np.testing.assert_array_equal(batch[name], padded)
    np.testing.assert_array_equal(batch["input_mask"], batch["segment_ids"])
    assert {values.dtype for values in batch.values()} == {np.dtype(np.int32)}


@given(st.lists(st.integers(1, 32), min_size=1), st.integers(1, 7), st.booleans())
def test_batches_by_length_lose_no_token_and_have_few_shapes_on_a_gpu(lengths, batch_size, on_gpu):
    ids = (np.arange(32) < np.array(lengths)[:, None]) * np.arange(1, 33)
    arrays = {"input_ids": ids, "input_mask": np.minimum(ids, 1)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.config, "list_physical_devices", lambda kind: [kind] * on_gpu)
        batches = list(by_length(arrays, ["input_ids"], batch_size))
    for numbers, batch in batches:
        longest = max(lengths[number] for number in numbers)
        assert batch["input_ids"].shape[1] == (-(-longest // 8) * 8 if on_gpu else longest)
        padded = np.pad(batch["input_ids"], [(0, 0), (0, 32 - batch["input_ids"].shape[1])])
        np.testing.assert_array_equal(padded, ids[numbers])


def test_long_rows_go_through_a_model_in_smaller_batches():
    lengths = np.array([512, 40, 128, 20, 60] * 20)
    groups = list(group_by_length(lengths, 32))
    assert sorted(np.concatenate(groups)) == list(range(100))
    together = [lengths[numbers] for numbers in groups]
    assert (np.diff(np.concatenate(together)) <= 0).all()
    for each in together[:-1]:
        assert len(each) in (8, 32) or len(each) * each[0] <= 1024 < (len(each) + 1) * each[0]
    assert {len(each) for each in group_by_length(lengths, 3)} == {3, 1}
    assert [list(each) for each in group_by_length(np.zeros(2, int), 3)] == [[0, 1]]


def test_choices_are_cut_to_the_longest_of_them_and_rows_of_nothing_to_a_token(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    mask = (np.arange(9) < np.array([[3, 1], [2, 4]])[..., None]).astype(int)
    [(numbers, batch)] = by_length({"input_mask": mask}, ["input_mask"], 2)
    assert numbers.tolist() == [1, 0] and batch["input_mask"].shape == (2, 2, 4)
    [(_, batch)] = by_length({"input_mask": 0 * mask[0]}, ["input_mask"], 2)
    assert batch["input_mask"].shape == (2, 1)
