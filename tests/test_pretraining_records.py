import dataclasses
import json
import os
from pathlib import Path

import pytest
from helpers import record_indexes
from helpers.record_indexes import WORDS

import extract_features
import fill_mask
from bert.files import owned
from bert.files import records as files_records
from bert.files.paths import index_path
from bert.pretraining import inputs, records
from bert.weights.folder import ModelFolder

pytestmark = pytest.mark.usefixtures("eager")

make, train = record_indexes.make, record_indexes.train


def test_a_folder_of_pre_training_needs_no_flag_for_its_files(make, train, tmp_path, capsysbinary):
    train(make())
    out = tmp_path / "output"
    assert (out / "vocab.txt").read_bytes() == (tmp_path / "vocab.txt").read_bytes()
    # TensorBoard's projector shows the rows of the embedding table with these.
    assert (
        len((out / "projector_words.tsv").read_text().splitlines())
        == json.loads((out / "bert_config.json").read_text())["vocab_size"]
    )
    assert {"projector_config.pbtxt", "projector_words.tsv"} <= {*owned.read_names(str(out))}
    assert json.loads((out / "tokenizer_config.json").read_text())["do_lower_case"] is False
    card = (out / "README.md").read_text()
    assert "# Pre-trained BERT" in card and "\n* Casing: cased\n" in card
    assert f"`{tmp_path}/train.tfrecord`" in card and "run_pretraining.py" in card
    assert fill_mask.run(fill_mask.Settings(checkpoint=str(out)), ["Ä [MASK] b"]) == 1
    capsysbinary.readouterr()
    settings = extract_features.Settings(
        input_file=str(tmp_path / "text.txt"),
        output_file=str(tmp_path / "features.jsonl"),
        init_checkpoint=str(out),
        max_seq_length=12,
        layers="-1",
    )
    extract_features.run(settings)
    assert '"token": "a"' in (tmp_path / "features.jsonl").read_text()
    with pytest.raises(ValueError, match=r"must be False for this model.*tokenizer_config.*True"):
        extract_features.run(dataclasses.replace(settings, do_lower_case=True, overwrite=True))


def test_the_vocabulary_is_kept_byte_for_byte(make, tmp_path):
    content = "\ufeff" + "\r\n".join(WORDS)
    (tmp_path / "odd.txt").write_bytes(content.encode())
    made = records.read_descriptions([make(vocab_file=str(tmp_path / "odd.txt"))])
    assert made.vocabulary == content.encode()
    assert list(made.vocab) == WORDS


def test_the_vocabulary_of_a_tokenizer_json_is_kept_as_that_of_its_tokens(make, tmp_path):
    model = {"type": "WordPiece", "vocab": {word: number for number, word in enumerate(WORDS)}}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"added_tokens": [], "model": model}, indent=2))
    made = records.read_descriptions([make("json", vocab_file=str(path))])
    assert made.vocabulary == (tmp_path / "vocab.txt").read_bytes()
    assert Path(tmp_path / "json.tfrecord").read_bytes() == Path(make("txt")).read_bytes()


def test_a_given_length_must_be_that_of_the_records(make, train, tmp_path):
    path = make()
    for flag, value, other in (("max_seq_length", 12, 11), ("max_predictions_per_seq", 3, 4)):
        with pytest.raises(ValueError, match=rf"`{flag}` must be {value}.*train.tfrecord.*{other}"):
            train(path, **{flag: other})
    assert not (tmp_path / "output").exists()


