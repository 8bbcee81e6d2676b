"""Windows of tagged words as a model reads them: as records of tokens, or as features of words."""

import dataclasses
import os
from collections.abc import Callable, Mapping

import keras
import numpy as np

import conll
import modeling
import word_features
from bert.command_line import flags as common_flags
from bert.tasks.features import FeatureTagger
from bert.training import finetuning
from bert.training.batches import Batches, Feature, encoder_features
from bert.training.evaluation import Predictor

Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Split:
    """Sentences and what the model reads of them.

    Attributes:
      sentences: The sentences.
      arrays: `label_ids`, `label_mask` and `word_ids` of what the model has logits for.
      batches: Those of the windows.
    """

    sentences: list[conll.Sentence]
    arrays: Arrays
    batches: Batches


# From a name for files, what `tagging.make_features` gives, the windows per batch and the seed of
# their order, or None: arrays and batches of a `Split`.
Opener = Callable[[str, Arrays, int, int | None], tuple[Arrays, Batches]]


def record_opener(
    settings: common_flags.FineTuningSettings,
    config: modeling.BertConfig,
    num_labels: int,
    folder: str,
) -> Opener:
    """Returns what writes windows to records in a folder, and opens these."""
    features = _features(settings.max_seq_length, config, num_labels)

    def open_windows(
        name: str, arrays: Arrays, batch_size: int, seed: int | None
    ) -> tuple[Arrays, Batches]:
        path = os.path.join(folder, f"{name}.tf_record")
        finetuning.write_examples(path, {feature: arrays[feature] for feature in features})
        lengths = arrays["input_mask"].sum(axis=1)
        return arrays, finetuning.open_batches(
            path, features, settings, batch_size, lengths=lengths, seed=seed
        )

    return open_windows


def _features(length: int, config: modeling.BertConfig, num_labels: int) -> dict[str, Feature]:
    encoder = encoder_features(
        max_seq_length=length,
        vocab_size=config.vocab_size,
        type_vocab_size=config.type_vocab_size,
    )

    def per_token(limit: int, limit_source: str) -> Feature:
        return Feature(length, "--max_seq_length", limit, limit_source, per_token=True)

    return {
        **encoder,
        "label_ids": per_token(num_labels, "the number of labels"),
        "label_mask": per_token(2, "a mask"),
    }


def feature_opener(
    settings: common_flags.FineTuningSettings,
    tagger: FeatureTagger,
    folder: str,
) -> Opener:
    """Returns what opens windows for the features of their words, which a folder keeps."""

    def open_windows(
        name: str, arrays: Arrays, batch_size: int, seed: int | None
    ) -> tuple[Arrays, Batches]:
        path = os.path.join(folder, f"{name}.{tagger.layers}.features.npy")
        features = word_features.WordFeatures(tagger.encoder, arrays, path)
        words = word_features.compact(arrays)
        trim = not settings.pad_to_max_length
        return words, word_features.FeatureBatches(features, words, batch_size, seed, trim=trim)

    return open_windows


class Logits:
    """Returns a model's logits for a split, float32 [N, S, C]; its function is built once."""

    def __init__(self, model: keras.Model, splits: Mapping[str, Split]) -> None:
        self._splits = splits
        # Evaluation and prediction have batches of the same signature.
        for name in splits.keys() - {"train"}:
            self._predictor = Predictor(model, splits[name].batches.signature)

    def __call__(self, name: str) -> np.ndarray:
        batches = self._splits[name].batches
        shape = self._splits[name].arrays["label_ids"].shape
        logits: np.ndarray | None = None
        for numbers, outputs in self._predictor.predict(batches):
            values = outputs["logits"]
            if logits is None:
                logits = np.zeros((*shape, values.shape[-1]), np.float32)
            # A batch is as long as its longest sequence.
            logits[numbers, : values.shape[1]] = values
        assert logits is not None
        return logits
