"""SavedModels of fine-tuned models, which take text or features and need none of this project.

A SavedModel holds the tokenizer, the vocabulary and the labels within its graph, which is made of
TensorFlow's own operations alone, unless another tokenizer is asked for: whatever runs SavedModels
runs it.

Dimension key: `B` batch, `S` sequence, `C` labels.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert.export.tokenizer import GraphTokenizer
from bert.files.durable import replace_folder
from bert.files.outputs import check_saved_model
from bert.files.paths import without_wildcards
from bert.network.lengths import round_up

Tensor = Any

FEATURES = ("input_ids", "input_mask", "segment_ids")

# Sequences that go through the model together: more are hardly faster, but have more padding.
BATCH_SIZE = 8


def save(folder: str, module: tf.Module, signatures: Mapping[str, Any]) -> None:
    """Writes a SavedModel, which appears at `folder` only when whole.

    It takes the place of a SavedModel that is there already, as `durable.replace_folder` does it.

    Args:
      folder: Any path that `tf.io.gfile` writes.
      module: What tracks the variables that the signatures use.
      signatures: `tf.function`s with an input signature, by name.

    Raises:
      ValueError: where `folder` is something else than a SavedModel.
    """
    with replace_folder(check_saved_model(folder)) as partial:
        tf.saved_model.save(
            module,
            partial,
            {name: function.get_concrete_function() for name, function in signatures.items()},
        )


def load(folder: str) -> Any:
    """Loads a SavedModel from a folder, whose path may have wildcards.

    Args:
      folder: The folder, which `bert.export.operations.read_graph` has checked or this process
        has written.
    """
    with without_wildcards(folder) as path:
        return tf.saved_model.load(path)


class ExportedModel(tf.Module):
    """A functional model and its tokenizer, as a SavedModel needs them: nothing of Keras is kept.

    Args:
      model: From a dictionary, int32 [..., S] each, to a dictionary of outputs. Its inputs are
        `FEATURES`, or others, too, which whoever calls `run` then gives.
      tokenizer: The tokenizer that the model was trained with, as a graph.
      max_seq_length: Where texts are cut, in tokens, with specials.
    """

    def __init__(self, model: keras.Model, tokenizer: GraphTokenizer, max_seq_length: int) -> None:
        super().__init__()
        _check_table(model, "position_embeddings", max_seq_length, "`max_seq_length`")
        # Blank lines at the end of a file are no tokens, as in `check_vocabulary`.
        largest = max(number for token, number in tokenizer.source.vocab.items() if token)
        _check_table(model, "word_embeddings", largest + 1, "The size of the vocabulary")
        # Only variables are tracked: a model would bring its optimizer along.
        self.weights = [weight.value for weight in model.weights]
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length
        self.inputs = tuple(model.input)
        # Not by `inference.infer`, whose form suits the processor that it runs on: an export may be
        # served by any.
        self._call = lambda features: model(features, training=False)
        self._outputs = dict(model.output)

    def run(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the model's outputs."""
        return self._call({name: features[name] for name in self.inputs})

    def run_in_batches(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns what `run` does, of `BATCH_SIZE` rows of about the same length at a time.

        So little is computed for padding, and the memory needed is bounded. Outputs for padding
        beyond the longest of such a batch are 0.

        Args:
          features: int32 [B, S] each, with `input_mask`.
        """
        count, length = tf.unstack(tf.shape(features["input_ids"]))
        lengths = tf.reduce_sum(features["input_mask"], 1)
        order = tf.argsort(lengths)
        lengths = tf.gather(lengths, order)

        def run(first: Tensor) -> dict[str, Tensor]:
            rows = order[first : first + BATCH_SIZE]
            # The model sees an empty batch where there is nothing, to give its outputs their shape.
            longest = tf.reduce_max(tf.concat([lengths[first : first + BATCH_SIZE], [1]], 0))
            longest = tf.minimum(round_up(longest), length)
            outputs = self.run({n: tf.gather(x, rows)[:, :longest] for n, x in features.items()})
            return {
                name: each if self._outputs[name].shape[1] else _pad(each, length - longest)
                for name, each in outputs.items()
            }

        specs = {
            name: tf.RaggedTensorSpec([None, *each.shape[1:]], tf.float32, ragged_rank=0)
            for name, each in self._outputs.items()
        }
        firsts = tf.range(0, tf.maximum(count, 1), BATCH_SIZE)
        outputs = tf.map_fn(run, firsts, fn_output_signature=specs, parallel_iterations=1)
        places = tf.argsort(order)
        return {name: tf.gather(each.values, places) for name, each in outputs.items()}

    def run_texts(self, *texts: Tensor) -> dict[str, Tensor]:
        """Returns the model's outputs for texts, string [B], or for pairs of texts."""
        count = tf.size(texts[0])
        for other in texts[1:]:
            tf.debugging.assert_equal(
                tf.size(other), count, "`text_a` and `text_b` must be equally many."
            )
        ids = self.tokenizer.tokenize(tf.concat(texts, 0))
        each = [ids[:count], ids[count:]][: len(texts)]
        features = self.tokenizer.pack(*each, max_seq_length=self.max_seq_length)
        return self.run_in_batches(features)


def _pad(values: Tensor, count: Tensor) -> Tensor:
    """Returns values for each token, [B, S, ...], with `count` zeros behind those of each row."""
    paddings = [[0, 0], [0, count], *([0, 0] for _ in values.shape[2:])]
    return tf.pad(values, paddings)


def _check_table(model: keras.Model, name: str, size: int, what: str) -> None:
    """Checks that the model's table of that name has rows enough."""
    for weight in model.weights:
        if weight.path.endswith(f"/{name}") and weight.shape[0] < size:
            raise ValueError(
                f"{what} must be at most {weight.shape[0]}, the rows of `{weight.path}`. Received "
                f"{size}."
            )


def features_function(
    run: Callable[[Mapping[str, Tensor]], dict[str, Tensor]],
    *,
    rank: int = 2,
    names: Sequence[str] = FEATURES,
) -> Any:
    """Returns the signature that takes a model's inputs: int32 [B, S], or [B, E, S] of rank 3."""

    def features(*tensors: Tensor) -> dict[str, Tensor]:
        return run(dict(zip(names, tensors, strict=True)))

    specs = [tf.TensorSpec([None] * rank, tf.int32, name=name) for name in names]
    return tf.function(features, input_signature=specs, autograph=False)


def texts_function(run: Callable[..., dict[str, Tensor]], *, is_pair: bool) -> Any:
    """Returns the signature that takes `text_a`, string [B], and for pairs `text_b`."""

    def single(text_a: Tensor) -> dict[str, Tensor]:
        return run(text_a)

    def pair(text_a: Tensor, text_b: Tensor) -> dict[str, Tensor]:
        return run(text_a, text_b)

    names = ["text_a", "text_b"] if is_pair else ["text_a"]
    specs = [tf.TensorSpec([None], tf.string, name=name) for name in names]
    return tf.function(pair if is_pair else single, input_signature=specs, autograph=False)


def labels_function(labels: Tensor) -> Any:
    """Returns the signature that takes nothing and gives `labels`, string [C]."""
    return tf.function(lambda: {"labels": tf.identity(labels)}, input_signature=[], autograph=False)
