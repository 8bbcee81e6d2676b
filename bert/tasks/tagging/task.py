"""The task of giving words labels, such as those of names (paper, section 5.3)."""

import dataclasses
import math
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from absl import logging
from scipy.special import softmax

import modeling
import tokenization
from bert.files.inputs import Input
from bert.files.outputs import make_folder
from bert.files.owned import claim
from bert.network.heads import tagging_model, tagging_objective
from bert.options import Message, Option, OptionError
from bert.tasks.bilstm import bilstm_fields, stored_bilstm
from bert.tasks.distillation import Layers, TeacherModel, read_unlabeled, without_layers
from bert.tasks.features import FeatureTagger
from bert.tasks.options import Teacher as TeacherOptions
from bert.tasks.split import split_fields
from bert.tasks.tagging import entities as tagging_entities
from bert.tasks.tagging import plain_tags
from bert.tasks.tagging import predictions as tagging_predictions
from bert.tasks.tagging import sentences as tagging_sentences
from bert.tasks.tagging import windows as tagging_windows
from bert.tasks.tagging.batches import FeatureBatches, WordFeatures, compact
from bert.tasks.tagging.sentences import Sentence, TaggedFiles
from bert.tasks.tagging.teacher import Teacher, order_of_labels
from bert.tasks.tagging.words import Span
from bert.tasks.task import (
    ASKED,
    Arrays,
    ExampleFile,
    Inputs,
    Outputs,
    Part,
    Row,
    collect_padded,
    stored_field,
)
from bert.training.batches import LENGTH, Feature, encoder_features
from bert.training.objective import Objective
from bert.training.scores import save_results, save_scores

# What of the scores goes to `<part>_results.txt`, as far as it is there.
_SCORES = ("precision", "recall", "f1", "accuracy", "macro_f1", "loss")


@dataclasses.dataclass(frozen=True)
class Predictions:
    """A label for each word, sentence by sentence, and the loss, which is NaN without entities."""

    sentences: list[tagging_predictions.Prediction]
    loss: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class RawText(Sentence):
    """A text that is to be answered, as a sentence of its words.

    Attributes:
      text: The text.
      spans: Where each word begins and ends in it.
    """

    text: str
    spans: Sequence[Span]


@dataclasses.dataclass(frozen=True)
class Features:
    """The layers of a frozen BERT that a tagger reads.

    Attributes:
      layers: One of `bert.tasks.layers.FEATURE_LAYERS`.
      lstm_size: Units of each LSTM in each direction.
      folder: Where the features are kept, which runs may share; None for that of the run.
    """

    layers: str
    lstm_size: int
    folder: str | None = None


