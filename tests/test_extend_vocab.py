import json
import shutil

import numpy as np
import pytest
from conftest import GOLDEN, copy_golden, golden_batch, model_inputs, read_tensors
from hypothesis import given
from hypothesis import strategies as st

import extend_vocab
import modeling
import tokenization
from bert.models.pretrained import PretrainedModel
from bert.pretraining import extension
from bert.pretraining import heads as pretraining_heads
from bert.weights import checkpoint, saving
from bert.weights.folder import ModelFolder

EMBEDDINGS, BIAS = extension.TABLES
SIZE, NUM_UNUSED = 406, 8


def extend(tmp_path, new_words="kilogram,bookkeeper", **changes):
    """Extends the golden model; returns the ids of the words and the output folder."""
    output_dir = tmp_path / "extended"
    settings = extend_vocab.Settings(
        **{
            "init_checkpoint": str(GOLDEN / "bert_model.ckpt"),
            "new_words": new_words,
            "output_dir": str(output_dir),
            **changes,
        }
    )
    return extend_vocab.run(settings), output_dir


def outputs(folder, batch):
    """Returns what the model in a folder makes of the batch."""
    config = modeling.BertConfig.from_json_file(str(folder / "bert_config.json"))
    model = pretraining_heads.pretraining_model(config)
    checkpoint.Stored.open(str(folder / "bert_model.ckpt")).assign(model.weights, with_head=True)
    encoded = modeling.BertModel(config)
    encoded(model_inputs(batch))
    checkpoint.Stored.open(str(folder / "bert_model.ckpt")).assign(encoded.weights)
    return model(model_inputs(batch)), encoded(model_inputs(batch))


@pytest.mark.parametrize("use_unused", [True, False])
def test_old_entries_keep_ids_rows_and_encodings_to_the_last_bit(tmp_path, use_unused):
    places, folder = extend(tmp_path, use_unused=use_unused)
    old_vocab = tokenization.load_vocab(str(GOLDEN / "vocab.txt"))
    new_vocab = tokenization.load_vocab(str(folder / "vocab.txt"))
    kept = {token: index for token, index in old_vocab.items() if index not in places.values()}
    assert new_vocab == kept | places
    assert list(places.values()) == ([1, 2] if use_unused else [SIZE, SIZE + 1])

    old, new = read_tensors(GOLDEN / "bert_model.ckpt"), read_tensors(folder / "bert_model.ckpt")
    assert new.keys() == old.keys()
    rows = list(kept.values())
    for name, tensor in old.items():
        if name in (EMBEDDINGS, BIAS):
            np.testing.assert_array_equal(new[name][rows], tensor[rows])
            assert len(new[name]) == len(new_vocab)
        else:
            np.testing.assert_array_equal(new[name], tensor)
        assert new[name].dtype == tensor.dtype

    batch = golden_batch(GOLDEN)
    batch["input_ids"] = np.where(np.isin(batch["input_ids"], rows), batch["input_ids"], 9)
    (old_heads, old_encoded), (new_heads, new_encoded) = (
        outputs(path, batch) for path in (GOLDEN, folder)
    )
    for name in ("sequence_output", "pooled_output", "embedding_output"):
        np.testing.assert_array_equal(new_encoded[name], old_encoded[name])
    np.testing.assert_allclose(
        np.asarray(new_heads["masked_lm_logits"])[..., rows],
        np.asarray(old_heads["masked_lm_logits"])[..., rows],
        # A matrix product of another width adds in another order.
        atol=1e-6,
    )


def test_new_rows_are_the_means_of_the_pieces(tmp_path):
    places, folder = extend(tmp_path)
    old, new = read_tensors(GOLDEN / "bert_model.ckpt"), read_tensors(folder / "bert_model.ckpt")
    tokenizer = tokenization.FullTokenizer(str(GOLDEN / "vocab.txt"))
    for word, index in places.items():
        pieces = tokenizer.tokenize_to_ids(word)
        assert len(pieces) > 2
        for name in (EMBEDDINGS, BIAS):
            mean = old[name][pieces].astype(np.float64).mean(0).astype(np.float32)
            np.testing.assert_array_equal(new[name][index], mean)
            assert not np.array_equal(mean, np.zeros_like(mean))


@given(st.integers(0, 4), st.permutations(range(6)), st.integers(1, 3))
def test_extended_tables_hold_old_rows_and_means(num_new, order, num_parts):
    table = np.arange(12, dtype=np.float32).reshape(6, 2) ** 2
    rows = {6 + row: order[row : row + num_parts] for row in range(num_new)}
    rows[order[-1]] = order[:num_parts]
    extended = extension.extend(table, rows, 6 + num_new)
    for row in range(6 + num_new):
        expected = table[rows[row]].mean(0) if row in rows else table[row]
        np.testing.assert_allclose(extended[row], expected, rtol=1e-6)


