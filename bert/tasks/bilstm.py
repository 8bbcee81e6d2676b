"""BiLSTMs between the encoder of a fine-tuned model and its head (paper, table 5)."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bert.options import MessageError, Option, OptionError
from bert.tasks.task import TaskContext, stored_field

# In `task.json`, the key of the option of that name.
_KEY = "add_bilstm"


def bilstm_fields(*, add_bilstm: bool) -> dict[str, bool]:
    """Returns the fields of `task.json` about the BiLSTM: none where there is no BiLSTM."""
    return {_KEY: True} if add_bilstm else {}


def stored_bilstm(stored: Mapping[str, Any]) -> bool:
    """Returns whether the model of a `task.json` has a BiLSTM."""
    return bool(stored_field({_KEY: False, **stored}, _KEY, bool))


def find_bilstm(context: TaskContext, *, add_bilstm: bool) -> bool:
    """Returns whether the model has a BiLSTM: by the options, or as the model was trained.

    Args:
      context: The model, and the formats in which it is exported.
      add_bilstm: Whether the options add one.

    Raises:
      ValueError: where the hidden size is odd, or an export cannot hold the LSTMs.
    """
    add_bilstm = add_bilstm or stored_bilstm(context.stored)
    if add_bilstm or context.config.is_bilstm:
        # tf2onnx cannot convert the loop over the tokens.
        check_lstm_export(context.export_formats, ["saved_model"])
    if add_bilstm and context.config.hidden_size % 2:
        raise MessageError(
            "%s needs an even `hidden_size`, half of it for each direction. Received %s.",
            *(Option("add_bilstm"), context.config.hidden_size),
        )
    return add_bilstm


def check_lstm_export(formats: Sequence[str], allowed: Collection[str]) -> None:
    """Checks that a model with LSTMs is exported only in formats that can hold them.

    Raises:
      OptionError: for the first format that is not allowed.
    """
    if wrong := [name for name in formats if name not in allowed]:
        raise OptionError(
            "export_format",
            f"be {' or '.join(allowed)} for a model with LSTMs, whose loop over the tokens "
            f"{wrong[0]} cannot hold",
            ",".join(formats),
        )
