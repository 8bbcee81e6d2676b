"""Recipes: what a run is made from, as groups of options side by side."""

import dataclasses
import itertools
import os
from collections.abc import Mapping
from typing import Any, ClassVar

from bert.export.formats import ExportOptions
from bert.options import (
    Message,
    Option,
    changed_options,
    joined,
    option,
    read_grid,
    shaping_options,
)
from bert.pretraining.options import PretrainingEvaluation, PretrainingSchedule, RecordFiles
from bert.tasks.options import (
    DataFiles,
    Encoder,
    Evaluation,
    Lengths,
    Prediction,
    Schedule,
    Teacher,
)
from bert.tasks.squad.options import DecodingOptions, SquadData, check_windows
from bert.tasks.tagging.options import FeatureOptions, TagOptions
from bert.training.options import Compute, Output
from bert.weights.options import ModelSource, VocabularySource


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingStep:
    """Whether a model is trained."""

    GROUP = "steps"

    do_train: bool = option(False, "Train the model.")

    def describe(self) -> Message:
        """Returns what is done."""
        return joined([Option(name, True) for name, value in vars(self).items() if value], " ")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreTrainingSteps(TrainingStep):
    """What is done with a model that is pre-trained."""

    GROUP = "steps"

    do_eval: bool = option(False, Message("Evaluate; with %s, after training.", Option("do_train")))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Steps(TrainingStep):
    """What is done with a model that is fine-tuned, whose predictions are scored."""

    GROUP = "steps"

    do_predict: bool = option(
        False, Message("Predict; with %s, after training.", Option("do_train"))
    )
    do_export: bool = option(
        False,
        "Export the model to <output_dir>/<format>, for use without this project. A SavedModel, "
        "the default format, takes raw text.",
    )

    @property
    def scores(self) -> bool:
        """Whether a dev set is scored."""
        return self.do_predict

    @property
    def splits(self) -> dict[str, bool]:
        """For each part of the data, by name, whether it is read."""
        return {"train": self.do_train, "dev": self.do_predict}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluatedSteps(Steps):
    """What is done with a model that is evaluated on a dev set and predicts a test set."""

    GROUP = "steps"

    do_eval: bool = option(
        False,
        Message("Evaluate on the dev set; with %s, during and after training.", Option("do_train")),
    )
    do_predict: bool = option(
        False, Message("Predict the test set; with %s, after training.", Option("do_train"))
    )

    @property
    def scores(self) -> bool:
        """Whether a dev set is scored."""
        return self.do_eval

    @property
    def splits(self) -> dict[str, bool]:
        """For each part of the data, by name, whether it is read."""
        return {"train": self.do_train, "dev": self.do_eval, "test": self.do_predict}


# The order in which `run.json` and the card of a model name options; others follow.
_FIRST = (
    *("check", "bert_config_file", "init_checkpoint", "output_dir", "do_train", "learning_rate"),
    *("save_checkpoints_steps", "keep_checkpoint_max", "log_every_steps"),
    *("gradient_accumulation_steps", "gradient_checkpointing", "seed", "resume_with_changes"),
    *("precision", "strategy", "all_reduce_precision", "iterations_per_loop", "use_tpu"),
    "tpu_name",
)
_ORDERS = {
    "pre-training": (
        *_FIRST,
        *("max_seq_length", "max_predictions_per_seq", "input_file", "eval_input_file"),
        *("shuffle_block", "do_eval", "objective", "train_batch_size", "eval_batch_size"),
        *("num_train_steps", "num_warmup_steps", "time_budget", "warmup_proportion"),
        *("max_eval_steps", "overwrite_output_dir"),
    ),
    "fine-tuning": (
        *_FIRST,
        *("vocab_file", "do_lower_case", "max_seq_length", "do_predict", "do_export"),
        *("export_format", "export_precision", "max_score_loss", "train_batch_size"),
        *("predict_batch_size", "num_train_epochs", "warmup_proportion"),
        *("early_stopping_patience", "num_runs", "freeze_layers", "layerwise_lr_decay"),
        *("add_bilstm", "pad_to_max_length", "overwrite_output_dir", "do_eval"),
        *("eval_batch_size", "data_dir", "train_file", "dev_file", "test_file", "dev_fraction"),
        *("split_seed", "teacher", "unlabeled_file", "teacher_weight"),
        *("distillation_temperature", "distill_layers", "distill_layers_weight"),
    ),
}


