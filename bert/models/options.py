"""Options of a model that is queried: where it is, and what overrides the files of its folder."""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

from bert.files.weight_names import KERAS_ENDING, KERAS_FILE, SAFETENSORS_FILE, WEIGHTS
from bert.options import REQUIRED, Message, Option, OptionError, option
from bert.tasks.options import MAX_TOKENS
from bert.training.options import PRECISION, PRECISIONS
from bert.weights.huggingface_files import ARCHITECTURES, FINE_TUNED
from bert.weights.options import BESIDE, CHECKPOINT_FORMS, LOWERS

# Models that this project has not trained, and those whose graph is fixed.
FROM_ELSEWHERE = (
    "a Hugging Face folder; the name of a model on the Hugging Face hub, owner/model; a checkpoint "
    "of the original; or an exported SavedModel"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderOptions:
    """Options in place of what the folder of a model says, or says nothing of; None by default."""

    GROUP = "model"

    bert_config_file: str | None = option(
        None, f"The model's configuration, bert_config.json.{BESIDE}"
    )
    vocab_file: str | None = option(None, f"WordPiece vocabulary, one entry per line.{BESIDE}")
    do_lower_case: bool | None = option(None, f"{LOWERS} Default: as the model's folder says.")
    is_pair: bool | None = option(
        None, "Whether a classifier without task.json takes pairs of texts."
    )
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

    @property
    def files(self) -> dict[str, Any]:
        """The options that `ModelFolder` takes."""
        names = ("bert_config_file", "vocab_file", "do_lower_case")
        return {name: getattr(self, name) for name in names}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overrides(FolderOptions):
    """Options of a model that is queried, in place of what its folder says."""

    GROUP = "model"

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
    # In Python also a sequence.
    labels: str | None = option(
        None,
        "Labels of a model without task.json, comma-separated, in the order of its outputs. "
        "Default: those in config.json.",
    )
    max_seq_length: int | None = option(
        None,
        f"{MAX_TOKENS}. Default: as the model was trained, or else the most that it accepts.",
        low=5,
    )

    @property
    def label_names(self) -> list[str]:
        """The labels as a list."""
        labels: str | Sequence[str] = self.labels or ()
        names = labels.split(",") if isinstance(labels, str) else labels
        return [name.strip() for name in names]

    def check_absent(self, names: Collection[str], where: str | Message, path: str) -> None:
        """Checks that options are not given that would be ignored.

        Args:
          names: The options.
          where: Why they would be ignored, such as "for an exported model".
          path: The model, for the message.

        Raises:
          OptionError: for the first that is given.
        """
        for name in names:
            check_absent(name, getattr(self, name), where, path)


OVERRIDES = tuple(field.name for field in dataclasses.fields(Overrides))
NO_OVERRIDES = Overrides()


def check_absent(name: str, value: Any, where: str | Message, path: str) -> None:
    """Checks that an option is None, as `Overrides.check_absent`."""
    if value is not None:
        must = Message("not be given %s", where)
        raise OptionError(name, must, Message("%r for %r", value, path))


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueriedModel(Overrides):
    """A model that is queried."""

    GROUP = "model"

    model_dir: str = option(
        REQUIRED,
        Message(
            f"Fine-tuned model: the %s of a fine-tuning script; {FROM_ELSEWHERE}.",
            Option("output_dir"),
        ),
    )
    precision: str = option(
        "float32",
        f"{PRECISION} bfloat16 also stores the weights in that type: half the memory, and fastest "
        "where the hardware has instructions for it.",
        choices=(*PRECISIONS, "bfloat16"),
        group="devices",
    )


# By format, the name of the weights in a folder, and the ending of a path that names them alone.
FORMATS = {
    "tf": (WEIGHTS, ".ckpt"),
    "huggingface": (SAFETENSORS_FILE, ".safetensors"),
    "keras": (KERAS_FILE, KERAS_ENDING),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConversionSource(FolderOptions):
    """The model to convert."""

    GROUP = "model"

    input: str = option(
        REQUIRED,
        Message(
            f"Model to convert: an %s of this project; a checkpoint: {CHECKPOINT_FORMS}; or "
            "a .weights.h5 that Keras has saved of a model of make_model, or its folder.",
            Option("output_dir"),
        ),
    )
    architecture: str | None = option(
        None,
        Message(
            "Class of the model in transformers. Default: as its files say, or else by its heads. "
            "With %s, weights that only another class needs are left out.",
            Option("format", "keras"),
        ),
        choices=tuple(ARCHITECTURES),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConversionOutput:
    """The format and the place of a converted model."""

    GROUP = "output"

    output: str = option(
        REQUIRED,
        "Folder to write, with configuration and vocabulary; or only the file of weights: "
        ".../name.ckpt, .../name.safetensors or .../name.weights.h5.",
    )
    format: str = option(
        REQUIRED,
        "tf: a TF1 checkpoint, for this project and the original. huggingface: model.safetensors, "
        "for transformers. keras: weights for Keras' load_weights.",
        choices=tuple(FORMATS),
    )
    weights_only: bool = option(False, "Leave out the optimizer's variables (slots).")
    verify: bool = option(
        True, "Run the original and the result on the same input, and compare the outputs."
    )
    without_vocabulary: bool = option(
        False, "Write a folder without a vocabulary, for a model whose vocabulary is not available."
    )
