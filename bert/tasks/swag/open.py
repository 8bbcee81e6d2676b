"""Opens the task of multiple choice from its options."""

from bert.tasks.bilstm import find_bilstm
from bert.tasks.options import Encoder, Lengths
from bert.tasks.swag.options import SwagData
from bert.tasks.swag.task import MultipleChoice
from bert.tasks.task import TaskContext
from bert.weights.variables import require_segments


def open_swag(
    context: TaskContext, data: SwagData, lengths: Lengths, encoder: Encoder
) -> MultipleChoice:
    """Returns the task that the options name, checked against the model.

    Raises:
      ValueError: where options and model do not fit.
    """
    require_segments(context.config, "a text and its ending")
    return MultipleChoice(
        context.config,
        context.tokenizer,
        lengths.max_seq_length,
        data,
        context.find_split(data),
        find_bilstm(context, add_bilstm=encoder.add_bilstm),
    )
