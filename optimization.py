"""The optimizer and learning rate of the original release (paper, appendix A.2).

Adam with decoupled weight decay and without bias correction, after clipping by the global norm,
under linear warm-up and linear decay. `bert.original.graph` is for graphs (`tf.compat.v1`).
"""

import contextlib
import numbers
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import keras
import tensorflow as tf
from keras import ops

from bert import names

Tensor = Any

CLIP_NORM = 1.0  # original: optimization.py, create_optimizer
EXCLUDED_FROM_WEIGHT_DECAY = ("LayerNorm", "layer_norm", "bias")
SLOTS = ("adam_m", "adam_v")
# As `adam_changes`.
Changes = Callable[..., tuple[Tensor, Tensor, Tensor]]

_GRAPHS = "bert.original.graph"


@keras.saving.register_keras_serializable("bert")
class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A linear rise to `init_lr`, then a linear fall to 0 (original: create_optimizer).

    The fall is measured from step 0, so that the rate after warm-up starts below `init_lr`.

    Args:
      init_lr: The peak of the warm-up.
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
        arguments = ("init_lr", "num_train_steps", "num_warmup_steps")
        return {name: getattr(self, name) for name in arguments}


class _Patterns(tuple[str, ...]):
    """Regular expressions, under the name of a method of Keras' own decay."""

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise ValueError("`exclude_from_weight_decay` must be given to the constructor.")


@keras.saving.register_keras_serializable("bert")
class AdamWeightDecayOptimizer(keras.optimizers.Optimizer):
    """Adam without bias correction, with decoupled weight decay (original: optimization.py).

    Args:
      learning_rate: A number, a schedule, or a function of no arguments that returns a number; in a
        graph of `tf.compat.v1`, also a tensor, or a function of the step.
      weight_decay_rate: Fraction of a weight, times the learning rate, subtracted at each step.
      beta_1: Decay of the first moment.
      beta_2: Decay of the second moment.
      epsilon: Added to the root of the second moment.
      exclude_from_weight_decay: Regular expressions; a variable whose path one of them matches
        anywhere is not decayed.
      name: Name of the optimizer.

    Attributes:
      learning_rate_scales: Factors of the learning rate by the path of a variable; 1 for other
        variables. To be set before `build`.
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
                "`weight_decay` must not be given, since it knows no `exclude_from_weight_decay`. "
                f"Received {kwargs['weight_decay']!r}. Give it as `weight_decay_rate`."
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
                    "The weights must be float32 to be trained: smaller types lose the change of a "
                    f"step. Received {variable.name!r} in {variable.dtype}. The precision "
                    "'mixed_bfloat16' keeps weights in float32 and computes in bfloat16."
                )
        super().build(variables)
        self.first_moments, self.second_moments = self.add_optimizer_variables(
            variables, list(SLOTS)
        )
        given = (getattr(variable, "path", variable.name) for variable in variables)
        paths = [self._get_variable_name(path) for path in given]
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

        Faithful: `global_step`, the step of a schedule, is not increased, as `create_optimizer`
        does.
        """
        if not _in_graph():
            return super().apply_gradients(grads_and_vars)
        return names.load(_GRAPHS, "apply_gradients")(self, grads_and_vars, global_step, name)

    def compute_gradients(
        self, loss: Tensor, var_list: Sequence[Any] | None = None
    ) -> list[tuple[Tensor | None, Any]]:
        """Returns pairs of a gradient and its variable, in a graph of `tf.compat.v1`."""
        return names.load(_GRAPHS, "compute_gradients")(loss, var_list)

    def minimize(
        self,
        loss: Tensor,
        global_step: Tensor | None = None,
        var_list: Sequence[Any] | None = None,
        name: str | None = None,
    ) -> Any:
        """Returns the operation that updates the variables of a graph, by `apply_gradients`."""
        return self.apply_gradients(self.compute_gradients(loss, var_list), global_step, name)

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
          scale: Scalar that multiplies every gradient, as clipping does, without another pass. With
            it, the gradients must be summed over all replicas already, and Keras' own processing,
            such as `clipnorm`, is left out; without it, Keras sums and processes.
        """
        if scale is None:
            super().apply(grads, trainable_variables)
            return
        given = self._trainable_variables if trainable_variables is None else trainable_variables
        variables = list(given)
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
        # Departs: on CPU and GPU but not on TPU, the original takes the norm of an embedding's
        # gradient before the rows of repeated tokens are added up; here they always are.
        gradient = tf.convert_to_tensor(gradient)
        if self._learning_rate_scales[index] != 1.0:
            learning_rate *= self._learning_rate_scales[index]
        changes = self.choose_changes(index)
        # XLA's products of matrices, which others may have, are slow on CPUs.
        compiled = tf.inside_function() and "CPU" in variable.device and changes is adam_changes
        update = _compiled_update if compiled else _update
        moments = (self.first_moments[index], self.second_moments[index])
        update(
            variable,
            tuple(_on_device(moment.value, variable.device) for moment in moments),
            gradient,
            tf.cast(learning_rate, gradient.dtype),
            tf.cast(1.0 if scale is None else scale, gradient.dtype),
            changes,
            (float(self.beta_1), float(self.beta_2), float(self.epsilon)),
            float(self.weight_decay_rate) if self._decayed[index] else 0.0,
        )

    def choose_changes(self, index: int) -> Changes:
        """Returns how a variable changes; a subclass may have another rule for some variables."""
        return adam_changes

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
    """Returns whether a graph for a Session is built."""
    return not tf.compat.v1.executing_eagerly_outside_functions()


def _update(
    variable: tf.Variable,
    moments: tuple[tf.Variable, tf.Variable],
    gradient: Tensor,
    learning_rate: Tensor,
    scale: Tensor,
    changes: Changes,
    *constants: Any,
) -> None:
    values = (_read(variable), _read(moments[0]), _read(moments[1]))
    m, v, change = changes(values, gradient * scale, *constants)
    moments[0].assign(m, read_value=False)
    moments[1].assign(v, read_value=False)
    variable.assign_sub(learning_rate * change, read_value=False)


def _read(variable: tf.Variable) -> Tensor:
    """Returns the value of a variable without capturing the variable in a trace.

    A trace is used again with variables of other optimizers, when the first variables may be gone;
    TensorFlow refuses to call a trace that has captured a variable that is gone.
    """
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def adam_changes(
    values: tuple[Tensor, Tensor, Tensor],
    gradient: Tensor,
    constants: tuple[float, float, float],
    weight_decay_rate: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the new moments, and what to subtract from the variable at a learning rate of 1.

    Args:
      values: The variable and its moments.
      gradient: The gradient of the variable.
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
# shape, of all optimizers: among several runs, only the first one compiles it.
_compiled_update = tf.function(_update, jit_compile=True, autograph=False)


def _on_device(variable: tf.Variable, device: str) -> tf.Variable:
    """Returns a strategy's copy of a variable on the device."""
    copies = getattr(variable, "values", [variable])
    return next(copy for copy in copies if copy.device == device)


