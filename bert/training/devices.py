"""The GPUs that are used, and why one that is there may not be."""

import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterable

import tensorflow as tf

from bert.files.machine import has_nvidia_gpu
from bert.log import logger

# What TensorFlow's lines begin with: level, time, process and place.
_PREFIX = re.compile(r"^(?:[\d-]+ [\d:.]+: )?(?:[IWEF]\d+ )?(?:[\d:.]+\s+\d+ )?(?:\S+:\d+\] )?")
_ABOUT_GPUS = re.compile("cuda|cudnn|dlopen|driver|gpu|nvidia", re.IGNORECASE)
_LINES_SHOWN = 8
_LIST = "import tensorflow as tf; tf.config.list_physical_devices('GPU')"


@functools.cache
def tell_gpus(root: str = "/") -> None:
    """Logs the GPUs that will be used; warns, with the remedy, where TensorFlow cannot use any.

    Args:
      root: Where `proc` is, in which the driver tells of itself.
    """
    if gpus := tf.config.list_physical_devices("GPU"):
        details = [tf.config.experimental.get_device_details(each) for each in gpus]
        names = [each.get("device_name", "of an unknown kind") for each in details]
        logger.info("GPU: %s.", ", ".join(names))
        return
    # Who sets that to nothing or to -1 wants the CPU.
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1")
    if is_hidden or not has_nvidia_gpu(root):
        return
    logger.warning(
        "This machine has an NVIDIA GPU, but TensorFlow sees none: the CPU will compute all, many "
        "times more slowly. Mostly CUDA's libraries are not installed: type `make setup GPU=1`, or "
        "without make `pip install 'tensorflow[and-cuda]==%s'`; else the driver is too old for "
        "them. CUDA_VISIBLE_DEVICES=-1 says that the CPU is meant.",
        tf.__version__,
    )
    for line in _ask_tensorflow():
        logger.warning("TensorFlow says: %s", line)


def _ask_tensorflow() -> list[str]:
    """Returns what TensorFlow says of GPUs, in a process where it may say all."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"}
    command = [sys.executable, "-c", _LIST]
    try:
        said = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return [str(error)]
    return read_words(said.stderr.splitlines())


def read_words(lines: Iterable[str]) -> list[str]:
    """Returns those of TensorFlow's lines that are about GPUs, each once, without the time."""
    said = (_PREFIX.sub("", line).strip() for line in lines)
    return list(dict.fromkeys(filter(_ABOUT_GPUS.search, said)))[:_LINES_SHOWN]