def test_records_without_an_index_are_taken_as_the_original_took_them(make, train, tmp_path):
    path = make(max_seq_length=16)
    os.remove(index_path(path))
    assert records.read_descriptions([path]).values == {}
    with pytest.raises(ValueError, match=r"`max_seq_length` must be at most 16.*Received 128"):
        train(path)
    train(path, max_seq_length=16, max_predictions_per_seq=3)
    assert not (tmp_path / "output/vocab.txt").exists()
    assert not (tmp_path / "output/tokenizer_config.json").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"words": [*WORDS[:-1], "x"]},
            "vocabularies of 18 and 18 .* in 2 entries",
        ),
        ({"do_lower_case": True}, "`do_lower_case` False and True"),
        ({"max_seq_length": 10}, "`max_seq_length` 12 and 10"),
    ],
    ids=["vocabulary", "casing", "length"],
)
def test_records_that_are_read_together_must_be_made_alike(make, changes, message):
    one, same = make("one"), make("same", random_seed=4, words=WORDS)
    assert records.read_descriptions([one, same]).path == one
    with pytest.raises(ValueError, match=rf"one\.tfrecord' and '.*other\.tfrecord'.*{message}"):
        records.read_descriptions([one, same, make("other", **changes)])


def test_what_is_evaluated_on_must_be_made_like_what_is_trained_on(make, train):
    held_out = make("held_out", words=WORDS[:-1])
    with pytest.raises(ValueError, match="must be made with the same tokenizer"):
        train(make(), do_eval=True, eval_input_file=held_out)


def test_a_folder_stays_one_of_a_vocabulary(make, train, tmp_path):
    train(make())
    other = make("other", words=[*WORDS[:-1], "x"])
    with pytest.raises(ValueError, match=r"must hold a model of the same vocabulary.*other\.tfrec"):
        train(other, resume_with_changes=True, num_train_steps=2)


def test_records_must_be_of_the_vocabulary_of_the_model_to_begin_with(make, train, tmp_path, log):
    train(make())
    initial = {"init_checkpoint": str(tmp_path / "output"), "bert_config_file": ""}
    unlike = make("unlike", words=[*WORDS[:5], *reversed(WORDS[5:])])
    with pytest.raises(ValueError, match=r"must be the model's.*unlike\.tfrecord.* in 12 of"):
        train(unlike, output_dir=str(tmp_path / "a"), **initial)
    like = make("like", words=[*WORDS[:-1], "x"], do_lower_case=True)
    train(like, output_dir=str(tmp_path / "b"), **initial)
    assert any("differs from" in each and "in 1 entries" in each for each in log.messages)
    assert any("`do_lower_case=True`, but the model in" in each for each in log.messages)
    assert ModelFolder(str(tmp_path / "b")).do_lower_case is True


def test_records_of_far_fewer_words_than_rows_are_not_trained_on(make, train, tmp_path):
    config = json.loads((tmp_path / "bert_config.json").read_text())
    (tmp_path / "large.json").write_text(json.dumps({**config, "vocab_size": 6000}))
    message = (
        r"vocabulary of the records.*more than half as many tokens.*6000.*train.tfrecord. has 18"
    )
    with pytest.raises(ValueError, match=message):
        train(make(), bert_config_file=str(tmp_path / "large.json"))
    assert not (tmp_path / "output").exists()


def test_a_blank_line_at_the_end_of_the_vocabulary_is_named(make, train, tmp_path, log):
    path = make(words=[*WORDS, ""])
    [warning] = [each for each in log.messages if "Line 19 of" in each]
    assert "train.vocab' is blank, and counts as a token" in warning
    message = r"at most 18 tokens.*has 19, the last of them the blank line 19.*Delete that line"
    with pytest.raises(ValueError, match=message):
        train(path)
    assert not (tmp_path / "output").exists()


