"""Records of one segment: the laws of how documents are cut, and what may be learned from them."""

import dataclasses
import random
from itertools import accumulate, chain
from typing import ClassVar

import pytest
from conftest import GOLDEN
from helpers.pretraining_records import read_records, warnings_of
from helpers.streamed_records import make, write_text  # noqa: F401 (a fixture)
from hypothesis import given
from hypothesis import strategies as st

import create_pretraining_data as data
import run_pretraining
import tokenization
from bert.pretraining import options, streaming
from bert.pretraining.draws import Draws
from bert.pretraining.streaming import SEED

VOCAB = str(GOLDEN / "vocab.txt")
SINGLE = {"next_sentence": False, "max_seq_length": 24, "max_predictions_per_seq": 4}


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=20),
    budget=st.integers(3, 70),
    short=st.sampled_from([0.0, 0.5, 1.0]),
    start=st.integers(0, 1000),
    seed=st.integers(0, 100),
)
def test_segments_follow_each_other_and_leave_nothing_out(lengths, budget, short, start, seed):
    bounds = [start + sum(lengths[:number]) for number in range(len(lengths) + 1)]
    draws = Draws(next_sentence=False, max_seq_length=budget + 2, short_seq_prob=short)
    cuts = [*draws.cuts(bounds, 7, 9, random.Random(seed))]
    assert [cut.a_start for cut in cuts] == [start, *(cut.a_stop for cut in cuts[:-1])]
    assert cuts[-1].a_stop == bounds[-1]
    assert all(cut.stop == cut.a_stop > cut.a_start for cut in cuts)
    assert {(cut.is_random_next, cut.b_document) for cut in cuts} == {(False, 7)}
    # All between the first and the last are full, and a document is only cut that does not fit.
    [target] = {cut.target for cut in cuts}
    sizes = [cut.a_stop - cut.a_start for cut in cuts]
    assert set(sizes[1:-1]) <= {target} and max(sizes) <= target <= budget
    assert (len(cuts) == 1) == (sum(lengths) <= target)
    assert short or target == budget


def test_each_use_of_a_document_is_cut_elsewhere():
    draws = Draws(next_sentence=False, max_seq_length=12, short_seq_prob=0.0)
    cuts = [draws.cuts([0, 100], 0, 1, random.Random(seed)) for seed in range(200)]
    firsts = {next(each).a_stop for each in cuts}
    assert firsts == set(range(1, 11))


@given(
    lengths=st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=9), min_size=1, max_size=5),
    length=st.integers(5, 30),
    short=st.sampled_from([0.0, 0.5, 1.0]),
    next_sentence=st.booleans(),
    seed=st.integers(0, 100),
)
def test_documents_have_no_more_instances_than_are_reckoned_with(
    lengths, length, short, next_sentence, seed
):
    draws = Draws(
        masked_lm_prob=0.15,
        max_predictions_per_seq=4,
        do_whole_word_mask=False,
        random_seed=seed,
        dupe_factor=1,
        max_seq_length=length,
        short_seq_prob=short,
        next_sentence=next_sentence,
    )
    most = []
    for number, document in enumerate(lengths):
        bounds = [0, *accumulate(document)]
        most.append(draws.most_instances(1, len(document), bounds[-1]))
        assert len([*draws.seeds(bounds, number, len(lengths), range(1))]) <= most[-1]
    totals = (len(lengths), sum(map(len, lengths)), sum(map(sum, lengths)))
    assert sum(most) <= draws.most_instances(*totals)


class Watched(streaming.SeedFiles):
    """Files of instances that keep how many are in memory at once."""

    added: ClassVar[list[int]] = []
    read: ClassVar[list[int]] = []

    def add(self, seeds):
        self.added.append(len(seeds))
        super().add(seeds)

    def __iter__(self):
        for seeds in super().__iter__():
            self.read.append(len(seeds))
            yield seeds


@pytest.mark.parametrize("short_seq_prob", [0.1, 1.0])
def test_long_lines_do_not_take_more_memory(make, tmp_path, monkeypatch, short_seq_prob):  # noqa: F811
    (tmp_path / "text.txt").write_text("\n\n".join(["the cat " * 2000] * 2))
    whole = make(**SINGLE, short_seq_prob=short_seq_prob)
    monkeypatch.setattr(streaming, "SeedFiles", Watched)
    monkeypatch.setattr(options, "BYTES_PER_PROCESS", 100_000)
    monkeypatch.setattr(streaming, "_INSTANCES", 50)
    Watched.added.clear()
    Watched.read.clear()
    assert make(**SINGLE, short_seq_prob=short_seq_prob, memory_gb=2e-4) == whole
    assert sum(Watched.added) == sum(Watched.read) > 1000
    assert max(Watched.added) <= 50
    # What is left of the memory, copies included.
    assert max(Watched.read) * SEED.itemsize * 2.5 < 100_000