def bert_optimizer(
    init_lr: float,
    num_train_steps: int,
    num_warmup_steps: int | None,
    step: Callable[[], Tensor] | None = None,
    kind: type[AdamWeightDecayOptimizer] = AdamWeightDecayOptimizer,
) -> AdamWeightDecayOptimizer:
    """Returns the optimizer of the original, with its schedule and its constants.

    Args:
      init_lr: See `WarmupLinearDecay`, as for the next two.
      num_train_steps: Step at which the rate reaches 0.
      num_warmup_steps: Length of warm-up in steps.
      step: Returns the step of the schedule; None for the steps that the optimizer has taken.
      kind: The class of the optimizer.
    """
    schedule = WarmupLinearDecay(init_lr, num_train_steps, num_warmup_steps)
    return kind(
        learning_rate=schedule if step is None else lambda: schedule(step()),
        weight_decay_rate=0.01,
        exclude_from_weight_decay=EXCLUDED_FROM_WEIGHT_DECAY,
    )


def clip_scale(norm: Tensor, clip_norm: float = CLIP_NORM) -> Tensor:
    """Returns the factor that scales gradients of a global norm to at most `clip_norm`."""
    return clip_norm * tf.minimum(1.0 / norm, 1.0 / clip_norm)


def create_optimizer(
    loss: Callable[[], Tensor] | Tensor,
    init_lr: float,
    num_train_steps: int,
    num_warmup_steps: int | None,
    use_tpu: bool = False,
) -> Any:
    """Returns a function that takes one training step and returns the loss before it.

    A step trains the variables that `loss` reads. In a graph of `tf.compat.v1`, where `loss` is a
    tensor, the result is the operation of a step, as in the original: it trains all trainable
    variables and increases the global step.

    Args:
      loss: A function of no arguments that returns the scalar to minimize; in a graph, the scalar.
      init_lr: Peak of the learning rate.
      num_train_steps: Step at which the rate reaches 0.
      num_warmup_steps: Length of warm-up in steps.
      use_tpu: Ignored; `bert.training.loop` sums gradients over replicas.

    Raises:
      ValueError: where `loss` is a tensor and there is no graph to differentiate.
    """
    del use_tpu
    optimizer = bert_optimizer(init_lr, num_train_steps, num_warmup_steps)
    if not callable(loss):
        return names.load(_GRAPHS, "train_op")(loss, optimizer)

    def train_op() -> Tensor:
        with tf.GradientTape() as tape:
            value = loss()
        variables = tape.watched_variables()
        gradients = dense(tape.gradient(value, variables))
        scale = clip_scale(tf.linalg.global_norm(gradients))
        optimizer.apply(gradients, variables, scale=scale)
        return value

    return train_op


def dense(gradients: Iterable[Tensor | None]) -> list[Tensor | None]:
    """Returns gradients as tensors, and None for variables that the loss does not depend on."""
    return [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]
