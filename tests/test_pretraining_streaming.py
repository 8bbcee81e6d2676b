"""The laws of records that are made on disk: what they depend on, and what not."""

import gzip
import io
import os
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from conftest import run_python
from helpers import streamed_records
from helpers.pretraining_records import read_records, warnings_of
from helpers.streamed_records import VOCAB, WORDS, write_text

import tokenization
from bert.files import fingerprints
from bert.files.paths import index_path
from bert.files.records import decode_index
from bert.pretraining import corpus, options, streaming
from bert.pretraining.streaming import SEED, SeedFiles

make = streamed_records.make


@pytest.fixture
def whole(make):
    return make()


def test_records_are_the_same_for_any_number_of_processes(make, whole):
    assert whole == make() == make(num_workers=2)


@pytest.mark.exhaustive
def test_records_are_the_same_for_three_processes(make, whole):
    assert whole == make(num_workers=3, memory_gb=1.0)


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        # Each file of instances holds but a few of them.
        (options, "BYTES_PER_PROCESS", 1000),
        # Some documents at once, a use of one alone, and a use piece by piece.
        (streaming, "_INSTANCES", 500),
        (streaming, "_INSTANCES", 30),
        (streaming, "_INSTANCES", 3),
        (streaming, "_DOCUMENTS", 7),
        (streaming, "_TOKENS", 100),
        (corpus, "_BATCH", 50),
    ],
)
def test_records_do_not_depend_on_how_much_is_done_at_once(
    make, whole, monkeypatch, module, name, value
):
    monkeypatch.setattr(module, name, value)
    assert make(memory_gb=1e-5 if name == "BYTES_PER_PROCESS" else None) == whole


def test_shards_joined_are_the_same_however_many_there_are(make, whole, tmp_path):
    for num_shards in (1, 2, 7):
        assert make(num_shards=num_shards) == whole
        names = sorted(path.name for path in tmp_path.glob("out*"))
        assert names == [f"out-{i:05}-of-{num_shards:05}" for i in range(num_shards)]
    names = ",".join(str(tmp_path / f"out{number}") for number in range(3))
    assert make(output_file=names) == whole


def test_shards_are_about_as_large_and_have_an_index(make, tmp_path):
    make(num_shards=4, dupe_factor=20)
    paths = sorted(tmp_path.glob("out-*"))
    counts = []
    for path in paths:
        index = decode_index(Path(index_path(str(path))).read_bytes())
        assert index.made_with["streaming"] and index.made_with["dupe_factor"] == 20
        assert "num_workers" not in index.made_with
        assert index.ends[-1] == path.stat().st_size
        assert len(index.ends) == len(read_records(path))
        counts.append(len(index.ends))
    mean = sum(counts) / 4
    # Four standard deviations of a binomial.
    assert all(abs(count - mean) < 4 * (mean * 3 / 4) ** 0.5 for count in counts)


def test_more_shards_than_records_leave_some_empty_but_whole(make, tmp_path):
    (tmp_path / "text.txt").write_text("the cat\n")
    joined = make(num_shards=5, dupe_factor=1)
    assert len(read_records(*sorted(tmp_path.glob("out-*")))) == 1
    assert make(dupe_factor=1) == joined
    for path in tmp_path.glob(".out-*.index"):
        decode_index(path.read_bytes())


def test_other_seeds_give_other_records(make, whole):
    assert make(random_seed=1) != whole


def test_packed_files_and_other_line_ends_give_the_same_records(make, whole, tmp_path):
    text = (tmp_path / "text.txt").read_text()
    for content in (gzip.compress(text.encode()), text.replace("\n", "\r\n").encode()):
        (tmp_path / "other.txt").write_bytes(content)
        assert make(input_file=str(tmp_path / "other.txt")) == whole


def test_a_document_ends_with_its_file(make, whole, tmp_path):
    documents = (tmp_path / "text.txt").read_text().split("\n\n")
    for number, part in enumerate((documents[:7], documents[7:8], documents[8:])):
        (tmp_path / f"part{number}.txt").write_text("\n\n".join(part))
    assert make(input_file=str(tmp_path / "part*.txt")) == whole