def in_order(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options in the order in which files name them."""
    order = _ORDERS["pre-training" if "objective" in options else "fine-tuning"]
    names = [name for name in order if name in options]
    return {name: options[name] for name in dict.fromkeys([*names, *options])}


@dataclasses.dataclass(frozen=True)
class Command:
    """The command that a run belongs to, as `run.json` and the card of a model record it.

    Attributes:
      kind: The class of all its options, whose defaults need not be given; None for a run that is
        described in Python.
      values: Its options that are in no group of the recipe, by name.
    """

    kind: type | None = None
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def with_values(self, **values: Any) -> "Command":
        """Returns the command with other values."""
        return dataclasses.replace(self, values={**self.values, **values})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """What every recipe has.

    Attributes:
      model: The model to start from.
      output: The folder, and what is saved in it.
      compute: How and on which devices.
      seed: The seed of the initial weights, the data order and dropout.
      command: The command that the run belongs to.
    """

    model: ModelSource
    output: Output
    compute: Compute = dataclasses.field(default_factory=Compute)
    seed: int = 12345
    command: Command = dataclasses.field(default_factory=Command)

    def groups(self) -> list[Any]:
        """Returns the groups of options."""
        values = (getattr(self, field.name) for field in dataclasses.fields(self))
        return [
            value
            for value in values
            if dataclasses.is_dataclass(value) and not isinstance(value, Command)
        ]

    def options(self) -> dict[str, Any]:
        """Returns all options by name, in the order of `run.json`."""
        values = {"seed": self.seed, **self.command.values}
        for group in self.groups():
            values |= vars(group)
        return in_order(values)

    def shaping_options(self) -> dict[str, Any]:
        """Returns by name the options of which another value makes another model."""
        shaping = {"seed": self.seed}
        for group in self.groups():
            shaping |= shaping_options(group)
        return in_order(shaping)

    def changed_options(self) -> dict[str, Any]:
        """Returns by name the options that differ from their defaults."""
        options = self.options()
        if self.command.kind:
            changed = changed_options(self.command.kind(**options))
            return {name: value for name, value in options.items() if name in changed}
        changed = {} if self.seed == Recipe.seed else {"seed": self.seed}
        for group in self.groups():
            changed |= changed_options(group)
        return {name: value for name, value in options.items() if name in changed}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreTraining(Recipe):
    """The recipe of a pre-training run.

    Attributes:
      steps: What is done.
      data: The records.
      schedule: What is learned how long at which learning rate.
      evaluation: How many records are evaluated.
    """

    data: RecordFiles
    steps: PreTrainingSteps
    schedule: PretrainingSchedule = dataclasses.field(default_factory=PretrainingSchedule)
    evaluation: PretrainingEvaluation = dataclasses.field(default_factory=PretrainingEvaluation)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextModel(VocabularySource, ModelSource):
    """The model that fine-tuning starts from, and how it reads texts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CasedTextModel(TextModel):
    """A model that is taken to be cased where nothing says so."""

    LOWERS_BY_DEFAULT: ClassVar[bool] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuning(Recipe):
    """The recipe of a fine-tuning run.

    Attributes:
      steps: What is done.
      model: The model to start from.
      data: The data set, as the options of a task name it.
      lengths: How long sequences are.
      schedule: What is trained how long at which learning rate.
      evaluation: How batches are predicted, and when evaluations end training.
      encoder: The layers between the encoder and the head.
      export: In which formats the model is exported.
      teacher: A model to learn from; None for none, and of tasks that have none.
      decoding: Which spans are answers, of question answering.
      tags: What the labels are, of tagging.
      features: What a feature-based tagger reads.
    """

    steps: Steps
    model: TextModel
    data: Any
    lengths: Lengths = dataclasses.field(default_factory=Lengths)
    schedule: Schedule = dataclasses.field(default_factory=Schedule)
    evaluation: Prediction = dataclasses.field(default_factory=Evaluation)
    encoder: Encoder = dataclasses.field(default_factory=Encoder)
    export: ExportOptions = dataclasses.field(default_factory=ExportOptions)
    teacher: Teacher | None = None
    decoding: DecodingOptions | None = None
    tags: TagOptions | None = None
    features: FeatureOptions | None = None

    def check_questions(self) -> None:
        """Checks the files and the windows of question answering."""
        assert isinstance(self.data, SquadData) and self.decoding
        for verb, is_wanted in (("train", self.steps.do_train), ("predict", self.steps.do_predict)):
            if is_wanted:
                self.data.check_file(verb)
        check_windows(self.data, self.decoding, self.lengths)

    def read_paths(self) -> dict[str, str | None]:
        """Returns by option what is read besides the files of the model."""
        options = self.options()
        names = ("init_checkpoint", "teacher", "train_file", "dev_file", "test_file")
        return {name: options.get(name) for name in (*names, "predict_file", "unlabeled_file")}


@dataclasses.dataclass(frozen=True)
class Trial:
    """A run of a search.

    Attributes:
      point: The values of the options that have several, by name.
      recipe: The recipe, with a folder within the output folder of the search.
    """

    point: Mapping[str, float]
    recipe: FineTuning

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return os.path.basename(self.recipe.output.output_dir)


@dataclasses.dataclass(frozen=True)
class Search:
    """Several runs: with several seeds, and at each point of a grid of options.

    Attributes:
      shared: What the runs have in common, with the folder that holds all of them.
      trials: The runs, point by point, at each point seed by seed.
      num_runs: How many there are at each point.
    """

    shared: FineTuning
    trials: tuple[Trial, ...]
    num_runs: int = 1

    @classmethod
    def of(cls, recipe: FineTuning, num_runs: int = 1) -> "FineTuning | Search":
        """Returns the runs of a recipe whose schedule may have several values; one as a recipe.

        A folder's name tells the point by the options that have several values, so that these can
        get more, and what is trained already stays.
        """
        grid = read_grid(recipe.schedule)
        varied = [name for name, values in grid.items() if len(values) > 1]
        trials = []
        for values in itertools.product(*grid.values()):
            chosen = dict(zip(grid, values, strict=True))
            point = {name: chosen[name] for name in varied}
            parts = [f"{name}_{value_text(value)}" for name, value in point.items()]
            schedule = dataclasses.replace(recipe.schedule, **chosen)
            for index in range(num_runs):
                name = "-".join([*parts, f"run_{index + 1}"])
                folder = os.path.join(recipe.output.output_dir, name)
                trial = dataclasses.replace(
                    recipe,
                    schedule=schedule,
                    output=dataclasses.replace(recipe.output, output_dir=folder),
                    seed=recipe.seed + index,
                    data=_with_split_seed(recipe.data, recipe.seed),
                )
                trials.append(Trial(point, trial))
        if len(trials) > 1:
            return cls(recipe, tuple(trials), num_runs)
        return dataclasses.replace(recipe, schedule=schedule)

    def scored_options(self) -> list[str]:
        """Returns the options of the search, which need scores."""
        return ["num_runs"] * (self.num_runs > 1) + list(read_grid(self.shared.schedule))

    def with_precision(self, precision: str) -> "Search":
        """Returns the search with the precision to train in."""

        def change(recipe: FineTuning) -> FineTuning:
            compute = dataclasses.replace(recipe.compute, precision=precision)
            return dataclasses.replace(recipe, compute=compute)

        trials = tuple(Trial(each.point, change(each.recipe)) for each in self.trials)
        return dataclasses.replace(self, shared=change(self.shared), trials=trials)


def value_text(value: float) -> str:
    """Returns a value as the names of folders have it."""
    return repr(value).removesuffix(".0")


def _with_split_seed(data: Any, seed: int) -> Any:
    """Returns a data set of which all runs hold out the same examples."""
    if isinstance(data, DataFiles) and data.split_seed is None:
        return dataclasses.replace(data, split_seed=seed)
    return data