@dataclasses.dataclass(frozen=True)
class Tagging:
    """Implements the protocols of `bert.tasks.task`.

    Attributes:
      config: The shape of the model.
      tokenizer: That of the model.
      max_seq_length: Tokens of a window at most, with specials.
      task: What the model decides for each word.
      document_context: Whether windows are filled with the neighbouring sentences.
      files: Where sentences are read; None for a model that only answers.
      sentences: By split, those that were read from the files.
      output_scheme: That of the predictions; None for that of the model's labels.
      teacher: The model that is learned from, beside the tags, if there is one.
      add_bilstm: Whether a BiLSTM stands on the encoder.
    """

    config: modeling.BertConfig
    tokenizer: tokenization.FullTokenizer
    max_seq_length: int
    task: tagging_windows.Task
    document_context: bool = False
    files: TaggedFiles | None = None
    sentences: Mapping[str, list[Sentence]] = dataclasses.field(default_factory=dict)
    output_scheme: str | None = None
    teacher: Teacher | None = None
    add_bilstm: bool = False

    kind = "tagging"
    fields = ("text",)

    @property
    def answer_names(self) -> tuple[str, ...]:
        return ("words",) if self.task.tells_words else ("entities",)

    @property
    def metric(self) -> str:
        return "accuracy" if self.task.is_plain else "f1"

    @property
    def counts_examples(self) -> bool:
        return False

    @property
    def guess(self) -> str:
        guesses_tag = self.task.is_plain or self.task.cuts_words
        return "always giving the most frequent tag" if guesses_tag else "tagging every word as O"

    def stored(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "task": self.task.to_dict(),
            "do_lower_case": self.tokenizer.basic_tokenizer.do_lower_case,
            "max_seq_length": self.max_seq_length,
            "document_context": self.document_context,
            "feature_based": False,
            "feature_layers": None,
            "lstm_size": None,
            **split_fields(self.files.dev_split if self.files else None),
            **bilstm_fields(add_bilstm=self.add_bilstm),
        }

    def fixed(self, *, is_training: bool) -> Collection[str]:
        names = ("kind", "task", "do_lower_case", "feature_based", "feature_layers", "lstm_size")
        # A trained model may be used with other windows, but training cannot go on with others.
        return (*names, *["max_seq_length", "document_context"] * is_training)

    def read(self, splits: Collection[str]) -> dict[Part, Sequence[Sentence]]:
        examples: dict[Part, Sequence[Sentence]]
        examples = {Part(split): self.sentences[split] for split in splits}
        if self.teacher and self.teacher.unlabeled and "train" in splits:
            logging.info("Read %d sentences that the teacher tags.", len(self.teacher.unlabeled))
            examples[Part("train")] = [*self.sentences["train"], *self.teacher.unlabeled]
        return examples

    def parse(self, rows: Sequence[Row]) -> list[RawText]:
        for number, row in enumerate(rows):
            if not isinstance(row["text"], str):
                raise ValueError(
                    f"Input {number}, counted from 0, must have one text as 'text'. "
                    f"Received {row['text']!r}."
                )
        texts = [str(row["text"]) for row in rows]
        read = [tagging_windows.read_text(text, self.task.unit) for text in texts]
        return [
            RawText(sentence.words, text=text, spans=spans)
            for text, (sentence, spans) in zip(texts, read, strict=True)
        ]

    def with_teacher(
        self, model: TeacherModel, layers: Layers | None, options: TeacherOptions
    ) -> "Tagging":
        """Returns the task of a student that learns from another model.

        Args:
          model: The teacher.
          layers: The layers of it that the student learns.
          options: The weights of the teacher, and its file of texts without labels.

        Raises:
          ValueError: where the teacher decides something else, or the texts cannot be read.
        """
        order = order_of_labels(self.task, model.task.task, options.teacher or "")

        def answer(sentences: Sequence[Sentence]) -> np.ndarray:
            inputs, outputs = model.compute(sentences)
            shape = inputs.arrays["label_ids"].shape
            logits = collect_padded(outputs, shape, "logits")
            return tagging_predictions.word_logits(inputs.arrays, logits)[:, order]

        unlabeled = []
        if options.unlabeled_file:
            rows = read_unlabeled(options.unlabeled_file, self.fields, {})
            unlabeled = self.parse_unlabeled(rows)
        teacher = Teacher(
            answer,
            unlabeled,
            options.teacher_weight,
            options.distillation_temperature,
            layers,
        )
        return dataclasses.replace(self, teacher=teacher)

    def parse_unlabeled(self, rows: Sequence[Input]) -> list[RawText]:
        """Returns the sentences of rows whose tags are not known, each a document of its own."""
        parsed = self.parse([each.row or {} for each in rows])
        return [
            dataclasses.replace(raw, document=-each.line)
            for raw, each in zip(parsed, rows, strict=True)
            if raw.words
        ]

    def make_inputs(self, part: Part, examples: Sequence[Sentence]) -> Inputs:
        arrays = tagging_windows.make_features(
            examples,
            self.task,
            self.tokenizer,
            self.max_seq_length,
            document_context=self.document_context,
            whole_words=self.config.is_word_vectors,
            tells=part != ASKED,
        )
        if not len(arrays["word_ids"]):
            # The model wants a window even where all texts are blank.
            blank = np.zeros((1, self.max_seq_length), np.int32)
            arrays = {**dict.fromkeys(arrays, blank), "word_ids": blank + tagging_windows.NO_WORD}
        return Inputs(part, examples, arrays)

    def open_inputs(self, inputs: Inputs, file: ExampleFile) -> Inputs:
        arrays, features = inputs.arrays, self._record_features()
        if self.teacher and inputs.part.split == "train":
            arrays = {**arrays, **self.teacher.arrays(inputs.examples, arrays)}
            features |= self.teacher.features(len(self.task.labels), self.max_seq_length)
        file.write({name: arrays[name] for name in features})
        lengths = arrays["input_mask"].sum(axis=1)
        return dataclasses.replace(inputs, batches=file.open(features, lengths))

    def _record_features(self) -> dict[str, Feature]:
        def per_token(limit: int, limit_source: Any) -> Feature:
            length = self.max_seq_length
            return Feature(length, LENGTH, limit, limit_source, per_token=True)

        return {
            **encoder_features(
                max_seq_length=self.max_seq_length,
                vocab_size=self.config.vocab_size,
                type_vocab_size=self.config.type_vocab_size,
            ),
            "label_ids": per_token(len(self.task.labels), "the number of labels"),
            "label_mask": per_token(2, "a mask"),
        }

    def make_model(self, precision: str) -> keras.Model:
        layers = self.teacher.layers if self.teacher else None
        model = tagging_model(
            self.config,
            len(self.task.labels),
            dtype=precision,
            gives_layers=layers is not None,
            add_bilstm=self.add_bilstm,
        )
        return layers.extend(model) if layers else model

    def whole_model(self, model: keras.Model) -> keras.Model:
        return without_layers(model) if self.teacher and self.teacher.layers else model

    def objective(self, inputs: Inputs) -> Objective:
        parts = tagging_objective(self.teacher.blend() if self.teacher else None)
        layers = self.teacher.layers if self.teacher else None
        return Objective(*(layers.objective(*parts) if layers else parts))

    def decode(self, inputs: Inputs, outputs: Outputs) -> Predictions:
        arrays = inputs.arrays
        logits = collect_padded(outputs, arrays["label_ids"].shape, "logits")
        predictions = tagging_predictions.decode(self.task, inputs.examples, arrays, logits)
        if not self._is_scored(inputs.examples):
            return Predictions(predictions, math.nan)
        known = tagging_predictions.is_known(inputs.examples, self.task)
        return Predictions(predictions, tagging_predictions.loss(arrays, logits, known))

    def _is_scored(self, sentences: Sequence[Sentence]) -> bool:
        return tagging_sentences.has_labels(sentences, self.task.scheme)

    def probabilities(self, arrays: Arrays, outputs: Arrays) -> np.ndarray:
        logits = outputs["logits"]
        return softmax(logits[arrays["input_mask"][:, : logits.shape[1]] > 0], axis=-1)

    def answers(self, inputs: Inputs, predictions: Predictions) -> list[dict[str, Any]]:
        """Returns for each text its `entities`, or where all is tagged or cut, its `words`.

        These are as `predictions.text_entities` and `predictions.text_words` give them.
        """
        (name,) = self.answer_names
        tell = {
            "words": tagging_predictions.text_words,
            "entities": tagging_predictions.text_entities,
        }[name]
        return [
            {name: tell(raw.text, raw.spans, each, self.task.scheme)}
            for raw, each in zip(inputs.examples, predictions.sentences, strict=True)
        ]

    def score(self, inputs: Inputs, predictions: Predictions) -> dict[str, Any]:
        if not self._is_scored(inputs.examples):
            return {}
        scores = tagging_predictions.score(self.task, inputs.examples, predictions.sentences)
        baseline = {"baseline": scores.pop("baseline"), "baseline_metric": self.metric}
        return {**scores, "loss": predictions.loss, **baseline}

    def write(
        self,
        folder: str,
        step: int,
        inputs: Inputs,
        predictions: Predictions,
        scores: Mapping[str, Any],
    ) -> None:
        self._write_predictions(folder, inputs, predictions)
        if scores:
            name = {"dev": "eval", "test": "test"}[inputs.part.split]
            _write_scores(folder, name, step, scores)

    def _write_predictions(self, folder: str, inputs: Inputs, predictions: Predictions) -> None:
        assert self.files is not None
        sentences, split = inputs.examples, inputs.part.split
        path = claim(folder, f"{'dev_' * (split == 'dev')}predictions.txt")
        is_part = split == "dev" and self.files.dev_split is not None
        tags = (each.tags for each in predictions.sentences)
        tagging_sentences.write_predictions(
            path,
            self.files.find("train" if is_part else split),
            self.files.columns,
            zip(sentences, tags, strict=True),
            self.output_scheme or self.task.scheme,
            is_part=is_part,
        )
        logging.info("Wrote the tags of %d sentences to %s.", len(sentences), path)

    def export(self, folder: str, model: keras.Model) -> None:
        # A model that only answers loads no writer of graphs.
        from bert.tasks.tagging.export import export_tagger  # noqa: PLC0415

        export_tagger(folder, model, self.tokenizer, self.task, self.max_seq_length)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureTagging(Tagging):
    """Tagging on the layers of a frozen BERT, which are computed once (paper, table 7).

    Attributes:
      features: Which layers, and what reads them.
    """

    features: Features
    # The tagger that `make_model` has made.
    _made: list[FeatureTagger] = dataclasses.field(default_factory=list, init=False, repr=False)

    def stored(self) -> dict[str, Any]:
        return {
            **super().stored(),
            "feature_based": True,
            "feature_layers": self.features.layers,
            "lstm_size": self.features.lstm_size,
        }

    def with_teacher(
        self, model: TeacherModel, layers: Layers | None, options: TeacherOptions
    ) -> Tagging:
        raise OptionError(
            "teacher",
            Message(
                "not be given with %s, whose features are computed before", Option("feature_based")
            ),
            options.teacher,
            "The teacher itself may be feature-based.",
        )

    def make_inputs(self, part: Part, examples: Sequence[Sentence]) -> Inputs:
        if self.config.is_word_vectors and part != ASKED:
            _tell_found(part, examples, self.tokenizer)
        return super().make_inputs(part, examples)

    def score(self, inputs: Inputs, predictions: Predictions) -> dict[str, Any]:
        scores = super().score(inputs, predictions)
        shares = self._made[0].tagger.layer_shares
        if not scores or shares is None:
            return scores
        return {**scores, "layer_weights": shares}

    def write(
        self,
        folder: str,
        step: int,
        inputs: Inputs,
        predictions: Predictions,
        scores: Mapping[str, Any],
    ) -> None:
        super().write(folder, step, inputs, predictions, scores)
        if shares := scores.get("layer_weights"):
            told = ", ".join(f"{share:.3f}" for share in shares)
            logging.info("Weights of the layers, from the lowest: %s.", told)

    def make_model(self, precision: str) -> keras.Model:
        tagger = FeatureTagger(
            self.config,
            len(self.task.labels),
            layers=self.features.layers,
            lstm_size=self.features.lstm_size,
            dtype=precision,
        )
        self._made[:] = [tagger]
        return tagger.model

    def whole_model(self, model: keras.Model) -> keras.Model:
        return self._made[0].whole_model()

    def open_inputs(self, inputs: Inputs, file: ExampleFile) -> Inputs:
        (tagger,) = self._made
        run_folder, name = os.path.split(file.path)
        folder = (file.is_kept and self.features.folder) or run_folder
        make_folder(folder)
        path = claim(folder, f"{name.removesuffix('.tf_record')}.{tagger.layers}.features.npy")
        words = compact(inputs.arrays)
        batches = FeatureBatches(
            WordFeatures(tagger.encoder, inputs.arrays, path),
            words,
            file.batch_size,
            file.seed,
            trim=file.trim,
        )
        return dataclasses.replace(inputs, arrays=words, batches=batches)


