"""The task of giving texts, or pairs of texts, labels or a number (paper, section 4.1)."""

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import keras
import numpy as np

import modeling
import tokenization
from bert.files.inputs import Input
from bert.files.outputs import make_folder
from bert.files.owned import claim
from bert.log import logger
from bert.network.heads import classification_objective, classifier_model
from bert.options import MessageError, Option, OptionError
from bert.tasks.bilstm import bilstm_fields, stored_bilstm
from bert.tasks.classification import examples as classification_examples
from bert.tasks.classification import results as classification_results
from bert.tasks.classification.examples import DataSet, InputExample
from bert.tasks.classification.teacher import Teacher, order_of_labels
from bert.tasks.distillation import Layers, TeacherModel, read_unlabeled, without_layers
from bert.tasks.examples import find_labelled
from bert.tasks.options import Teacher as TeacherOptions
from bert.tasks.split import DevSplit, split_fields, stored_split
from bert.tasks.task import (
    ASKED,
    Arrays,
    ExampleFile,
    Inputs,
    Outputs,
    Part,
    Row,
    collect,
    stored_field,
)
from bert.training.batches import Feature, encoder_features
from bert.training.objective import Objective
from bert.training.scores import save_results, save_scores


@dataclasses.dataclass(frozen=True)
class Classification:
    """Implements the protocols of `bert.tasks.task`; its predictions are logits, float32 [B, C].

    Attributes:
      config: The shape of the model.
      tokenizer: That of the model.
      max_seq_length: Where texts are cut, in tokens, with specials.
      task: What the model decides.
      data_set: Where examples are read; None for a model that only answers.
      class_weights: "balanced" lets all labels count alike, "none" all examples.
      columns: How files of the training's form are read, by the names of flags.
      dev_split: How the dev set was split off the training file, if it was.
      teacher: The model that is learned from, beside the labels, if there is one.
      add_bilstm: Whether a BiLSTM stands on the encoder.
    """

    config: modeling.BertConfig
    tokenizer: tokenization.FullTokenizer
    max_seq_length: int
    task: classification_examples.Task
    data_set: DataSet | None = None
    class_weights: str = "none"
    columns: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dev_split: DevSplit | None = None
    teacher: Teacher | None = None
    add_bilstm: bool = False

    kind = "classification"

    def __post_init__(self) -> None:
        if self.class_weights != "balanced":
            return
        balanced = Option("class_weights", "balanced")
        if self.task.task_type != "classification":
            raise MessageError(
                "%s needs a task of one label per example. Received task %r, which is %s.",
                *(balanced, self.task.name, self.task.task_type),
            )
        if self.teacher and self.teacher.unlabeled:
            raise MessageError(
                "%s counts labels, which texts of %s have not. Leave one of them out.",
                *(balanced, Option("unlabeled_file")),
            )

    @classmethod
    def from_stored(
        cls,
        stored: Mapping[str, Any],
        config: modeling.BertConfig,
        tokenizer: tokenization.FullTokenizer,
    ) -> "Classification":
        """Returns the task that `task.json` describes."""
        task = classification_examples.Task.from_dict(stored_field(stored, "task", dict))
        columns = stored_field({"columns": {}, **stored}, "columns", dict)
        return cls(
            config,
            tokenizer,
            stored_field(stored, "max_seq_length", int),
            task,
            columns=columns,
            dev_split=stored_split(stored),
            add_bilstm=stored_bilstm(stored),
        )

    @property
    def metric(self) -> str:
        return self.task.metric

    @property
    def counts_examples(self) -> bool:
        return self.task.metric == "accuracy"

    @property
    def guess(self) -> str:
        kinds = {"regression": "the mean", "multi_label": "the same labels"}
        return f"always giving {kinds.get(self.task.task_type, 'the same answer')}"

    @property
    def fields(self) -> tuple[str, ...]:
        return ("text_a", "text_b") if self.task.is_pair else ("text_a",)

    @property
    def answer_names(self) -> tuple[str, ...]:
        key = classification_results.KEYS[self.task.task_type]
        return (key,) if self.task.task_type == "regression" else (key, "probabilities")

    def stored(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "task": self.task.to_dict(),
            "do_lower_case": self.tokenizer.basic_tokenizer.do_lower_case,
            "max_seq_length": self.max_seq_length,
            **({"columns": dict(self.columns)} if self.columns else {}),
            **split_fields(self.dev_split),
            **bilstm_fields(add_bilstm=self.add_bilstm),
        }

    def fixed(self, *, is_training: bool) -> Collection[str]:
        # A trained model may serve other lengths, but training cannot go on with another.
        return ("kind", "task", "do_lower_case", *["max_seq_length"] * is_training)

    def read(self, splits: Collection[str]) -> dict[Part, Sequence[InputExample]]:
        assert self.data_set is not None
        self.data_set.check(list(splits))
        examples: dict[Part, Sequence[InputExample]] = {}
        for split in splits:
            for suffix, found in self.data_set.read(split).items():
                if not found:
                    raise MessageError(
                        "The %s%s set in %s must have examples. There are none in %r.",
                        *(split, suffix, Option("data_dir"), self.data_set.data_dir),
                    )
                logger.info("Read %d examples of the %s%s set.", len(found), split, suffix)
                examples[Part(split, suffix)] = found
        if self.teacher and self.teacher.unlabeled and "train" in splits:
            logger.info("Read %d examples that the teacher labels.", len(self.teacher.unlabeled))
            examples[Part("train")] = [*examples[Part("train")], *self.teacher.unlabeled]
        return examples

    def parse(self, rows: Sequence[Row]) -> list[InputExample]:
        return [
            InputExample(str(number), *(row[name] for name in self.fields))
            for number, row in enumerate(rows)
        ]

    def with_teacher(
        self, model: TeacherModel, layers: Layers | None, options: TeacherOptions
    ) -> "Classification":
        """Returns the task of a student that learns from another model.

        Args:
          model: The teacher.
          layers: The layers of it that the student learns.
          options: The weights of the teacher, and its file of texts without labels.

        Raises:
          ValueError: where the teacher decides something else, or the texts cannot be read.
        """
        order = order_of_labels(self.task, model.task.task, options.teacher or "")
        unlabeled = []
        if options.unlabeled_file:
            rows = read_unlabeled(options.unlabeled_file, self.fields, self.columns)
            unlabeled = self.parse_unlabeled(rows)
        teacher = Teacher(
            lambda examples: model.decide(examples)[1][:, order],
            unlabeled,
            options.teacher_weight,
            options.distillation_temperature,
            layers,
        )
        return dataclasses.replace(self, teacher=teacher)

    def parse_unlabeled(self, rows: Sequence[Input]) -> list[InputExample]:
        """Returns the examples of rows whose answers are not known, named after their lines.

        Blank lines of a plain text are none.
        """
        rows = [
            each
            for each in rows
            if each.row and any(str(text).strip() for text in each.row.values())
        ]
        if not rows:
            raise OptionError("unlabeled_file", "hold texts", remedy="All its lines are blank.")
        parsed = self.parse([each.row or {} for each in rows])
        return [
            dataclasses.replace(example, guid=f"unlabeled-{each.line}")
            for example, each in zip(parsed, rows, strict=True)
        ]

    def make_inputs(self, part: Part, examples: Sequence[InputExample]) -> Inputs:
        arrays = classification_examples.make_features(
            examples, self.task, self.tokenizer, self.max_seq_length, tells=part != ASKED
        )
        return Inputs(part, examples, arrays)

    def open_inputs(self, inputs: Inputs, file: ExampleFile) -> Inputs:
        arrays, features = inputs.arrays, self._features()
        if self.teacher and inputs.part.split == "train":
            arrays = {**arrays, **self.teacher.arrays(inputs.examples)}
            features |= self.teacher.features(self.task.num_outputs)
        file.write(arrays)
        lengths = arrays["input_mask"].sum(axis=1)
        return dataclasses.replace(inputs, batches=file.open(features, lengths))

    def _features(self) -> dict[str, Feature]:
        count = self.task.num_outputs
        labels = {
            "classification": Feature(1, "the task", count, "the number of labels"),
            "multi_label": Feature(count, "the number of labels", 2, "a bit"),
            "regression": Feature(1, "the task"),
        }
        return {
            **encoder_features(
                max_seq_length=self.max_seq_length,
                vocab_size=self.config.vocab_size,
                type_vocab_size=self.config.type_vocab_size,
            ),
            "label_ids": labels[self.task.task_type],
            "is_real_example": Feature(1, "the format", 2, "a bit"),
        }

    def make_model(self, precision: str) -> keras.Model:
        layers = self.teacher.layers if self.teacher else None
        model = classifier_model(
            self.config,
            self.task.num_outputs,
            dtype=precision,
            gives_layers=layers is not None,
            add_bilstm=self.add_bilstm,
        )
        return layers.extend(model) if layers else model

    def whole_model(self, model: keras.Model) -> keras.Model:
        return without_layers(model) if self.teacher and self.teacher.layers else model

    def objective(self, inputs: Inputs) -> Objective:
        weights = None
        if self.class_weights == "balanced":
            label_ids = inputs.arrays["label_ids"]
            weights = classification_results.balanced_weights(self.task, label_ids)
        blend = self.teacher.blend(self.task.task_type) if self.teacher else None
        parts = classification_objective(self.task.task_type, weights, blend)
        layers = self.teacher.layers if self.teacher else None
        return Objective(*(layers.objective(*parts) if layers else parts))

    def decode(self, inputs: Inputs, outputs: Outputs) -> np.ndarray:
        return collect(outputs)["logits"]

    def probabilities(self, arrays: Arrays, outputs: Arrays) -> np.ndarray:
        return classification_results.probabilities(self.task, outputs["logits"])

    def answers(self, inputs: Inputs, predictions: np.ndarray) -> list[dict[str, Any]]:
        """Returns for each example what `results.decode` does."""
        return classification_results.decode(self.task, predictions)

    def score(self, inputs: Inputs, predictions: np.ndarray) -> dict[str, Any]:
        known = find_labelled(inputs.examples)
        # Those of GLUE's test sets are secret.
        if not known:
            return {}
        if len(known) < len(inputs.examples):
            logger.warning(
                "Scored are the %d of %d %s examples that have a label.",
                len(known),
                len(inputs.examples),
                inputs.part.split,
            )
        label_ids = inputs.arrays["label_ids"][known]
        scores = classification_results.score(self.task, predictions[known], label_ids)
        baseline = classification_results.baseline(self.task, label_ids)
        return {**scores, "baseline": baseline, "baseline_metric": self.metric}

    def write(
        self,
        folder: str,
        step: int,
        inputs: Inputs,
        predictions: np.ndarray,
        scores: Mapping[str, Any],
    ) -> None:
        if inputs.part.split == "dev":
            self._write_table(folder, f"dev_predictions{inputs.part.suffix}", inputs, predictions)
        else:
            self._write_predictions(folder, inputs, predictions)
        if scores:
            self._write_scores(folder, step, inputs.part, scores)

    def _write_scores(self, folder: str, step: int, part: Part, scores: Mapping[str, Any]) -> None:
        # Faithful: the names of the original's eval_results.txt. All other scores are in the JSON.
        is_regression = self.task.task_type == "regression"
        names = ("pearson", "spearman") if is_regression else ("accuracy",)
        kind = {"dev": "eval", "test": "test"}[part.split]
        results = {f"{kind}_{name}": scores[name] for name in (*names, "loss")}
        results["loss"] = scores["loss"]
        save_results(folder, step, results, name=f"{kind}_results{part.suffix}")
        save_scores(folder, step, scores, f"{kind}_results{part.suffix}")
        for line in classification_results.format_scores(self.task.labels, scores).splitlines():
            logger.info("  %s", line)
        logger.info("%s", classification_results.describe_baseline(self.task, scores))

    def _write_predictions(self, folder: str, inputs: Inputs, logits: np.ndarray) -> None:
        suffix = inputs.part.suffix
        results = claim(folder, f"test_results{suffix}.tsv")
        classification_results.write_test_results(results, self.task, logits)
        self._write_table(folder, f"predictions{suffix}", inputs, logits)
        assert self.data_set is not None
        if name := self.data_set.submission_names.get(suffix):
            submission = claim(folder, f"submission/{name}")
            make_folder(os.path.dirname(submission))
            classification_results.write_submission(submission, self.task, logits)
            logger.info("Wrote %s, as GLUE wants it.", submission)

    def _write_table(self, folder: str, name: str, inputs: Inputs, logits: np.ndarray) -> None:
        path = claim(folder, f"{name}.tsv")
        classification_results.write_predictions(path, self.task, inputs.examples, logits)
        logger.info("Wrote %d predictions to %s.", len(logits), path)

    def export(self, folder: str, model: keras.Model) -> None:
        # A model that only answers loads no writer of graphs.
        from bert.tasks.classification.export import export_classifier  # noqa: PLC0415

        export_classifier(
            folder,
            model,
            self.tokenizer,
            labels=self.task.labels,
            task_type=self.task.task_type,
            is_pair=self.task.is_pair,
            max_seq_length=self.max_seq_length,
        )