def test_texts_without_new_words_are_tokenized_as_before(tmp_path):
    _, folder = extend(tmp_path, "kilogram,bookkeeper", use_unused=False)
    before = tokenization.FullTokenizer(str(GOLDEN / "vocab.txt"))
    after = tokenization.FullTokenizer(str(folder / "vocab.txt"))
    text = (GOLDEN / "corpus.txt").read_text(encoding="utf-8")
    assert after.tokenize_to_ids(text) == before.tokenize_to_ids(text)
    assert after.tokenize("a Kilogram, a book") == ["a", "kilogram", ",", "a", "book"]


def test_words_that_do_not_fit_into_slots_get_rows(tmp_path, log):
    words = [f"q{letter}" for letter in "abcdefghij"]
    places, folder = extend(tmp_path, ",".join(words))
    assert list(places) == words
    assert list(places.values()) == [*range(1, NUM_UNUSED + 1), SIZE, SIZE + 1]
    assert json.loads((folder / "bert_config.json").read_text())["vocab_size"] == SIZE + 2
    assert "8 words take [unusedN] entries, 2 get new ones." in log.messages


def test_vocabulary_shorter_than_the_table_grows_into_it(tmp_path):
    lines = (GOLDEN / "vocab.txt").read_text(encoding="utf-8").splitlines()
    (tmp_path / "vocab.txt").write_text("\n".join(lines[:400]), encoding="utf-8")
    places, folder = extend(
        tmp_path, vocab_file=str(tmp_path / "vocab.txt"), use_unused=False, new_words="wa,wb"
    )
    assert places == {"wa": 400, "wb": 401}
    assert read_tensors(folder / "bert_model.ckpt")[EMBEDDINGS].shape == (SIZE, 16)


def test_the_folder_is_a_model_that_knows_the_words(tmp_path):
    _, folder = extend(tmp_path, use_unused=False)
    model = PretrainedModel(ModelFolder.open(str(folder)))
    assert model.tokenizer.tokenize("the bookkeeper") == ["the", "bookkeeper"]


def test_a_next_sentence_head_that_has_learned_nothing_does_not_come_along(tmp_path):
    source = copy_golden(tmp_path / "model")
    (source / "run.json").write_text(json.dumps({"made_of": {"--objective": "masked_lm"}}))
    _, folder = extend(tmp_path, init_checkpoint=str(source))
    lost = read_tensors(source / "bert_model.ckpt").keys() - read_tensors(
        folder / "bert_model.ckpt"
    )
    assert lost == {f"cls/seq_relationship/output_{name}" for name in ("weights", "bias")}
    model = PretrainedModel(ModelFolder.open(str(folder)))
    with pytest.raises(ValueError, match="has none that was trained"):
        model.next_sentence([("the", "end")])


def test_words_come_from_a_file_and_are_lower_cased(tmp_path):
    (tmp_path / "words.txt").write_bytes(b"\xef\xbb\xbfKilogram\r\n\n  Bookkeeper \n")
    places, _ = extend(tmp_path, str(tmp_path / "words.txt"))
    assert list(places) == ["kilogram", "bookkeeper"]
    vocab = tokenization.load_vocab(str(GOLDEN / "vocab.txt"))
    cased = tokenization.BasicTokenizer(do_lower_case=False)
    assert extension.check_words("Ab", vocab, cased) == ["Ab"]
    (tmp_path / "words.txt").write_bytes(b"Kilogram\nSch\xf6n\n")
    with pytest.raises(ValueError, match=r"words\.txt:2"):
        extension.check_words(str(tmp_path / "words.txt"), vocab, cased)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"do_lower_case": True}, ["cafe", "kilo"]),
        ({"do_lower_case": True, "strip_accents": False}, ["caf\xe9", "kilo"]),
        # Nothing says that it is uncased, as it is by default.
        ({"strip_accents": False}, ["caf\xe9", "kilo"]),
        ({"do_lower_case": False}, ["Caf\xe9", "Kilo"]),
    ],
)
def test_a_word_is_added_as_the_tokenizer_of_the_model_makes_it(tmp_path, config, words):
    source = copy_golden(tmp_path / "model")
    (source / "tokenizer_config.json").write_text(json.dumps(config))
    places, folder = extend(tmp_path, "Caf\xe9,Kilo", init_checkpoint=str(source))
    assert list(places) == words
    tokenizer = ModelFolder.open(str(folder)).load_tokenizer()
    assert tokenizer.tokenize("Caf\xe9 Kilo") == words


