"""Options of any training run, and checks that they suit its model and its devices."""

import dataclasses
import importlib.util
from typing import TYPE_CHECKING

from bert.options import REQUIRED, Message, MessageError, Option, OptionError, OptionGroup, option
from bert.weights.options import AUTO, PRECISION, PRECISIONS

if TYPE_CHECKING:
    from modeling import BertConfig

# Files of a training run: a JSON object on each line, with its `step`.
TRAIN_LOG, EVALUATIONS = "train_log.jsonl", "evaluations.jsonl"
# The results of several seeds, or of a grid of options.
RUNS = "runs.json"
TRACKERS = ("tensorboard", "wandb", "mlflow")
LARGEST_SEED = 2**32 - 1
OVERWRITE = Message("Delete what an earlier run left in %s, and start over.", Option("output_dir"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compute(OptionGroup):
    """How a model computes, and on which devices."""

    GROUP = "devices"

    gradient_accumulation_steps: int = option(
        1,
        "Number of parts to split each batch into, to save memory. Neither the number of steps "
        "nor, but for rounding and the masks of dropout, the gradients of a batch change.",
        low=1,
    )
    gradient_checkpointing: bool = option(
        False,
        "Recompute each layer in the backward pass instead of storing it. Saves memory, more than "
        "half of it for long sequences; the result is the same bit for bit.",
    )
    precision: str = option(
        "float32",
        f"{PRECISION} Weights, losses and the optimizer stay float32; mixed_float16 uses loss "
        "scaling. auto: float32 or mixed_bfloat16, whichever this machine computes faster; a "
        "resumed training keeps its precision.",
        choices=(*PRECISIONS, AUTO),
        shapes_training=True,
    )
    strategy: str = option(
        "one_device",
        "Devices to train on. one_device: a single one; mirrored: all of this machine; "
        "multi_worker: those of several processes or machines, started by `bert launch` or listed "
        "in TF_CONFIG. Batch sizes are totals across all devices.",
        choices=("one_device", "mirrored", "multi_worker"),
    )
    all_reduce_precision: str = option(
        "float32",
        "Precision of the gradients that devices exchange. bfloat16 halves the traffic, for slow "
        "networks, but leaves gradients and their sums only 8 bits of precision; weights and the "
        "optimizer stay float32.",
        choices=("float32", "bfloat16"),
        shapes_training=True,
    )
    # The original's default; there, so many steps were one call of the TPU.
    iterations_per_loop: int = option(
        1000,
        "When to read the results of a step. 1: before the next step starts; more: on a GPU, after "
        "it has started, so that the GPU does not wait for the host. The results are the same.",
        low=1,
    )
    use_tpu: bool = option(False, Message("Train on the TPU given by %s.", Option("tpu_name")))
    tpu_name: str | None = option(None, "Name or grpc:// address of the TPU.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output(OptionGroup):
    """The folder of a run, and what is saved in it when."""

    GROUP = "output"

    output_dir: str = option(REQUIRED, "Folder for checkpoints, logs and results.")
    save_checkpoints_steps: int = option(1000, "Steps between checkpoints.", low=1)
    keep_checkpoint_max: int = option(
        5, "Number of checkpoints to keep, the latest ones; 0 keeps all.", low=0
    )
    log_every_steps: int | None = option(
        None,
        "Steps between points of TensorBoard's curves, each also a line of the log. Default: 1/20 "
        "of the training, at most 100.",
        low=1,
    )
    report_to: str | None = option(
        None,
        f"Trackers that get the flags, curves and scores of a training run, comma-separated: "
        f"{', '.join(TRACKERS)}. TensorBoard's curves are written in any case; naming it adds its "
        "table of hyperparameters.",
    )
    overwrite_output_dir: bool = option(False, OVERWRITE)
    resume_with_changes: bool = option(
        False,
        Message(
            "Continue the training in %s even if it began with other flags, data or weights.",
            Option("output_dir"),
        ),
        group="training",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seed(OptionGroup):
    """The seed of a training run."""

    GROUP = "training"

    seed: int = option(
        12345,
        "Seed for the initial weights, the data order and dropout.",
        low=0,
        high=LARGEST_SEED,
        shapes_training=True,
    )


def read_trackers(report_to: str | None) -> list[str]:
    """Returns the names of the trackers of a run.

    Raises:
      OptionError: where there is no such tracker, or its package is not installed.
    """
    names = [name.strip() for name in (report_to or "").split(",") if name.strip()]
    for name in names:
        if name not in TRACKERS:
            raise OptionError(
                "report_to", f"have names of {', '.join(TRACKERS)}, comma-separated", report_to
            )
        spec = importlib.util.find_spec(name)
        # wandb writes into a folder `wandb`, which could be imported, too.
        if spec is None or spec.origin is None:
            must = "name trackers whose packages are installed"
            raise OptionError("report_to", must, name, f"`pip install {name}` installs it.")
    return [*dict.fromkeys(names)]


def check_precision(precision: str, num_replicas: int) -> None:
    """Checks that a number of devices can compute in a precision."""
    if precision == "mixed_float16" and num_replicas > 1:
        raise MessageError(
            "%s needs %s: skipping a step that overflows cannot be decided on several. "
            "mixed_bfloat16 needs no loss scale.",
            Option("precision", precision),
            Option("strategy", "one_device"),
        )


def check_step(batch_size: int, compute: Compute, num_replicas: int) -> None:
    """Checks that devices can train on equal parts of a batch, and in the precision."""
    num_micro_batches = compute.gradient_accumulation_steps
    if batch_size % (num_replicas * num_micro_batches):
        devices = f"the {num_replicas} devices times " if num_replicas > 1 else ""
        raise OptionError(
            "train_batch_size",
            Message("be a multiple of %s%s", devices, Option("gradient_accumulation_steps")),
            Message("%d and %d", batch_size, num_micro_batches),
        )
    check_precision(compute.precision, num_replicas)


def check_frozen_layers(freeze_layers: int, config: "BertConfig") -> None:
    """Checks that the encoder has as many layers as are not to be trained."""
    limit = config.num_hidden_layers
    if freeze_layers > limit:
        must = Message(
            "be at most %d, the `num_hidden_layers` in %s", limit, Option("bert_config_file")
        )
        raise OptionError("freeze_layers", must, freeze_layers)
