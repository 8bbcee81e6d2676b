"""Predictions of a pre-training model for some records, for the report."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert.training.batches import Batches

Tensor = Any
# The number of predictions for a masked token.
_TOP = 5


def guess(model: keras.Model, batches: Batches, most: int) -> dict[str, np.ndarray]:
    """Returns the first records of batches with the predictions of the model.

    Args:
      model: A model of `pretraining_model`.
      batches: Batches of the features of pre-training.
      most: The most records.

    Returns:
      The features of the records; `guesses` int32 and `guess_probabilities` [N, P, 5], the best
      first; `log_probabilities` [N, P] of the masked tokens; and `next_sentence_probabilities`
      [N, 2].
    """

    @tf.function(input_signature=[batches.signature], autograph=False)
    def predict(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        outputs = model({name: batch[name] for name in model.input}, training=False)
        logits = tf.nn.log_softmax(outputs["masked_lm_logits"])
        best = tf.math.top_k(logits, min(_TOP, logits.shape[-1]))
        return {
            **batch,
            "guesses": best.indices,
            "guess_probabilities": tf.exp(best.values),
            "log_probabilities": tf.gather(logits, batch["masked_lm_ids"], axis=2, batch_dims=2),
            "next_sentence_probabilities": tf.nn.softmax(outputs["next_sentence_logits"]),
        }

    num_batches = min(-(-most // batches.batch_size), batches.num_batches)
    predicted = [predict(batch) for batch in batches.iterate(0, num_batches)]
    return {
        name: np.concatenate([outputs[name] for outputs in predicted])[:most]
        for name in predicted[0]
    }