def test_marks_stay_whole_in_all_that_is_made_of_the_model(tmp_path):
    places, folder = extend(tmp_path, "[E1],[/E1],<e2>,kilogram")
    assert list(places) == ["[E1]", "[/E1]", "<e2>", "kilogram"]
    tokenizer = ModelFolder.open(str(folder)).load_tokenizer()
    cut = ["[E1]", "kilogram", "[/E1]", "the", "<e2>"]
    assert tokenizer.tokenize("[E1]Kilogram[/E1] the <e2>") == cut
    old, new = read_tensors(GOLDEN / "bert_model.ckpt"), read_tensors(folder / "bert_model.ckpt")
    pieces = tokenization.FullTokenizer(str(GOLDEN / "vocab.txt")).tokenize_to_ids("[E1]")
    assert len(pieces) > 2
    mean = old[EMBEDDINGS][pieces].astype(np.float64).mean(0).astype(np.float32)
    np.testing.assert_array_equal(new[EMBEDDINGS][places["[E1]"]], mean)
    # Those of the model itself stay what they are.
    again = tmp_path / "again"
    extend_vocab.run(
        extend_vocab.Settings(init_checkpoint=str(folder), new_words="<e3>", output_dir=str(again))
    )
    tokenizer = ModelFolder.open(str(again)).load_tokenizer()
    assert tokenizer.tokenize("[E1]<e3>") == ["[E1]", "<e3>"]
    assert tokenizer.vocab["[E1]"] == places["[E1]"]


def test_unknown_words_start_from_the_row_of_unknown_ones(tmp_path, log):
    places, folder = extend(tmp_path, "жар")
    old, new = read_tensors(GOLDEN / "bert_model.ckpt"), read_tensors(folder / "bert_model.ckpt")
    unknown = tokenization.load_vocab(str(GOLDEN / "vocab.txt"))["[UNK]"]
    np.testing.assert_array_equal(new[EMBEDDINGS][places["жар"]], old[EMBEDDINGS][unknown])
    assert any("1 words were [UNK] so far" in message for message in log.messages)


def test_optimizer_slots_are_left_out(tmp_path, log):
    tensors = read_tensors(GOLDEN / "bert_model.ckpt")
    slots = {f"{BIAS}/adam_{name}": tensors[BIAS] for name in "mv"}
    for name in ("vocab.txt", "bert_config.json"):
        shutil.copy(GOLDEN / name, tmp_path)
    saving.save_tensors(str(tmp_path / "model.ckpt-7"), {**tensors, **slots})
    _, folder = extend(tmp_path, init_checkpoint=str(tmp_path / "model.ckpt-7"))
    assert read_tensors(folder / "bert_model.ckpt").keys() == tensors.keys()
    assert "Weights only: 2 optimizer slots are left out." in log.messages


def test_all_words_that_cannot_be_added_are_listed(tmp_path):
    words = "wa, the,co-op,北京,wb,WA,[mask],,x" + "y" * 200
    with pytest.raises(ValueError, match="`new_words`") as caught:
        extend(tmp_path, words)
    message = str(caught.value)
    for part in (
        "6 others",
        "'the' (word 2) is in the vocabulary, as 1",
        "'co-op' (word 3) is split into ['co', '-', 'op']",
        "'北京' (word 4) is split into ['北', '京']",
        "'WA' (word 6) is the same as that of word 1",
        "'[mask]' (word 7) is '[MASK]' in another case",
        "(word 9) has over 200 characters",
    ):
        assert part in message
    assert "'wb'" not in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"new_words": " ,"}, "`new_words` must name at least one word"),
        ({"new_words": "absent/words.txt"}, "or give a file that is there"),
        ({"vocab_file": "absent.txt"}, "`vocab_file` must be a readable file"),
        ({"init_checkpoint": "absent.ckpt"}, "init_checkpoint` must name a checkpoint"),
    ],
)
def test_what_is_not_there_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        extend(tmp_path, **changes)
    assert list(tmp_path.iterdir()) == []


def test_files_that_do_not_fit_are_refused(tmp_path):
    vocab = (GOLDEN / "vocab.txt").read_text(encoding="utf-8")
    for name, text, message in (
        ("repeated", vocab.replace("[unused3]", "[unused4]"), "each entry once"),
        ("longer", vocab + "wa\n", "`vocab_size` in `bert_config_file` says, 406"),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            extend(tmp_path, vocab_file=str(tmp_path / name))
    config = json.loads((GOLDEN / "bert_config.json").read_text())
    (tmp_path / "config").write_text(json.dumps({**config, "vocab_size": 407}))
    with pytest.raises(ValueError, match=r"of the shape \[407, 16\]"):
        extend(tmp_path, bert_config_file=str(tmp_path / "config"))


def test_another_model_is_not_written_over(tmp_path):
    _, folder = extend(tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ValueError, match="`output_dir` must hold no other model"):
        extend(tmp_path, "wa")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    with pytest.raises(ValueError, match="must not name an input file"):
        extend(tmp_path, "wa", init_checkpoint=str(folder), output_dir=str(folder))


@pytest.mark.parametrize("name", ["model.ckpt-1000.index", "model.safetensors"])
def test_weights_of_any_name_are_another_model(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ValueError, match=f"`output_dir` must hold no other model.*{name}"):
        extend(tmp_path, output_dir=str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [name]
