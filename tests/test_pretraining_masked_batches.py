"""Records that hold no masks: what is drawn as they are read, and what that depends on."""

import dataclasses
import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers import record_indexes
from helpers.pretraining_records import read_records
from helpers.record_indexes import WORDS

import create_pretraining_data
import run_pretraining
from bert.commands.checks import start
from bert.files.paths import index_path
from bert.pretraining import inputs, objectives, records
from bert.pretraining.masking import Masking
from bert.pretraining.objectives import MaskedBatches, Masker
from bert.weights import checkpoint

pytestmark = pytest.mark.usefixtures("eager")

# A function that makes records, and one that trains on them.
make, train = record_indexes.make, record_indexes.train

VOCAB = {word: number for number, word in enumerate(WORDS)}
MASK = VOCAB["[MASK]"]
PLAIN = {"mask_at_training": True, "streaming": True, "dupe_factor": 3}


def make_masking(**changes):
    values = {
        "masked_lm_prob": 0.3,
        "max_predictions_per_seq": 9,
        "do_whole_word_mask": False,
        "random_seed": 1,
        **changes,
    }
    return Masking(**values)


def mask_often(words, count, **changes):
    """Masks `[CLS] words [SEP]` in many passes; returns its ids and what `Masker.mask` does."""
    ids = np.array([VOCAB[word] for word in ["[CLS]", *words, "[SEP]"]], np.int32)
    padded = np.tile(np.pad(ids, (0, 3)), (count, 1))
    lengths = np.full(count, len(ids))
    visits = np.stack([np.arange(count), np.full(count, 5)], axis=1)
    goes_on = np.zeros(padded.shape, bool)
    return ids, Masker(make_masking(**changes), VOCAB).mask(padded, lengths, goes_on, 7, visits)


@pytest.mark.parametrize(
    ("prob", "most", "expected"),
    # Of 20 tokens, [CLS] and [SEP] among them; halves are rounded to even numbers.
    [(0.15, 9, 3), (0.125, 9, 2), (0.175, 9, 4), (0.15, 2, 2), (0.0, 9, 1), (1.0, 30, 18)],
)
def test_as_many_tokens_are_masked_as_in_records(prob, most, expected):
    words = [*"abcdefghij"[:9]] * 2
    settings = {"masked_lm_prob": prob, "max_predictions_per_seq": most}
    ids, (masked, positions, hidden, weights) = mask_often(words, 50, **settings)
    np.testing.assert_array_equal(weights, np.tile(np.arange(most) < expected, (50, 1)))
    for row in range(50):
        places = positions[row, :expected]
        assert (np.diff(places) > 0).all() and {0, len(ids) - 1}.isdisjoint(places)
        np.testing.assert_array_equal(hidden[row, :expected], ids[places])
        others = np.setdiff1d(np.arange(len(ids)), places)
        np.testing.assert_array_equal(masked[row, others], ids[others])
    assert not positions[:, expected:].any() and not hidden[:, expected:].any()
    assert not masked[:, len(ids) :].any()


def test_every_token_is_masked_as_often_and_becomes_what_the_ratios_say():
    count, ratios = 20_000, "20,50,30"
    words = [*"abcdefghij", "##a", "a", "b", "c"]
    ids, (masked, positions, hidden, weights) = mask_often(words, count, mask_ratios=ratios)
    chosen = weights.astype(bool)
    # Five of 14 candidates; five standard errors for each of them.
    share = np.bincount(positions[chosen], minlength=len(ids)) / count
    np.testing.assert_allclose(share[1:-1], 5 / 14, atol=5 * (5 / 14 * 9 / 14 / count) ** 0.5)
    rows, columns = np.nonzero(chosen)
    seen, labels = masked[rows, positions[rows, columns]], hidden[chosen]
    # Any word of the vocabulary may come, the one that stood there included, and so may [MASK].
    expected = np.full(len(WORDS), 0.3 / len(WORDS))
    for number, word in enumerate(WORDS):
        others = seen[labels != number] == number
        share = expected[number] + 0.2 * (number == MASK)
        assert abs(others.mean() - share) < 5 * (share * (1 - share) / len(others)) ** 0.5, word
    share = 0.5 + 0.3 / len(WORDS)
    assert abs((seen == labels).mean() - share) < 5 * (share * (1 - share) / len(seen)) ** 0.5


