import pytest

from bert.files.stored_models import (
    HUGGINGFACE_FIXED,
    SUFFIXES,
    from_huggingface,
    is_index,
    is_of_model,
    is_safetensors,
    is_weights,
    of_step,
    prefix_of,
    step_of,
    unfinished_prefix_of,
)


@pytest.mark.parametrize("step", [0, 7, 1000000])
@pytest.mark.parametrize("folder", ["", "out.index/", "gs://b/run/"])
def test_a_step_is_told_by_the_checkpoint_and_each_of_its_files(folder, step):
    prefix = folder + of_step(step)
    assert step_of(prefix) == step
    for suffix in (*SUFFIXES, ".data-00003-of-00012"):
        assert (prefix_of(prefix + suffix), step_of(prefix + suffix)) == (prefix, step)


@pytest.mark.parametrize(
    "name",
    [
        *("bert_model.ckpt", "model.ckpt-", "model.ckpt-7x", "my_model.ckpt-7", "model.ckpt-7.bak"),
        *("model.ckpt-7.partial.index", "model.ckpt-7/vocab.txt", "checkpoint"),
    ],
)
def test_other_names_tell_no_step(name):
    assert step_of(name) is None


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("model.ckpt-7.partial.index", "model.ckpt-7"),
        ("a/b.partial.data-00000-of-00001", "a/b"),
        ("b.partial.data-00000-of-00001.tempstate1234", "b"),
        ("b.partial.index.tempstate1234", "b"),
        ("b.index", None),
        ("b.partial", None),
        ("b.partial.notes", None),
    ],
)
def test_a_checkpoint_that_is_being_written_is_known_and_is_none_yet(name, prefix):
    assert unfinished_prefix_of(name) == prefix
    assert is_index(name) == (name == "b.index")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bert_model.ckpt.index", "weights"),
        ("bert_model.ckpt.data-00000-of-00001", "weights"),
        ("model.safetensors", "weights"),
        ("model-00001-of-00002.safetensors", "weights"),
        ("bert_model.weights.h5", "weights"),
        ("pytorch_model-00001-of-00002.bin", "weights"),
        ("saved_model.pb", "weights"),
        ("frozen_model.pb", "weights"),
        ("model.keras", "weights"),
        ("model.gguf", "weights"),
        ("flax_model.msgpack", "weights"),
        ("pytorch_model.pt", "weights"),
        ("lightning.ckpt", "weights"),
        ("model.safetensors.index.json", "beside"),
        ("bert_model.ckpt.meta", "beside"),
        ("checkpoint", "beside"),
        ("vocab.txt", "beside"),
        ("tokenizer_config.json", "beside"),
        ("added_tokens.json", "beside"),
        (".train.tfrecord.index", "neither"),
        ("answers.jsonl", "neither"),
        ("word_vectors.bin", "neither"),
    ],
)
def test_files_of_a_model_are_known_by_their_names(name, kind):
    assert (is_weights(name), is_of_model(name)) == (kind == "weights", kind != "neither")
    assert is_safetensors(f"some/{name}") == ("safetensors" in name)


@pytest.mark.parametrize(("key", "only"), HUGGINGFACE_FIXED.items())
def test_a_key_without_a_value_is_as_absent_where_nothing_is_what_it_must_be(key, only):
    absent = from_huggingface({})
    assert from_huggingface({key: only}) == absent
    if only:
        with pytest.raises(ValueError, match=f"`{key}` must be {only!r}, or absent"):
            from_huggingface({key: None})
    else:
        assert from_huggingface({key: None}) == absent
        with pytest.raises(ValueError, match=f"`{key}` must be {only!r}, or absent"):
            from_huggingface({key: "x"})
