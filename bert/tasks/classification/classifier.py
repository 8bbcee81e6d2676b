"""The task of giving texts, or pairs of texts, labels or a number (paper, section 4.1)."""

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from bert.files.outputs import make_folder
from bert.files.owned import claim
from bert.log import logger
from bert.network.heads import EXAMPLE_WEIGHTS, classification_objective
from bert.options import MessageError, Option, OptionError
from bert.tasks.classification import results as classification_results
from bert.tasks.classification.examples import DataSet, InputExample, open_data_set
from bert.tasks.classification.inputs import WINDOW_OF, count_windows, first_rows
from bert.tasks.classification.long_texts import CUT_AT_ENDS
from bert.tasks.classification.options import CUSTOM, ClassificationData
from bert.tasks.classification.text_classifier import (
    TextClassifier,
    stored_long_texts,
    stored_temperature,
)
from bert.tasks.distillation import (
    IS_LABELED,
    TEACHER_LOGITS,
    AnsweringTeacher,
    StepTeacher,
    TeacherModel,
    order_of_labels,
)
from bert.tasks.examples import InputRow, Inputs, Part
from bert.tasks.options import Encoder, Lengths, Teacher
from bert.tasks.split import DevSplit, split_fields
from bert.tasks.task import ExampleFile, TaskContext, TrainingTask, find_scored, write_scores
from bert.training.loop import Objective
from bert.training.records import Feature
from bert.weights.variables import require_segments


class ClassificationTeacher(AnsweringTeacher):
    """A teacher of a classifier; `answer` returns logits, float32 [N, C]."""

    def features(self, num_outputs: int) -> dict[str, Feature]:
        """Returns the additional features of training."""
        return {
            TEACHER_LOGITS: Feature(num_outputs, "the number of labels"),
            IS_LABELED: Feature(1, "the format", 2, "a bit"),
        }

    def arrays(self, examples: Sequence[InputExample]) -> dict[str, np.ndarray]:
        """Returns the values of `features` for examples, the unlabeled ones at the end."""
        count = len(examples) - len(self.unlabeled)
        is_labeled = np.arange(len(examples)) < count
        return {
            TEACHER_LOGITS: self.answer(examples),
            IS_LABELED: is_labeled[:, None].astype(np.int32),
        }


