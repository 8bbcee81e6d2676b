"""Small inputs of the scripts: each function writes the files and returns the settings of a run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from conftest import make_examples, write_examples, write_model_files

import modeling
from bert.weights import saving
from helpers import squad_runs, swag_runs, tagging_runs, tfhub_runs

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "red", "green", "##s"]

SMALL = {"num_hidden_layers": 1, "hidden_size": 8, "intermediate_size": 12}


def write_config(folder: Path, name: str, **changes: Any) -> str:
    values = json.loads((folder / "config.json").read_text())
    (folder / name).write_text(json.dumps({**values, **changes}))
    return str(folder / name)


def with_dropout(folder: Path) -> str:
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.2)
    return write_config(folder, "dropout.json", **rates)


def trained_weights(folder: Path) -> str:
    """Returns the path of weights, of an encoder alone, that are no random ones."""
    config = modeling.BertConfig.from_json_file(str(folder / "config.json"))
    encoder = modeling.BertModel(config)
    encoder.build(None)
    rng = np.random.RandomState(3)
    tensors = {v.path: rng.normal(0, 0.1, v.shape).astype(np.float32) for v in encoder.weights}
    saving.save_tensors(str(folder / "bert_model.ckpt"), tensors)
    return str(folder / "bert_model.ckpt")


def classifier_world(folder: Path) -> dict[str, Any]:
    write_model_files(folder, WORDS, max_position_embeddings=16)
    write_config(folder, "config.json", **SMALL)
    rng = np.random.RandomState(0)
    for name, count in (("train", 20), ("dev", 10), ("test", 10)):
        lines = ["text\tlabel\tother\tkind\ttags\tid\tgaps"]
        for number in range(count):
            letters = [str(each) for each in rng.choice(list("abcdefgh"), rng.randint(1, 9))]
            label = "yes" if number % 4 else "no"
            kind = "no" if number % 3 else "yes"
            row = " ".join(["Red", *letters]), label, letters[0], kind, "yes;no,x", f"r{number}"
            lines.append("\t".join([*row, label if number else ""]))
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    return {
        **model_files(folder),
        "data_dir": str(folder),
        "task_name": "custom",
        "max_seq_length": 8,
        "train_batch_size": 8,
        "num_train_epochs": 0.5,
        "learning_rate": 0.01,
        "do_train": True,
    }


def model_files(folder: Path) -> dict[str, Any]:
    return {
        "bert_config_file": str(folder / "config.json"),
        "vocab_file": str(folder / "vocab.txt"),
        "output_dir": str(folder / "out"),
    }


def squad_world(folder: Path) -> dict[str, Any]:
    squad_runs.settings_in(folder)
    write_config(folder, "config.json", **SMALL)
    squad_runs.write_task(folder, count=16)
    return {
        **model_files(folder),
        "train_file": str(folder / "train.json"),
        "predict_file": str(folder / "dev.json"),
        "max_seq_length": 16,
        "doc_stride": 4,
        "max_query_length": 4,
        "train_batch_size": 8,
        "num_train_epochs": 0.5,
        "learning_rate": 0.003,
        "do_train": True,
    }


def swag_world(folder: Path) -> dict[str, Any]:
    swag_runs.settings_in(folder)
    write_config(folder, "config.json", **SMALL)
    swag_runs.write_task(folder, count=16)
    return {
        **model_files(folder),
        "data_dir": str(folder),
        "max_seq_length": 16,
        "train_batch_size": 8,
        "num_train_epochs": 0.6,
        "do_train": True,
    }


def ner_world(folder: Path) -> dict[str, Any]:
    tagging_runs.settings_in(folder)
    write_config(folder, "config.json", **SMALL)
    tagging_runs.write_task(folder, count=16)
    return {
        **model_files(folder),
        "data_dir": str(folder),
        "max_seq_length": 32,
        "train_batch_size": 8,
        "num_train_epochs": 1.0,
        "do_train": True,
    }


def pretraining_world(folder: Path) -> dict[str, Any]:
    write_model_files(folder, [str(number) for number in range(29)], max_position_embeddings=16)
    write_config(folder, "config.json", **SMALL)
    config = modeling.BertConfig.from_json_file(str(folder / "config.json"))
    examples = make_examples(config, 20)
    write_examples(folder / "train.tfrecord", examples)
    write_examples(folder / "other.tfrecord", make_examples(config, 20, seed=3))
    # In these, the order of examples makes no difference.
    same = {name: np.repeat(values[:1], 20, axis=0) for name, values in examples.items()}
    write_examples(folder / "same.tfrecord", same)
    return {
        "bert_config_file": str(folder / "config.json"),
        "input_file": str(folder / "train.tfrecord"),
        "output_dir": str(folder / "out"),
        "do_train": True,
        "max_seq_length": 12,
        "max_predictions_per_seq": 3,
        "train_batch_size": 4,
        "eval_batch_size": 10,
        "num_train_steps": 1,
        "num_warmup_steps": 0,
        "learning_rate": 0.01,
    }


def module_world(folder: Path) -> dict[str, Any]:
    tfhub_runs.make_settings(folder)
    for name in ("module", "other_module"):
        (folder / name).mkdir()
        config = tfhub_runs.CONFIG
        (folder / name / "config.json").write_text(config.to_json_string())
        write_config(folder / name, "bert_config.json")
        words = tfhub_runs.WORDS
        swapped = [*words[:4], *reversed(words[4:])] if name == "other_module" else words
        (folder / name / "vocab.txt").write_text("\n".join(swapped) + "\n")
        trained_weights(folder / name)
    return {"bert_hub_module_handle": str(folder / "module")}


TRAINED = {
    "run_classifier": classifier_world,
    "run_classifier_with_tfhub": module_world,
    "run_pretraining": pretraining_world,
    "run_squad": squad_world,
    "run_swag": swag_world,
    "run_ner": ner_world,
}
