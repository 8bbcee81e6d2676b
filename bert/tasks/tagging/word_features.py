"""Features of words: computed once by a frozen encoder, stored in a file, and read in batches.

The features of a word are the vectors at its first word piece, in the window in which it is
predicted. Only a part of them is in memory at a time, both while computing and while reading.
"""

import functools
import hashlib
import os
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import modeling
from bert.files.display import Progress
from bert.files.durable import replace_files
from bert.files.paths import is_remote, split_by_size
from bert.files.records import encode_examples
from bert.log import logger
from bert.network.lengths import round_up, sort_by_length
from bert.tasks.tagging.windows import NO_WORD
from bert.training.batches import Batches, as_it_is, read_ahead
from bert.training.records import Records

Arrays = Mapping[str, np.ndarray]


# Part of the key of a file: raise it when the features or the format of the file change.
_VERSION = 2
# The maximum number of values, of 4 bytes, in memory.
_PART_VALUES = 1 << 24
_ENCODER_BATCH = 32


def compact(arrays: Arrays) -> dict[str, np.ndarray]:
    """Returns `label_ids`, `label_mask` and `word_ids` at the positions of words, int32 [N, W].

    Args:
      arrays: The arrays of `windows.make_features`, [N, S].
    """
    mask = arrays["label_mask"] > 0
    counts = mask.sum(axis=1)
    is_word = np.arange(max(counts.max(initial=0), 1)) < counts[:, None]  # [N, W]
    results = {"label_mask": is_word.astype(np.int32)}
    for name, padding in (("label_ids", 0), ("word_ids", NO_WORD)):
        results[name] = np.full(is_word.shape, padding, np.int32)
        results[name][is_word] = arrays[name][mask]
    return results


def feature_shape(encoder: keras.Model) -> tuple[int, ...]:
    """Returns the shape of a word's features: (D,), or (L, H)."""
    outputs: Mapping[str, Any] = encoder.output
    return tuple(outputs["features"].shape[2:])


def encode(encoder: keras.Model, arrays: Arrays) -> Iterator[np.ndarray]:
    """Yields the features of the words of consecutive windows, float32 [words, ...].

    Args:
      encoder: A `bert.tasks.tagging.feature_tagger.feature_model`.
      arrays: The arrays of `windows.make_features`.

    Raises:
      ArithmeticError: if features are not finite.
    """
    names = [*modeling.encoder_inputs(), "label_mask"]
    signature = {name: tf.TensorSpec((None, None), tf.int32) for name in names}

    @tf.function(input_signature=[signature], autograph=False)
    def compute(batch: Mapping[str, Any]) -> Any:
        inputs = {name: batch[name] for name in encoder.input}
        features = encoder(inputs, training=False)["features"]
        return tf.boolean_mask(features, batch["label_mask"] > 0)

    counts = arrays["label_mask"].sum(axis=1)
    lengths = arrays["input_mask"].sum(axis=1)
    values = int(np.prod(feature_shape(encoder)))
    progress = Progress("Computing features", len(counts))
    windows = range(len(counts))
    for part in split_by_size(windows, lambda window: counts[window] * values, _PART_VALUES):
        rows: list[np.ndarray] = [np.zeros(0)] * len(part)
        for batch in sort_by_length([int(lengths[window]) for window in part], _ENCODER_BATCH):
            numbers = [part[index] for index in batch]
            longest = round_up(int(lengths[numbers].max()))
            inputs = {name: tf.constant(arrays[name][numbers, :longest]) for name in names}
            words = np.split(compute(inputs).numpy(), np.cumsum(counts[numbers])[:-1])
            for index, window_words in zip(batch, words, strict=True):
                rows[index] = window_words
        features = np.concatenate(rows)
        if not np.isfinite(features).all():
            raise ArithmeticError(
                "Features must be finite. Those of the encoder are not; check the weights of "
                "`init_checkpoint`."
            )
        yield features
        progress(part[-1] + 1)


class WordFeatures:
    """The features of the words of windows, computed when they are first read.

    The weights of the encoder may be loaded until then. A file of features with the same key, of
    the weights and windows, is read instead.

    Args:
      encoder: A `bert.tasks.tagging.feature_tagger.feature_model`.
      arrays: The arrays of `windows.make_features`.
      path: The file of the features: two NumPy arrays, the features, and their key and checksum.
    """

    def __init__(self, encoder: keras.Model, arrays: Arrays, path: str) -> None:
        self.shape = feature_shape(encoder)
        self.starts = np.concatenate([[0], arrays["label_mask"].sum(axis=1).cumsum()])
        self._encoder = encoder
        self._arrays = arrays
        self._path = path

    def __len__(self) -> int:
        """Returns the number of windows."""
        return len(self.starts) - 1

    def __getitem__(self, number: int) -> np.ndarray:
        """Returns the features of the words of a window, float32 [words, ...]."""
        return self.rows[self.starts[number] : self.starts[number + 1]]

    @functools.cached_property
    def rows(self) -> np.ndarray:
        """The features of all words, float32 [words, ...], which stay on disk."""
        path = self._path
        if is_remote(path):
            # Memory can only be mapped to a local file.
            folder = tempfile.mkdtemp(prefix="bert-features-")
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            path = os.path.join(folder, "features.npy")
        key = self._key()
        rows = _read(path, key)
        if rows is not None:
            logger.info("The features are those of an earlier run: %s.", path)
            return rows
        self._write(path, key)
        rows = _read(path, key)
        assert rows is not None
        return rows

    def _key(self) -> str:
        """Returns a digest of all that the features depend on, weights included."""
        bert = self._encoder.get_layer("bert")
        # The name of the encoder is that of its layers.
        names = (_VERSION, self._encoder.name, bert.dtype_policy.name, bert.config)
        digest = hashlib.sha256(repr(names).encode())
        for name in ("input_ids", "input_mask", "segment_ids", "label_mask"):
            digest.update(repr(self._arrays[name].shape).encode())
            digest.update(self._arrays[name].tobytes())
        for variable in self._encoder.weights:
            digest.update(variable.path.encode())
            digest.update(np.asarray(variable).tobytes())
        return digest.hexdigest()

    def _write(self, path: str, key: str) -> None:
        shape = (int(self.starts[-1]), *self.shape)
        logger.info(
            "Computing the features of %d words, %.1f MB: %s.",
            shape[0],
            4e-6 * np.prod(shape),
            path,
        )
        with replace_files([path]) as (file,):
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            checksum = 0
            for rows in encode(self._encoder, self._arrays):
                values = rows.astype("<f4").tobytes()
                checksum = zlib.crc32(values, checksum)
                file.write(values)
            np.lib.format.write_array(file, np.array([key, str(checksum)]), version=(1, 0))


