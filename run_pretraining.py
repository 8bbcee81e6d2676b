r"""Pre-trains BERT on masked LM and next-sentence prediction, and evaluates it (paper, 3.1).

    python run_pretraining.py --input_file=train.tfrecord --output_dir=pretrained \
      --bert_config_file=bert_config.json --do_train --do_eval --eval_input_file=held_out.tfrecord

Reads the records of create_pretraining_data.py. Run again, it resumes from the last checkpoint in
--output_dir. Old commands for the original's run_pretraining.py work unchanged.
"""

import dataclasses
from typing import TYPE_CHECKING

from bert.commands import training
from bert.commands.checks import Checks, CheckSettings, make_script
from bert.commands.console import run_script
from bert.commands.flags import TPU_FLAGS
from bert.names import serve
from bert.options import option, take
from bert.pretraining.options import PretrainingEvaluation, PretrainingSchedule, RecordFiles
from bert.runs.recipes import Command, PreTraining, PreTrainingSteps
from bert.tasks.options import PretrainingTeacher
from bert.training.options import OVERWRITE, Compute, Output, Seed
from bert.weights.options import ModelSource


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(
    PretrainingEvaluation,
    PretrainingSchedule,
    RecordFiles,
    PretrainingTeacher,
    PreTrainingSteps,
    CheckSettings,
    ModelSource,
    Output,
    Seed,
    Compute,
):
    """The flags of the script, by name."""

    overwrite_output_dir: bool = option(False, OVERWRITE, group="output")


def run(settings: Settings) -> dict[str, float]:
    """Trains and evaluates as the settings say; returns what `eval_results.txt` holds, if anything.

    Raises:
      PlanError: before the expensive part, where the settings, the data and the model do not fit.
    """
    return training.run(make_recipe(settings))


def check(settings: Settings, checks: Checks) -> None:
    """Shows what `run` would do."""
    training.check(make_recipe(settings), checks)


def make_recipe(settings: Settings) -> PreTraining:
    """Returns the recipe that the flags describe."""
    return PreTraining(
        steps=take(PreTrainingSteps, settings),
        model=take(ModelSource, settings),
        data=take(RecordFiles, settings),
        schedule=take(PretrainingSchedule, settings),
        evaluation=take(PretrainingEvaluation, settings),
        teacher=take(PretrainingTeacher, settings),
        compute=take(Compute, settings),
        output=take(Output, settings),
        seed=settings.seed,
        command=Command(Settings, {"check": settings.check}),
    )


define_flags, main = make_script(Settings, run, check, without_effect=TPU_FLAGS)

# What people import from the original's run_pretraining.py.
if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = serve(
        globals(),
        {
            "absl": ("flags",),
            "absl.flags": ("FLAGS",),
            "modeling": (),
            "optimization": (),
            "bert.original.pretraining": (
                "model_fn_builder",
                "get_masked_lm_output",
                "get_next_sentence_output",
                "gather_indexes",
                "input_fn_builder",
                "decode_record as _decode_record",
            ),
            "bert.pretraining.objectives": ("OBJECTIVE",),
        },
    )

if __name__ == "__main__":
    define_flags()
    run_script(main)