def restore(record, inverse):
    """Returns both segments of a record as they were before it was masked."""
    ids = record["input_ids"][: sum(record["input_mask"])]
    for place, number, weight in zip(
        record["masked_lm_positions"],
        record["masked_lm_ids"],
        record["masked_lm_weights"],
        strict=True,
    ):
        if weight:
            ids[place] = number
    words = [inverse[number] for number in ids]
    middle = words.index("[SEP]")
    assert words[0] == "[CLS]" and words[-1] == "[SEP]"
    return words[1:middle], words[middle + 1 : -1]


@pytest.mark.parametrize("whole_word", [False, True])
def test_records_are_pairs_of_segments_of_the_documents(make, tmp_path, whole_word):
    tokenizer = tokenization.FullTokenizer(str(VOCAB))
    text = (tmp_path / "text.txt").read_text()
    flat = [f" {' '.join(tokenizer.tokenize(each))} " for each in text.split("\n\n")]
    make(do_whole_word_mask=whole_word)
    records = read_records(tmp_path / "out")
    assert len(records) > 200
    for record in records:
        a, b = (f" {' '.join(each)} " for each in restore(record, tokenizer.inv_vocab))
        homes = [each for each in flat if a in each]
        assert homes and any(b in each for each in flat)
        if not record["next_sentence_labels"][0]:
            # Behind a, though a may be cut at its end, and b at its beginning.
            assert any(each.find(b, each.find(a) + len(a) - 1) >= 0 for each in homes)
        assert 1 <= sum(record["masked_lm_weights"]) <= 4


def test_partners_come_from_all_documents_alike_and_half_are_random(make, tmp_path):
    """The documents tell themselves apart by their words."""
    num_documents = 20
    names = WORDS[:num_documents]
    text = "\n\n".join("\n".join([f"{name} {name}"] * 30) for name in names)
    (tmp_path / "text.txt").write_text(text)
    make(dupe_factor=100, short_seq_prob=0.0)
    inverse = tokenization.FullTokenizer(str(VOCAB)).inv_vocab
    pairs, num_next = Counter(), 0
    for record in read_records(tmp_path / "out"):
        a, b = restore(record, inverse)
        if record["next_sentence_labels"][0]:
            pairs[a[0], b[0]] += 1
        else:
            assert a[0] == b[0]
            num_next += 1
    num_random = sum(pairs.values())
    assert num_random > 4000
    # A document's last sentence may be left alone, and then gets a random partner always.
    share = num_random / (num_random + num_next)
    assert 0.5 < share < 0.62
    assert all(first != second for first, second in pairs)
    assert len(pairs) == num_documents * (num_documents - 1)
    mean = num_random / num_documents
    for partner in names:
        count = sum(pairs[name, partner] for name in names)
        # Five standard deviations.
        assert abs(count - mean) < 5 * mean**0.5


def test_draws_are_of_the_same_kind_as_without_streaming(make, tmp_path):
    def means(**changes):
        make(dupe_factor=60, **changes)
        records = read_records(tmp_path / "out")
        columns = {
            "length": [sum(each["input_mask"]) for each in records],
            "first": [sum(each["input_mask"]) - sum(each["segment_ids"]) for each in records],
            "random": [each["next_sentence_labels"][0] for each in records],
            "masked": [sum(each["masked_lm_weights"]) for each in records],
            "place": [each["masked_lm_positions"][0] for each in records],
        }
        arrays = {name: np.array(values, float) for name, values in columns.items()}
        return {
            "count": (len(records), 2 * len(records)),
            **{name: (each.mean(), each.var() / len(each)) for name, each in arrays.items()},
        }

    for (ours, error), (theirs, other) in zip(
        means().values(), means(streaming=False).values(), strict=True
    ):
        assert abs(ours - theirs) < 5 * (error + other) ** 0.5


def test_a_document_draws_the_same_whatever_the_others_hold(make, tmp_path):
    """So that the work can be done anywhere: of the others, their number alone is asked."""
    inverse = tokenization.FullTokenizer(str(VOCAB)).inv_vocab
    half = len(WORDS) // 2

    def pairs_of_the_first(seed):
        own, others = WORDS[:half], WORDS[half:]
        rng = random.Random(seed)
        first = [" ".join(own[place : place + 5]) for place in range(0, half - 5, 5)]
        rest = [[" ".join(rng.choices(others, k=8))] * rng.randint(1, 5) for _ in range(20)]
        text = "\n\n".join("\n".join(each) for each in [first, *rest])
        (tmp_path / "text.txt").write_text(text)
        make(max_predictions_per_seq=2)
        return [
            record
            for record in read_records(tmp_path / "out")
            if not record["next_sentence_labels"][0] and set(restore(record, inverse)[0]) <= {*own}
        ]

    pairs = pairs_of_the_first(1)
    assert len(pairs) > 10
    assert pairs == pairs_of_the_first(2)


