"""Asks an exported classifier about texts: what a server of your own would do.

    python sample/ask_saved_model.py demo_output/remarks/saved_model 'One text.' 'Another text.'

Needs only tensorflow, and of this project nothing but the exported folder.
"""

import os
import sys

folder, *texts = sys.argv[1:] or [""]
if not texts:
    sys.exit(f"The folder of a SavedModel must be given, and texts. Received {sys.argv[1:]}.")
# TensorFlow writes remarks of its own to the standard error, while it is imported whatever is set
# here. What goes wrong is raised all the same.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
stderr = os.dup(2)
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
try:
    import tensorflow as tf
finally:
    os.dup2(stderr, 2)

answer = tf.saved_model.load(folder).signatures["serving_default"]
results = answer(text_a=tf.constant(texts))
for text, label, probabilities in zip(
    texts, results["label"].numpy(), results["probabilities"].numpy(), strict=True
):
    print(f"{label.decode()} ({probabilities.max():.1%} sure): {text}")
