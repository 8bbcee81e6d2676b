"""Asks an exported classifier about texts: what a server of your own would do.

    python sample/ask_saved_model.py demo_output/remarks/saved_model 'One text.' 'Another text.'

Needs only tensorflow, and of this project nothing but the exported folder.
"""

import sys

import tensorflow as tf

folder, *texts = sys.argv[1:]
answer = tf.saved_model.load(folder).signatures["serving_default"]
results = answer(text_a=tf.constant(texts))
for text, label, probabilities in zip(
    texts, results["label"].numpy(), results["probabilities"].numpy(), strict=True
):
    print(f"{label.decode()} ({probabilities.max():.1%} sure): {text}")
