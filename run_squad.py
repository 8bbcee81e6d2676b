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
from bert.commands.checks import FAILED, Checks, start
from bert.commands.console import run_script
from bert.commands.names import serve
from bert.commands.settings import FineTuningSettings
from bert.files.paths import open_file
from bert.files.process import import_tensorflow
from bert.options import option, read_grid
from bert.tasks.options import MAX_TOKENS
from bert.tasks.squad import windows as squad_windows
from bert.tasks.squad.answers import Decoding

if TYPE_CHECKING:
    import modeling
    from bert.tasks.squad.task import QuestionAnswering


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(FineTuningSettings):
    """The flags of this script, by name."""

    max_seq_length: int = option(
        384,
        f"{MAX_TOKENS}; longer paragraphs are split into windows (see --doc_stride).",
        low=4,
        group="data",
    )
    do_predict: bool = option(
        False,
        "Answer the questions of --predict_file; with --do_train, after training.",
        group="steps",
    )
    # The scores are of a hundred.
    max_score_loss: float = 1.0
    train_file: str | None = option(None, "Questions to train on, in SQuAD's JSON format.")
    predict_file: str | None = option(
        None,
        "Questions to answer, in SQuAD's JSON format; if it contains the answers, it is also "
        "scored.",
    )
    doc_stride: int = option(
        128,
        "Tokens from the start of one window over a long paragraph to the start of the next.",
        low=1,
    )
    max_query_length: int = option(
        64, "Maximum tokens per question; longer questions are truncated.", low=1
    )
    n_best_size: int = option(
        20, "Answers per question in nbest_predictions.json.", low=1, group="output"
    )
    max_answer_length: int = option(30, "Maximum tokens per answer.", low=1, group="output")
    verbose_logging: bool = option(
        False, "Log each answer that cannot be found in the paragraph's words.", group="output"
    )
    version_2_with_negative: bool = option(
        False, "Allow questions without an answer, as in SQuAD 2.0."
    )
    null_score_diff_threshold: float = option(
        0.0,
        "With SQuAD 2.0, predict no answer if that scores higher than the best answer by more "
        "than this.",
        group="output",
    )
    bucket_predictions: bool = option(
        False,
        "Predict on windows of similar length together, without padding. Faster, but where "
        "padding is among the --n_best_size best positions, the lists differ from the original's.",
        group="output",
    )


def define_flags() -> None:
    """Defines the flags (original: run_squad.py)."""
    common_flags.define(Settings, without_effect=common_flags.TPU_FLAGS)


def run(settings: Settings) -> dict[str, Any]:
    """Trains and predicts as the settings say.

    Returns:
      The official scores of the predictions; with several runs, what
      `bert.runs.repeats.run` gives; empty where nothing is predicted or the file has no
      answers.

    Raises:
      ValueError: before the expensive part, where settings, files and model do not fit.
    """
    import_tensorflow()
    from bert.runs import repeats

    _check_settings(settings)
    results = repeats.run(settings, open_task)
    # What guessing would reach is no official score.
    return {name: results[name] for name in results if not name.startswith("baseline")}


def _check_settings(settings: Settings) -> None:
    for verb in ("train", "predict"):
        if getattr(settings, f"do_{verb}"):
            _check_file(getattr(settings, f"{verb}_file"), verb)
    squad_windows.check_lengths(
        settings.max_seq_length, settings.doc_stride, settings.max_query_length
    )
    if settings.bucket_predictions and settings.pad_to_max_length:
        raise ValueError(
            "`--bucket_predictions` must not be given together with `--pad_to_max_length`, which "
            "asks for the contrary."
        )


def _check_file(path: str | None, verb: str) -> None:
    if not path:
        raise ValueError(f"`--do_{verb}` needs `--{verb}_file`.")
    try:
        with open_file(path) as file:
            file.read(1)
    except OSError as error:
        raise ValueError(
            f"`--{verb}_file` must name a readable file. Received {path!r} ({error})."
        ) from error


def validate_flags_or_throw(
    bert_config: "modeling.BertConfig", settings: Settings | None = None
) -> None:
    """Checks that the flags fit each other and the model (original: run_squad.py).

    Args:
      bert_config: The shape of the model.
      settings: The flags; None for those of the command line, which `define_flags` defines.

    Raises:
      ValueError: where they do not fit.
    """
    from bert.runs import finetuning
    from bert.training.validation import check_length

    settings = settings or common_flags.read_settings(Settings)
    casing, init_checkpoint = settings.do_lower_case, settings.init_checkpoint
    tokenization.validate_case_matches_checkpoint(casing is not False, init_checkpoint)
    finetuning.check_verbs(settings)
    _check_settings(settings)
    check_length(settings.max_seq_length, bert_config)


def check(settings: Settings, checks: Checks) -> None:
    """Checks what `run` needs."""
    import_tensorflow()
    from bert.runs.checks import check_fine_tuning

    files = checks("files", _check_settings, settings, tells=lambda _: "can be read")
    check_fine_tuning(checks, settings, FAILED if files is FAILED else open_task)


def open_task(
    settings: Settings, config: "modeling.BertConfig", tokenizer: tokenization.FullTokenizer
) -> "QuestionAnswering":
    """Returns the task that the settings name, for a model of this shape."""
    import_tensorflow()
    from bert.tasks.bilstm import find_bilstm
    from bert.tasks.squad.task import QuestionAnswering
    from bert.weights.variables import require_segments

    require_segments(config, "a question and its paragraph")
    given = {field.name: getattr(settings, field.name) for field in dataclasses.fields(Decoding)}
    # The flag may leave the casing to the model's folder.
    given["do_lower_case"] = tokenizer.basic_tokenizer.do_lower_case
    files = {"train": settings.train_file, "dev": settings.predict_file}
    by_score = {
        "early_stopping_patience": settings.early_stopping_patience > 0,
        "num_runs": settings.num_runs > 1,
        **read_grid(settings),
    }
    return QuestionAnswering(
        config,
        tokenizer,
        settings.max_seq_length,
        settings.doc_stride,
        settings.max_query_length,
        Decoding(**given),
        {split: path for split, path in files.items() if path},
        settings.bucket_predictions,
        tuple(flag for flag, is_set in by_score.items() if is_set),
        find_bilstm(settings, config),
    )


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


# What people import from the original's run_squad.py.
if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = serve(
        globals(),
        {
            "absl": ("flags",),
            "absl.flags": ("FLAGS",),
            "modeling": (),
            "optimization": (),
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