def _read(path: str, key: str) -> np.ndarray | None:
    """Returns the array of a file; None if the file is not complete or has another key."""
    if not os.path.exists(path):
        return None
    try:
        rows = np.load(path, mmap_mode="r")
        with open(path, "rb") as file:
            file.seek(rows.offset + rows.nbytes)
            stored_key, checksum = map(str, np.lib.format.read_array(file))
    except (AttributeError, ValueError, TypeError, EOFError, OSError) as error:
        logger.info("There are no features in %s (%s).", path, type(error).__name__)
        return None
    if stored_key != key:
        logger.info("%s is of other data, or of other weights or options.", path)
        return None
    if rows.dtype != np.dtype("<f4") or str(_checksum(rows)) != checksum:
        logger.warning("%s is damaged: its features are computed again.", path)
        return None
    return rows


def _checksum(rows: np.ndarray) -> int:
    checksum = 0
    values = rows.reshape(-1)
    for start in range(0, len(values), _PART_VALUES):
        checksum = zlib.crc32(values[start : start + _PART_VALUES].tobytes(), checksum)
    return checksum


class FeatureBatches(Batches):
    """Batches of the `features`, `label_ids` and `label_mask` of the words of windows.

    Args:
      features: The features of the windows.
      arrays: The arrays of `compact` for the windows.
      batch_size: Windows per step, over all replicas.
      seed: The seed of the order, for training; None to read all windows once.
      trim: Whether to remove positions that are padding in the whole batch. Results stay the same,
        up to rounding and dropout masks.
    """

    def __init__(
        self,
        features: WordFeatures,
        arrays: Arrays,
        batch_size: int,
        seed: int | None = None,
        *,
        trim: bool = True,
    ) -> None:
        self._features = features
        self._arrays = arrays
        lengths = arrays["label_mask"].sum(axis=1)
        super().__init__(
            _Records(features, arrays), {}, batch_size, seed, lengths=lengths, trim=trim
        )

    @property
    def signature(self) -> dict[str, tf.TensorSpec]:
        """The shapes and dtypes of a batch, None where batches differ."""
        size = self.batch_size if self.seed is not None else None
        integers = tf.TensorSpec([size, None], tf.int32)
        return {
            "features": tf.TensorSpec([size, None, *self._features.shape], tf.float32),
            "label_ids": integers,
            "label_mask": integers,
        }

    def _dataset(
        self, context: tf.distribute.InputContext, first_step: int, end_step: int
    ) -> tf.data.Dataset:
        # Computed here, since a thread of the data set would hide the cause of an error.
        _ = self._features.rows
        here = context.num_replicas_in_sync // context.num_input_pipelines
        share = context.get_per_replica_batch_size(self.batch_size)

        def read(index: np.int64) -> list[np.ndarray]:
            step, replica = divmod(int(index), here)
            start = (context.input_pipeline_id * here + replica) * share
            numbers = self.numbers(first_step + step)[start : start + share]
            masks = self._arrays["label_mask"][numbers]
            # At least 1, for a replica that gets no windows.
            longest = max(int(masks.sum(axis=1).max(initial=1)), 1) if self.trim else masks.shape[1]
            features = np.zeros((len(numbers), longest, *self._features.shape), np.float32)
            for row, number in enumerate(numbers):
                words = self._features[int(number)]
                features[row, : len(words)] = words
            return [features, self._arrays["label_ids"][numbers, :longest], masks[:, :longest]]

        signature = self.signature

        def shaped(*tensors: Any) -> dict[str, Any]:
            shapes = ([None, *spec.shape[1:]] for spec in signature.values())
            return dict(zip(signature, map(tf.ensure_shape, tensors, shapes), strict=True))

        kinds = [spec.dtype for spec in signature.values()]
        indices = tf.data.Dataset.range((end_step - first_step) * here)
        tensors = indices.map(as_it_is(lambda index: tf.numpy_function(read, [index], kinds)))
        return read_ahead(tensors.map(as_it_is(shaped)))


class _Records(Records):
    """The windows as records, for a batch that is saved for inspection."""

    def __init__(self, features: WordFeatures, arrays: Arrays) -> None:
        self._features = features
        self._arrays = arrays

    def __len__(self) -> int:
        return len(self._features)

    def read(self, numbers: Sequence[int] | np.ndarray) -> list[bytes]:
        records = []
        for number in map(int, numbers):
            words = np.asarray(self._features[number])
            labels = self._arrays["label_ids"][number, : len(words)]
            values = {"features": words.reshape(1, -1), "label_ids": labels[None]}
            records += encode_examples(values)
        return records

    def check(self, numbers: np.ndarray, features: Mapping[str, Any]) -> None:
        """Accepts all windows, which need no check of a file."""
