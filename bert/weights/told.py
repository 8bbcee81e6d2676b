"""The flags of every script that asks a model of whatever origin."""

import dataclasses
from typing import Any

from bert.command_line.flags import REQUIRED, flag
from bert.command_line.settings import BESIDE, PRECISIONS, CheckSettings
from bert.files.huggingface import FINE_TUNED


@dataclasses.dataclass(frozen=True, kw_only=True)
class AskedSettings(CheckSettings):
    """Which model, and what its folder may not say of it."""

    GROUP = "model"

    model_dir: str = flag(
        REQUIRED,
        "The --output_dir of a fine-tuning script; or a fine-tuned model of others: a Hugging Face "
        "folder, the name of one on the hub, owner/model, or a checkpoint of the original; or a "
        "SavedModel of --do_export.",
    )
    precision: str = flag(
        "float32",
        "Arithmetic of the network; bfloat16 keeps the weights so, too: half the memory, and the "
        "fastest where there are instructions for it.",
        choices=(*PRECISIONS, "bfloat16"),
        group="devices",
    )
    bert_config_file: str | None = flag(None, f"The model's configuration{BESIDE}.")
    vocab_file: str | None = flag(None, f"The model's vocabulary{BESIDE}.")
    do_lower_case: bool | None = flag(
        None, "Whether the model is uncased; absent, what its folder says."
    )
    architecture: str | None = flag(
        None,
        "What a model without task.json is, in the terms of transformers; absent, what its files "
        "say, or else by its head.",
        choices=tuple(FINE_TUNED.values()),
    )
    task_name: str | None = flag(
        None,
        "The task of GLUE, or xnli, for which the original has trained a classifier, which gives "
        "its labels and number of texts.",
    )
    labels: str | None = flag(
        None,
        "Labels of a model without task.json, comma-separated, in the order of its outputs; "
        "absent, those in config.json.",
    )
    is_pair: bool | None = flag(None, "A classifier without task.json takes pairs of texts.")
    max_seq_length: int | None = flag(
        None,
        "Where texts are cut, in tokens; absent, as the model was trained, or where nothing says "
        "so, as long as it takes them.",
        low=5,
    )

    @property
    def given(self) -> dict[str, Any]:
        """What is told of the model beside its folder, by the names of `bert.loaded.load`."""
        own = {field.name for field in dataclasses.fields(AskedSettings)}
        own -= {"check", "model_dir", "precision"}
        return {name: getattr(self, name) for name in sorted(own)}

    def check_untold(self) -> None:
        """Checks that nothing is told of an exported model, in whose graph all is fixed.

        Raises:
          ValueError: where something is.
        """
        given = {**self.given, "precision": self.precision}
        if self.precision == "float32":
            del given["precision"]
        if names := [name for name, value in given.items() if value is not None]:
            raise ValueError(
                f"`--{names[0]}` must not be given for an exported model, in whose graph it is "
                f"fixed. Received {given[names[0]]!r} for {self.model_dir!r}."
            )
