"""SavedModels of multiple choice, which take strings and need none of this project.

The outputs are those of `examples.decode`.

Dimension key: `B` examples, `E` choices, `S` sequence.
"""

from typing import Any

import keras
import tensorflow as tf

from bert.export import saved_model
from bert.export.tokenizer import GraphTokenizer
from bert.tasks.swag.examples import ABSENT, SHORTEST

Tensor = Any


def export_chooser(
    folder: str,
    model: keras.Model,
    tokenizer: GraphTokenizer,
    max_seq_length: int,
) -> None:
    """Writes a SavedModel that chooses among endings, with these signatures.

    `serving_default` takes `context`, string [B], and `endings`, string [B, E], of which those that
    are blank count as absent. It gives `label`, int32 [B], the number of the likeliest ending in
    its row; `ending`, string [B], its text; and `probabilities`, float32 [B, E], 0 for absent ones.
    `features` takes `input_ids`, `input_mask` and `segment_ids`, int32 [B, E, S], and gives
    `logits`, float32 [B, E]; those of absent choices mean nothing.

    Args:
      folder: The folder to write; a SavedModel there is replaced.
      model: The model from `input_ids`, `input_mask` and `segment_ids` to `logits`.
      tokenizer: The tokenizer that the model was trained with, as a graph.
      max_seq_length: The maximum number of tokens of a choice, specials included.

    Raises:
      ValueError: before anything is written, where the length is too small.
    """
    if max_seq_length < SHORTEST:
        raise ValueError(
            f"`max_seq_length` must be at least {SHORTEST}. Received {max_seq_length}."
        )
    exported = _Chooser(model, tokenizer, max_seq_length)
    specs = [
        tf.TensorSpec([None], tf.string, name="context"),
        tf.TensorSpec([None, None], tf.string, name="endings"),
    ]
    signatures = {
        "serving_default": tf.function(exported.choose, input_signature=specs, autograph=False),
        "features": saved_model.features_function(exported.run, rank=3),
    }
    saved_model.save(folder, exported, signatures)


class _Chooser(saved_model.ExportedModel):
    """A model from a context and endings to the likeliest ending."""

    def choose(self, context: Tensor, endings: Tensor) -> dict[str, Tensor]:
        """Returns the likeliest of the endings, string [B, E], of each context, string [B]."""
        with tf.device("/CPU:0"):
            is_there = tf.strings.strip(endings) != ""
            _check(context, endings, is_there)
            features = self._features(context, endings)
        logits = tf.cast(self.run(features)["logits"], tf.float32)
        probabilities = tf.nn.softmax(tf.where(is_there, logits, ABSENT))
        with tf.device("/CPU:0"):
            label = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
            return {
                "label": label,
                "ending": tf.gather(endings, label, batch_dims=1),
                "probabilities": probabilities,
            }

    def _features(self, contexts: Tensor, endings: Tensor) -> dict[str, Tensor]:
        """Returns the features of the model, int32 [B, E, S]."""
        shape = tf.shape(endings)
        rows = tf.repeat(tf.range(shape[0]), shape[1])
        features = self.tokenizer.pack(
            tf.gather(self.tokenizer.tokenize(contexts), rows),
            self.tokenizer.tokenize(tf.reshape(endings, [-1])),
            max_seq_length=self.max_seq_length,
            always_pair=True,
        )
        return {
            name: tf.reshape(values, tf.concat([shape, tf.shape(values)[1:]], 0))
            for name, values in features.items()
        }


def _check(contexts: Tensor, endings: Tensor, is_there: Tensor) -> None:
    tf.debugging.assert_equal(
        tf.size(contexts), tf.shape(endings)[0], "`endings` must have a row for each `context`."
    )
    tf.debugging.assert_equal(
        tf.reduce_all(tf.reduce_sum(tf.cast(is_there, tf.int32), axis=1) >= 2),
        True,
        "Each row of `endings` must have at least two that are not blank.",
    )
