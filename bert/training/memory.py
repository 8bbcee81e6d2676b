"""What a training will need of memory and disk, estimated before its first step."""

import dataclasses

import keras
import tensorflow as tf
from absl import logging

from bert.commands.settings import TrainingSettings
from bert.files.machine import free_disk, free_memory, gpu_memory, size_text
from bert.weights.variables import count_parameters
from modeling import BertConfig, BertModel

# Weights, gradients and the optimizer's two slots, all float32.
_BYTES = 4
_NUM_SLOTS = 2
# What a layer keeps for the backward pass: so many values for each token and hidden unit, and for
# each token, head and token attended to. Peaks measured on a CPU were within 20 % of it.
_KEPT_VALUES = 28
_KEPT_SCORES = 3
# Likewise of a layer of LSTMs.
_LSTM_VALUES = 30
# Of these, what remains where activations have 16 bits.
_HALF_PRECISION = 0.6
# Logits over the vocabulary, their softmax and its gradient.
_LOGITS = 3


def encoders_of(model: keras.Model) -> list[BertModel]:
    """Returns the encoders among the layers of a model."""
    return [layer for layer in model.layers if isinstance(layer, BertModel)]


@dataclasses.dataclass(frozen=True)
class MemoryNeeds:
    """Bytes on a device.

    Attributes:
      weights: Of the model.
      training: Of gradients and the optimizer's slots.
      batch: Of the activations of a batch.
    """

    weights: int
    training: int
    batch: int

    @property
    def total(self) -> int:
        return self.weights + self.training + self.batch


def estimate_memory(
    config: BertConfig,
    *,
    num_sequences: int,
    length: int,
    precision: str = "float32",
    is_training: bool = True,
    num_predictions: int = 0,
    gradient_checkpointing: bool = False,
) -> MemoryNeeds:
    """Returns what a model needs on each device.

    Args:
      config: The shape of the model.
      num_sequences: That go through it at once: a replica's share of a batch, of which gradient
        accumulation makes parts; an example of several choices has as many.
      length: Tokens per sequence.
      precision: As `--precision`.
      is_training: Whether activations are kept, and there are gradients and slots.
      num_predictions: Masked tokens per sequence.
      gradient_checkpointing: Whether the inputs alone are kept of all layers but one.
    """
    weights = _BYTES * count_parameters(config)
    scores = _KEPT_SCORES * config.num_attention_heads * length
    # The feed-forward layer's share of the values is as many times wider as it is.
    width = config.hidden_size * 20 + config.intermediate_size * (_KEPT_VALUES - 20) // 4
    layer = config.hidden_size * _LSTM_VALUES if config.is_bilstm else width + scores
    kept = layer * (config.num_hidden_layers if is_training else 1)
    if gradient_checkpointing:
        kept = layer + config.hidden_size * config.num_hidden_layers
    values = num_sequences * length * kept
    logits = _LOGITS * num_sequences * num_predictions * config.vocab_size
    share = 1.0 if precision == "float32" else _HALF_PRECISION
    return MemoryNeeds(
        weights,
        (1 + _NUM_SLOTS) * weights if is_training else 0,
        int(_BYTES * values * share) + _BYTES * logits,
    )


def tell_memory(needs: MemoryNeeds, advice: str) -> bool:
    """Logs what is needed beside what is free; returns whether that will do, and warns if not.

    Args:
      needs: On each device.
      advice: What to lower, for the warning.
    """
    gpus = gpu_memory() if tf.config.list_physical_devices("GPU") else []
    # TensorFlow takes nearly all memory of a GPU at once, so what is free there tells nothing.
    free, place = (min(gpus), "on each GPU") if gpus else (free_memory(), "free")
    logging.info(
        "Memory: weights %s, gradients and optimizer %s, a batch about %s; about %s in all%s.",
        *map(size_text, (needs.weights, needs.training, needs.batch, needs.total)),
        f", of {size_text(free)} {place}" if free is not None else "",
    )
    if free is None or needs.total <= free:
        return True
    logging.warning(
        "About %s of memory will be needed, and %s are %s: the run may be killed. %s",
        size_text(needs.total),
        size_text(free),
        place,
        advice,
    )
    return False


def tell_needs(
    settings: TrainingSettings,
    config: BertConfig,
    *,
    num_replicas: int,
    num_train_steps: int | None,
    rows: int = 1,
) -> None:
    """Logs what the training that the settings ask for needs, and warns where there is less.

    Args:
      settings: Those of a script, which has --train_batch_size and --max_seq_length.
      config: The shape of the model.
      num_replicas: Devices that share a batch; those of this machine share its memory.
      num_train_steps: Of the whole training; None where nobody knows.
      rows: Sequences that make an example.
    """
    tell_training_memory(settings, config, num_replicas, rows)
    tell_disk(settings, config, num_train_steps)


def tell_training_memory(
    settings: TrainingSettings, config: BertConfig, num_replicas: int, rows: int = 1
) -> bool:
    """Does the half of `tell_needs` that is about memory; returns whether there is enough."""
    parts = num_replicas * settings.gradient_accumulation_steps
    return tell_memory(
        estimate_memory(
            config,
            num_sequences=-(-settings.train_batch_size * rows // parts),  # type: ignore[attr-defined]
            length=settings.max_seq_length,  # type: ignore[attr-defined]
            precision=settings.precision,
            num_predictions=getattr(settings, "num_predictions", 0),
            gradient_checkpointing=settings.gradient_checkpointing,
        ),
        f"{'Lower' if settings.gradient_checkpointing else 'Give --gradient_checkpointing, lower'} "
        "--train_batch_size or --max_seq_length, or raise --gradient_accumulation_steps.",
    )


def tell_disk(settings: TrainingSettings, config: BertConfig, *num_train_steps: int | None) -> None:
    """Does the half of `tell_needs` that is about the disk, for one training or several."""
    needed = sum(checkpoint_bytes(settings, config, each) for each in num_train_steps)
    free = free_disk(settings.output_dir)
    if free is None:
        return
    logging.info("Disk: checkpoints about %s, of %s free.", size_text(needed), size_text(free))
    if needed > free:
        logging.warning(
            "The checkpoints to come take about %s, and %s are free in %s. Lower "
            "--keep_checkpoint_max, or give another --output_dir.",
            size_text(needed),
            size_text(free),
            settings.output_dir,
        )


def checkpoint_bytes(
    settings: TrainingSettings, config: BertConfig, num_train_steps: int | None
) -> int:
    """Returns the bytes of all checkpoints that a training has on disk at once.

    These are those that are kept, the one that is written before an old one is removed, the best
    one and the next best where there are evaluations on the way, and the weights alone.
    """
    weights = _BYTES * count_parameters(config)
    # One before the first step, and one at the end. Where nobody knows how many steps there are,
    # as many as are kept at least.
    steps = settings.save_checkpoints_steps * (settings.keep_checkpoint_max + 1)
    steps = steps if num_train_steps is None else num_train_steps
    written = 1 + -(-steps // settings.save_checkpoints_steps)
    kept = min(settings.keep_checkpoint_max or written, written)
    resumable = kept + (written > kept)
    fine_tunes = hasattr(settings, "num_train_epochs")
    evaluates = fine_tunes and settings.evaluates_in_training()  # type: ignore[attr-defined]
    return weights * ((1 + _NUM_SLOTS) * resumable + 2 * evaluates + fine_tunes)
