"""Whether a fine-tuned model has a BiLSTM between its encoder and its head (paper, table 5)."""

from collections.abc import Mapping
from typing import Any

from bert.commands.settings import FineTuningSettings
from bert.export.formats import read_exports
from bert.tasks.task import stored_field
from bert.weights.folder import ModelFolder
from modeling import BertConfig

# In `task.json`, the key of a flag of that name.
_KEY = "add_bilstm"


def bilstm_fields(*, add_bilstm: bool) -> dict[str, bool]:
    """Returns what `task.json` keeps of it: nothing where there is none."""
    return {_KEY: True} if add_bilstm else {}


def stored_bilstm(stored: Mapping[str, Any]) -> bool:
    """Returns whether there is one, as `task.json` says."""
    return bool(stored_field({_KEY: False, **stored}, _KEY, bool))


def find_bilstm(settings: FineTuningSettings, config: BertConfig) -> bool:
    """Returns whether there is one: as is asked for, or as the model to use was trained.

    Args:
      settings: Those of the script.
      config: The shape of the encoder.

    Raises:
      ValueError: where it cannot be cut in two directions, or LSTMs, it or the encoder's own, are
        to be exported to a runtime that has none.
    """
    add_bilstm = settings.add_bilstm or stored_bilstm(
        ModelFolder.read_source_task(settings, settings.output_dir, trains=settings.do_train)
    )
    if add_bilstm or config.is_bilstm:
        # The loop over the tokens is one that tf2onnx cannot take apart.
        check_export(settings, "saved_model")
    if add_bilstm and config.hidden_size % 2:
        raise ValueError(
            "`--add_bilstm` needs an even `hidden_size`, half of it for each direction. Received "
            f"{config.hidden_size}."
        )
    return add_bilstm


def check_export(settings: FineTuningSettings, *formats: str) -> None:
    """Checks that a model with LSTMs is to be exported in formats alone that can hold these.

    Raises:
      ValueError: where it is not.
    """
    asked = [export.format for export in read_exports(settings)] if settings.do_export else []
    if wrong := [each for each in asked if each not in formats]:
        raise ValueError(
            f"`--export_format` must be {' or '.join(formats)} for such a model with LSTMs, whose "
            f"loop over the tokens {wrong[0]} cannot hold. Received {settings.export_format!r}."
        )