def test_the_pieces_of_a_word_are_masked_together_and_specials_never():
    words = ["a", "##a", "b", "##ö", "##a", "c", "d", "e"]
    settings = {"do_whole_word_mask": True, "mask_ratios": "100,0,0", "masked_lm_prob": 0.5}
    _, (masked, *_) = mask_often(words, 300, **settings)
    is_mask = masked == MASK
    np.testing.assert_array_equal(is_mask[:, 1], is_mask[:, 2])
    np.testing.assert_array_equal(is_mask[:, 3:6], np.repeat(is_mask[:, 3:4], 3, axis=1))
    assert not is_mask[:, [0, 9]].any()
    # Ten tokens at a half; a word too long for what is left is left out.
    assert set(is_mask.sum(axis=1)) <= {3, 4, 5} and is_mask[:, 1:9].any(axis=0).all()


def test_a_word_too_long_to_mask_leaves_it_to_any_other():
    count, settings = 3000, {"do_whole_word_mask": True, "masked_lm_prob": 0.0}
    _, (_, positions, _, weights) = mask_often(["a", "##a", "b", "c", "d"], count, **settings)
    places, times = np.unique(positions[weights > 0], return_counts=True)
    assert places.tolist() == [3, 4, 5]
    np.testing.assert_allclose(times / count, 1 / 3, atol=5 * (2 / 9 / count) ** 0.5)


@pytest.fixture
def open_batches(make, train, pretraining_run, tmp_path):
    """A function that opens records as a training does."""
    config = json.loads((tmp_path / "bert_config.json").read_text())

    def open_batches(path, evaluates=False, **changes):
        lengths = {"max_seq_length": None, "max_predictions_per_seq": None}
        settings = pretraining_run(input_file=path, **lengths, **changes)
        made = inputs.find_description(settings, settings.objective)
        settings = inputs.complete_files(settings, made)
        features = inputs.features_of(
            settings, inputs.ModelFolder.named_by(settings, output_dir=settings.output_dir).config
        )
        if evaluates:
            size = settings.eval_batch_size
            return inputs.open_evaluation(settings, settings.objective, features, made, size)
        return inputs.open_training(settings, settings, features, made, settings.seed)

    assert config["vocab_size"] == len(WORDS)
    return open_batches


def read_all(batches, first, end, num_replicas=1):
    """Returns what training reads in some steps, by the pass and the number of the record."""
    found = {}
    shares = iter(batches._dataset(tf.distribute.InputContext(1, 0, num_replicas), first, end))
    for step in range(first, end):
        parts = [*itertools.islice(shares, num_replicas)]
        values = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        for row, key in enumerate(zip(batches.epochs(step), batches.numbers(step), strict=True)):
            found[key] = {name: each[row].tolist() for name, each in values.items()}
    return found


def test_masks_depend_on_the_seed_the_pass_and_the_record_alone(make, open_batches):
    path = make(**PLAIN)
    expected = read_all(open_batches(path), 0, 24)
    passes, numbers = map(set, zip(*expected, strict=True))
    assert len(passes) > 2
    assert read_all(open_batches(path, train_batch_size=6), 0, 16) == expected
    assert read_all(open_batches(path, train_batch_size=2), 31, 48).items() <= expected.items()
    assert read_all(open_batches(path), 0, 24, num_replicas=2) == expected
    # All in other blocks, in another order.
    blocks = read_all(open_batches(path, shuffle_block=2), 0, 24)
    assert {key: expected[key] for key in blocks if key in expected} == {
        key: blocks[key] for key in blocks if key in expected
    }
    masks = [
        [expected[each, number]["masked_lm_positions"] for number in numbers] for each in (0, 1)
    ]
    assert masks[0] != masks[1]
    other = read_all(open_batches(path, seed=8), 0, 24)
    assert any(other[key] != expected[key] for key in expected.keys() & other.keys())


def test_held_out_records_are_masked_alike_for_every_model(make, open_batches):
    path = make(**PLAIN)
    expected = read_all(open_batches(path, evaluates=True), 0, 4)
    assert expected == read_all(open_batches(path, True, seed=99, eval_batch_size=8), 0, 2)
    held_out = open_batches(path, evaluates=True)
    masking = dataclasses.replace(held_out.masker.masking, random_seed=4)
    arguments = (held_out.records, held_out.features, 4)
    made_otherwise = MaskedBatches(*arguments, masker=Masker(masking, VOCAB))
    assert read_all(made_otherwise, 0, 4) != expected
    training = read_all(open_batches(path, seed=12345), 0, 4)
    assert not any(training[key] == expected[key] for key in training.keys() & expected.keys())


