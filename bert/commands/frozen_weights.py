"""Lets a process that only predicts have its weights laid out for the processor once.

On a CPU, TensorFlow's products are oneDNN's, whose fastest ones read weights in an order of their
own. Where weights may change, they would be put into it anew at each call.
"""

import os

from bert.files.process import is_script

VARIABLE = "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"


def assume_frozen_weights(precision: str) -> None:
    """Promises TensorFlow that no weight changes any more once a graph has run with it.

    It must come before the first graph runs. Another program than a script of this project may
    still train, and is left alone. The user's own setting of the variable stays.

    Args:
      precision: Name of the dtype policy that the model computes in. In float32, the order depends
        on the number of rows: kept for one, weights would be put into another at each call.
    """
    if is_script() and precision.endswith("bfloat16"):
        os.environ.setdefault(VARIABLE, "1")