def test_instances_leave_the_disk_as_they_are_read(tmp_path):
    """Else drawn instances and records would take their place on the disk at the same time."""
    files = SeedFiles(str(tmp_path), 3)
    keys = np.linspace(0, 2**63, 6).astype(np.uint64) * np.uint64(2) - np.uint64(1)
    keys[0] = 0
    files.add(np.array([(key, 0, 0, 0, 0, False, 0) for key in keys], SEED))
    left = [len(list(tmp_path.iterdir())) for _ in files]
    assert (left, list(tmp_path.iterdir())) == ([3, 2, 1], [])


def test_what_is_said_is_what_is_written(make, tmp_path, log, monkeypatch):
    # The records are made in many pieces; the first instances of the first one are shown.
    monkeypatch.setattr(streaming, "_TOKENS", 100)
    (tmp_path / "a.txt").write_bytes(b"The cat.\nA \xff man.\n")
    (tmp_path / "b.txt").write_bytes(b"The sea.\n\nThe man.\nA day.\n\n")
    files = ",".join(str(tmp_path / f"{name}.txt") for name in "ab")
    make(input_file=files, dupe_factor=50)
    records = read_records(tmp_path / "out")
    assert any("Read 3 documents, 5 sentences, " in message for message in log.messages)
    assert any("not UTF-8 was left out of 1 line." in message for message in warnings_of(log))
    assert not any("begin within a document" in message for message in warnings_of(log))
    [told] = [message for message in log.messages if message.startswith("Made ")]
    assert told.startswith(f"Made {len(records):,} instances")
    share = sum(record["next_sentence_labels"][0] for record in records) / len(records)
    assert f"{100 * share:.1f} % with a random next segment" in told
    assert len([each for each in log.messages if each.startswith("Example ")]) == 2
    assert any(message.startswith("Disk: records about ") for message in log.messages)


@pytest.mark.parametrize("streams", [False, True])
def test_what_is_cut_off_is_told(make, tmp_path, log, streams):
    (tmp_path / "long.txt").write_text(f"{'cat ' * 30}\n" * 2)
    make(input_file=str(tmp_path / "long.txt"), streaming=streams, short_seq_prob=0.0)
    [told] = [message for message in log.messages if message.startswith("Made ")]
    # Of a sentence and a random one, 60 tokens, 21 have room.
    assert told.endswith("100.0 % of the instances truncated, by 65.0 % of all tokens.")