def test_batches_are_of_the_shapes_that_they_promise(make, open_batches):
    batches = open_batches(make(**PLAIN))
    [batch] = batches.iterate(0, 1)
    assert {name: tf.TensorSpec.from_tensor(each, name) for name, each in batch.items()} == (
        batches.signature
    )


def test_plain_records_are_the_masked_ones_without_their_masks(make, open_batches):
    plain, masked = make("plain", **PLAIN), make("masked", **{**PLAIN, "mask_at_training": False})
    names = {"input_ids", "input_mask", "segment_ids", "next_sentence_labels"}
    assert all(record.keys() == names for record in read_records(plain))
    assert Path(plain).stat().st_size < Path(masked).stat().st_size
    one, other = (
        read_all(open_batches(path, objective="left_to_right"), 0, 12) for path in (plain, masked)
    )
    assert one == other
    [batch] = open_batches(masked).iterate(0, 1)
    [own] = open_batches(plain).iterate(0, 1)
    np.testing.assert_array_equal(objectives.unmask(batch), objectives.unmask(own))


def weights_of(folder):
    tensors = checkpoint.Stored.open(str(folder)).read()
    return {name: np.asarray(value).tobytes() for name, value in tensors.items()}


@pytest.mark.usefixtures("eager")
def test_a_training_resumed_is_the_same_bit_for_bit(make, train, tmp_path, log):
    path = make(**PLAIN, do_whole_word_mask=True)
    few = {"num_train_steps": 2, "save_checkpoints_steps": 1, "do_eval": True}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    results = train(path, output_dir=str(whole), **few)
    shutil.copytree(whole, cut)
    for left in cut.glob("model.ckpt-2.*"):
        left.unlink()
    assert train(path, output_dir=str(cut), **few) == results
    assert any("Resuming from step 1" in message for message in log.messages)
    assert weights_of(whole) == weights_of(cut)
    # What is evaluated on is masked as ever, whatever the seed and the batches.
    again = {"do_train": False, "do_eval": True, "seed": 77, "eval_batch_size": 7}
    other = train(path, output_dir=str(whole), **again)
    assert other.keys() == results.keys()
    np.testing.assert_allclose([*other.values()], [*results.values()], rtol=1e-5)
    # The records stay the same bytes; how they are masked does not.
    make(**PLAIN, do_whole_word_mask=True, mask_ratios="100,0,0")
    message = r"the masking of the records is '.*, 80 % as \[MASK\].*' there and '.*100 % as \[MAS"
    with pytest.raises(ValueError, match=message):
        train(path, output_dir=str(cut), **few)


def test_plain_records_are_refused_where_nothing_says_how_to_mask_them(make, train):
    path = make(**PLAIN)
    Path(index_path(path)).unlink()
    with pytest.raises(
        ValueError, match=r"train\.tfrecord' has records without masks, whose index"
    ):
        train(path, max_seq_length=12)
    # Not even an index is left.
    assert not Path(index_path(path)).exists()


def test_every_file_is_asked_for_its_masks(make, train):
    masked, plain = make("masked", streaming=True), make("plain", **PLAIN)
    for path in (masked, plain):
        Path(index_path(path)).unlink()
    with pytest.raises(ValueError, match=r"plain\.tfrecord' has records without masks"):
        train(f"{masked},{plain}", max_seq_length=12)
    assert not Path(index_path(masked)).exists()


def test_a_run_says_how_it_masks_and_where_held_out_files_are_of_several_seeds(
    make, open_batches, log
):
    path, held_out = make(**PLAIN), make("held_out", **PLAIN, random_seed=3)
    open_batches(path)
    told = "15 % of the tokens, 3 at most, single tokens, 80 % as [MASK]"
    assert any(
        message.startswith(
            f"Masks of `input_file` are drawn as it is read, others in each pass: {told}"
        )
        for message in log.messages
    )
    log.clear()
    # Every token is predicted, and none masked.
    open_batches(path, objective="left_to_right")
    assert not any(message.startswith("Masks of") for message in log.messages)
    open_batches(path, evaluates=True, eval_input_file=held_out)
    assert any(
        f"with the `random_seed=3` of their description: {told}" in each for each in log.messages
    )
    assert not any(record.levelname == "WARNING" for record in log.records)
    open_batches(path, evaluates=True, eval_input_file=f"{held_out},{path}")
    [warned] = [each.getMessage() for each in log.records if each.levelname == "WARNING"]
    assert (
        "some were made with `random_seed=3` and others with 12345. All are masked with 3" in warned
    )


