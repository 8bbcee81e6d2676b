"""One optimizer step of any task's model, on one device or many (paper, appendix A.2).

Count what the losses of a batch are divided by, over all replicas; compute the gradients of each
micro-batch's share; sum over replicas; clip once; apply. The result does not depend on the number
of replicas or micro-batches, up to rounding (dropout masks apart).
"""

import collections
import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import modeling
import optimization
from bert.dropout import dropout_seed
from bert.files import owned
from bert.files.process import deferred_stop, stop_signal, take_signals_again
from bert.log import logger
from bert.network.kernels import CompiledLayers, fused_chains, is_on, without_remapping
from bert.options import Message, Option
from bert.training.clock import CLOCK_STATE, TrainingClock
from bert.training.devices import can_compile
from bert.training.loop import Batch, NonFiniteLossError, Objective
from bert.training.meeting import READS, RESTS, TAKES, Pace
from bert.training.options import Compute, check_precision
from bert.training.strategies import has_several_workers, meeting_of
from bert.weights.checkpoint import CheckpointList, Stored
from bert.weights.variables import GLOBAL_STEP, SLOTS

Tensor = Any

# Gradients are exchanged in packs of this size, while other gradients are computed or packed. In a
# single pack, a step of BERT-Base on two workers took 1.4 times as long.
_PACK_BYTES = 1 << 24

# Compiling takes about as long as it saves in so many steps (BERT-Base, an H100).
_LEAST_COMPILED_STEPS = 500

# The last step of a training run that ends by the clock: more steps than it can take.
_NO_LAST_STEP = 1 << 40

# The names in a checkpoint of the state of float16.
_LOSS_SCALE = ("loss_scale", "loss_scale/good_steps")
# Names that a checkpoint may lack: a run may resume in float16 that started in another precision,
# or with a time budget that started with a number of steps.
_OPTIONAL = (*_LOSS_SCALE, *CLOCK_STATE)

# The name of a result of a step: the number of replicas that were requested to stop.
_STOP = "stop"


class LossScale:
    """The scale that keeps float16 gradients in range: it multiplies the loss, divides gradients.

    Halves where a gradient overflows, in which case the step changes no weight; doubles after
    `GROWTH_STEPS` steps without (Micikevicius et al., Mixed Precision Training, section 3.2). A
    gradient that is not finite at `LEAST` is none because of its loss, not of its scale.
    """

    INITIAL = 2.0**15
    LEAST = 1.0
    GROWTH_STEPS = 2000

    def __init__(self) -> None:
        self.scale = keras.Variable(self.INITIAL, trainable=False, name="loss_scale")
        self.good_steps = keras.Variable(0, trainable=False, dtype="int32", name="good_steps")

    def update(self, finite: Tensor) -> None:
        grows = self.good_steps + 1 >= self.GROWTH_STEPS
        grown = tf.where(grows, self.scale * 2.0, tf.convert_to_tensor(self.scale))
        kept = tf.where(grows, 0, self.good_steps + 1)
        halved = tf.maximum(self.scale / 2.0, self.LEAST)
        self.scale.assign(tf.where(finite, grown, halved))
        self.good_steps.assign(tf.where(finite, kept, 0))


