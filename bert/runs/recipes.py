"""Recipes: the groups of options that describe a run."""

import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from bert.export.formats import ExportOptions, read_exports
from bert.files.paths import match_file
from bert.options import (
    Message,
    Option,
    OptionError,
    OptionGroup,
    changed_options,
    joined,
    option,
    read_grid,
    shaping_options,
    take,
    typed_value,
)
from bert.pretraining.options import PretrainingEvaluation, PretrainingSchedule, RecordFiles
from bert.runs.order import in_order
from bert.tasks.classification.options import ClassificationData
from bert.tasks.options import (
    DataFiles,
    Encoder,
    Evaluation,
    Lengths,
    Prediction,
    PretrainingTeacher,
    Schedule,
    SwagData,
    SwagSchedule,
    Teacher,
)
from bert.tasks.squad.options import (
    DecodingOptions,
    SquadData,
    SquadExport,
    SquadLengths,
    check_windows,
)
from bert.tasks.tagging.options import FeatureOptions, TaggingData, TagOptions
from bert.training.options import LARGEST_SEED, Compute, Output, Seed
from bert.weights.options import ModelSource, VocabularySource

if TYPE_CHECKING:
    import modeling
    import tokenization
    from bert.tasks.task import Task, TaskContext


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingStep(OptionGroup):
    """Whether a model is trained."""

    GROUP = "steps"

    do_train: bool = option(False, "Train the model.")

    def describe(self) -> Message:
        """Returns the steps that are taken."""
        return joined([Option(name, True) for name, value in vars(self).items() if value], " ")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreTrainingSteps(TrainingStep):
    """The steps of a pre-training run."""

    GROUP = "steps"

    do_eval: bool = option(False, Message("Evaluate; with %s, after training.", Option("do_train")))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Steps(TrainingStep):
    """The steps of a fine-tuning run whose predictions are scored."""

    GROUP = "steps"

    do_predict: bool = option(
        False, Message("Predict; with %s, after training.", Option("do_train"))
    )
    do_export: bool = option(
        False,
        "Export the model to <output_dir>/<format>, for use without this project. A SavedModel, "
        "the default format, takes raw text.",
    )

    # The step that scores the dev set.
    SCORING: ClassVar = "do_predict"

    @property
    def scores(self) -> bool:
        """Whether the dev set is scored."""
        return bool(getattr(self, self.SCORING))

    @property
    def splits(self) -> list[str]:
        """The parts of the data that are read."""
        return ["train"] * self.do_train + ["dev"] * self.do_predict

    def evaluates(self, patience: int) -> bool:
        """Returns whether the dev set is scored during training, not only after it.

        Args:
          patience: `early_stopping_patience`.
        """
        return patience > 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluatedSteps(Steps):
    """The steps of a fine-tuning run that evaluates a dev set and predicts a test set."""

    GROUP = "steps"

    do_eval: bool = option(
        False,
        Message("Evaluate on the dev set; with %s, during and after training.", Option("do_train")),
    )
    do_predict: bool = option(
        False, Message("Predict the test set; with %s, after training.", Option("do_train"))
    )

    SCORING: ClassVar = "do_eval"

    @property
    def splits(self) -> list[str]:
        """The parts of the data that are read."""
        return ["train"] * self.do_train + ["dev"] * self.do_eval + ["test"] * self.do_predict

    def evaluates(self, patience: int) -> bool:
        """Returns whether the dev set is scored during training, not only after it."""
        del patience
        return self.do_eval