def test_a_run_that_is_refused_leaves_how_to_mask_for_the_right_records(make, train, tmp_path):
    path, other = make(**PLAIN), make("other", **PLAIN, random_seed=4, short_seq_prob=1.0)
    right = Path(path).read_bytes()
    shutil.copy(other, path)
    with pytest.raises(ValueError, match=r"train\.tfrecord' has records without masks"):
        train(path, max_seq_length=12)
    Path(path).write_bytes(right)
    train(path)
    assert (tmp_path / "output" / "model.ckpt-1.index").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mask_at_training": False}, r"all be made with `mask_at_training`, or none\..*other"),
        ({"masked_lm_prob": 0.3}, r"must be made to be masked alike\. .*15 % of.*other.*30 % of"),
        ({"mask_ratios": "0,0,100"}, r"masked alike\. .*0 % as \[MASK\], 0 % as they are, 100"),
        ({"do_whole_word_mask": True}, r"masked alike\. .*single tokens.*other.*whole words"),
    ],
)
def test_files_read_together_are_masked_alike(make, changes, message):
    one, same = make(**PLAIN), make("same", **PLAIN, random_seed=3, mask_ratios="80.0,1e1,10")
    other = make("other", **{**PLAIN, **changes})
    made = records.read_descriptions([one, same, other])
    masking = made.masking([one, same])
    expected = {"masked_lm_prob": 0.15, "max_predictions_per_seq": 3, "random_seed": 12345}
    assert masking == make_masking(**expected)
    with pytest.raises(ValueError, match=message):
        made.masking([one, same, other])


def test_what_is_evaluated_on_may_be_masked_already(make, open_batches):
    held_out = make("held_out", streaming=True)
    batches = open_batches(make(**PLAIN), evaluates=True, eval_input_file=held_out)
    [batch, *_] = batches.iterate(0, 1)
    stored = [record["input_ids"] for record in read_records(held_out)]
    assert batch["input_ids"].numpy().tolist() == stored[:4]


def test_a_check_tells_that_records_are_masked_as_they_are_read(
    make,
    pretraining_run,
    train,
    capsys,
):
    lengths = {"max_seq_length": None, "max_predictions_per_seq": None}
    settings = pretraining_run(input_file=make(**PLAIN), **lengths, check=True)
    start(settings, run_pretraining.run, run_pretraining.check)
    shown = capsys.readouterr().out
    assert "masked as they are read: 15 % of the tokens, 3 at most, single tokens" in shown
    assert "✗" not in shown


def test_a_check_before_making_tells_what_will_be_masked_and_when(tmp_path, make, capsys, log):
    values = {"output_file": str(tmp_path / "other.tfrecord"), "check": True}
    how = {"do_whole_word_mask": True, "words": "spaces", "mask_at_training": True}
    make(mask_at_training=True, dupe_factor=1)
    assert not any("is enough" in message for message in log.messages)
    for name in ("input_file", "vocab_file"):
        values[name] = str(tmp_path / {"input_file": "text.txt", "vocab_file": "vocab.txt"}[name])
    settings = create_pretraining_data.Settings(do_lower_case=False, **values, **how)
    start(settings, create_pretraining_data.run, create_pretraining_data.check)
    shown = capsys.readouterr().out
    assert all(f"--{name}={value}" in shown for name, value in how.items())
    make(mask_at_training=True)
    assert any(
        message.startswith("`dupe_factor=10` makes") and message.endswith("=1` is enough.")
        for message in log.messages
    )


def test_what_is_made_says_that_nothing_is_masked_yet(make, log):
    make(mask_at_training=True)
    [told] = [message for message in log.messages if message.startswith("Made ")]
    assert "no token masked before training" in told
    assert not any("are masked, where" in message for message in log.messages)
    shown = [message for message in log.messages if message.startswith("Example ")]
    assert shown and all(", the second part" in each and "=" not in each for each in shown)
