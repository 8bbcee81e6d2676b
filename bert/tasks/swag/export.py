"""SavedModels that choose among endings, from strings and without this project.

What comes out is what `examples.decode` gives.

Dimension key: `B` examples, `E` choices, `S` sequence.
"""

from typing import Any

import keras
import tensorflow as tf

import tokenization
from bert.export import saved_model
from bert.files.outputs import check_saved_model

Tensor = Any

# To what logits are lowered where there is no choice, as in `examples`.
_ABSENT = -1e9
# As in `examples.make_features`: a token of each text, and what surrounds them.
_SHORTEST = 5


def export_chooser(
    folder: str,
    model: keras.Model,
    tokenizer: tokenization.FullTokenizer,
    max_seq_length: int,
) -> None:
    """Writes a SavedModel that chooses among endings, with these signatures.

    `serving_default` takes `context`, string [B], and `endings`, string [B, E], of which those that
    are blank count as absent. It gives `label`, int32 [B], the number of the likeliest ending in
    its row; `ending`, string [B], its text; and `probabilities`, float32 [B, E], 0 for absent ones.
    `features` takes `input_ids`, `input_mask` and `segment_ids`, int32 [B, E, S], and gives
    `logits`, float32 [B, E]; those of absent choices mean nothing.

    Args:
      folder: Where to write; a SavedModel that is there already is replaced.
      model: From `input_ids`, `input_mask` and `segment_ids` to `logits`.
      tokenizer: Whose vocabulary and casing the model was trained with.
      max_seq_length: Where texts are cut, in tokens, with specials.

    Raises:
      ValueError: before anything is written, where these do not fit together.
    """
    check_saved_model(folder)
    if max_seq_length < _SHORTEST:
        raise ValueError(
            f"`max_seq_length` must be at least {_SHORTEST}. Received {max_seq_length}."
        )
    exported = _Chooser(model, tokenizer, max_seq_length)

    def serve(context: Tensor, endings: Tensor) -> dict[str, Tensor]:
        return exported.choose(context, endings)

    specs = [
        tf.TensorSpec([None], tf.string, name="context"),
        tf.TensorSpec([None, None], tf.string, name="endings"),
    ]
    signatures = {
        "serving_default": tf.function(serve, input_signature=specs, autograph=False),
        "features": saved_model.features_function(exported.run, rank=3),
    }
    saved_model.save(folder, exported, signatures)


class _Chooser(saved_model.ExportedModel):
    """A model that chooses, with all that happens before and after it."""

    def choose(self, contexts: Tensor, endings: Tensor) -> dict[str, Tensor]:
        """Returns the likeliest of the endings, string [B, E], of contexts, string [B]."""
        with tf.device("/CPU:0"):
            is_there = tf.strings.strip(endings) != ""
            _check(contexts, endings, is_there)
            features = self._features(contexts, endings)
        logits = tf.cast(self.run(features)["logits"], tf.float32)
        probabilities = tf.nn.softmax(tf.where(is_there, logits, _ABSENT))
        with tf.device("/CPU:0"):
            label = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
            return {
                "label": label,
                "ending": tf.gather(endings, label, batch_dims=1),
                "probabilities": probabilities,
            }

    def _features(self, contexts: Tensor, endings: Tensor) -> dict[str, Tensor]:
        """Returns what the model reads, int32 [B, E, S]."""
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
