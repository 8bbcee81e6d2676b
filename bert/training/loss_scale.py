"""The scale that keeps float16 gradients in range."""

from typing import Any

import keras
import tensorflow as tf

Tensor = Any


class LossScale:
    """Keeps float16 gradients in range: the loss is multiplied, the gradients are divided.

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
