import dataclasses
import json

import pytest
from test_files_huggingface import write as write_tokenizer
from test_weights_huggingface import CONFIG, write

import modeling
from bert.weights import checkpoint
from bert.weights import folder as model_folder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    output_dir: str = "nowhere"
    init_checkpoint: str | None = None
    bert_config_file: str = ""
    vocab_file: str = ""
    do_lower_case: bool = True


@pytest.fixture
def encoder(tiny_config):
    model = modeling.BertModel(tiny_config)
    model.build(None)
    return {v.path: v.numpy() for v in model.weights}


@pytest.fixture
def folder(tmp_path, encoder):
    """A Hugging Face folder with everything."""
    folder = tmp_path / "model"
    write(folder, encoder, "BertModel")
    (folder / "vocab.txt").write_text("[UNK]\n")
    return folder


def complete(**values):
    return model_folder.complete(Settings(**values))


def test_files_come_from_the_folder_of_the_checkpoint(folder, log):
    settings = complete(init_checkpoint=str(folder))
    assert settings.bert_config_file == str(folder / "config.json")
    assert settings.vocab_file == str(folder / "vocab.txt")
    assert log.messages == [
        f"Not given, so taken from beside the weights: {folder}/config.json, {folder}/vocab.txt."
    ]
    assert model_folder.complete(settings) == settings
    # However the weights are named.
    assert complete(init_checkpoint=str(folder / "model.safetensors")).vocab_file


def test_what_is_given_stays(folder, log):
    settings = complete(init_checkpoint=str(folder), bert_config_file="a", vocab_file="b")
    assert (settings.bert_config_file, settings.vocab_file) == ("a", "b")
    assert log.messages == []


def test_each_kind_of_weights_has_its_configuration(folder, encoder):
    (folder / "bert_config.json").write_text("{}")
    assert complete(init_checkpoint=str(folder)).bert_config_file.endswith("/config.json")
    checkpoint.save_tensors(str(folder / "bert_model.ckpt"), encoder)
    settings = complete(init_checkpoint=str(folder))
    assert settings.bert_config_file == str(folder / "bert_config.json")


def test_a_trained_folder_has_its_files(folder):
    settings = complete(output_dir=str(folder))
    assert settings.vocab_file == str(folder / "vocab.txt")


def test_tokenizer_json_takes_the_place_of_a_missing_vocabulary(folder):
    write_tokenizer(folder / "tokenizer.json")
    assert complete(init_checkpoint=str(folder)).vocab_file.endswith("vocab.txt")
    (folder / "vocab.txt").unlink()
    assert complete(init_checkpoint=str(folder)).vocab_file == str(folder / "tokenizer.json")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("config.json", "`--bert_config_file` must be given, .* neither 'config.json' nor 'bert_c"),
        ("vocab.txt", "`--vocab_file` must be given, .* neither 'vocab.txt' nor 'tokenizer.json'"),
    ],
)
def test_a_missing_file_is_asked_for_by_its_flag(folder, name, message):
    (folder / name).unlink()
    with pytest.raises(ValueError, match=message) as caught:
        complete(init_checkpoint=str(folder))
    assert str(folder) in str(caught.value)


def test_without_any_weights_the_files_are_asked_for():
    with pytest.raises(ValueError, match=r"`--bert_config_file` must be given.*'nowhere'"):
        complete()


@pytest.mark.parametrize("name", ["tokenizer_config.json", "task.json"])
def test_casing_of_the_folder_must_be_that_of_the_flag(folder, name):
    (folder / name).write_text(json.dumps({"do_lower_case": False}))
    complete(init_checkpoint=str(folder), do_lower_case=False)
    with pytest.raises(ValueError, match=rf"`--do_lower_case` must be False .*{name}' says.*True"):
        complete(init_checkpoint=str(folder))


def test_casing_of_the_normalizer_counts_where_nothing_else_says(folder):
    write_tokenizer(folder / "tokenizer.json", normalizer={"lowercase": True})
    complete(init_checkpoint=str(folder))
    with pytest.raises(ValueError, match=r"`--do_lower_case` must be True.*tokenizer.json' says"):
        complete(init_checkpoint=str(folder), do_lower_case=False)
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    complete(init_checkpoint=str(folder), do_lower_case=False)


def test_settings_that_the_tokenizer_does_not_know_are_told(folder, log):
    values = {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(values))
    complete(init_checkpoint=str(folder))
    assert "`strip_accents` is False, but texts are tokenized with True" in log.messages[-1]
    assert len(log.messages) == 2


def test_settings_need_no_vocabulary(folder):
    @dataclasses.dataclass(frozen=True)
    class Pretraining:
        init_checkpoint: str
        bert_config_file: str = ""

    settings = model_folder.complete(Pretraining(str(folder)))
    config = modeling.BertConfig.from_json_file(settings.bert_config_file)
    assert config == modeling.BertConfig.from_dict(CONFIG)


def name_labels(folder, *names):
    path = folder / "config.json"
    values = {**json.loads(path.read_text()), "id2label": dict(enumerate(names))}
    path.write_text(json.dumps(values))


def test_labels_in_another_order_than_the_outputs_are_refused(folder):
    name_labels(folder, "good", "bad")
    model_folder.check_labels(str(folder), ["good", "bad"])
    with pytest.raises(ValueError, match=r"has \['good', 'bad'\].*--labels=good"):
        model_folder.check_labels(str(folder), ["bad", "good"])


def test_labels_of_other_names_are_told(folder, log):
    name_labels(folder, "POSITIVE", "NEGATIVE")
    model_folder.check_labels(str(folder), ["1", "0"])
    assert log.messages[-1].endswith("Taken are: POSITIVE as 1, NEGATIVE as 0.")
    count = len(log.messages)
    name_labels(folder, "LABEL_0", "LABEL_1")
    model_folder.check_labels(str(folder), ["1", "0"])
    assert len(log.messages) == count


def test_a_vocabulary_must_fit_the_model(tmp_path, log):
    path = str(tmp_path / "vocab.txt")
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
    )
    assert model_folder.load_tokenizer(path, True, 6, ["[MASK]"]).tokenize("A b") == ["a", "[UNK]"]
    assert not log.messages
    model_folder.load_tokenizer(path, True, 7, ["[MASK]"])
    assert "has 6 tokens, but `vocab_size` in --bert_config_file is 7" in log.messages[0]
    with pytest.raises(ValueError, match=r"at most 5 tokens.*has 6"):
        model_folder.load_tokenizer(path, True, 5, ["[MASK]"])
    with pytest.raises(ValueError, match=r"must hold \['\[X\]'\].*lacks \['\[X\]'\]"):
        model_folder.load_tokenizer(path, True, 6, ["[X]"])
