"""Training and evaluation of any task's model, on one device or many (paper, appendix A.2).

One optimizer step: read a batch; count what its losses are divided by, over all replicas; take the
gradients of each micro-batch's share; sum over replicas; clip once; apply. The result does not
depend on the number of replicas or micro-batches, up to rounding (dropout masks apart).
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
from absl import logging

import modeling
import optimization
from bert.files.signals import deferred_stop, stop_signal
from bert.network.fusion import fused_chains
from bert.network.rewriting import without_remapping
from bert.training.clock import CLOCK_STATE, TrainingClock, is_last
from bert.training.keeper import Keeper
from bert.training.loss_scale import LossScale
from bert.training.memory import encoders_of
from bert.training.objective import Objective
from bert.training.options import Compute
from bert.training.pace import READS, RESTS, TAKES
from bert.training.results import Results
from bert.training.strategies import has_several_workers, is_chief, pace_of, together
from bert.training.train_log import TrainLog
from bert.training.validation import check_precision
from bert.weights import checkpoint
from bert.weights.checkpoint import Stored

Tensor = Any
Batch = Mapping[str, Tensor]

# Gradients are summed in packs of so many bytes, some of which are on their way while others are
# computed or packed. In a single one, a step of BERT-Base on two workers took 1.4 times as long.
_PACK_BYTES = 1 << 24

# In place of the last step of a training that goes by the clock: more than there ever are.
_NO_LAST_STEP = 1 << 40

# The names of what float16 alone keeps in a checkpoint.
_LOSS_SCALE = ("loss_scale", "loss_scale/good_steps")
# What a checkpoint may lack: a training may go on in float16 that began in another precision, or by
# a clock that began with a number of steps.
_OPTIONAL = (*_LOSS_SCALE, *CLOCK_STATE)

# Among the results of a step, how many replicas were asked to stop.
_STOP = "stop"


class Trainer:
    """A model, its optimizer and its objective: one optimizer step at a time.

    To be made under `strategy.scope()`.

    Args:
      model: A functional model whose inputs are a dictionary.
      optimizer: Counts the steps in `iterations`.
      objective: What is minimized.
      seed: Seed of the dropout masks; with the step, it determines them.
      num_micro_batches: Parts into which each replica's batch is cut to save memory.
      loss_scale: For float16.
      signature: Shapes and dtypes of a batch where they differ between batches; without, the step
        is built for those of the first.

    Attributes:
      all_reduce_precision: The dtype in which replicas send each other their gradients, which is to
        be set before the first step.
      is_stop_agreed: Whether a signal has asked one of several workers to stop. They learn of it
        with the same step, since none can take the next one alone.
      num_unread: Steps whose results need not be read before the next one starts, so that a GPU
        does not wait for the host; all are before a checkpoint is saved.
      clock: That of a training which ends when a time is spent; None for one of so many steps. To
        be set before the state is read.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: optimization.AdamWeightDecayOptimizer,
        objective: Objective,
        *,
        seed: int = 0,
        num_micro_batches: int = 1,
        loss_scale: LossScale | None = None,
        signature: Mapping[str, tf.TensorSpec] | None = None,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.objective = objective
        self.seed = seed
        self.num_micro_batches = num_micro_batches
        self.loss_scale = loss_scale
        self.all_reduce_precision = "float32"
        self.strategy = tf.distribute.get_strategy()
        if loss_scale:
            check_precision("mixed_float16", self.strategy.num_replicas_in_sync)
        optimizer.build(model.trainable_variables)
        self._result_names: list[str] = []
        self._has_several_workers = has_several_workers(self.strategy)
        self.is_stop_agreed = False
        self.num_unread = 0
        self.clock: TrainingClock | None = None
        # Shares of several replicas are no tensors, and workers say beside a batch whether to stop.
        others = self._has_several_workers or self.strategy.num_replicas_in_sync > 1
        self._step_function = tf.function(
            self._distributed_step,
            input_signature=None if others or signature is None else [signature],
            reduce_retracing=True,
            autograph=False,
        )

    @classmethod
    def of(
        cls,
        compute: Compute,
        model: keras.Model,
        optimizer: optimization.AdamWeightDecayOptimizer,
        objective: Objective,
        *,
        seed: int,
        signature: Mapping[str, tf.TensorSpec] | None = None,
    ) -> "Trainer":
        """Returns a trainer that computes as the options say."""
        for bert in encoders_of(model):
            bert.gradient_checkpointing = compute.gradient_checkpointing
        trainer = cls(
            model,
            optimizer,
            objective,
            seed=seed,
            num_micro_batches=compute.gradient_accumulation_steps,
            loss_scale=LossScale() if compute.precision == "mixed_float16" else None,
            signature=signature,
        )
        trainer.all_reduce_precision = compute.all_reduce_precision
        trainer.num_unread = min(compute.iterations_per_loop - 1, 1)
        return trainer

    def state(self) -> dict[str, keras.Variable]:
        """Returns all that a resumed run needs, by its name in a checkpoint."""
        optimizer = self.optimizer
        state = {variable.path: variable for variable in self.model.weights}
        for slot, moments in zip(
            checkpoint.SLOTS, (optimizer.first_moments, optimizer.second_moments), strict=True
        ):
            for variable, moment in zip(self.model.trainable_variables, moments, strict=True):
                state[f"{variable.path}/{slot}"] = moment
        if self.loss_scale:
            scale = (self.loss_scale.scale, self.loss_scale.good_steps)
            state |= zip(_LOSS_SCALE, scale, strict=True)
        if self.clock:
            state |= self.clock.state()
        return {**state, checkpoint.GLOBAL_STEP: optimizer.iterations}

    @property
    def step(self) -> int:
        """The number of steps taken."""
        return int(self.optimizer.iterations.numpy())

    def train_step(self, batch: Batch) -> dict[str, float]:
        """Takes one step and returns its loss, the loss's parts, learning rate and norm."""
        return self.read_results(self.start_step(batch))

    def start_step(self, batch: Batch) -> Tensor:
        """Starts one step and returns what `read_results` takes; a GPU may still be at it."""
        asked = [tf.constant(float(stop_signal() is not None))] if self._has_several_workers else []
        with without_remapping():
            return self._step_function(batch, *asked)

    def read_results(self, per_replica: Tensor) -> dict[str, float]:
        """Returns the results of a step, waiting for its end."""
        values = self.strategy.experimental_local_results(per_replica)[0].numpy()
        results = dict(zip(self._result_names, values.tolist(), strict=True))
        self.is_stop_agreed = results.pop(_STOP, 0.0) > 0
        return results

    def _distributed_step(self, batch: Batch, *asked: Tensor) -> Tensor:
        return self.strategy.run(self._replica_step, args=(batch, *asked))

    def _replica_step(self, batch: Batch, *asked: Tensor) -> Tensor:
        learning_rate = tf.convert_to_tensor(self.optimizer.learning_rate)
        weights = self._all_reduce(self.objective.weights(batch))
        gradients, parts = self._gradients(batch, weights)
        # What comes from outside belongs to no device, and so to no reduction.
        asked = tuple(tf.identity(each) for each in asked)
        sent = self._cast(gradients, self.all_reduce_precision)
        gradients, parts, asked = self._all_reduce((sent, parts, asked))
        gradients = self._cast(gradients, "float32")
        scale = tf.convert_to_tensor(self.loss_scale.scale) if self.loss_scale else 1.0
        unscale = 1.0 / scale
        norm = tf.linalg.global_norm(gradients) * unscale
        self._apply(gradients, optimization.clip_scale(norm) * unscale)
        total = {"loss": sum(parts.values())}
        # It comes first, and a part that is called so, too, gives way to it.
        results = {**total, **parts, **total}
        results |= {"learning_rate": learning_rate, "gradient_norm": norm}
        results |= {"loss_scale": scale} if self.loss_scale else {}
        results |= dict(zip([_STOP], asked, strict=False))
        self._result_names = list(results)
        return tf.stack(list(results.values()))

    def _all_reduce(self, tensors: Any) -> Any:
        if self.strategy.num_replicas_in_sync == 1:
            return tensors
        context = tf.distribute.get_replica_context()
        flat = tf.nest.flatten(tensors)
        options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=_PACK_BYTES)
        # A pack is of one dtype.
        for dtype in dict.fromkeys(each.dtype for each in flat):
            own = [index for index, each in enumerate(flat) if each.dtype == dtype]
            values = [flat[index] for index in own]
            sums = context.all_reduce(tf.distribute.ReduceOp.SUM, values, options)
            for index, total in zip(own, sums, strict=True):
                flat[index] = total
        return tf.nest.pack_sequence_as(tensors, flat)

    def _cast(self, gradients: list[Tensor], dtype: str) -> list[Tensor]:
        """Returns gradients in another precision, where others need them at all."""
        if self.strategy.num_replicas_in_sync == 1:
            return gradients
        return [tf.cast(each, dtype) for each in gradients]

    def _gradients(self, batch: Batch, weights: Batch) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Returns the gradients of this replica's share of the loss, and its share of each part."""
        count = self.num_micro_batches
        step = tf.cast(self.optimizer.iterations, tf.int32)
        replica = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32)
        first = (step * self.strategy.num_replicas_in_sync + replica) * count
        if count == 1:
            return self._micro_gradients(batch, weights, first)
        cut = {name: tf.split(values, count) for name, values in batch.items()}
        sums = self._micro_gradients({name: each[0] for name, each in cut.items()}, weights, first)
        for index in range(1, count):
            # One after the other, or all parts' activations would be alive at once.
            with tf.control_dependencies(tf.nest.flatten(sums)):
                part = {name: tf.identity(each[index]) for name, each in cut.items()}
            more = self._micro_gradients(part, weights, first + index)
            sums = tf.nest.map_structure(tf.add, sums, more)
        return sums

    def _micro_gradients(
        self, batch: Batch, weights: Batch, number: Tensor
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        seed = tf.stack([tf.constant(self.seed, tf.int32), number])
        inputs = {name: batch[name] for name in self.model.input}
        variables = [variable.value for variable in self.model.trainable_variables]
        with fused_chains(self.model):
            with tf.GradientTape() as tape, modeling.dropout_seed(seed):
                parts = self.objective.losses(self.model(inputs, training=True), batch, weights)
                loss = sum(parts.values())
                if self.loss_scale:
                    loss *= self.loss_scale.scale
            gradients = tape.gradient(loss, variables)
        return [tf.convert_to_tensor(each) for each in gradients], parts

    def _apply(self, gradients: Sequence[Tensor], scale: Tensor) -> None:
        """Applies gradients that are already the same on every replica, times `scale`."""
        variables = self.model.trainable_variables
        if self.loss_scale is None:
            self.optimizer.apply(gradients, variables, scale=scale)
            return
        finite = tf.math.is_finite(scale) & (scale > 0)

        def skip() -> None:
            self.optimizer.iterations.assign_add(1)

        tf.cond(finite, lambda: self.optimizer.apply(gradients, variables, scale=scale), skip)
        self.loss_scale.update(finite)


def initialize(
    model: keras.Model,
    state: Mapping[str, keras.Variable],
    checkpoints: checkpoint.Checkpoints | None,
    init: Stored | None,
) -> int:
    """Sets the variables and returns the step they are at.

    In this order: the latest checkpoint of this run; else the weights of `init`; else the random
    initial values.

    Args:
      model: Gets its weights.
      state: What is read from this run's own checkpoint: `Trainer.state()`, or the weights alone.
      checkpoints: Those of this run; None where those in its folder are of another.
      init: The weights to begin with, or None.
    """
    step = checkpoints.resume(state, optional=_OPTIONAL) if checkpoints else None
    if checkpoints and step is not None:
        unread = f"; --init_checkpoint={init.path} is not read" if init else ""
        logging.info("Resuming from step %d in %s%s.", step, checkpoints.folder, unread)
        return step
    if init:
        init.assign(model.weights)
    else:
        logging.warning("No checkpoint to start from: the weights are random.")
    return 0


# Gets the step and its results; a true value ends the training there.
Observer = Callable[[int, Mapping[str, float]], bool | None]


def train(
    trainer: Trainer,
    batches: Any,
    *,
    num_train_steps: int | None,
    checkpoints: checkpoint.Checkpoints,
    save_checkpoints_steps: int,
    observers: Sequence[Observer],
    log: TrainLog | None = None,
) -> None:
    """Trains up to step `num_train_steps`, or as long as the trainer's clock says.

    Checkpoints are saved on the way and at the end.

    Args:
      trainer: Already initialized; training goes on from its step.
      batches: As `batches.Batches`.
      num_train_steps: Total, steps of earlier runs included; None where there is a clock.
      checkpoints: Where to save; only the chief worker does.
      save_checkpoints_steps: Steps between checkpoints.
      observers: Called after each step with its number and results; any of them may end it, where
        steps are left unread at a save alone.
      log: Keeps the results of the steps that checkpoints are of.

    However it ends, what it has reached is saved, if the weights are sound: `Stop` comes when that
    is done. An exception in a step may have come in the midst of changing them.

    Raises:
      NonFiniteLossError: with the step and where its batch was written; nothing is saved after it.
      Stop: where a signal asked for it, with the step.
    """
    start, clock = trainer.step, trainer.clock
    if is_last(start, num_train_steps, clock):
        spent = ", and the time budget is spent" if clock else ""
        logging.warning("Nothing to train: step %d is reached already%s.", start, spent)
        return
    saves = is_chief(trainer.strategy)
    if saves and start == 0:
        with deferred_stop():
            checkpoints.save(trainer.state(), start)
    pending = Results(trainer, batches, checkpoints.folder if saves else None, log)
    keeper = Keeper(
        trainer,
        checkpoints if saves else None,
        has_several_workers=has_several_workers(trainer.strategy),
        log=log,
        pending=pending,
    )
    pace = pace_of(trainer.strategy)
    pace.at(start + 1, READS)
    end_step = _NO_LAST_STEP if num_train_steps is None else num_train_steps
    with keeper, contextlib.closing(pace), together(trainer.strategy):
        steps = batches.iterate(start, end_step, trainer.strategy)
        if clock:
            clock.go()
        for step, batch in enumerate(steps, start=start + 1):
            pace.at(step, TAKES)
            is_due = step % save_checkpoints_steps == 0 or step == num_train_steps
            with keeper.taking_step(step):
                pending.start(step, batch)
                ended = pending.read(0 if is_due else trainer.num_unread)
                if clock and clock.take():
                    ended += pending.read()
            pace.at(step, RESTS)
            ends = [observe(*each) for each in ended for observe in observers]
            end = is_last(step, num_train_steps, clock) or any(ends)
            if is_due or end:
                keeper.save()
            if end:
                return
            pace.at(step + 1, READS)
            if clock:
                clock.go()
