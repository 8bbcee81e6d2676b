"""The optimizer and learning rate of the original release (paper, appendix A.2).

Adam with decoupled weight decay and without bias correction, after clipping by the global norm,
under linear warm-up and linear decay. In graphs of `tf.compat.v1`, `create_optimizer` and
`AdamWeightDecayOptimizer.apply_gradients` return operations, as the original's did.
"""

import contextlib
import numbers
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import keras
import tensorflow as tf
from keras import ops

Tensor = Any

CLIP_NORM = 1.0  # original: optimization.py, create_optimizer

EXCLUDED_FROM_WEIGHT_DECAY = ("LayerNorm", "layer_norm", "bias")

_SLOTS = ("adam_m", "adam_v")


@keras.saving.register_keras_serializable("bert")
class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly to `init_lr`, then falls linearly to 0 (original: create_optimizer).

    The fall is measured from step 0, so that the rate after warm-up starts below `init_lr`.

    Args:
      init_lr: The peak that warm-up aims at.
      num_train_steps: Step at which the rate reaches 0.
      num_warmup_steps: Length of warm-up in steps; 0 for none.
    """

    def __init__(self, init_lr: float, num_train_steps: int, num_warmup_steps: int | None) -> None:
        super().__init__()
        if num_train_steps < 1:
            raise ValueError(f"`num_train_steps` must be at least 1. Received {num_train_steps}.")
        self.init_lr = init_lr
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps or 0

    def __call__(self, step: Tensor) -> Tensor:
        step = ops.cast(step, "float32")
        decayed = self.init_lr * (1.0 - ops.minimum(step / self.num_train_steps, 1.0))
        if not self.num_warmup_steps:
            return decayed
        warming = self.init_lr * (step / self.num_warmup_steps)
        return ops.where(step < self.num_warmup_steps, warming, decayed)

    def get_config(self) -> dict[str, Any]:
        return {
            "init_lr": self.init_lr,
            "num_train_steps": self.num_train_steps,
            "num_warmup_steps": self.num_warmup_steps,
        }


class _Patterns(tuple[str, ...]):
    """Regular expressions, under the name that Keras gives to a method about its own decay."""

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise ValueError(
            "`exclude_from_weight_decay` must be given to the constructor, as regular expressions "
            "for the paths of variables."
        )


@keras.saving.register_keras_serializable("bert")
class AdamWeightDecayOptimizer(keras.optimizers.Optimizer):
    """Adam without bias correction, with decoupled weight decay (original: optimization.py).

    Args:
      learning_rate: A number, a schedule, or a function of no arguments that returns a number; in a
        graph of `tf.compat.v1`, also a tensor, and the function is asked with the step.
      weight_decay_rate: Fraction of a weight, times the learning rate, taken off at each step.
      beta_1: Decay of the first moment.
      beta_2: Decay of the second moment.
      epsilon: Added to the root of the second moment.
      exclude_from_weight_decay: Regular expressions; a variable whose path one of them matches
        anywhere is not decayed.
      name: Name of the optimizer.

    Attributes:
      learning_rate_scales: By the path of a variable, what multiplies its learning rate; 1 where
        it is not in it. To be set before `build`.
    """

    def __init__(
        self,
        learning_rate: Any,
        weight_decay_rate: float = 0.0,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        exclude_from_weight_decay: Sequence[str] | None = None,
        name: str = "AdamWeightDecayOptimizer",
        **kwargs: Any,
    ) -> None:
        if kwargs.get("weight_decay") is not None:
            raise ValueError(
                "`weight_decay` must not be given: Keras' decay knows of no "
                f"`exclude_from_weight_decay`. Received {kwargs['weight_decay']!r}. Give it as "
                "`weight_decay_rate`."
            )
        in_graph = _in_graph()
        # Keras' own variables are not for the user's graph, where nothing would use them.
        with tf.Graph().as_default() if in_graph else contextlib.nullcontext():
            rate = 0.0 if in_graph else learning_rate
            # Keras takes no other numbers than Python's float.
            rate = float(rate) if isinstance(rate, numbers.Real) else rate
            super().__init__(learning_rate=rate, name=name, **kwargs)
        self.given_learning_rate = learning_rate
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.exclude_from_weight_decay = _Patterns(exclude_from_weight_decay or ())
        self.learning_rate_scales: Mapping[str, float] = {}

    def build(self, variables: Sequence[keras.Variable]) -> None:
        if self.built:
            return
        for variable in variables:
            if tf.as_dtype(variable.dtype).size < 4:
                raise ValueError(
                    "The weights must be float32 to be trained, for smaller types lose what a "
                    f"step changes. Received {variable.name!r} in {variable.dtype}. The precision "
                    "'mixed_bfloat16' keeps weights in float32 and computes in bfloat16."
                )
        super().build(variables)
        self.first_moments, self.second_moments = self.add_optimizer_variables(
            variables, list(_SLOTS)
        )
        paths = [
            self._get_variable_name(getattr(variable, "path", variable.name))
            for variable in variables
        ]
        self._decayed = [self._do_use_weight_decay(path) for path in paths]
        self._learning_rate_scales = [self.learning_rate_scales.get(path, 1.0) for path in paths]

    def _do_use_weight_decay(self, param_name: str) -> bool:
        """Returns whether a variable of this name is decayed; a subclass may override it."""
        return bool(self.weight_decay_rate) and not any(
            re.search(pattern, param_name) for pattern in self.exclude_from_weight_decay or ()
        )

    def _get_variable_name(self, param_name: str) -> str:
        """Returns the name of a variable without the number of a tensor, such as `:0`."""
        return re.sub(r":\d+$", "", param_name)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Tensor | None, Any]],
        global_step: Tensor | None = None,
        name: str | None = None,
    ) -> Any:
        """Updates the variables; in a graph of `tf.compat.v1`, returns the operation that does.

        Args:
          grads_and_vars: Pairs of a gradient and its variable; None leaves a variable as it is.
          global_step: In a graph, the step that a schedule is asked for. Faithful: it is not
            increased, which is left to the caller, as `create_optimizer` does.
          name: Name of the operation in a graph.
        """
        if not _in_graph():
            return super().apply_gradients(grads_and_vars)
        rate = self.given_learning_rate
        if callable(rate):
            step = tf.compat.v1.train.get_or_create_global_step()
            rate = rate(tf.identity(step if global_step is None else global_step))
        updates = []
        for gradient, variable in grads_and_vars:
            if gradient is not None and variable is not None:
                updates += self._updates_in_graph(tf.convert_to_tensor(gradient), variable, rate)
        return tf.group(*updates, name=name)

    def compute_gradients(
        self, loss: Tensor, var_list: Sequence[Any] | None = None
    ) -> list[tuple[Tensor | None, Any]]:
        """Returns pairs of a gradient and its variable, in a graph of `tf.compat.v1`.

        Args:
          loss: A scalar of the graph.
          var_list: The variables; None for all that are trainable.

        Raises:
          ValueError: where no graph is built.
        """
        if not _in_graph():
            raise ValueError(
                "`loss` must be a tensor in a graph of `tf.compat.v1`. Elsewhere, take gradients "
                "with tf.GradientTape, and give them to `apply_gradients`."
            )
        variables = tf.compat.v1.trainable_variables() if var_list is None else [*var_list]
        return [*zip(_dense(tf.gradients(loss, variables)), variables, strict=True)]

    def minimize(
        self,
        loss: Tensor,
        global_step: Tensor | None = None,
        var_list: Sequence[Any] | None = None,
        name: str | None = None,
    ) -> Any:
        """Returns the operation that updates the variables of a graph, by `apply_gradients`."""
        return self.apply_gradients(self.compute_gradients(loss, var_list), global_step, name)

    def _updates_in_graph(
        self, gradient: Tensor, variable: tf.Variable, learning_rate: Tensor
    ) -> list[Any]:
        """Returns the operations that update a variable and its moments, which they make."""
        path = self._get_variable_name(variable.name)
        moments = tuple(
            tf.compat.v1.get_variable(
                f"{path}/{slot}",
                variable.shape.as_list(),
                initializer=tf.compat.v1.zeros_initializer(),
                trainable=False,
            )
            for slot in _SLOTS
        )
        constants = (self.beta_1, self.beta_2, self.epsilon)
        decay = self.weight_decay_rate if self._do_use_weight_decay(path) else 0.0
        m, v, change = _changes((variable, *moments), gradient, constants, decay)
        learning_rate *= self.learning_rate_scales.get(path, 1.0)
        return [
            moments[0].assign(m),
            moments[1].assign(v),
            variable.assign_sub(learning_rate * change),
        ]

    def apply(
        self,
        grads: Sequence[Tensor | None],
        trainable_variables: Sequence[keras.Variable] | None = None,
        scale: Tensor | None = None,
    ) -> None:
        """Updates the variables; a gradient of None leaves its variable as it is.

        Args:
          grads: One gradient per variable.
          trainable_variables: The variables; all that the optimizer was built for if None.
          scale: Scalar that multiplies every gradient, as clipping does, without a pass of its own.
            Given it, the gradients are taken to be summed over all replicas already, and what Keras
            does besides, such as `clipnorm`, is not done; without, Keras does both.
        """
        if scale is None:
            super().apply(grads, trainable_variables)
            return
        if trainable_variables is None:
            trainable_variables = self._trainable_variables
        variables = list(trainable_variables)
        if not self.built:
            self.build(variables)
        learning_rate = tf.convert_to_tensor(self.learning_rate)
        tf.distribute.get_replica_context().merge_call(
            self._apply_summed, args=(list(grads), variables, learning_rate, scale)
        )
        self.iterations.assign_add(1)

    def _apply_summed(
        self,
        strategy: tf.distribute.Strategy,
        grads: Sequence[Tensor | None],
        variables: Sequence[keras.Variable | tf.Variable],
        learning_rate: Tensor,
        scale: Tensor,
    ) -> None:
        """Updates the copies of the variables on all replicas."""

        def update(copy: tf.Variable, gradient: Tensor, rate: Tensor, scale: Tensor) -> None:
            self.update_step(gradient, copy, rate, scale)

        for gradient, variable in zip(grads, variables, strict=True):
            if gradient is not None:
                value = variable.value if isinstance(variable, keras.Variable) else variable
                rest = (gradient, learning_rate, scale)
                strategy.extended.update(value, update, args=rest, group=False)

    def update_step(
        self,
        gradient: Tensor,
        variable: tf.Variable,
        learning_rate: Tensor,
        scale: Tensor | None = None,
    ) -> None:
        index = self._get_variable_index(variable)
        # Departs: the original takes the norm of an embedding's gradient before the rows of
        # repeated tokens are added up, on CPU and GPU but not on TPU; here they always are.
        gradient = tf.convert_to_tensor(gradient)
        if self._learning_rate_scales[index] != 1.0:
            learning_rate *= self._learning_rate_scales[index]
        compiled = tf.inside_function() and "CPU" in variable.device
        update = _compiled_update if compiled else _update
        update(
            variable,
            tuple(
                _on_device(moments[index].value, variable.device)
                for moments in (self.first_moments, self.second_moments)
            ),
            gradient,
            tf.cast(learning_rate, gradient.dtype),
            tf.cast(1.0 if scale is None else scale, gradient.dtype),
            (float(self.beta_1), float(self.beta_2), float(self.epsilon)),
            float(self.weight_decay_rate) if self._decayed[index] else 0.0,
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "weight_decay_rate": self.weight_decay_rate,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "exclude_from_weight_decay": list(self.exclude_from_weight_decay or ()),
            "learning_rate_scales": dict(self.learning_rate_scales),
        }

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> "AdamWeightDecayOptimizer":
        config = dict(config)
        scales = config.pop("learning_rate_scales", {})
        optimizer = super().from_config(config, custom_objects)
        optimizer.learning_rate_scales = scales
        return optimizer


def _in_graph() -> bool:
    """Returns whether operations are added to a graph for a Session, and not run or traced."""
    return not tf.compat.v1.executing_eagerly_outside_functions()


def _update(
    variable: tf.Variable,
    moments: tuple[tf.Variable, tf.Variable],
    gradient: Tensor,
    learning_rate: Tensor,
    scale: Tensor,
    constants: tuple[float, float, float],
    weight_decay_rate: float,
) -> None:
    values = (_read(variable), _read(moments[0]), _read(moments[1]))
    m, v, change = _changes(values, gradient * scale, constants, weight_decay_rate)
    moments[0].assign(m, read_value=False)
    moments[1].assign(v, read_value=False)
    variable.assign_sub(learning_rate * change, read_value=False)


def _read(variable: tf.Variable) -> Tensor:
    """Returns the value of a variable, which the trace that asks for it then does not know.

    A trace is called again with variables of other optimizers, when those of the first one may be
    gone; TensorFlow refuses to call one that knows of such.
    """
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def _changes(
    values: tuple[Tensor, Tensor, Tensor],
    gradient: Tensor,
    constants: tuple[float, float, float],
    weight_decay_rate: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the new moments, and what to take off the variable at a learning rate of 1.

    Args:
      values: The variable and its moments.
      gradient: That of the variable.
      constants: beta_1, beta_2 and epsilon.
      weight_decay_rate: 0 where the variable is not decayed.
    """
    # The original's order of operations. TensorFlow's own fused Adam is not used: it takes
    # 1 - beta_2 in float32, which is off by 1e-5.
    beta_1, beta_2, epsilon = constants
    weight, m, v = values
    m = beta_1 * m + (1.0 - beta_1) * gradient
    v = beta_2 * v + (1.0 - beta_2) * tf.square(gradient)
    change = m / (tf.sqrt(v) + epsilon)
    if weight_decay_rate:
        change += weight_decay_rate * weight
    return m, v, change


