"""The task of answering questions about paragraphs (paper, sections 4.2 and 4.3)."""

import dataclasses
import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import keras

from bert.files.owned import claim, remove
from bert.log import logger
from bert.network.heads import span_objective, without_padding
from bert.options import Message, MessageError, Option, OptionError, take
from bert.tasks.distillation import IS_LABELED, StepTeacher, Teacher, TeacherModel, teacher_name
from bert.tasks.examples import InputRow, Inputs, Part
from bert.tasks.options import Encoder, Lengths
from bert.tasks.options import Teacher as TeacherOptions
from bert.tasks.squad import answers as squad_answers
from bert.tasks.squad import scores as squad_scores
from bert.tasks.squad import windows as squad_windows
from bert.tasks.squad.options import DecodingOptions, SquadData
from bert.tasks.squad.question_answerer import (
    LENGTHS,
    QuestionAnswerer,
    WindowInputs,
    num_processes,
)
from bert.tasks.squad.questions import SquadExample, read_squad_examples
from bert.tasks.task import ExampleFile, TaskContext, TrainingTask
from bert.training.batches import Batches
from bert.training.loop import Objective
from bert.training.progress import save_scores
from bert.training.records import LENGTH, Feature, Records
from bert.weights.variables import require_segments

# Faithful: the examples are shuffled with this seed, whatever the seed of the run.
SHUFFLE_SEED = 12345

_LOGITS = ("start_logits", "end_logits")