@dataclasses.dataclass(frozen=True)
class Command:
    """The command of a run, as `run.json` and the model card record it.

    Attributes:
      kind: The class of all options of the command; None for a recipe made in Python.
      values: The options of the command that are in no group of the recipe, by name.
    """

    kind: type | None = None
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """The groups that all recipes have.

    Attributes:
      model: The model to start from.
      output: The output folder, and what is saved in it.
      compute: The devices and the precision.
      seed: The seed of the initial weights, the data order and dropout.
      command: The command of the run.
    """

    model: ModelSource
    output: Output
    compute: Compute = dataclasses.field(default_factory=Compute)
    seed: int = 12345
    command: Command = dataclasses.field(default_factory=Command)

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", Seed(seed=self.seed).seed)
        for field in dataclasses.fields(self):
            value, (kind, *_) = getattr(self, field.name), get_args(field.type) or (field.type,)
            is_group = isinstance(kind, type) and issubclass(kind, OptionGroup)
            if is_group and value is not field.default and not isinstance(value, kind):
                raise TypeError(f"`{field.name}` must be of {kind.__name__}. Received {value!r}.")

    def groups(self) -> list[Any]:
        """Returns the groups of options."""
        values = (getattr(self, field.name) for field in dataclasses.fields(self))
        return [v for v in values if dataclasses.is_dataclass(v) and not isinstance(v, Command)]

    def options(self) -> dict[str, Any]:
        """Returns all options by name, in the order of `run.json`."""
        values = {"seed": self.seed, **self.command.values}
        for group in self.groups():
            values |= vars(group)
        return in_order(values)

    def shaping_options(self) -> dict[str, Any]:
        """Returns by name the options whose values shape the model."""
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
      data: The records.
      steps: The steps of the run.
      schedule: The objective, the learning rate and the length of training.
      evaluation: How many records are evaluated.
      teacher: A model to learn from.
    """

    data: RecordFiles
    steps: PreTrainingSteps
    schedule: PretrainingSchedule = dataclasses.field(default_factory=PretrainingSchedule)
    evaluation: PretrainingEvaluation = dataclasses.field(default_factory=PretrainingEvaluation)
    teacher: PretrainingTeacher | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextModel(VocabularySource, ModelSource):
    """The model that fine-tuning starts from, with its vocabulary and casing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CasedTextModel(TextModel):
    """A model that is cased unless its folder or an option says otherwise."""

    LOWERS_BY_DEFAULT: ClassVar[bool] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuning(Recipe):
    """The recipe of a fine-tuning run.

    Attributes:
      steps: The steps of the run.
      model: The model to start from.
      data: The data set; the class of the options determines the task.
      lengths: The lengths of sequences; absent, as the others, the defaults of the task.
      schedule: The learning rate and the length of training.
      export: The formats of exports.
      evaluation: The sizes of batches of predictions, and early stopping.
      encoder: The layers between the encoder and the head.
      teacher: A model to learn from, for all tasks but multiple choice.
      decoding: The choice of answers, for question answering.
      tags: The labels, for tagging.
      features: The inputs of a feature-based tagger, for tagging.
    """

    steps: Steps
    model: TextModel
    data: Any
    # These are None until the run is planned.
    lengths: Lengths = None  # type: ignore[assignment]
    schedule: Schedule = None  # type: ignore[assignment]
    export: ExportOptions = None  # type: ignore[assignment]
    evaluation: Prediction = dataclasses.field(default_factory=Evaluation)
    encoder: Encoder = dataclasses.field(default_factory=Encoder)
    teacher: Teacher | None = None
    decoding: DecodingOptions | None = None
    tags: TagOptions | None = None
    features: FeatureOptions | None = None

    @property
    def is_feature_based(self) -> bool:
        """Whether the options request a feature-based tagger."""
        return bool(self.features and self.features.feature_based)

    def completed(self) -> "FineTuning":
        """Returns the recipe with all groups of its task, and with files for rows in memory."""
        is_squad, is_swag = isinstance(self.data, SquadData), isinstance(self.data, SwagData)
        schedule = self.schedule or (SwagSchedule() if is_swag else Schedule())
        groups: dict[str, Any] = {
            "lengths": self.lengths or (SquadLengths() if is_squad else Lengths()),
            "schedule": schedule.with_learning_rate(is_feature_based=self.is_feature_based),
            "export": self.export or (SquadExport() if is_squad else ExportOptions()),
        }
        if isinstance(self.data, ClassificationData):
            groups["data"] = self.data.with_files()
        elif is_squad:
            groups["decoding"] = self.decoding or DecodingOptions()
        elif isinstance(self.data, TaggingData):
            groups["model"] = take(CasedTextModel, self.model)
            groups["tags"] = self.tags or TagOptions()
            groups["features"] = self.features or FeatureOptions()
        return dataclasses.replace(self, **groups)

    def check_files(self) -> None:
        """Checks files that only a later run reads, and those and the windows of questions."""
        for name, path in self.unread_paths().items():
            match_file(path, name)
        if isinstance(self.data, SquadData) and self.decoding:
            for verb in ("train", "predict"):
                if getattr(self.steps, f"do_{verb}"):
                    self.data.check_file(verb)
            check_windows(self.data, self.decoding, self.lengths)

    def open_task(
        self,
        config: "modeling.BertConfig",
        tokenizer: "tokenization.FullTokenizer",
        scored: Sequence[str] = (),
        fetches: bool = True,
    ) -> "Task":
        """Returns the task, checked against the model, with its teacher if it is trained.

        Args:
          config: The shape of the model.
          tokenizer: The tokenizer of the model.
          scored: The options of a search, all of which need scores.
          fetches: Whether a teacher of the hub that is not in the local cache is fetched.
        """
        teacher = self.teacher if self.teacher and self.teacher.teacher else None
        if teacher and self.is_feature_based:
            template = "not be given with %s, whose features are fixed"
            must = Message(template, Option("feature_based"))
            remedy = "The teacher itself may be feature-based."
            raise OptionError("teacher", must, teacher.teacher, remedy)
        task = self._open_student(self._make_context(config, tokenizer), scored)
        if teacher is None or not self.steps.do_train:
            return task
        from bert.runs.teachers import teach  # noqa: PLC0415 (few runs open another model)

        batch_size, folder = self.evaluation.predict_batch_size, self.output.output_dir
        return teach(task, teacher, folder, batch_size, fetches=fetches)

    def _open_student(self, context: "TaskContext", scored: Sequence[str]) -> Any:
        """Returns the task of the kind that the class of the data says, without a teacher."""
        lengths, encoder, data = self.lengths, self.encoder, self.data
        # A run loads the task of its own kind alone.
        if isinstance(data, ClassificationData):
            from bert.tasks.classification.classifier import open_classification  # noqa: PLC0415

            return open_classification(context, data, lengths, encoder)
        if isinstance(data, SwagData):
            from bert.tasks.swag.multiple_choice import open_swag  # noqa: PLC0415

            return open_swag(context, data, lengths, encoder)
        if isinstance(data, SquadData):
            from bert.tasks.squad.question_answering import QuestionAnswering  # noqa: PLC0415

            assert self.decoding
            patience = ["early_stopping_patience"] * (self.evaluation.early_stopping_patience > 0)
            scored = [*patience, *scored]
            return QuestionAnswering.open(context, data, self.decoding, lengths, encoder, scored)
        if isinstance(data, TaggingData):
            from bert.tasks.tagging.open import open_tagging  # noqa: PLC0415

            assert self.tags and self.features
            return open_tagging(
                context, data, self.tags, self.features, lengths, encoder, self.schedule
            )
        raise TypeError(f"`data` must be the options of a task. Received {type(data).__name__}.")

    def _make_context(
        self, config: "modeling.BertConfig", tokenizer: "tokenization.FullTokenizer"
    ) -> "TaskContext":
        from bert.runs import identity  # noqa: PLC0415 (imports TensorFlow)
        from bert.tasks.task import TaskContext  # noqa: PLC0415 (imports Keras)

        trains, output_dir = self.steps.do_train, self.output.output_dir
        resumes = trains and not self.output.overwrite_output_dir
        exports = read_exports(self.export) if self.steps.do_export else []
        return TaskContext(
            config=config,
            tokenizer=tokenizer,
            splits=self.steps.splits,
            stored={} if trains else identity.read_source_task(self.model, output_dir),
            resumed=identity.read_resumed_task(output_dir) if resumes else {},
            seed=self.seed,
            export_formats=[export.format for export in exports],
        )

    def expand(self, num_runs: int = 1) -> "FineTuning | Search":
        """Returns the search over several runs and over the values of options that have several.

        A single run is a recipe without several values. All recipes are `completed`. A folder's
        name has the values of options that have several: these can get more, and the runs that have
        ended are used.
        """
        num_runs = typed_value("num_runs", num_runs, int, lower_bound=1)
        if self.seed > (highest := LARGEST_SEED + 1 - num_runs):
            must = Message(f"be at most {highest} with %s", Option("num_runs", num_runs))
            raise OptionError("seed", must, self.seed, "Each run has the next seed.")
        # A generator has its rows once, for all runs.
        recipe = self.completed()
        grid = read_grid(recipe.schedule)
        one = {name: 1 for name in self.command.values if name == "num_runs"}
        command = Command(self.command.kind, {**self.command.values, **one})
        data, trials = recipe.data, []
        if isinstance(data, DataFiles):
            data = data.with_split_seed(self.seed)
        for values in itertools.product(*grid.values()):
            chosen = dict(zip(grid, values, strict=True))
            point = {name: chosen[name] for name, several in grid.items() if len(several) > 1}
            parts = [f"{name}_{value_text(value)}" for name, value in point.items()]
            schedule = dataclasses.replace(recipe.schedule, **chosen)
            trial = dataclasses.replace(recipe, schedule=schedule, data=data, command=command)
            for index in range(num_runs):
                path = os.path.join(self.output.output_dir, "-".join([*parts, f"run_{index + 1}"]))
                output = dataclasses.replace(self.output, output_dir=path)
                seeded = dataclasses.replace(trial, output=output, seed=self.seed + index)
                trials.append(Trial(point, seeded))
        if len(trials) > 1:
            return Search(recipe, tuple(trials), num_runs)
        return dataclasses.replace(recipe, schedule=schedule)

    def unread_paths(self) -> dict[str, str]:
        """Returns the paths of data files that a training run is given and does not read."""
        files, splits = self.read_paths(), self.steps.splits
        parts = {"dev_file": "dev", "predict_file": "dev", "test_file": "test"}
        unread = [name for name in parts if self.steps.do_train and parts[name] not in splits]
        return {name: path for name in unread if (path := files[name])}

    def read_paths(self) -> dict[str, str | None]:
        """Returns the paths of the files that are read besides the model's, by option."""
        options = self.options()
        names = ("init_checkpoint", "teacher", "train_file", "dev_file", "test_file")
        return {name: options.get(name) for name in (*names, "predict_file", "unlabeled_file")}