def _texts(path):
    """Returns the tokens of all records, without special ones and masks."""
    inverse = tokenization.FullTokenizer(VOCAB).inv_vocab
    for record in read_records(path):
        ids, length = record["input_ids"], sum(record["input_mask"])
        masked = zip(record["masked_lm_positions"], record["masked_lm_ids"], strict=True)
        for position, label in list(masked)[: int(sum(record["masked_lm_weights"]))]:
            ids[position] = label
        first, *words, last = (inverse[each] for each in ids[:length])
        assert (first, last) == ("[CLS]", "[SEP]") and "[SEP]" not in words
        assert not any(record["segment_ids"]) and record["next_sentence_labels"] == [0]
        assert not any(ids[length:])
        yield words


@pytest.mark.parametrize("streaming", [False, True])
def test_records_hold_every_token_of_every_document_once(make, tmp_path, streaming):  # noqa: F811
    tokenizer = tokenization.FullTokenizer(VOCAB)
    documents = [[*chain.from_iterable(map(tokenizer.tokenize, document))]
                 for document in write_text(tmp_path / "text.txt", num_documents=60)]  # fmt: skip
    make(**SINGLE, dupe_factor=1, streaming=streaming)
    texts = [*_texts(tmp_path / "out")]
    for document in documents:
        left = document
        while left:
            # Of the segments that fit, one is this document's next; segments of another one that
            # begins alike are as long.
            text = max((each for each in texts if left[: len(each)] == each), key=len)
            texts.remove(text)
            left = left[len(text) :]
    assert not texts


def test_records_are_the_same_for_any_number_of_processes(make, monkeypatch):  # noqa: F811
    whole = make(**SINGLE)
    assert make(**SINGLE, num_workers=2) == whole
    for number in (30, 300, 3000):
        monkeypatch.setattr(streaming, "_INSTANCES", number)
        assert make(**SINGLE) == whole


def test_what_is_told_is_of_one_segment(make, tmp_path, log):  # noqa: F811
    (tmp_path / "text.txt").write_text("The sea.\n\nThe man.\n\n" * 50)
    make(**SINGLE, short_seq_prob=0.0)
    [made] = [message for message in log.messages if message.startswith("Made ")]
    # The, sea or man, and a full stop.
    assert made.startswith("Made 400 instances of 5.0 tokens: of one segment each, 33.3 % of the ")
    [example] = [message for message in log.messages if message.startswith("Example 1")]
    assert example.startswith("Example 1, its hidden tokens behind =: [CLS] ")
    # Documents of a sentence are as they should be here.
    assert warnings_of(log) == []


@pytest.fixture
def records(tmp_path):
    values = {"input_file": str(GOLDEN / "corpus.txt"), "vocab_file": VOCAB, "dupe_factor": 1}
    paths = {}
    for name, changes in {"pairs": {}, "single": {"next_sentence": False}}.items():
        path = str(tmp_path / f"{name}.tfrecord")
        lengths = {"max_seq_length": 16, "max_predictions_per_seq": 3}
        data.run(data.Settings(output_file=path, **values, **lengths, **changes))
        paths[name] = path
    return paths


def test_next_sentences_are_not_learned_from_them(records, pretraining_run):
    both = f"{records['pairs']},{records['single']}"
    for files in ({"input_file": both}, {"eval_input_file": records["single"], "do_eval": True}):
        settings = pretraining_run(**{"input_file": records["pairs"], **files})
        with pytest.raises(
            ValueError,
            match=r"`objective` must be without next sentences.*'masked_lm_nsp'.*single\.tfrec",
        ):
            run_pretraining.run(settings)


@pytest.mark.usefixtures("eager")
def test_masked_tokens_are_learned_from_them(records, pretraining_run, tiny_config, tmp_path):
    config = dataclasses.replace(tiny_config, vocab_size=len(tokenization.load_vocab(VOCAB)))
    (tmp_path / "bert_config.json").write_text(config.to_json_string())
    lengths = dict.fromkeys(("max_seq_length", "max_predictions_per_seq"))
    settings = pretraining_run(
        input_file=records["single"], objective="masked_lm", num_train_steps=1, **lengths
    )
    run_pretraining.run(settings)
