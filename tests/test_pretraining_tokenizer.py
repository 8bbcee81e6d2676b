"""A model whose tokenizer is not quite the original's keeps it through training on a domain."""

import json

import numpy as np
import pytest
from conftest import write_model_files
from helpers.pretraining_records import read_records

import create_pretraining_data
import extend_vocab
import modeling
import run_pretraining
from bert.files.records import read_description
from bert.pretraining.heads import pretraining_model
from bert.pretraining.records import open_tokenizer, read_descriptions
from bert.text.added_tokens import AddedToken
from bert.weights import checkpoint, saving
from bert.weights.folder import ModelFolder
from bert.weights.variables import WORD_TABLE

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "schön", "schon", "für", "fur", "alle", "wort", "##e", "sch", "##ö", "##n"]
TEXT = "Schön für<e1> alle.\nFür alle schön.\n\nAlle für Worte.\nWorte <e1> schön.\n" * 4
MARK = {"content": "<e1>", "normalized": False, "special": True}
# As an index has it.
STORED = {**AddedToken.from_dict(MARK).to_dict(), "id": len(WORDS)}


@pytest.fixture
def base(tmp_path):
    """The folder of a model that leaves accents, and has a token behind its vocabulary."""
    folder = tmp_path / "base"
    folder.mkdir()
    write_model_files(folder, WORDS, max_position_embeddings=32)
    config = modeling.BertConfig.from_json_file(str(folder / "config.json"))
    config.vocab_size += 1
    (folder / "config.json").unlink()
    (folder / "bert_config.json").write_text(config.to_json_string())
    told = {"do_lower_case": True, "strip_accents": False}
    told["added_tokens_decoder"] = {str(len(WORDS)): MARK}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    weights = {v.path: v.numpy() for v in pretraining_model(config).weights}
    saving.save_tensors(str(folder / "bert_model.ckpt"), weights)
    return folder


def pieces(folder):
    tokenizer = ModelFolder.open(str(folder)).load_tokenizer()
    tokens = tokenizer.tokenize("Schön für <e1> Brot")
    return dict(zip(tokens, tokenizer.convert_tokens_to_ids(tokens), strict=True))


def make_records(folder, vocab_file, **changes):
    (folder / "text.txt").write_text(TEXT)
    output = str(folder / "records.tfrecord")
    create_pretraining_data.run(
        create_pretraining_data.Settings(
            input_file=str(folder / "text.txt"),
            output_file=output,
            vocab_file=str(vocab_file),
            max_seq_length=16,
            max_predictions_per_seq=3,
            dupe_factor=1,
            overwrite=True,
            **changes,
        )
    )
    return output


def train(folder, base, records, **changes):
    run_pretraining.run(
        run_pretraining.Settings(
            input_file=records,
            output_dir=str(folder / "adapted"),
            do_train=True,
            train_batch_size=2,
            num_train_steps=1,
            num_warmup_steps=0,
            **{"init_checkpoint": str(base), **changes},
        )
    )
    return folder / "adapted"


@pytest.mark.usefixtures("eager")
def test_domain_pre_training_keeps_how_words_are_cut(base, tmp_path, log):
    expected = {"schön": 5, "für": 7, "<e1>": len(WORDS), "[UNK]": 1}
    assert pieces(base) == expected
    records = make_records(tmp_path, base / "vocab.txt")
    options = {"strip_accents": False, "added_tokens": [STORED]}
    assert read_description(records)["tokenizer"] == options
    assert f"Tokenizer options of the model of {str(base / 'vocab.txt')!r}" in log.text
    assert pieces(train(tmp_path, base, records)) == expected
    assert "were split with" not in log.text
    # Of an adapted model, its own folder says it.
    make_records(tmp_path, tmp_path / "adapted/vocab.txt")
    assert read_description(records)["tokenizer"] == options
    # A vocabulary alone says nothing.
    (tmp_path / "vocab.txt").write_text((base / "vocab.txt").read_text())
    records = make_records(tmp_path, tmp_path / "vocab.txt")
    assert "tokenizer" not in read_description(records)
    train(tmp_path / "other", base, records)
    assert "split with nothing special, but the model in" in log.text
    assert "'added_tokens': ['<e1> (special)']" in log.text


@pytest.mark.parametrize("how", [{}, {"streaming": True}, {"words": "spaces"}])
@pytest.mark.parametrize("late", [False, True])
def test_added_tokens_stay_whole_in_records(base, tmp_path, how, late):
    whole_words = {"do_whole_word_mask": True, "masked_lm_prob": 0.2}
    path = make_records(tmp_path, base / "vocab.txt", mask_at_training=late, **how, **whole_words)
    made = read_description(path)
    assert made["tokenizer"] == {"strip_accents": False, "added_tokens": [STORED]}
    assert made["vocab_size"] == len(WORDS) + 1
    tokenizer = ModelFolder.open(str(base)).load_tokenizer()
    ids = []
    for record in read_records(path):
        row = record["input_ids"]
        for place, label in zip(
            record.get("masked_lm_positions", ()), record.get("masked_lm_ids", ()), strict=True
        ):
            row[place] = label if place else row[0]
        ids += row
    assert len(WORDS) in ids
    assert {*ids} <= {*tokenizer.tokenize_to_ids(TEXT), *map(WORDS.index, SPECIAL)}


