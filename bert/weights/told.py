"""The flags of every script that asks a model of whatever origin."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert.commands.settings import CheckSettings
from bert.files.huggingface import FINE_TUNED
from bert.options import REQUIRED, option
from bert.tasks.options import MAX_TOKENS
from bert.training.options import PRECISION, PRECISIONS
from bert.weights.options import BESIDE, LOWERS

# Models that this project has not trained, and those whose graph is fixed.
FROM_ELSEWHERE = (
    "a Hugging Face folder; the name of a model on the Hugging Face hub, owner/model; a checkpoint "
    "of the original; or a SavedModel of --do_export"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoAnswerSettings(CheckSettings):
    """What a model of questions does where there is no answer, which its weights do not say."""

    GROUP = "model"

    version_2_with_negative: bool | None = option(
        None,
        "Whether a model may find that a question has no answer, as in SQuAD 2.0. Default: as "
        "task.json says, or else false.",
    )
    null_score_diff_threshold: float | None = option(
        None,
        "With SQuAD 2.0, answer that there is no answer if that scores higher than the best answer "
        "by more than this. Default: as task.json says, or else 0.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AskedSettings(NoAnswerSettings):
    """Which model, and what its folder may not say of it."""

    GROUP = "model"

    model_dir: str = option(
        REQUIRED,
        f"Fine-tuned model: the --output_dir of a fine-tuning script; {FROM_ELSEWHERE}.",
    )
    precision: str = option(
        "float32",
        f"{PRECISION} bfloat16 also stores the weights in that type: half the memory, and fastest "
        "where the hardware has instructions for it.",
        choices=(*PRECISIONS, "bfloat16"),
        group="devices",
    )
    bert_config_file: str | None = option(
        None, f"The model's configuration, bert_config.json.{BESIDE}"
    )
    vocab_file: str | None = option(None, f"WordPiece vocabulary, one entry per line.{BESIDE}")
    do_lower_case: bool | None = option(None, f"{LOWERS} Default: as the model's folder says.")
    architecture: str | None = option(
        None,
        "Class of the model in transformers, for a model without task.json. Default: as its files "
        "say, or else by its head.",
        choices=tuple(FINE_TUNED.values()),
    )
    task_name: str | None = option(
        None,
        "Task of GLUE, or xnli, of a classifier that was trained with the original; it sets the "
        "labels and the number of texts.",
    )
    labels: str | None = option(
        None,
        "Labels of a model without task.json, comma-separated, in the order of its outputs. "
        "Default: those in config.json.",
    )
    is_pair: bool | None = option(
        None, "Whether a classifier without task.json takes pairs of texts."
    )
    max_seq_length: int | None = option(
        None,
        f"{MAX_TOKENS}. Default: as the model was trained, or else the most that it accepts.",
        low=5,
    )

    @property
    def given(self) -> dict[str, Any]:
        """What overrides the files of the folder, by the names of `bert.models.loaded.load`."""
        own = {field.name for field in dataclasses.fields(AskedSettings)}
        own -= {"check", "model_dir", "precision"}
        return {name: getattr(self, name) for name in sorted(own)}

    def check_untold(self) -> None:
        """Checks that nothing is told of an exported model, in whose graph all is fixed.

        Raises:
          ValueError: where something is.
        """
        check_untold_export(self.model_dir, {**self.given, "precision": self.precision})


def check_untold_export(path: str, given: Mapping[str, Any]) -> None:
    """Checks that nothing is told of an exported model, in whose graph all is fixed.

    Args:
      path: Its folder.
      given: By name what may be told, None where it is not, and the precision.

    Raises:
      ValueError: where something is.
    """
    for name, value in given.items():
        if value is not None and (name, value) != ("precision", "float32"):
            raise ValueError(
                f"`--{name}` must not be given for an exported model, in whose graph it is fixed. "
                f"Received {value!r} for {path!r}."
            )