@dataclasses.dataclass(frozen=True)
class QuestionAnswering(QuestionAnswerer, TrainingTask):
    """The task of question answering, which implements the protocols of `bert.tasks.task`.

    Attributes:
      files: The file of each split; empty where none is read.
      scored_options: The options in use that need answers in the file of the dev set.
    """

    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    scored_options: Sequence[str] = ()

    metric = "f1"
    counts_examples = False
    baseline_answer = "never answering"

    @classmethod
    def open(
        cls,
        context: TaskContext,
        data: SquadData,
        decoding: DecodingOptions,
        lengths: Lengths,
        encoder: Encoder,
        scored_options: Sequence[str] = (),
    ) -> "QuestionAnswering":
        """Returns the task of the options, checked against the model.

        Args:
          context: The model, and the use that the run makes of it.
          data: The files, and how they are split into windows.
          decoding: The options that choose among spans.
          lengths: The length of windows.
          encoder: The layers between the encoder and the head.
          scored_options: The options in use that need answers in the file of the dev set.

        Raises:
          ValueError: if options and model do not fit together.
        """
        require_segments(context.config, "a question and its paragraph")
        name, given = "version_2_with_negative", decoding.version_2_with_negative
        theirs = context.stored.get(name, given)
        if context.export_formats and theirs != given:
            how = f"trained with{'' if theirs else 'out'} it"
            raise OptionError(name, f"be {theirs} to export a model that was {how}", given)
        files = {"train": data.train_file, "dev": data.predict_file}
        return cls.for_run(
            context,
            lengths,
            encoder,
            data.doc_stride,
            data.max_query_length,
            take(DecodingOptions, decoding),
            {split: path for split, path in files.items() if path},
            scored_options,
        )

    def fixed(self, *, is_training: bool) -> Collection[str]:
        # A trained model may answer with other windows and decoding.
        training_only = [*LENGTHS, "version_2_with_negative"]
        return ("kind", "do_lower_case", *training_only * is_training)

    def read(self, splits: Collection[str]) -> dict[Part, Sequence[SquadExample]]:
        examples: dict[Part, Sequence[SquadExample]] = {}
        for split in splits:
            is_training = split == "train"
            read = read_squad_examples(
                self.files[split], is_training, self.decoding.version_2_with_negative
            )
            if is_training:
                random.Random(SHUFFLE_SEED).shuffle(read)
                if self.unlabeled:
                    num_unlabeled = len(self.unlabeled)
                    logger.info("Read %d questions that the teacher answers.", num_unlabeled)
                    read += self.unlabeled
            else:
                self._check_golds(self.files[split], read)
            examples[Part(split)] = read
        return examples

    def _check_golds(self, path: str, questions: Sequence[SquadExample]) -> None:
        golds = self.golds(questions)
        if self.scored_options and not golds:
            raise MessageError(
                "%s needs answers in %s to score with. There are none in %r.",
                *map(Option, (self.scored_options[0], "predict_file")),
                path,
            )
        num_questions = len({question.qas_id for question in questions})
        if golds and len(golds) < num_questions:
            remedy = Message("set %s", Option("version_2_with_negative"))
            if self.decoding.version_2_with_negative:
                remedy = Message("`is_impossible` must be true")
            logger.warning(
                "%d questions are not scored, as the file has no answer to them; for those that "
                "have none, as in SQuAD 2.0, %s.",
                num_questions - len(golds),
                remedy,
            )

    def step_targets(self, model: keras.Model) -> dict[str, Any]:
        """Returns by name the logits of a teacher that are learned in the training step."""
        return {name: without_padding(model.output[name], model.input) for name in _LOGITS}

    def with_teacher(
        self, model: TeacherModel, in_step: StepTeacher | None, options: TeacherOptions
    ) -> "QuestionAnswering":
        """Returns the task of a student that learns from another model.

        Args:
          model: The teacher.
          in_step: The logits of the teacher, and its layers that the student learns, if any.
          options: The weights of the teacher, and its file of questions without answers.

        Raises:
          ValueError: if only one of both finds that a question has no answer, or the questions
            cannot be read.
        """
        name = "version_2_with_negative"
        theirs = model.task.decoding.version_2_with_negative
        if theirs != self.decoding.version_2_with_negative:
            must = Message("be trained with %s, as the student is", Option(name, not theirs))
            received = Message("%r, trained with %s", options.teacher, Option(name, theirs))
            raise OptionError("teacher", must, received)
        return dataclasses.replace(self, teacher=Teacher.of(options, in_step, self))

    def parse_unlabeled(self, rows: Mapping[int, InputRow]) -> list[SquadExample]:
        """Returns the questions of rows by lines, without answers, for training."""
        questions = self.parse([*rows.values()])
        for question in questions:
            question.orig_answer_text, question.is_impossible = "", True
            question.start_position = question.end_position = -1
        return questions

    def make_inputs(self, part: Part, examples: Sequence[SquadExample]) -> WindowInputs:
        inputs = super().make_inputs(part, examples)
        if part.split != "train":
            return inputs
        if not len(inputs.table):
            raise OptionError(
                "train_file",
                "have paragraphs with words",
                remedy=f"{self.files['train']!r} has none.",
            )
        if not self.unlabeled:
            return inputs
        num_labeled = len(examples) - len(self.unlabeled)
        table = dataclasses.replace(inputs.table, num_labeled=num_labeled)
        return dataclasses.replace(inputs, table=table)

    def open_inputs(self, inputs: Inputs, file: ExampleFile) -> WindowInputs:
        assert isinstance(inputs, WindowInputs)
        table = inputs.table
        table.log_summary()
        squad_windows.write_features(file.path, table, num_processes(inputs.examples))
        features = self.encoder_features()
        if inputs.part.split == "train":
            position = Feature(1, "the task", self.max_seq_length, LENGTH)
            features |= {"start_positions": position, "end_positions": position}
            if table.num_labeled is not None:
                features[IS_LABELED] = Feature(1, "the format", 2, "a bit")
            batches = file.open(features, table.lengths())
            return dataclasses.replace(inputs, batches=batches)
        if not len(table):
            return inputs
        # Faithful: padding takes places among the n best, so by default none of it is removed.
        buckets = self.decoding.bucket_predictions
        lengths = table.lengths() if buckets else None
        batches = Batches(
            Records([file.path]), features, file.batch_size, lengths=lengths, trim=buckets
        )
        return dataclasses.replace(inputs, batches=batches, padding_competes=not buckets)

    def objective(self, inputs: Inputs) -> Objective:
        blends = {}
        if self.teacher:
            blends = {name: self.teacher.blend(name=teacher_name(name)) for name in _LOGITS}
        return self.teach(*span_objective(blends))

    def can_score(self, examples: Sequence[SquadExample]) -> bool:
        return not self.scored_options or bool(self.golds(examples))

    def golds(self, questions: Sequence[SquadExample]) -> dict[str, list[str]]:
        """Returns the gold answers of the questions that can be scored."""
        is_v2 = self.decoding.version_2_with_negative
        # The last of several questions with the same id counts, as among the predictions.
        by_id = {question.qas_id: question.answers for question in questions}
        return {
            qas_id: [answer.text for answer in answers]
            for qas_id, answers in by_id.items()
            if answers or (answers == () and is_v2)
        }

    def score(
        self, inputs: Inputs, predictions: Sequence[squad_answers.Prediction]
    ) -> dict[str, Any]:
        """Returns the official scores, and as `baseline` the F1 of never answering."""
        questions = inputs.examples
        golds = self.golds(questions)
        if not golds:
            return {}
        if self.decoding.version_2_with_negative:
            scores = self._score_v2(golds, predictions)
            share = scores.get("NoAns_total", 0) / scores["total"]
        else:
            texts = {prediction.qas_id: prediction.text for prediction in predictions}
            # As in the official script, every question counts, also with the id of another one.
            answered = [(q.qas_id, [a.text for a in q.answers]) for q in questions if q.answers]
            scores, share = squad_scores.evaluate_v1(answered, texts), 0.0
        return {**scores, "baseline": 100.0 * share, "baseline_metric": self.metric}

    def _score_v2(
        self,
        golds: Mapping[str, Sequence[str]],
        predictions: Sequence[squad_answers.Prediction],
    ) -> dict[str, float]:
        odds = {p.qas_id: p.null_odds for p in predictions if p.null_odds is not None}
        # Departs: the official script reads answers that are empty above the threshold of the run,
        # so that it cannot find a better threshold above. With the best texts and this threshold,
        # the scores are the same.
        texts = {prediction.qas_id: prediction.best_text for prediction in predictions}
        threshold = self.decoding.null_score_diff_threshold
        return squad_scores.evaluate_v2(golds, texts, odds, threshold)

    def write(
        self,
        folder: str,
        step: int,
        inputs: Inputs,
        predictions: Sequence[squad_answers.Prediction],
        scores: Mapping[str, Any],
    ) -> None:
        squad_answers.log_summary(predictions)
        is_v2 = self.decoding.version_2_with_negative
        if not is_v2:
            remove(folder, ["null_odds.json"])
        squad_answers.write_answers(
            predictions,
            claim(folder, "predictions.json"),
            claim(folder, "nbest_predictions.json"),
            claim(folder, "null_odds.json") if is_v2 else None,
        )
        if official := squad_scores.without_baseline(scores):
            save_scores(folder, step, official)
            logger.info("***** Eval results at step %d *****", step)
            for name, value in official.items():
                logger.info("  %s = %s", name, value if isinstance(value, int) else f"{value:.4f}")
