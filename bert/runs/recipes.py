"""Recipes: what a run is made from, as groups of options side by side."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert.options import (
    Message,
    Option,
    changed_options,
    joined,
    option,
    shaping_options,
)
from bert.pretraining.options import PretrainingEvaluation, PretrainingSchedule, RecordFiles
from bert.training.options import Compute, Output
from bert.weights.options import ModelSource


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

    do_eval: bool = option(False, "Evaluate; with --do_train, after training.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Steps(TrainingStep):
    """What is done with a model that is fine-tuned, whose predictions are scored."""

    GROUP = "steps"

    do_predict: bool = option(False, "Predict; with --do_train, after training.")
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
        False, "Evaluate on the dev set; with --do_train, during and after training."
    )
    do_predict: bool = option(False, "Predict the test set; with --do_train, after training.")

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
            return in_order(changed_options(self.command.kind(**options)))
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
