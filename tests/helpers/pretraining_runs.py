"""What tests of several modules share of `run_pretraining`."""

import numpy as np
import pytest
from conftest import (
    change,
    eagerly,
    make_examples,
    serialize,
    split_examples,
    write_examples,
    write_records,
)

import modeling
import run_pretraining
from bert.pretraining.heads import pretraining_model
from bert.weights import saving


def other_config(**values):
    def prepare(folder):
        path = folder / "bert_config.json"
        config = modeling.BertConfig.from_json_file(str(path))
        path.write_text(change(config, **values).to_json_string())
        return {}

    return prepare


def write(name, content):
    def prepare(folder):
        (folder / name).write_bytes(content)
        return {}

    return prepare


def damaged_records(damage, flag="input_file"):
    def prepare(folder):
        content = (folder / "train.tfrecord").read_bytes()
        (folder / "damaged.tfrecord").write_bytes(damage(content))
        return {flag: str(folder / "damaged.tfrecord")}

    return prepare


def wrong_record(flag="input_file"):
    def prepare(folder):
        config = modeling.BertConfig.from_json_file(str(folder / "bert_config.json"))
        examples = split_examples(make_examples(config, 12))
        examples[7]["input_ids"][2] = 5000
        path = write_records(folder / "wrong.tfrecord", [serialize(each) for each in examples])
        return {flag: path}

    return prepare


def trained(break_output, **changes):
    """In the folder of a run of four steps, something is broken."""

    def prepare(folder):
        (folder / "finished").rename(folder / "output")
        break_output(folder)
        return changes

    return prepare


@pytest.fixture(scope="module")
def finished(tmp_path_factory, tiny_config):
    """The output folder of a run of four steps."""
    folder = tmp_path_factory.mktemp("finished")
    config = change(tiny_config, num_hidden_layers=1)
    (folder / "bert_config.json").write_text(config.to_json_string())
    settings = run_pretraining.Settings(
        bert_config_file=str(folder / "bert_config.json"),
        input_file=write_examples(folder / "few.tfrecord", make_examples(config, 4)),
        output_dir=str(folder / "output"),
        do_train=True,
        max_seq_length=12,
        max_predictions_per_seq=3,
        train_batch_size=4,
        num_train_steps=4,
    )
    with eagerly():
        run_pretraining.run(settings)
    return folder / "output"


def truncate(path):
    path.write_bytes(path.read_bytes()[:-60])


def checkpoint_of_other_shape(folder):
    config = modeling.BertConfig.from_json_file(str(folder / "bert_config.json"))
    model = modeling.BertModel(change(config, intermediate_size=20))
    model.build(None)
    saving.save_tensors(str(folder / "other.ckpt"), {v.path: v.numpy() for v in model.weights})
    return {"init_checkpoint": str(folder / "other.ckpt")}


def checkpoint_of_another_head(folder):
    config = modeling.BertConfig.from_json_file(str(folder / "bert_config.json"))
    tensors = {v.path: v.numpy() for v in pretraining_model(config).weights}
    tensors["cls/predictions/output_bias"] = np.zeros(3, np.float32)
    saving.save_tensors(str(folder / "other.ckpt"), tensors)
    return {"init_checkpoint": str(folder / "other.ckpt")}


def same(**changes):
    return lambda _: changes