def test_a_model_that_starts_from_records_alone_has_their_added_tokens(base, tmp_path, log):
    path = make_records(tmp_path, base / "vocab.txt", mask_at_training=True)
    config = str(base / "bert_config.json")
    trained = train(tmp_path, base, path, init_checkpoint=None, bert_config_file=config)
    assert pieces(trained) == pieces(base)
    assert "were split with" not in log.text


def test_marks_of_extend_vocab_stay_whole_in_records(base, tmp_path):
    extended = tmp_path / "extended"
    new_words = "Brot,[E1],[/E1]"
    settings = extend_vocab.Settings(
        init_checkpoint=str(base), new_words=new_words, output_dir=str(extended)
    )
    extend_vocab.run(settings)
    expected = ModelFolder.open(str(extended)).load_tokenizer()
    for words in ("pieces", "spaces"):
        tokenizer = open_tokenizer(str(extended / "vocab.txt"), do_lower_case=None, words=words)
        text = "Für[E1]Brot [/E1] <e1>schon <E1>"
        assert tokenizer.tokenize(text)[:6] == ["für", "[E1]", "brot", "[/E1]", "<e1>", "schon"]
        assert tokenizer.tokenize(text) == expected.tokenize(text)
        assert tokenizer.vocab == expected.vocab


def test_special_tokens_in_a_text_are_text(base, tmp_path):
    """Files of transformers list them as added tokens."""
    (tmp_path / "plain").mkdir()
    path = base / "tokenizer_config.json"
    told = json.loads(path.read_text())
    before = make_records(tmp_path, base / "vocab.txt")
    for number, token in enumerate(SPECIAL):
        told["added_tokens_decoder"][str(number)] = {**MARK, "content": token}
    path.write_text(json.dumps(told))
    tokenizer = open_tokenizer(str(base / "vocab.txt"), do_lower_case=None, words="pieces")
    assert tokenizer.tokenize("[SEP]<e1>") == ["[UNK]"] * 3 + ["<e1>"]
    after = make_records(tmp_path / "plain", base / "vocab.txt")
    assert read_description(after) == read_description(before)
    # A model that is trained on the records keeps them all.
    own = ModelFolder(str(base)).tokenizer_options
    options = read_descriptions([after]).complete_options(own)
    contents = [token["content"] for token in options["added_tokens"]]
    assert contents == [*SPECIAL, "<e1>"]


@pytest.mark.parametrize("space", [" ", "\u3000"])
def test_added_tokens_with_spaces_are_in_no_word_between_spaces(base, space):
    path = base / "tokenizer_config.json"
    path.write_text(path.read_text().replace("<e1>", f"<e{space}1>"))
    vocab_file = str(base / "vocab.txt")
    tokenizer = open_tokenizer(vocab_file, do_lower_case=None, words="pieces")
    assert tokenizer.tokenize(f"für <e{space}1>") == ["für", f"<e{space}1>"]
    with pytest.raises(ValueError, match=r"`words` must be 'pieces' .*spaces.*'<e(\\u3000| )1>'"):
        open_tokenizer(vocab_file, do_lower_case=None, words="spaces")


def test_records_that_were_cut_in_other_ways_are_not_read_together(base, tmp_path):
    (tmp_path / "vocab.txt").write_text((base / "vocab.txt").read_text())
    found = []
    for vocab_file in (base / "vocab.txt", tmp_path / "vocab.txt"):
        folder = tmp_path / f"records_{len(found)}"
        folder.mkdir()
        found.append(make_records(folder, vocab_file))
    with pytest.raises(
        ValueError, match=r"same tokenizer .*`tokenizer` \{.*'strip_accents': False\} and \{\}"
    ):
        train(tmp_path, base, ",".join(found))


def test_new_words_are_cut_as_the_model_cuts_and_take_no_row_of_an_added_token(base, tmp_path):
    settings = extend_vocab.Settings(
        init_checkpoint=str(base), new_words="Brot,Köln", output_dir=str(tmp_path / "extended")
    )
    assert extend_vocab.run(settings) == {"brot": len(WORDS) + 1, "köln": len(WORDS) + 2}
    expected = {"schön": 5, "für": 7, "<e1>": len(WORDS), "brot": len(WORDS) + 1}
    assert pieces(tmp_path / "extended") == expected
    name = WORD_TABLE
    before, after = (
        checkpoint.Stored.open(str(folder)).read([name])[name]
        for folder in (base, tmp_path / "extended")
    )
    np.testing.assert_array_equal(after[: len(before)], before)
