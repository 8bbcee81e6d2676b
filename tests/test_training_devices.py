import os

import pytest
import tensorflow as tf
from conftest import change
from hypothesis import given
from hypothesis import strategies as st

import modeling
import run_pretraining
from bert.files.machine import size_text
from bert.runs.recipes import EvaluatedSteps, Steps
from bert.training.devices import (
    can_compile,
    checkpoint_bytes,
    estimate_memory,
    log_disk,
    log_training_memory,
)
from bert.training.options import Compute, Output
from bert.weights.folder import ModelFolder
from bert.weights.variables import check_size, count_parameters, encoder_shapes

BASE = modeling.BertConfig(30522, type_vocab_size=2)
LARGE = modeling.BertConfig(30522, 1024, 24, 16, 4096, type_vocab_size=2)
GB = 10**9


@given(st.tuples(*[st.integers(1, 9)] * 6))
def test_parameters_are_counted_without_a_list_of_them(sizes):
    vocab, heads, size, inner, layers, types = sizes
    config = modeling.BertConfig(vocab, heads * size, layers, heads, inner, type_vocab_size=types)
    counts = []
    for shape in encoder_shapes(config).values():
        counts.append(shape[0] * (shape[1] if len(shape) > 1 else 1))
    assert count_parameters(config) == sum(counts)


@pytest.mark.parametrize(
    "sizes",
    [
        {"hidden_size": 10**9, "num_attention_heads": 1},
        {"num_hidden_layers": 10**6},
        {"vocab_size": 2**31, "hidden_size": 768, "num_attention_heads": 12},
        {"intermediate_size": 10**12},
        {"max_position_embeddings": 10**12},
        {"type_vocab_size": 10**15},
        {"hidden_size": 10**30, "num_attention_heads": 1},
    ],
)
def test_absurd_configurations_are_refused_before_memory_is_asked_for(tmp_path, tiny_config, sizes):
    path = tmp_path / "bert_config.json"
    path.write_text(change(tiny_config, **sizes).to_json_string())
    folder = ModelFolder(str(tmp_path))
    with pytest.raises(ValueError, match="must describe a model that this machine can hold") as e:
        folder.config  # noqa: B018
    assert repr(str(path)) in str(e.value) and "the machine has" in str(e.value)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("config", [BASE, LARGE])
def test_released_models_are_not_refused(config):
    check_size(config, "x")


