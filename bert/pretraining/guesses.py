"""What a model in pre-training says of records, to be looked at."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert.training.batches import Batches

Tensor = Any
# Guesses for a masked token.
_TOP = 5


def guess(model: keras.Model, batches: Batches, most: int) -> dict[str, np.ndarray]:
    """Returns the first records of batches with what the model says of them.

    Args:
      model: As `pretraining_model` makes it.
      batches: Of the features of pre-training.
      most: Records at most.

    Returns:
      The features of the records; `guesses` int32 and `guess_probabilities` [N, P, 5], the best
      first; `log_probabilities` [N, P] of what was masked; and `next_sentence_probabilities`
      [N, 2].
    """

    @tf.function(input_signature=[batches.signature], autograph=False)
    def ask(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
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
    asked = [ask(batch) for batch in batches.iterate(0, num_batches)]
    return {name: np.concatenate([each[name] for each in asked])[:most] for name in asked[0]}
