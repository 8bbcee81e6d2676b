import itertools

import numpy as np
import pytest
from conftest import GOLDEN

import squad_cache
import tokenization
from bert.tasks.squad import questions as squad_questions
from bert.tasks.squad import windows as squad_windows

FLAGS = {"max_seq_length": 48, "doc_stride": 16}


@pytest.fixture(scope="module")
def tokenizer():
    return tokenization.FullTokenizer(str(GOLDEN / "vocab.txt"))


@pytest.fixture(scope="module", params=[False, True])
def table(request, tokenizer):
    examples = squad_questions.read_squad_examples(str(GOLDEN / "squad_v1.json"), request.param)
    return squad_windows.make_features(examples, tokenizer, 48, 16, 12, request.param)


def test_what_is_kept_is_what_was_made(tmp_path, table, log):
    path = str(tmp_path / "train.tf_record")
    assert squad_cache.read(path, "key") is None
    squad_cache.write(path, table, "key")
    kept = squad_cache.read(path, "key")
    assert "The windows are those of an earlier run" in log.messages[-1]
    assert kept.num_examples == table.num_examples
    np.testing.assert_equal(kept.features(0, 999), table.features(0, 999))
    for example in range(table.num_examples):
        np.testing.assert_equal(kept.max_context(example), table.max_context(example))
    for window in range(len(table)):
        np.testing.assert_array_equal(kept.part_words(window), table.part_words(window))
    records = tmp_path / "other"
    squad_windows.write_features(str(records), table)
    assert records.read_bytes() == (tmp_path / "train.tf_record").read_bytes()


def test_another_key_is_not_read(tmp_path, table):
    path = str(tmp_path / "eval.tf_record")
    squad_cache.write(path, table, "key")
    assert squad_cache.read(path, "other") is None


def test_records_and_table_count_only_together(tmp_path, table):
    """Whatever of the two a killed run left, nothing half-written is read."""
    path = tmp_path / "train.tf_record"
    table_path = tmp_path / "train.windows.npz"
    assert squad_cache.table_file(str(path)) == str(table_path)
    squad_cache.write(str(path), table, "key")
    records, kept = path.read_bytes(), table_path.read_bytes()
    states = {
        "records": [records, records[:-1], records[:-1] + b"?", b"", None],
        "table": [kept, kept[:-1], kept[: len(kept) // 2], b"", b"text", None],
    }
    for left, right in itertools.product(*states.values()):
        for file, content in ((path, left), (table_path, right)):
            file.unlink(missing_ok=True)
            if content is not None:
                file.write_bytes(content)
        whole = left is records and right is kept
        assert (squad_cache.read(str(path), "key") is not None) == whole


def test_every_damaged_byte_of_the_numbers_is_noticed(tmp_path, table):
    path = tmp_path / "train.tf_record"
    table_path = tmp_path / "train.windows.npz"
    squad_cache.write(str(path), table, "key")
    kept = table_path.read_bytes()
    place = kept.index(table.paragraph_ids.values.tobytes())
    for offset in (0, 100):
        damaged = bytearray(kept)
        damaged[place + offset] ^= 1
        table_path.write_bytes(damaged)
        assert squad_cache.read(str(path), "key") is None


def test_the_key_tells_file_vocabulary_and_flags_apart(tmp_path, tokenizer):
    first, second, third = (tmp_path / name for name in "abc")
    first.write_text("text")
    second.write_text("text")
    third.write_text("texts")
    vocab = tokenizer.vocab
    cased = tokenization.FullTokenizer.from_vocab(vocab, do_lower_case=False)
    longer = tokenization.FullTokenizer.from_vocab({**vocab, "zzz": len(vocab)})
    key = squad_cache.cache_key(str(first), tokenizer, FLAGS)
    assert squad_cache.cache_key(str(second), tokenizer, dict(reversed(FLAGS.items()))) == key
    others = [
        squad_cache.cache_key(str(third), tokenizer, FLAGS),
        squad_cache.cache_key(str(first), cased, FLAGS),
        squad_cache.cache_key(str(first), longer, FLAGS),
        squad_cache.cache_key(str(first), tokenizer, {**FLAGS, "doc_stride": 17}),
    ]
    assert len({key, *others}) == 5