class Trainer:
    """A model, its optimizer and its objective: one optimizer step at a time.

    Must be created under `strategy.scope()`.

    Args:
      model: A functional model whose inputs are a dictionary.
      optimizer: Counts the steps in `iterations`.
      objective: What is minimized.
      seed: Seed of the dropout masks; with the step, it determines them.
      num_micro_batches: Parts into which each replica's batch is split to save memory.
      loss_scale: For float16.
      signature: Shapes and dtypes of a batch where they differ between batches; None to build the
        step for those of the first batch.

    Attributes:
      all_reduce_precision: The dtype in which replicas exchange their gradients; to be set before
        the first step.
      is_stop_agreed: Whether a signal has requested one of several workers to stop. It is a result
        of a step, so that all stop after the same step.
      num_unread: Maximum steps whose results are unread when the next one starts, so that a GPU
        does not wait for the host; all are read before a checkpoint is saved.
      clock: Ends training when a time budget is spent; None where a number of steps does. To be set
        before the state is read.
      folder: The folder to write the batch of a step to whose loss is not finite; None for none.
      compiles: Whether XLA compiles the layers and the update, since operations one by one keep a
        GPU waiting; to be set before the first step.
      reached: The step of the current weights, None while they are changing.
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
        self.compiles = is_on("GPU", model) and can_compile()
        self.is_stop_agreed = False
        self.num_unread = 0
        self.clock: TrainingClock | None = None
        self.folder: str | None = None
        self.reached: int | None = None
        self._pace = Pace()
        self._batches: Any = None
        # Started steps, and results that no observer has received.
        self._unread: collections.deque[tuple[int, Tensor]] = collections.deque()
        self._results: collections.deque[tuple[int, dict[str, float]]] = collections.deque()
        # The batches of several replicas are not tensors, and workers pass a stop signal, too.
        others = self._has_several_workers or self.strategy.num_replicas_in_sync > 1
        self._signature = None if others or signature is None else [signature]
        self._step_function = self._make_step_function()

    def _make_step_function(self) -> Any:
        return tf.function(
            self._distributed_step,
            input_signature=self._signature,
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
        """Returns a trainer that computes according to the options."""
        for layer in model.layers:
            if isinstance(layer, modeling.BertModel):
                layer.gradient_checkpointing = compute.gradient_checkpointing
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
        # A CPU has ended a step when its function returns.
        unread = 0 if is_on("CPU", model) else compute.iterations_per_loop - 1
        trainer.num_unread = min(unread, 1)
        return trainer

    def state(self) -> dict[str, keras.Variable]:
        """Returns the variables that a resumed run needs, by name in a checkpoint."""
        optimizer = self.optimizer
        state = {variable.path: variable for variable in self.model.weights}
        for slot, moments in zip(
            SLOTS, (optimizer.first_moments, optimizer.second_moments), strict=True
        ):
            for variable, moment in zip(self.model.trainable_variables, moments, strict=True):
                state[f"{variable.path}/{slot}"] = moment
        if self.loss_scale:
            scale = (self.loss_scale.scale, self.loss_scale.good_steps)
            state |= zip(_LOSS_SCALE, scale, strict=True)
        if self.clock:
            state |= self.clock.state()
        return {**state, GLOBAL_STEP: optimizer.iterations}

    @property
    def step(self) -> int:
        """The number of steps taken."""
        return int(self.optimizer.iterations.numpy())

    def is_last(self, step: int, num_train_steps: int | None) -> bool:
        """Returns whether the step that training has reached is the last one."""
        return self.clock.is_over if self.clock else step == num_train_steps

    def read(self, batches: Any, num_train_steps: int | None) -> Iterator[tuple[int, Batch]]:
        """Yields the number and the batch of each step to take, and starts the clock.

        Args:
          batches: As `batches.Batches`.
          num_train_steps: The last step; None where there is a clock.
        """
        start = self.reached = self.step
        self.compiles &= num_train_steps is None or num_train_steps >= _LEAST_COMPILED_STEPS
        self._batches = batches
        self._unread.clear()
        self._results.clear()
        if self.is_last(start, num_train_steps):
            spent = ", and the time budget is spent" if self.clock else ""
            logger.warning("Nothing to train: step %d is reached already%s.", start, spent)
            return
        self._read_at(start + 1)
        last = _NO_LAST_STEP if num_train_steps is None else num_train_steps
        for step, batch in enumerate(batches.iterate(start, last, self.strategy), start=start + 1):
            self._pace.at(step, TAKES)
            yield step, batch
            self._read_at(step + 1)

    def _read_at(self, step: int) -> None:
        self._pace.at(step, READS)
        if self.clock:
            self.clock.start()

    def take_step(self, step: int, batch: Batch, num_unread: int) -> None:
        """Takes a step, and reads results until those of `num_unread` steps are left.

        Raises:
          NonFiniteLossError: with the first step and the file of its batch.
        """
        self.reached = None
        self._unread.append((step, self.start_step(batch)))
        self._read_results(num_unread)
        if self.clock and self.clock.end_step():
            self._read_results(0)
        # Reading it from the optimizer would wait until a GPU has finished the step.
        self.reached = step

    def rest(self, step: int) -> None:
        """Marks the end of a step; the time limit of workers does not apply until the next one."""
        self._pace.at(step, RESTS)

    def pop_results(self) -> Iterator[tuple[int, dict[str, float]]]:
        """Yields each step whose results have been read, with the results, once."""
        while self._results:
            yield self._results.popleft()

    def finish_steps(self) -> Iterator[tuple[int, dict[str, float]]]:
        """Waits for all started steps, and yields their results as `pop_results` does."""
        if self._unread and (reached := self.reached) is not None:
            self.reached = None
            self._read_results(0)
            self.reached = reached
        yield from self.pop_results()

    @contextlib.contextmanager
    def deferring_signals(self) -> Iterator[None]:
        """Defers signals on several workers, so that none leaves the others waiting."""
        if not self._has_several_workers:
            yield
            return
        take_signals_again()
        with deferred_stop():
            yield

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Runs a block that several workers leave together."""
        workers = meeting_of(self.strategy)
        self._pace = workers.pace
        with contextlib.closing(self._pace), workers.together(tf.errors.OpError):
            yield

    @functools.cached_property
    def _compiled_layers(self) -> CompiledLayers:
        return CompiledLayers(self.model)

    def train_step(self, batch: Batch) -> dict[str, float]:
        """Takes one step and returns its loss and parts of it, learning rate and gradient norm."""
        return self.read_results(self.start_step(batch))

    def start_step(self, batch: Batch) -> Tensor:
        """Starts one step, which a GPU may still compute, and returns its results to read."""
        stops = [tf.constant(float(stop_signal() is not None))] if self._has_several_workers else []
        with without_remapping():
            try:
                return self._step_function(batch, *stops)
            except tf.errors.OpError as error:
                # Several replicas must compute alike, and some may have changed weights.
                if not self.compiles or self.strategy.num_replicas_in_sync > 1:
                    raise
                logger.warning(
                    "A compiled step has failed, and training goes on without XLA, more slowly. %s",
                    error.message.partition("\n")[0],
                )
            # No weight has changed: the compiled update is the last operation, and a single one.
            self.compiles = False
            self._step_function = self._make_step_function()
            return self._step_function(batch, *stops)

    def read_results(self, per_replica: Tensor) -> dict[str, float]:
        """Waits for the end of a step, and returns its results."""
        values = self.strategy.experimental_local_results(per_replica)[0].numpy()
        results = dict(zip(self._result_names, values.tolist(), strict=True))
        self.is_stop_agreed = results.pop(_STOP, 0.0) > 0
        return results

    def _read_results(self, num_unread: int) -> None:
        while len(self._unread) > num_unread:
            step, started = self._unread.popleft()
            results = self.read_results(started)
            self._check_finite(step, results)
            self._results.append((step, results))

    def _check_finite(self, step: int, results: Mapping[str, float]) -> None:
        can_halve = results.get("loss_scale", LossScale.LEAST) != LossScale.LEAST
        watched = ["loss"] if can_halve else ["loss", "gradient_norm"]
        if all(np.isfinite(results[name]) for name in watched):
            return
        path = f"non_finite_step_{step}.tf_record"
        if self.folder is not None:
            path = owned.claim(self.folder, path)
            with tf.io.TFRecordWriter(path) as writer:
                for record in self._batches.serialized(step - 1):
                    writer.write(record)
        found = ", ".join(f"{name} {value:.6g}" for name, value in results.items())
        raise NonFiniteLossError.at(step, "loss", f"{found}. Its batch is in {path!r}.")

    def _distributed_step(self, batch: Batch, *stops: Tensor) -> Tensor:
        return self.strategy.run(self._replica_step, args=(batch, *stops))

    def _replica_step(self, batch: Batch, *stops: Tensor) -> Tensor:
        learning_rate = tf.convert_to_tensor(self.optimizer.learning_rate)
        weights = self._all_reduce(self.objective.weights(batch))
        gradients, parts = self._gradients(batch, weights)
        # An argument of the function is on no device, so it could not be reduced.
        stops = tuple(tf.identity(stop) for stop in stops)
        sent = self._cast(gradients, self.all_reduce_precision)
        gradients, parts, stops = self._all_reduce((sent, parts, stops))
        gradients = self._cast(gradients, "float32")
        scale = tf.convert_to_tensor(self.loss_scale.scale) if self.loss_scale else 1.0
        update = self._update
        if self.compiles and self.strategy.num_replicas_in_sync == 1:
            update = tf.function(update, jit_compile=True, autograph=False)
        norm = update(gradients, 1.0 / scale)
        total = {"loss": sum(parts.values())}
        # The total comes first, and replaces a part with the name "loss".
        results = {**total, **parts, **total}
        results |= {"learning_rate": learning_rate, "gradient_norm": norm}
        results |= {"loss_scale": scale} if self.loss_scale else {}
        results |= dict(zip([_STOP], stops, strict=False))
        self._result_names = list(results)
        return tf.stack(list(results.values()))

    def _all_reduce(self, tensors: Any) -> Any:
        if self.strategy.num_replicas_in_sync == 1:
            return tensors
        context = tf.distribute.get_replica_context()
        flat = tf.nest.flatten(tensors)
        options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=_PACK_BYTES)
        # All tensors of a pack have one dtype.
        for dtype in dict.fromkeys(tensor.dtype for tensor in flat):
            indexes = [index for index, tensor in enumerate(flat) if tensor.dtype == dtype]
            values = [flat[index] for index in indexes]
            sums = context.all_reduce(tf.distribute.ReduceOp.SUM, values, options)
            for index, total in zip(indexes, sums, strict=True):
                flat[index] = total
        return tf.nest.pack_sequence_as(tensors, flat)

    def _cast(self, gradients: list[Tensor], dtype: str) -> list[Tensor]:
        """Returns gradients in another precision; unchanged on a single replica."""
        if self.strategy.num_replicas_in_sync == 1:
            return gradients
        return [tf.cast(gradient, dtype) for gradient in gradients]

    def _gradients(self, batch: Batch, weights: Batch) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Returns the gradients of this replica's share of the loss, and its share of each part."""
        count = self.num_micro_batches
        step = tf.cast(self.optimizer.iterations, tf.int32)
        replica = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32)
        first = (step * self.strategy.num_replicas_in_sync + replica) * count
        if count == 1:
            return self._micro_gradients(batch, weights, first)
        split = {name: tf.split(values, count) for name, values in batch.items()}
        part = {name: values[0] for name, values in split.items()}
        sums = self._micro_gradients(part, weights, first)
        for index in range(1, count):
            # Sequentially, since the activations of all parts would need too much memory.
            with tf.control_dependencies(tf.nest.flatten(sums)):
                part = {name: tf.identity(values[index]) for name, values in split.items()}
            more = self._micro_gradients(part, weights, first + index)
            sums = tf.nest.map_structure(tf.add, sums, more)
        return sums

    def _micro_gradients(
        self, batch: Batch, weights: Batch, number: Tensor
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        seed = tf.stack([tf.constant(self.seed, tf.int32), number])
        inputs = {name: batch[name] for name in self.model.input}
        variables = [variable.value for variable in self.model.trainable_variables]
        layers = self._compiled_layers.used() if self.compiles else contextlib.nullcontext()
        with layers, fused_chains(self.model):
            with tf.GradientTape() as tape, dropout_seed(seed):
                parts = self.objective.losses(self.model(inputs, training=True), batch, weights)
                loss = sum(parts.values())
                if self.loss_scale:
                    loss *= self.loss_scale.scale
            gradients = tape.gradient(loss, variables)
        return [tf.convert_to_tensor(gradient) for gradient in gradients], parts

    def _update(self, gradients: Sequence[Tensor], unscale: Tensor) -> Tensor:
        """Clips and applies gradients times `unscale`, and returns their norm before clipping."""
        norm = tf.linalg.global_norm(gradients) * unscale
        self._apply(gradients, optimization.clip_scale(norm) * unscale)
        return norm

    def _apply(self, gradients: Sequence[Tensor], scale: Tensor) -> None:
        """Applies gradients, which are the same on every replica, times `scale`."""
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
    checkpoints: CheckpointList | None,
    init: Stored | None,
) -> int:
    """Sets the variables and returns their step.

    In this order: the latest checkpoint of this run; else the weights of `init`; else the random
    initial values.

    Args:
      model: The model, whose weights are set.
      state: The variables to read from a checkpoint of this run: `Trainer.state()`, or the weights.
      checkpoints: The checkpoints of this run; None where those in its folder are another run's.
      init: The weights to start with, or None.
    """
    step = checkpoints.resume(state, optional=_OPTIONAL) if checkpoints else None
    if checkpoints and step is not None:
        given = Option("init_checkpoint", init.path) if init else ""
        unread = Message("; %s is not read", given) if init else ""
        logger.info("Resuming from step %d in %s%s.", step, checkpoints.folder, unread)
        return step
    if init:
        init.assign(model.weights)
    else:
        logger.warning("No checkpoint to start from: the weights are random.")
    return 0
