"""The GPUs of a machine, and why TensorFlow sees none."""

import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterable

import tensorflow as tf

from bert.files.machine import has_nvidia_gpu
from bert.log import logger

# The beginning of TensorFlow's lines: time, level, process and source line.
_PREFIX = re.compile(r"^(?:[\d-]+ [\d:.]+: )?(?:[IWEF]\d+ )?(?:[\d:.]+\s+\d+ )?(?:\S+:\d+\] )?")
_ABOUT_GPUS = re.compile("cuda|cudnn|dlopen|driver|gpu|nvidia", re.IGNORECASE)
_LINES_SHOWN = 8
_LIST = "import tensorflow as tf; tf.config.list_physical_devices('GPU')"


@functools.cache
def log_gpus(root: str = "/") -> None:
    """Logs the GPUs that will be used; warns, with the remedy, where TensorFlow cannot use any.

    Args:
      root: The folder of `proc`, which has a folder of the driver.
    """
    if gpus := tf.config.list_physical_devices("GPU"):
        details = map(tf.config.experimental.get_device_details, gpus)
        names = [gpu.get("device_name", "of an unknown kind") for gpu in details]
        logger.info("GPU: %s.", ", ".join(names))
        return
    # Users who set it to nothing or to -1 want the CPU.
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
    for line in _find_reason():
        logger.warning("TensorFlow says: %s", line)


def _find_reason() -> list[str]:
    """Returns TensorFlow's messages about GPUs, from a process that shows all of them."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"}
    command = [sys.executable, "-c", _LIST]
    try:
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return [str(error)]
    return gpu_messages(result.stderr.splitlines())


def gpu_messages(lines: Iterable[str]) -> list[str]:
    """Returns TensorFlow's messages about GPUs without duplicates and times."""
    messages = (_PREFIX.sub("", line).strip() for line in lines)
    return list(dict.fromkeys(filter(_ABOUT_GPUS.search, messages)))[:_LINES_SHOWN]
