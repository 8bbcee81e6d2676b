"""The task of choosing which of some endings continues a text (paper, section 4.4)."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from bert.files.owned import claim
from bert.files.paths import describe_folder, find_file
from bert.log import logger
from bert.network.heads import choice_objective
from bert.options import MessageError, Option
from bert.tasks.examples import Inputs, Part
from bert.tasks.options import Encoder, Lengths, SwagData
from bert.tasks.split import DevSplit, find_given, split_fields, split_remedy
from bert.tasks.swag import examples as swag_examples
from bert.tasks.swag.ending_chooser import EndingChooser
from bert.tasks.task import ExampleFile, TaskContext, TrainingTask, find_scored, write_scores
from bert.training.loop import Objective
from bert.training.records import Feature
from bert.weights.variables import require_segments


@dataclasses.dataclass(frozen=True)
class MultipleChoice(EndingChooser, TrainingTask):
    """A task of `bert.tasks.task` whose predictions are logits, float32 [N, E].

    Attributes:
      data: The files of the data set; None where nothing is read.
      dev_split: How the dev set is split off the training file; None where it has a file.
    """

    data: SwagData | None = None
    dev_split: DevSplit | None = None

    metric = "accuracy"
    counts_examples = True
    baseline_answer = "always giving the same number"

    def split_fields(self) -> dict[str, Any]:
        return split_fields(self.dev_split)

    def fixed(self, *, is_training: bool) -> Collection[str]:
        # A trained model may serve other lengths, but training cannot resume with another.
        return ("kind", "do_lower_case", *["max_seq_length"] * is_training)

    def read(self, splits: Collection[str]) -> dict[Part, Sequence[swag_examples.Example]]:
        # Without a dev file, the dev set is a part of the training file.
        names = ["train" if self.dev_split and split == "dev" else split for split in splits]
        paths = {name: self._find(name) for name in dict.fromkeys(names)}
        read = {split: self._read(split, path) for split, path in paths.items()}
        if self.dev_split and "dev" in splits:
            # Examples of one context stay together, whatever their endings.
            train = read["train"]
            keys = [[example.context] for example in train]
            labels = [example.label for example in train]
            read["train"], read["dev"] = self.dev_split.divide(paths["train"], train, keys, labels)
        return {Part(split): read[split] for split in splits}

    def _find(self, split: str) -> str:
        assert self.data is not None
        if given := find_given(self.data, split):
            return given
        folder = self.data.data_dir or ""
        path = find_file(folder, swag_examples.FILES[split])
        if path is None:
            raise MessageError(
                "%s must hold one of %s, or %s name the file. Received %s.%s",
                Option("data_dir"),
                swag_examples.FILES[split],
                Option(f"{split}_file"),
                describe_folder(folder),
                split_remedy(split),
            )
        return path

    def _read(self, split: str, path: str) -> list[swag_examples.Example]:
        assert self.data is not None
        with_labels, separator = split != "test", self.data.separator
        read = swag_examples.read(path, with_labels=with_labels, separator=separator)
        counts = sorted({len(example.endings) for example in read})
        span = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        logger.info("Read %d examples of %s endings: %s.", len(read), span, path)
        return read

    def open_inputs(self, inputs: Inputs, file: ExampleFile) -> Inputs:
        file.write(inputs.arrays)
        lengths = inputs.arrays["input_mask"].sum(axis=2).max(axis=1)
        num_choices = inputs.arrays["choice_mask"].shape[1]
        batches = file.open(self._features(num_choices), lengths)
        return dataclasses.replace(inputs, batches=batches)

    def _features(self, num_choices: int) -> dict[str, Feature]:
        endings = "the largest number of endings"
        return {
            **self.encoder_features(num_choices),
            "choice_mask": Feature(num_choices, endings, 2, "a mask"),
            "label_ids": Feature(1, "the task", num_choices, endings),
        }

    def objective(self, inputs: Inputs) -> Objective:
        return Objective(*choice_objective())

    def score(self, inputs: Inputs, predictions: np.ndarray) -> dict[str, Any]:
        known = find_scored(inputs)
        if not known:
            return {}
        arrays = {name: inputs.arrays[name][known] for name in ("choice_mask", "label_ids")}
        scores = swag_examples.score(arrays, predictions[known])
        return {**scores, "baseline_metric": self.metric}

    def write(
        self,
        folder: str,
        step: int,
        inputs: Inputs,
        predictions: np.ndarray,
        scores: Mapping[str, Any],
    ) -> None:
        is_dev = inputs.part.split == "dev"
        path = claim(folder, "dev_predictions.tsv" if is_dev else "predictions.tsv")
        swag_examples.write_predictions(path, inputs.examples, inputs.arrays, predictions)
        logger.info("Wrote %d predictions to %s.", len(predictions), path)
        if not scores:
            return
        write_scores(folder, step, inputs.part, scores, ["accuracy"])
        baseline = scores["baseline"]
        logger.info("Always giving the same number would reach %s %.4f.", self.metric, baseline)


def open_swag(
    context: TaskContext, data: SwagData, lengths: Lengths, encoder: Encoder
) -> MultipleChoice:
    """Returns the task of the options, validated against the model.

    Raises:
      ValueError: where options and model do not fit together.
    """
    require_segments(context.config, "a text and its ending")
    split = context.find_split(data)
    return MultipleChoice.for_run(context, lengths, encoder, data, split)