# Compiled, the update passes over memory once, in place. One kernel serves all variables of a
# shape, those of other optimizers too: of several runs, the first alone compiles it.
_compiled_update = tf.function(_update, jit_compile=True, autograph=False)


def _on_device(variable: tf.Variable, device: str) -> tf.Variable:
    """Returns the copy of a variable that a strategy keeps on the device."""
    copies = getattr(variable, "values", [variable])
    return next(copy for copy in copies if copy.device == device)


def bert_optimizer(
    init_lr: float,
    num_train_steps: int,
    num_warmup_steps: int | None,
    step: Callable[[], Tensor] | None = None,
) -> AdamWeightDecayOptimizer:
    """Returns the optimizer of the original, with its schedule and its constants.

    Args:
      init_lr: As `WarmupLinearDecay`.
      num_train_steps: As `WarmupLinearDecay`.
      num_warmup_steps: As `WarmupLinearDecay`.
      step: Returns how far the training is; None for the steps that the optimizer has taken.
    """
    schedule = WarmupLinearDecay(init_lr, num_train_steps, num_warmup_steps)
    return AdamWeightDecayOptimizer(
        learning_rate=schedule if step is None else lambda: schedule(step()),
        weight_decay_rate=0.01,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-6,
        exclude_from_weight_decay=EXCLUDED_FROM_WEIGHT_DECAY,
    )


