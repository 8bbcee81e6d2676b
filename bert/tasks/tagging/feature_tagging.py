"""The task of a tagger whose features are computed once, before training (paper, section 5.3)."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tokenization
from bert.files.outputs import make_folder
from bert.files.owned import claim
from bert.log import logger
from bert.tasks.examples import QUERIES, Inputs, Part
from bert.tasks.tagging.feature_tagger import FeatureTextTagger
from bert.tasks.tagging.sentences import Sentence
from bert.tasks.tagging.tagger import Tagging
from bert.tasks.tagging.text_tagger import Predictions
from bert.tasks.tagging.word_features import FeatureBatches, WordFeatures, compact
from bert.tasks.task import ExampleFile


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureTagging(FeatureTextTagger, Tagging):
    """Tagging on the layers of a frozen BERT, which are computed once.

    Attributes:
      features_dir: The folder of the computed features, which runs may share; None for that of the
        run.
    """

    features_dir: str | None = None

    def make_inputs(self, part: Part, examples: Sequence[Sentence]) -> Inputs:
        if self.config.is_word_vectors and part != QUERIES:
            _log_coverage(part, examples, self.tokenizer)
        return super().make_inputs(part, examples)

    def score(self, inputs: Inputs, predictions: Predictions) -> dict[str, Any]:
        scores = super().score(inputs, predictions)
        weights = self.made[0].tagger.layer_shares
        return {**scores, "layer_weights": weights} if scores and weights is not None else scores

    def write(
        self,
        folder: str,
        step: int,
        inputs: Inputs,
        predictions: Predictions,
        scores: Mapping[str, Any],
    ) -> None:
        super().write(folder, step, inputs, predictions, scores)
        if weights := scores.get("layer_weights"):
            text = ", ".join(f"{weight:.3f}" for weight in weights)
            logger.info("Weights of the layers, from the lowest: %s.", text)

    def open_inputs(self, inputs: Inputs, file: ExampleFile) -> Inputs:
        (tagger,) = self.made
        run_folder, name = os.path.split(file.path)
        folder = (file.is_kept and self.features_dir) or run_folder
        make_folder(folder)
        path = claim(folder, f"{name.removesuffix('.tf_record')}.{tagger.layers}.features.npy")
        words = compact(inputs.arrays)
        features = WordFeatures(tagger.encoder, inputs.arrays, path)
        batches = FeatureBatches(features, words, file.batch_size, file.seed, trim=file.trim)
        return dataclasses.replace(inputs, arrays=words, batches=batches)


def _log_coverage(
    part: Part, sentences: Sequence[Sentence], tokenizer: tokenization.FullTokenizer
) -> None:
    """Logs the percentage of words that have vectors, repeated words included."""
    words = [word for sentence in sentences for word in sentence.words]
    pieces = tokenizer.tokenize(" ".join(words))
    num_found = sum(word == piece for word, piece in zip(words, pieces, strict=False))
    num_unknown = pieces.count("[UNK]")
    log = logger.warning if num_unknown > len(pieces) // 2 else logger.info
    share = 100 / max(len(pieces), 1)
    log(
        "Of the %d words of the %s, %.1f %% have a vector as they are written, %.1f %% in "
        "lower case; %.1f %% have the vector of unknown words.",
        len(pieces),
        f"{part.name} set",
        share * num_found,
        share * (len(pieces) - num_found - num_unknown),
        share * num_unknown,
    )