def test_an_index_of_earlier_versions_gives_the_lengths_it_knows(make):
    path = make()
    index = files_records.read_index(path)
    values = {name: value for name, value in index.made_with.items() if name != "vocabulary"}
    Path(index_path(path)).write_bytes(
        files_records.encode_index(files_records.Index(index.ends, values))
    )
    made = records.read_descriptions([path])
    assert (made.vocabulary, made.length("max_seq_length", None)) == (None, 12)
    with pytest.raises(ValueError, match=r"at most 9 tokens.*has 18; do they belong together"):
        made.check_size(9)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("vocabulary", [7, None, [], {}, "\ud800", "x\n" * 99]),
        ("vocab_size", ["29", 2.5, -1, 0, None, True, [29]]),
        ("do_lower_case", ["x", 1, None, {}]),
        ("tokenizer", [[], "x", 7, None, {"strip_accents": 1}, {"x": True}]),
        ("tokenizer", [{"added_tokens": tokens} for tokens in (1, [1], [{"content": "x"}])]),
        ("tokenizer", [{"added_tokens": [{"content": "x", "id": n}]} for n in (-1, "1", 10**30)]),
        ("max_seq_length", ["12", -5, 0, 1.5, None, 10**30, [12]]),
        ("max_predictions_per_seq", ["3", 0, None, 10**30, {}]),
        ("mask_at_training", [1, "yes", None]),
        ("next_sentence", [0, "no"]),
        ("random_seed", ["x", 1.5, None]),
        ("masked_lm_prob", ["x", -1, 2, None, float("nan"), float("inf"), True]),
        ("do_whole_word_mask", [1, "x"]),
        ("mask_ratios", [7, "x", "1,2,3", ["80"], ""]),
        ("words", [7, None]),
    ],
)
def test_an_index_of_anybody_ends_in_a_line(make, train, tmp_path, name, values):
    """Its checksum is right, and it fits the records."""
    path = make(mask_at_training=True)
    index = files_records.read_index(path)
    place = Path(index_path(path))
    for value in values:
        made_with = {**index.made_with, name: value}
        place.write_bytes(files_records.encode_index(files_records.Index(index.ends, made_with)))
        with pytest.raises(ValueError, match="must be") as caught:
            train(path)
        fault = str(caught.value.faults[0])
        assert "\n" not in fault
        assert path in fault.replace("/.train.tfrecord.index", "/train.tfrecord")


def test_shards_without_records_are_read_with_the_others(make, pretraining_run):
    path = make(num_shards=40, dupe_factor=1)
    shards = sorted(Path(path).parent.glob("train.tfrecord-*"))
    assert min(shard.stat().st_size for shard in shards) == 0
    lengths = dict.fromkeys(("max_seq_length", "max_predictions_per_seq"))
    settings = pretraining_run(input_file=f"{path}-*", **lengths)
    assert (
        inputs.find_description(settings, settings.objective).length("max_seq_length", None) == 12
    )


def test_each_of_several_indexes_is_checked(make):
    paths = make(mask_at_training=True), make("other", mask_at_training=True)
    index = files_records.read_index(paths[1])
    wrong = files_records.Index(index.ends, {**index.made_with, "masked_lm_prob": "x"})
    Path(index_path(paths[1])).write_bytes(files_records.encode_index(wrong))
    with pytest.raises(ValueError, match=r"other\.tfrecord\.index' must be as create_pretraining"):
        records.read_descriptions(paths)


def test_a_vocabulary_that_lists_a_token_twice_has_the_size_that_its_ids_need(make):
    made = records.read_descriptions([make(words=[*WORDS, "a"])])
    made.check_size(19)
    with pytest.raises(ValueError, match=r"at most 18 tokens.*has 19"):
        made.check_size(18)


@pytest.mark.parametrize("lacking", ["masked_lm_prob", "vocabulary", "random_seed"])
def test_records_without_masks_need_to_be_told_how_to_mask_them(make, train, tmp_path, lacking):
    path = make(mask_at_training=True)
    index = files_records.read_index(path)
    made_with = {name: value for name, value in index.made_with.items() if name != lacking}
    index = files_records.Index(index.ends, made_with)
    Path(index_path(path)).write_bytes(files_records.encode_index(index))
    with pytest.raises(ValueError, match=f"masked as they are read need.*{lacking}"):
        train(path)
    assert not (tmp_path / "output").exists()