WRONG = {
    "nothing to do": (same(do_train=False), "`do_train` and `do_eval`"),
    "no config": (same(bert_config_file="missing.json"), "`bert_config_file` must exist"),
    "config not JSON": (write("bert_config.json", b"vocab: 3"), "bert_config.json' must be JSON"),
    "no input": (same(input_file="missing.tfrecord"), "`input_file`.*missing.tfrecord"),
    "no held-out input": (
        same(eval_input_file="missing.tfrecord", do_eval=True),
        "`eval_input_file`.*missing.tfrecord",
    ),
    "sequence longer than positions": (same(max_seq_length=17), "`max_seq_length` must be at mo"),
    "sequence length of other data": (same(max_seq_length=16), "`input_ids`.*`max_seq_length`"),
    "predictions of other data": (
        same(max_predictions_per_seq=4),
        "`masked_lm_positions`.*`max_predictions_per_seq`",
    ),
    "vocabulary of other data": (
        other_config(vocab_size=5),
        "`input_ids`.*less than 5.*`vocab_size` in `bert_config_file`",
    ),
    "segments of other data": (other_config(type_vocab_size=1), "`segment_ids`.*`type_vocab_size`"),
    "batch cannot be cut": (
        same(gradient_accumulation_steps=3),
        "`train_batch_size` must be a multiple of `gradient_accumulation_steps`",
    ),
    "no initial checkpoint": (same(init_checkpoint="missing.ckpt"), "init_checkpoint`.*missing"),
    "initial checkpoint of other shape": (
        checkpoint_of_other_shape,
        "other.ckpt.*bert_config_file.*`intermediate_size` should be 20",
    ),
    "initial checkpoint of another head, and an output to delete": (
        lambda f: {
            **trained(lambda _: None, overwrite_output_dir=True)(f),
            **checkpoint_of_another_head(f),
        },
        r"other.ckpt.*`cls/predictions/output_bias` is \[3\] there",
    ),
    "output of another configuration": (
        trained(other_config(intermediate_size=20)),
        "output_dir`.*`intermediate_size` is 12 there and 20 in `.*bert_config_file`",
    ),
    "output further than asked": (
        trained(lambda _: None, num_train_steps=3, resume_with_changes=True),
        "`num_train_steps` must reach step 4, where",
    ),
    "output of another training": (
        trained(lambda _: None),
        "`output_dir` must hold the same training.*--learning_rate is 5e-05 there and 0.01 now",
    ),
    "output with a damaged checkpoint": (
        trained(
            lambda f: [truncate(path) for path in (f / "output").glob("model.ckpt-*.data*")],
            resume_with_changes=True,
        ),
        "output_dir` must hold a whole checkpoint.*model.ckpt-4",
    ),
    "output without its checkpoints": (
        trained(lambda f: [path.unlink() for path in (f / "output").glob("*.index")]),
        "`output_dir` must hold the same training.*has no checkpoint to resume from",
    ),
    "output that holds the initial checkpoint": (
        lambda f: {
            **trained(lambda _: None, overwrite_output_dir=True)(f),
            "init_checkpoint": str(f / "output/model.ckpt-4"),
        },
        "`init_checkpoint` must not be of the run in `output_dir`.*model.ckpt-4",
    ),
    "output is a file": (write("output", b""), "output"),
    "output within a file": (
        lambda folder: {"output_dir": str(folder / "bert_config.json" / "output")},
        "bert_config.json/output",
    ),
    "input cut short": (damaged_records(lambda c: c[:-9]), "damaged.tfrecord' must be a whole"),
    "input is text": (
        damaged_records(lambda _: b"plain text\n" * 50),
        "must name TFRecord files.*damaged.tfrecord.*create_pretraining_data.py",
    ),
    "input is empty": (damaged_records(lambda _: b""), "must hold records.*damaged.tfrecord"),
    "held-out input cut short": (
        lambda f: {
            **damaged_records(lambda c: c[:-9], "eval_input_file")(f),
            "do_eval": True,
        },
        "damaged.tfrecord' must be a whole",
    ),
    "input is a folder": (lambda folder: {"input_file": str(folder)}, "`input_file`"),
    "wrong record among others": (
        wrong_record(),
        "Record 7 of .*wrong.tfrecord.*`input_ids`.*It has 5000",
    ),
    "wrong record to evaluate": (
        lambda f: {
            **wrong_record("eval_input_file")(f),
            "do_train": False,
            "do_eval": True,
            "init_checkpoint": str(f / "finished/model.ckpt-4"),
        },
        "Record 7 of .*wrong.tfrecord.*`input_ids`.*It has 5000",
    ),
    "a TPU that is not there": (same(use_tpu=True), "`use_tpu`"),
    "a TPU of a wrong name": (same(use_tpu=True, tpu_name="local"), "`use_tpu`.*'local'"),
}
