"""A model whose tokenizer is not quite the original's keeps it through training on a domain."""

import json

import numpy as np
import pytest
from conftest import write_model_files

import create_pretraining_data
import extend_vocab
import modeling
import run_pretraining
from bert.files.records import read_description
from bert.pretraining.heads import pretraining_model
from bert.weights import checkpoint
from bert.weights.folder import ModelFolder
from bert.weights.variables import WORD_TABLE

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "schön", "schon", "für", "fur", "alle", "wort", "##e", "sch", "##ö", "##n"]
TEXT = "Schön für alle.\nFür alle schön.\n\nAlle für Worte.\nWorte schön.\n" * 4
MARK = {"content": "<e1>", "normalized": False, "special": True}


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
    checkpoint.save_tensors(str(folder / "bert_model.ckpt"), weights)
    return folder


def pieces(folder):
    tokenizer = ModelFolder.open(str(folder)).load_tokenizer()
    tokens = tokenizer.tokenize("Schön für <e1> Brot")
    return dict(zip(tokens, tokenizer.convert_tokens_to_ids(tokens), strict=True))


def make_records(folder, vocab_file):
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
        )
    )
    return output


def train(folder, base, records):
    run_pretraining.run(
        run_pretraining.Settings(
            input_file=records,
            init_checkpoint=str(base),
            output_dir=str(folder / "adapted"),
            do_train=True,
            train_batch_size=2,
            num_train_steps=1,
            num_warmup_steps=0,
        )
    )
    return folder / "adapted"


def test_domain_pre_training_keeps_how_words_are_cut(base, tmp_path, log):
    expected = {"schön": 5, "für": 7, "<e1>": len(WORDS), "[UNK]": 1}
    assert pieces(base) == expected
    records = make_records(tmp_path, base / "vocab.txt")
    assert read_description(records)["tokenizer"] == {"strip_accents": False}
    assert "Tokenizer options of the model in" in log.text
    assert pieces(train(tmp_path, base, records)) == expected
    assert "were split with" not in log.text
    # Of an adapted model, its own folder says it.
    make_records(tmp_path, tmp_path / "adapted/vocab.txt")
    assert read_description(records)["tokenizer"] == {"strip_accents": False}
    # A vocabulary alone says nothing.
    (tmp_path / "vocab.txt").write_text((base / "vocab.txt").read_text())
    records = make_records(tmp_path, tmp_path / "vocab.txt")
    assert "tokenizer" not in read_description(records)
    train(tmp_path / "other", base, records)
    assert "split with nothing special, but the model in" in log.text


def test_records_that_were_cut_in_other_ways_are_not_read_together(base, tmp_path):
    (tmp_path / "vocab.txt").write_text((base / "vocab.txt").read_text())
    found = []
    for vocab_file in (base / "vocab.txt", tmp_path / "vocab.txt"):
        folder = tmp_path / f"records_{len(found)}"
        folder.mkdir()
        found.append(make_records(folder, vocab_file))
    with pytest.raises(
        ValueError, match=r"same tokenizer .*`tokenizer` \{'strip_accents': False\}"
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
