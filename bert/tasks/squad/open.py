"""Opens the task of question answering from its options."""

import dataclasses
from collections.abc import Sequence

from bert.options import take
from bert.tasks.bilstm import find_bilstm
from bert.tasks.options import Encoder, Lengths
from bert.tasks.squad.answers import Decoding
from bert.tasks.squad.options import DecodingOptions, SquadData
from bert.tasks.squad.task import QuestionAnswering
from bert.tasks.task import TaskContext
from bert.weights.variables import require_segments


def open_squad(
    context: TaskContext,
    data: SquadData,
    decoding: DecodingOptions,
    lengths: Lengths,
    encoder: Encoder,
    *,
    scored_options: Sequence[str] = (),
) -> QuestionAnswering:
    """Returns the task that the options name, checked against the model.

    Args:
      context: The model, and what the run does with it.
      data: The files, and how they are split into windows.
      decoding: Which spans are answers.
      lengths: The length of windows.
      encoder: The layers between the encoder and the head.
      scored_options: The options in use that need answers in the file of the dev set.

    Raises:
      ValueError: where options and model do not fit.
    """
    require_segments(context.config, "a question and its paragraph")
    options = take(DecodingOptions, decoding)
    # The option may leave the casing to the model's folder.
    casing = context.tokenizer.basic_tokenizer.do_lower_case
    files = {"train": data.train_file, "dev": data.predict_file}
    return QuestionAnswering(
        context.config,
        context.tokenizer,
        lengths.max_seq_length,
        data.doc_stride,
        data.max_query_length,
        Decoding(**dataclasses.asdict(options), do_lower_case=casing),
        {split: path for split, path in files.items() if path},
        scored_options,
        find_bilstm(context, add_bilstm=encoder.add_bilstm),
    )