MEASURED = """
import sys
import create_pretraining_data as data
data.run(data.Settings(**eval(sys.argv[1])))
assert "tensorflow" not in sys.modules
print(*[line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")])
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_memory_does_not_grow_with_the_text(tmp_path):
    def peak(num_documents):
        write_text(tmp_path / "text.txt", num_documents=num_documents)
        settings = {
            "input_file": str(tmp_path / "text.txt"),
            "output_file": str(tmp_path / "out"),
            "vocab_file": str(VOCAB),
            "dupe_factor": 1,
            "streaming": True,
            "memory_gb": 0.5,
        }
        return int(run_python("-c", MEASURED, repr(settings)).stdout) / 1024

    small, large = peak(10_000), peak(100_000)
    assert (tmp_path / "text.txt").stat().st_size > 15_000_000
    # In memory, the text and the records would take 100 MB. The index takes 8 bytes a record.
    assert large < small + 30, (small, large)
    assert large < 500


def assert_nothing_left(folder):
    assert [path.name for path in folder.iterdir() if "out" in path.name] == []


def test_a_file_that_cannot_be_read_is_named_and_nothing_is_left(make, tmp_path):
    content = gzip.compress((tmp_path / "text.txt").read_bytes())
    (tmp_path / "cut.gz").write_bytes(content[: len(content) // 2])
    files = f"{tmp_path / 'text.txt'},{tmp_path / 'cut.gz'}"
    with pytest.raises(ValueError, match=r"'.*cut\.gz' must be a complete gzip file"):
        make(input_file=files)
    assert_nothing_left(tmp_path)
    (tmp_path / "blank.txt").write_text(" \n\n")
    with pytest.raises(ValueError, match="The input files must hold text"):
        make(input_file=str(tmp_path / "blank.txt"))
    assert_nothing_left(tmp_path)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("change", ["truncated", "grown", "replaced"])
def test_text_that_changes_while_it_is_read_is_an_error(
    make, tmp_path, monkeypatch, streaming, change
):
    read, path = corpus.read_chunks, tmp_path / "b.txt"
    files = f"{tmp_path / 'text.txt'},{path}"

    def read_and_change(*arguments):
        for chunk in read(*arguments):
            yield chunk
            if path.read_text() == "The sea.\n":
                if change == "truncated":
                    os.truncate(path, 4)
                else:
                    path.write_text("The sea.\nA cat.\n" if change == "grown" else "The cat.\n")

    path.write_text("The sea.\n")
    os.utime(path, (0, 0))
    make(input_file=files, streaming=streaming)
    monkeypatch.setattr(corpus, "read_chunks", read_and_change)
    with pytest.raises(ValueError, match=r"b\.txt' must stay as it is while it is read\. It had 9"):
        make(input_file=files, streaming=streaming)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("streaming", [True, False])
def test_text_that_is_touched_while_it_is_read_gives_its_records(
    make, tmp_path, monkeypatch, log, streaming
):
    whole, read = make(streaming=streaming), corpus.read_chunks

    def read_and_touch(*arguments):
        yield from read(*arguments)
        os.utime(tmp_path / "text.txt", (0, 0))

    monkeypatch.setattr(corpus, "read_chunks", read_and_touch)
    assert make(streaming=streaming) == whole
    [_] = [m for m in log.messages if "text.txt was touched while it was read" in m]
    # Where no digest was taken of the text, nothing says that it is the same.
    os.utime(tmp_path / "text.txt", (1, 1))
    with pytest.raises(ValueError, match=r"text\.txt' must stay .* and was written to since\."):
        corpus.read_corpus([str(tmp_path / "text.txt")], tokenization.FullTokenizer(str(VOCAB)))


def test_text_that_grows_while_its_digest_is_taken_is_an_error(make, tmp_path, monkeypatch):
    path, read = tmp_path / "text.txt", fingerprints.open_file

    def read_and_grow(name):
        with read(name) as file:
            content = file.read()
        with path.open("a") as file:
            file.write("The sea.\n")
        return io.BytesIO(content)

    monkeypatch.setattr(fingerprints, "open_file", read_and_grow)
    with pytest.raises(ValueError, match=r"text\.txt' must stay as it is while it is read"):
        make()
    assert not (tmp_path / "out").exists()


def test_the_digest_of_a_text_is_taken_once_whether_or_not_records_are_there(
    make, tmp_path, monkeypatch
):
    make(output_file=str(tmp_path / "made"))
    opened, read = [], fingerprints.open_file
    monkeypatch.setattr(fingerprints, "open_file", lambda path: opened.append(path) or read(path))
    for name in ("made", "out"):
        make(output_file=str(tmp_path / name))
    assert opened == [str(tmp_path / "text.txt")] * 2


def test_what_a_killed_run_left_is_removed_and_a_folder_of_others_is_not(make, whole, tmp_path):
    (tmp_path / "out").unlink()
    left = tmp_path / "out.partial"
    left.mkdir()
    (left / "ids").write_bytes(b"more than there will be" * 1000)
    with pytest.raises(ValueError, match=r"out\.partial' must be free"):
        make()
    assert (left / "ids").exists()
    (left / ".bert.scratch").touch()
    assert make() == whole
    assert not left.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"streaming": False, "memory_gb": 2.0}, "`memory_gb` must go with `streaming`"),
        ({"memory_gb": 0.1}, r"`memory_gb` must be at least 0\.5 for 1 process\."),
        ({"memory_gb": 0.6, "num_workers": 2}, "at least 0.75 for 2 processes"),
        ({"num_shards": 2, "output_file": "a,b"}, "must be one name where `num_shards`"),
        ({"num_shards": 10**6}, "There must be at most .* output files"),
        ({"beam_options": "--x"}, "`beam_options` must go with `runner`"),
    ],
)
def test_flags_that_cannot_be_are_refused(make, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)
    assert_nothing_left(tmp_path)


def test_tokenization_in_processes_changes_no_record_of_the_original(make, tmp_path):
    one = make(streaming=False)
    assert make(streaming=False, num_workers=2) == one
    assert len(make(streaming=False, num_shards=3)) == len(one)
    assert len(list(tmp_path.glob("out-0000?-of-00003"))) == 3
