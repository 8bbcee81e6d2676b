r"""Fine-tunes on questions about paragraphs, answers them and scores the answers (paper, 4.2, 4.3).

    python run_squad.py --train_file=train-v1.1.json --predict_file=dev-v1.1.json --do_train \
      --do_predict --output_dir=squad --vocab_file=vocab.txt --bert_config_file=bert_config.json \
      --init_checkpoint=bert_model.ckpt

For SQuAD 1.1, SQuAD 2.0 (with --version_2_with_negative), and your own questions in their JSON
format. Old commands for the original's run_squad.py work unchanged.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import tokenization
from bert.commands import flags as common_flags
from bert.commands import training
from bert.commands.checks import Checks, make_script
from bert.commands.console import run_script
from bert.commands.flags import TPU_FLAGS
from bert.commands.training import FineTuningSettings
from bert.files.process import import_tensorflow
from bert.names import serve
from bert.options import option
from bert.runs.recipes import FineTuning, Search
from bert.tasks.options import Teacher
from bert.tasks.squad.options import DecodingOptions, SquadData, SquadExport, SquadLengths

if TYPE_CHECKING:
    import modeling


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(DecodingOptions, SquadData, SquadLengths, SquadExport, Teacher, FineTuningSettings):
    """The flags of this script, by name."""

    do_predict: bool = option(
        False,
        "Answer the questions of --predict_file; with --do_train, after training.",
        group="steps",
    )


def run(settings: Settings) -> dict[str, Any]:
    """Trains and predicts as the settings say.

    Returns:
      The official scores of the predictions; with several runs, what
      `bert.runs.search.run` gives; empty where nothing is predicted or the file has no
      answers.

    Raises:
      ValueError: before the expensive part, where settings, files and model do not fit.
    """
    results = training.run(make_recipe(settings))
    # The baseline is no official score.
    return {name: results[name] for name in results if not name.startswith("baseline")}


def check(settings: Settings, checks: Checks) -> None:
    """Shows what `run` would do."""
    training.check(make_recipe(settings), checks)


def make_recipe(settings: Settings) -> FineTuning | Search:
    """Returns the recipe that the flags describe, or the search over several runs."""
    return training.make_recipe(settings, SquadData, decoding=DecodingOptions, teacher=Teacher)


def validate_flags_or_throw(
    bert_config: "modeling.BertConfig", settings: Settings | None = None
) -> None:
    """Checks that the flags fit each other and the model (original: run_squad.py).

    Args:
      bert_config: The shape of the model.
      settings: The flags; None for the command line's, which `define_flags` defines.

    Raises:
      ValueError: where they do not fit.
    """
    import_tensorflow()
    from bert.runs.plans import check_scored
    from bert.weights.variables import check_length

    settings = settings or common_flags.read_settings(Settings)
    casing, init_checkpoint = settings.do_lower_case, settings.init_checkpoint
    tokenization.validate_case_matches_checkpoint(casing is not False, init_checkpoint)
    recipe = make_recipe(settings)
    scored = recipe.scored_options() if isinstance(recipe, Search) else []
    shared = recipe.shared if isinstance(recipe, Search) else recipe
    check_scored(shared.steps, shared.export, shared.evaluation.early_stopping_patience, scored)
    shared.check_files()
    check_length(settings.max_seq_length, bert_config)


define_flags, main = make_script(Settings, run, check, without_effect=TPU_FLAGS)

# What people import from the original's run_squad.py.
if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = serve(
        globals(),
        {
            "absl": ("flags",),
            "absl.flags": ("FLAGS",),
            "modeling": (),
            "optimization": (),
            "tokenization": (),
            "bert.original.question_answering": (
                "create_model",
                "input_fn_builder",
                "model_fn_builder",
            ),
            "bert.original.squad": (
                "InputFeatures",
                "RawResult",
                "FeatureWriter",
                "convert_examples_to_features",
                "write_predictions",
                "get_final_text",
                "improve_answer_span as _improve_answer_span",
                "check_is_max_context as _check_is_max_context",
                "get_best_indexes as _get_best_indexes",
                "compute_softmax as _compute_softmax",
            ),
            "bert.tasks.squad.questions": (
                "SquadExample",
                "read_squad_examples",
            ),
        },
    )

if __name__ == "__main__":
    define_flags()
    run_script(main)
