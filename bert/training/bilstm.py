"""Whether a fine-tuned model has a BiLSTM between its encoder and its head (paper, table 5)."""

from collections.abc import Mapping
from typing import Any

from bert.command_line.exports import read_exports
from bert.command_line.settings import FineTuningSettings
from bert.training.task import stored_field
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
    add_bilstm = settings.add_bilstm or stored_bilstm(ModelFolder.read_asked(settings))
    check_export(settings, has_lstm=add_bilstm or config.is_bilstm)
    if add_bilstm and config.hidden_size % 2:
        raise ValueError(
            "`--add_bilstm` needs an even `hidden_size`, half of it for each direction. Received "
            f"{config.hidden_size}."
        )
    return add_bilstm


def check_export(settings: FineTuningSettings, *, has_lstm: bool) -> None:
    """Checks that a model can be exported as is asked for, if it has LSTMs.

    Raises:
      ValueError: where it cannot.
    """
    is_asked = settings.do_export and any(e.format == "tflite" for e in read_exports(settings))
    if has_lstm and is_asked:
        raise ValueError(
            "`--export_format` must be saved_model or onnx for a model with LSTMs. Received "
            f"{settings.export_format!r}: LiteRT has no LSTM over texts of any length."
        )
