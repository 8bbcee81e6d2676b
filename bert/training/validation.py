"""Validates that options of a training run suit its model and devices."""

from bert.options import Message, MessageError, Option, OptionError
from modeling import BertConfig


def check_length(max_seq_length: int, config: BertConfig) -> None:
    """Checks that the model has positions for the longest sequences."""
    limit = config.max_position_embeddings
    if max_seq_length > limit:
        must = Message(
            "be at most %d, the `max_position_embeddings` of %s", limit, Option("bert_config_file")
        )
        raise OptionError("max_seq_length", must, max_seq_length)


def check_precision(precision: str, num_replicas: int) -> None:
    """Checks that a number of devices can compute in a precision."""
    if precision == "mixed_float16" and num_replicas > 1:
        raise MessageError(
            "%s needs %s: skipping a step that overflows cannot be decided on several. "
            "mixed_bfloat16 needs no loss scale.",
            Option("precision", precision),
            Option("strategy", "one_device"),
        )


def check_batch_size(batch_size: int, num_micro_batches: int, num_replicas: int) -> None:
    """Checks that a batch to train on can be split into equal parts."""
    if batch_size % (num_replicas * num_micro_batches):
        accumulation = Option("gradient_accumulation_steps")
        raise OptionError(
            "train_batch_size",
            Message("be a multiple of the %d devices times %s", num_replicas, accumulation),
            Message("%d and %d", batch_size, num_micro_batches),
        )


def check_frozen_layers(freeze_layers: int, config: BertConfig) -> None:
    """Checks that the encoder has as many layers as are not to be trained."""
    limit = config.num_hidden_layers
    if freeze_layers > limit:
        must = Message(
            "be at most %d, the `num_hidden_layers` in %s", limit, Option("bert_config_file")
        )
        raise OptionError("freeze_layers", must, freeze_layers)