@dataclasses.dataclass(frozen=True)
class Classification(TextClassifier, TrainingTask):
    """A task of `bert.tasks.task` whose predictions are logits, float32 [B, C].

    Attributes:
      data_set: The examples; None where none are read.
      class_weights: "balanced" gives all labels the same weight, "none" all examples.
      dev_split: How the dev set was split off the training file; None where it has a file.
      calibrates: Whether the run fits the temperature to the dev set.
      label_smoothing: The share of the loss in which all labels count alike.
    """

    data_set: DataSet | None = None
    class_weights: str = "none"
    dev_split: DevSplit | None = None
    teacher: ClassificationTeacher | None = dataclasses.field(default=None, kw_only=True)
    calibrates: bool = False
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.calibrates and self.task.task_type == "regression":
            must = "be given for a task of labels: a number has no probability"
            raise OptionError("calibrate", must, remedy=f"Task {self.task.name!r} is regression.")
        balanced = Option("class_weights", "balanced")
        is_balanced = self.class_weights == "balanced"
        given = [Option("label_smoothing_factor")] * bool(self.label_smoothing)
        given += [balanced] * is_balanced
        if given and self.task.task_type != "classification":
            raise MessageError(
                "%s needs a task of one label per example. Received task %r, which is %s.",
                given[0],
                self.task.name,
                self.task.task_type,
            )
        if is_balanced and self.unlabeled:
            raise MessageError(
                "%s counts labels, which texts of %s have not. Leave one of them out.",
                balanced,
                Option("unlabeled_file"),
            )

    @property
    def metric(self) -> str:
        return self.task.metric

    @property
    def counts_examples(self) -> bool:
        return self.task.metric == "accuracy"

    @property
    def baseline_answer(self) -> str:
        kinds = {"regression": "the mean", "multi_label": "the same labels"}
        return f"always giving {kinds.get(self.task.task_type, 'the same answer')}"

    def split_fields(self) -> dict[str, Any]:
        return split_fields(self.dev_split)

    def fixed(self, *, is_training: bool) -> Collection[str]:
        # A trained model may serve other lengths, but training cannot resume with another, and a
        # temperature is that of the length.
        needs_length = is_training or self.calibrates
        return ("kind", "task", "do_lower_case", *["max_seq_length"] * needs_length)

    def read(self, splits: Collection[str]) -> dict[Part, Sequence[InputExample]]:
        assert self.data_set is not None
        self.data_set.check(list(splits))
        examples: dict[Part, Sequence[InputExample]] = {}
        for split in splits:
            for suffix, found in self.data_set.read(split).items():
                logger.info("Read %d examples of the %s%s set.", len(found), split, suffix)
                examples[Part(split, suffix)] = found
        if self.unlabeled and "train" in splits:
            logger.info("Read %d examples that the teacher labels.", len(self.unlabeled))
            examples[Part("train")] = [*examples[Part("train")], *self.unlabeled]
        return examples

    def with_teacher(
        self, model: TeacherModel, in_step: StepTeacher | None, options: Teacher
    ) -> "Classification":
        """Returns the task of a student that learns from another model.

        Args:
          model: The teacher.
          in_step: The layers of the teacher that the student learns, if any.
          options: The weight of the teacher, and the file of texts without labels.

        Raises:
          ValueError: where the teacher has other labels, or the texts cannot be read.
        """
        order = order_of_labels(self.task.decides, model.task.task.decides, options.teacher)
        teacher = ClassificationTeacher.of(
            options, in_step, self, answer=lambda each: model.decide(each)[1][:, order]
        )
        return dataclasses.replace(self, teacher=teacher)

    def parse_unlabeled(self, rows: Mapping[int, InputRow]) -> list[InputExample]:
        """Returns the examples of rows by lines, without labels; skips blank rows."""
        texts = {line: row for line, row in rows.items() if "".join(row.values()).strip()}
        parsed = self.parse([*texts.values()])
        return [
            dataclasses.replace(example, guid=f"unlabeled-{line}")
            for example, line in zip(parsed, texts, strict=True)
        ]

    def make_inputs(self, part: Part, examples: Sequence[InputExample]) -> Inputs:
        if self.calibrates and part == Part("dev"):
            classification_results.check_enough(examples)
        return super().make_inputs(part, examples)

    def label_ids(self, inputs: Inputs) -> np.ndarray:
        """Returns the labels of the examples, as `make_features` does those of rows."""
        return np.asarray(inputs.arrays["label_ids"][first_rows(inputs.arrays)])

    def open_inputs(self, inputs: Inputs, file: ExampleFile) -> Inputs:
        arrays, features = {**inputs.arrays}, self._features()
        rows: Any = arrays.pop(WINDOW_OF, np.arange(inputs.num_rows)[:, None])[:, 0]
        is_training = inputs.part.split == "train"
        if self.teacher and is_training:
            taught = self.teacher.arrays(inputs.examples)
            arrays |= {name: values[rows] for name, values in taught.items()}
            features |= self.teacher.features(self.task.num_outputs)
        if is_training and (counts := count_windows(inputs.arrays)) is not None:
            arrays[EXAMPLE_WEIGHTS] = (1.0 / counts[rows, None]).astype(np.float32)
            features[EXAMPLE_WEIGHTS] = Feature(1, "the format", is_weight=True)
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
            **self.encoder_features(),
            "label_ids": labels[self.task.task_type],
            "is_real_example": Feature(1, "the format", 2, "a bit"),
        }

    def objective(self, inputs: Inputs) -> Objective:
        weights = None
        if self.class_weights == "balanced":
            label_ids = self.label_ids(inputs)
            weights = classification_results.balanced_weights(self.task, label_ids)
        teacher, task_type, smoothing = self.teacher, self.task.task_type, self.label_smoothing
        blended = teacher.blend(task_type) if teacher else None
        return self.teach(*classification_objective(task_type, weights, blended, smoothing))

    def score(self, inputs: Inputs, predictions: np.ndarray) -> dict[str, Any]:
        known = find_scored(inputs)
        # The labels of GLUE's test sets are secret.
        if not known:
            return {}
        label_ids = self.label_ids(inputs)[known]
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
        part = inputs.part
        name = "dev_predictions" if part.split == "dev" else "predictions"
        path = claim(folder, f"{name}{part.suffix}.tsv")
        classification_results.write_predictions(path, self.task, inputs.examples, predictions)
        logger.info("Wrote %d predictions to %s.", len(predictions), path)
        if part.split == "test":
            self._write_test_files(folder, part.suffix, predictions)
        if not scores:
            return
        # Faithful: the names of the original's eval_results.txt.
        names = ["pearson", "spearman"] if self.task.task_type == "regression" else ["accuracy"]
        table = classification_results.format_scores(self.task.labels, scores)
        write_scores(folder, step, part, scores, names, table)
        logger.info("%s", classification_results.describe_baseline(self.task, scores))

    def _write_test_files(self, folder: str, suffix: str, logits: np.ndarray) -> None:
        results = claim(folder, f"test_results{suffix}.tsv")
        classification_results.write_test_results(results, self.task, logits)
        assert self.data_set is not None
        if name := self.data_set.submission_names.get(suffix):
            submission = claim(folder, f"submission/{name}")
            make_folder(os.path.dirname(submission))
            classification_results.write_submission(submission, self.task, logits)
            logger.info("Wrote %s, as GLUE expects it.", submission)


def open_classification(
    context: TaskContext, data: ClassificationData, lengths: Lengths, encoder: Encoder
) -> Classification:
    """Returns the task that the options name, checked against the model.

    Raises:
      ValueError: where options, files and model do not fit.
    """
    if data.calibrate and "dev" not in context.splits:
        raise MessageError("%s needs %s.", *map(Option, ("calibrate", "do_eval")))
    dev_split = context.find_split(data)
    data_set = _open_data_set(context, data, dev_split)
    trained = CUT_AT_ENDS if context.is_training else stored_long_texts(context.stored)
    if data_set.task.is_pair:
        require_segments(context.config, "a pair of texts")
    return Classification.for_run(
        context,
        lengths,
        encoder,
        data_set.task,
        data_set,
        data.class_weights,
        dev_split,
        columns=data_set.columns,
        temperature=1.0 if context.is_training else stored_temperature(context.stored),
        calibrates=data.calibrate,
        long_texts=data.long_texts(trained),
        label_smoothing=data.label_smoothing_factor,
    )


def _open_data_set(
    context: TaskContext, data: ClassificationData, dev_split: DevSplit | None
) -> DataSet:
    name = (data.task_name or (CUSTOM if data.files else "")).lower()
    if name != CUSTOM:
        data.check_known(name)
        assert data.data_dir is not None
        return open_data_set(name, data.data_dir, data.xnli_language)
    labels = None
    if not context.is_training:
        known = context.stored.get("task", {})
        if data.labels is None:
            # The training file of the model may be gone.
            labels = known.get("labels") or None
        if data.metric is None and known.get("task_type") == data.task_type:
            data = dataclasses.replace(data, metric=known.get("metric"))
    from bert.tasks.classification.own_files import CustomDataSet  # noqa: PLC0415

    return CustomDataSet(data, dev_split, labels)