def _tell_found(
    part: Part, sentences: Sequence[Sentence], tokenizer: tokenization.FullTokenizer
) -> None:
    """Logs how many words have vectors, each counted as often as it occurs.

    Args:
      part: Of the files.
      sentences: The words.
      tokenizer: Takes them whole.
    """
    words = [word for sentence in sentences for word in sentence.words]
    pieces = tokenizer.tokenize(" ".join(words))
    whole = sum(word == piece for word, piece in zip(words, pieces, strict=False))
    unknown = pieces.count("[UNK]")
    is_most = unknown > len(pieces) // 2
    tell = logging.warning if is_most else logging.info
    share = 100 / max(len(pieces), 1)
    tell(
        "Of the %d words of the %s, %.1f %% have a vector as they are written, %.1f %% in "
        "lower case; for %.1f %%, that of unknown words stands.",
        len(pieces),
        f"{part.name} set",
        share * whole,
        share * (len(pieces) - whole - unknown),
        share * unknown,
    )


def from_stored(
    stored: Mapping[str, Any],
    config: modeling.BertConfig,
    tokenizer: tokenization.FullTokenizer,
) -> Tagging:
    """Returns the task that `task.json` describes."""
    task = tagging_windows.Task.from_dict(stored_field(stored, "task", dict))
    common = (config, tokenizer, stored_field(stored, "max_seq_length", int), task)
    if not stored.get("feature_based"):
        return Tagging(*common, add_bilstm=stored_bilstm(stored))
    layers = stored_field(stored, "feature_layers", str)
    features = Features(layers, stored_field(stored, "lstm_size", int))
    return FeatureTagging(*common, features=features)


def _write_scores(folder: str, part: str, step: int, scores: Mapping[str, Any]) -> None:
    results = {f"{part}_{name}": scores[name] for name in _SCORES if name in scores}
    name = f"{part}_results"
    save_results(folder, step, {**results, "loss": scores["loss"]}, name=name)
    save_scores(folder, step, scores, name)
    tell = plain_tags.format_report if "tags" in scores else tagging_entities.format_report
    for line in tell(dict(scores)).splitlines():
        logging.info("  %s", line)