def test_weights_may_be_on_gpus(tmp_path, monkeypatch):
    """The machine cannot hold 2 EB, and GPUs of together 4 EB can."""
    config = change(BASE, vocab_size=2 * 10**18 // (4 * BASE.hidden_size))
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\necho 2000000000000\necho 2000000000000\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    check_size(config, "x")
    command.write_text("#!/bin/sh\necho 1000\n")
    with pytest.raises(ValueError, match="1 GPUs"):
        check_size(config, "x")


@pytest.mark.parametrize(
    ("config", "num_sequences", "length", "low", "high"),
    # The first three are the largest batches that the original's README found to fit into 12 GB.
    [
        (BASE, 32, 128, 6, 12),
        (BASE, 12, 384, 6, 12),
        (LARGE, 2, 256, 6, 12),
        (LARGE, 32, 384, 24, 99),
    ],
)
def test_estimates_agree_with_the_largest_batches_of_the_original(
    config, num_sequences, length, low, high
):
    needs = estimate_memory(config, num_sequences=num_sequences, length=length)
    assert low * GB < needs.total < high * GB
    assert needs.training == 3 * needs.weights == 12 * count_parameters(config)


def test_more_of_anything_needs_more():
    given = {"num_sequences": 8, "length": 128, "num_predictions": 20}
    total = estimate_memory(BASE, **given).total
    for name, value in given.items():
        assert estimate_memory(BASE, **{**given, name: 2 * value}).total > total
    assert estimate_memory(LARGE, **given).total > total
    assert estimate_memory(BASE, **given, precision="mixed_bfloat16").total < total
    assert estimate_memory(BASE, **given, is_training=False).total < total / 4


def test_gradient_checkpointing_needs_less_than_half_the_memory():
    given = {"num_sequences": 8, "length": 512}
    kept = estimate_memory(BASE, **given)
    again = estimate_memory(BASE, **given, gradient_checkpointing=True)
    assert again.total < kept.total / 2
    assert (again.weights, again.training) == (kept.weights, kept.training)
    one = change(BASE, num_hidden_layers=1)
    # Of one layer, there is no less to keep.
    assert (
        estimate_memory(one, **given).batch
        < estimate_memory(one, **given, gradient_checkpointing=True).batch
    )


COMPUTE = Compute()


def log_training(config, compute=COMPUTE, num_sequences=32, num_replicas=1, teacher=None):
    sizes = {"num_sequences": num_sequences, "num_replicas": num_replicas, "length": 128}
    return log_training_memory(compute, config, **sizes, teacher=teacher)


def test_a_run_that_needs_more_memory_than_is_free_is_warned_of(tiny_config, log):
    assert log_training(tiny_config)
    assert [line.split(":")[0] for line in log.messages] == ["Memory"]
    log.clear()
    huge = {"num_sequences": 10**9}
    assert not log_training(tiny_config, **huge)
    _, warning = log.messages
    assert "of memory will be needed" in warning
    assert "Give `gradient_checkpointing`, lower `train_batch_size`" in warning
    log.clear()
    assert not log_training(tiny_config, Compute(gradient_checkpointing=True), **huge)
    _, warning = log.messages
    assert "Lower `train_batch_size`" in warning and "`gradient_ch" not in warning
    # As many parts as examples need what one needs.
    assert log_training(tiny_config, Compute(gradient_accumulation_steps=10**9), **huge)
    assert log_training(tiny_config, num_replicas=10**9, **huge)


def test_the_largest_share_of_a_batch_is_reckoned_in_its_precision(log):
    given = {"precision": "mixed_bfloat16", "gradient_checkpointing": True}
    log_training(BASE, Compute(gradient_accumulation_steps=3, **given), num_replicas=2)
    # Of 32 sequences in 6 parts, some have 6.
    needs = estimate_memory(BASE, num_sequences=6, length=128, **given)
    assert f"a batch about {size_text(needs.batch)}; about" in log.messages[0]


def test_a_teacher_in_the_step_needs_memory(tiny_config, log):
    huge = change(tiny_config, vocab_size=10**13)
    assert log_training(tiny_config, teacher=tiny_config)
    assert not log_training(tiny_config, teacher=huge)
    sizes = {"num_sequences": 32, "length": 128, "is_training": False}
    expected = size_text(estimate_memory(huge, **sizes).total)
    assert f", the teacher about {expected};" in log.messages[1]


def test_a_run_that_needs_more_disk_than_is_free_is_warned_of(tmp_path, tiny_config, log):
    log_disk(Output(output_dir=str(tmp_path)), tiny_config, [100])
    assert [line.split(":")[0] for line in log.messages] == ["Disk"]
    many = Output(output_dir=str(tmp_path), keep_checkpoint_max=0, save_checkpoints_steps=1)
    log_disk(many, tiny_config, [10**12])
    *_, warning = log.messages
    assert warning.startswith("The checkpoints to come take about")
    assert "Lower `keep_checkpoint_max`" in warning and str(tmp_path) in warning


@pytest.mark.parametrize("sizes", [(1, 81_559), (81_559, 1)])
def test_the_smallest_gpu_must_hold_a_batch(tmp_path, tiny_config, log, monkeypatch, sizes):
    """A batch of 28 MB fits into one of two GPUs."""
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\nprintf '{}\\n{}\\n'".format(*sizes))
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind] * 2)
    log_training(tiny_config, num_replicas=2)
    needs, warning = log.messages
    assert needs.endswith(", of 1.05 MB on each GPU.")
    assert "and 1.05 MB are on each GPU" in warning


@pytest.mark.parametrize(
    ("changes", "num_steps", "resumable", "others"),
    [
        ({}, 10, 2, 1),
        ({}, 4999, 6, 1),
        ({}, 10**6, 6, 1),
        ({"keep_checkpoint_max": 0}, 10**4, 11, 1),
        ({"keep_checkpoint_max": 1}, 10**4, 2, 1),
        ({}, 10**6, 6, 3),
    ],
)
def test_disk_space_is_that_of_simultaneous_checkpoints(changes, num_steps, resumable, others):
    weights = 4 * count_parameters(BASE)
    output = Output(output_dir="out", **changes)
    assert checkpoint_bytes(output, BASE, num_steps, others) == weights * (3 * resumable + others)


def test_the_dev_set_is_scored_during_training_if_it_is_evaluated_or_may_end_training():
    """The best weights and the next best are on the disk then."""
    assert not EvaluatedSteps(do_train=True).evaluates(patience=0)
    assert EvaluatedSteps(do_train=True, do_eval=True).evaluates(patience=0)
    assert not Steps(do_train=True).evaluates(patience=0)
    assert Steps(do_train=True).evaluates(patience=2)


@pytest.mark.usefixtures("eager")
def test_estimate_of_disk_is_what_a_checkpoint_takes(tmp_path, pretraining_run, tiny_config):
    settings = pretraining_run(keep_checkpoint_max=1, num_train_steps=1)
    run_pretraining.run(settings)
    size = sum(path.stat().st_size for path in (tmp_path / "output").glob("model.ckpt-1.data*"))
    config = change(tiny_config, num_hidden_layers=1)
    assert size == pytest.approx(3 * 4 * count_parameters(config), rel=0.5)
    assert checkpoint_bytes(settings, config, 1) >= size


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", " --xla_gpu_enable_triton_gemm=false"),
        ("--xla_gpu_enable_triton_gemm=true", "--xla_gpu_enable_triton_gemm=true"),
    ],
)
def test_xla_is_not_to_tune_kernels_unless_the_user_says_so(monkeypatch, given, expected):
    monkeypatch.setenv("XLA_FLAGS", given)
    assert can_compile.__wrapped__()
    assert os.environ["XLA_FLAGS"] == expected