def clip_scale(norm: Tensor, clip_norm: float = CLIP_NORM) -> Tensor:
    """Returns what scales gradients of that global norm to one of at most `clip_norm`."""
    return clip_norm * tf.minimum(1.0 / norm, 1.0 / clip_norm)


def create_optimizer(
    loss: Callable[[], Tensor] | Tensor,
    init_lr: float,
    num_train_steps: int,
    num_warmup_steps: int | None,
    use_tpu: bool = False,
) -> Any:
    """Returns a function that takes one training step and returns the loss before it.

    The variables trained are those that `loss` reads. In a graph of `tf.compat.v1`, where `loss` is
    a tensor, it returns the operation of a step, as the original did: it trains all trainable
    variables and increases the global step.

    Args:
      loss: A function of no arguments that returns the scalar to minimize; in a graph, the scalar.
      init_lr: Peak of the learning rate.
      num_train_steps: Step at which the rate reaches 0.
      num_warmup_steps: Length of warm-up in steps.
      use_tpu: Without effect; gradients are summed over replicas by `bert.training.loop`.

    Raises:
      ValueError: where `loss` is a tensor and there is no graph to differentiate.
    """
    del use_tpu
    optimizer = bert_optimizer(init_lr, num_train_steps, num_warmup_steps)
    if not callable(loss):
        return _train_op_in_graph(loss, optimizer)

    def train_op() -> Tensor:
        with tf.GradientTape() as tape:
            value = loss()
        variables = tape.watched_variables()
        gradients = _dense(tape.gradient(value, variables))
        scale = clip_scale(tf.linalg.global_norm(gradients))
        optimizer.apply(gradients, variables, scale=scale)
        return value

    return train_op


def _dense(gradients: Iterable[Tensor | None]) -> list[Tensor | None]:
    """Returns gradients as tensors; None of variables that the loss does not depend on."""
    return [None if each is None else tf.convert_to_tensor(each) for each in gradients]


def _train_op_in_graph(loss: Tensor, optimizer: AdamWeightDecayOptimizer) -> tf.Operation:
    if not _in_graph():
        raise ValueError(
            "`loss` must be a function of no arguments that returns the loss, or a tensor in a "
            f"graph of `tf.compat.v1`. Received {loss!r}. Give `lambda: ...` with what computes "
            "it, or build the graph under `tf.Graph().as_default()`."
        )
    global_step = tf.compat.v1.train.get_or_create_global_step()
    variables = tf.compat.v1.trainable_variables()
    gradients = _dense(tf.gradients(loss, variables))
    scale = clip_scale(tf.linalg.global_norm(gradients))
    clipped = [None if each is None else each * scale for each in gradients]
    update = optimizer.apply_gradients(zip(clipped, variables, strict=True), global_step)
    with tf.control_dependencies([update]):
        return tf.group(tf.compat.v1.assign_add(global_step, 1))
