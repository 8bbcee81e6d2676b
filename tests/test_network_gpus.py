import os

import pytest
import tensorflow as tf

from bert.network.gpus import gpu_messages, log_gpus

SAID = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795328911.012718   12697 port.cc:153] oneDNN custom operations are on.
I0000 00:00:1795328911.013101   12697 cudart_stub.cc:31] Could not find cuda drivers on your machine
2026-01-02 03:04:05.000000: E external/local_xla/xla/stream_executor/cuda/cuda_diagnostics.cc:152] x
W0000 00:00:1795328912.1 12697 gpu_device.cc:2342] Cannot dlopen some GPU libraries. Skipping.
W0000 00:00:1795328913.1 12697 gpu_device.cc:2342] Cannot dlopen some GPU libraries. Skipping.
"""


def test_messages_of_tensorflow_about_gpus_are_logged_once_without_times():
    lines = gpu_messages(SAID.splitlines())
    assert "Could not find cuda drivers on your machine" in lines
    assert "Cannot dlopen some GPU libraries. Skipping." in lines
    assert len(lines) == len({*lines})
    assert not any("oneDNN" in line for line in lines)


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """A folder in which the driver of a GPU tells of itself."""
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("TensorFlow sees a GPU here.")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    folder = tmp_path / "proc" / "driver" / "nvidia"
    os.makedirs(folder)
    (folder / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.1\n")
    return str(tmp_path)


def test_a_gpu_that_tensorflow_does_not_see_is_warned_of(driver, log):
    log_gpus(driver)
    first, *words = [record for record in log.records if record.name == "bert"]
    assert first.levelname == "WARNING"
    assert "This machine has an NVIDIA GPU, but TensorFlow sees none" in first.getMessage()
    assert "`make setup GPU=1`" in first.getMessage()
    assert f"'tensorflow[and-cuda]=={tf.__version__}'" in first.getMessage()
    assert any("TensorFlow says: " in word.getMessage() for word in words)
    log.clear()
    log_gpus(driver)
    assert not log.messages


def test_a_gpu_that_is_hidden_or_not_there_is_no_reason_to_warn(driver, log, monkeypatch, tmp_path):
    log_gpus(str(tmp_path / "elsewhere"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    log_gpus(f"{driver}/")
    assert not log.messages
