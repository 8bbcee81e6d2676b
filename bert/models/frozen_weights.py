"""Lets a process that only predicts lay out its weights for the processor once.

On a CPU, TensorFlow multiplies matrices with oneDNN, whose fastest kernels read weights in an order
of their own. Where weights may change, they are reordered at each call.
"""

import os

from bert.files.process import is_script

VARIABLE = "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"


def assume_frozen_weights(precision: str) -> None:
    """Promises TensorFlow that no weight changes once a graph has run with it.

    The promise must come before the first graph runs. It is made in scripts of this project alone,
    since another program may still train. The user's own setting of the variable stays.

    Args:
      precision: Name of the dtype policy that the model computes in. In float32 no promise is made:
        there the order depends on the number of rows, so that weights would still be reordered.
    """
    if is_script() and precision.endswith("bfloat16"):
        os.environ.setdefault(VARIABLE, "1")