@dataclasses.dataclass(frozen=True)
class Trial:
    """A run of a search.

    Attributes:
      point: The values of the options that have several, by name.
      recipe: The recipe; its folder is in the output folder of the search.
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
      shared: The recipe that the runs share, with the folder of the search.
      trials: The runs, point by point, at each point seed by seed.
      num_runs: The number of runs at each point.
    """

    shared: FineTuning
    trials: tuple[Trial, ...]
    num_runs: int = 1

    def scored_options(self) -> list[str]:
        """Returns the options of the search, which need scores."""
        return ["num_runs"] * (self.num_runs > 1) + list(read_grid(self.shared.schedule))

    def use_of(self, name: str) -> FineTuning:
        """Returns the recipe that uses the model of a run in the folder of the search.

        Args:
          name: The name of the run's folder.
        """
        [best] = (trial.recipe for trial in self.trials if trial.folder == name)
        output_dir, compute = self.shared.output.output_dir, best.compute
        if compute.strategy == "multi_worker":
            compute = dataclasses.replace(compute, strategy="one_device")
        return dataclasses.replace(
            best,
            output=dataclasses.replace(best.output, output_dir=output_dir),
            compute=compute,
            steps=dataclasses.replace(best.steps, do_train=False),
            evaluation=dataclasses.replace(best.evaluation, early_stopping_patience=0),
        )


def value_text(value: float) -> str:
    """Returns a value as it is in the names of folders."""
    return repr(value).removesuffix(".0")
