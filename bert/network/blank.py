"""Models whose values will be read, made without drawing initial ones.

BERT-Base has 440 MB of them: drawing them takes longer than reading a checkpoint.
"""

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator
from typing import Any

import keras
import tensorflow as tf


class Blank:
    """The variables that were made without their initial values."""

    def __init__(self) -> None:
        self._initial: list[tuple[tf.Variable, Callable[[], Any]]] = []

    def fill(self, but: Collection[keras.Variable]) -> None:
        """Assigns the initial values of all variables but of some, which have other values."""
        filled = {id(variable.value) for variable in but}
        for variable, initial in self._initial:
            if id(variable) not in filled:
                variable.assign(initial())
        self._initial.clear()

    def add(self, variable: tf.Variable, initial: Callable[[], Any]) -> None:
        """Adds a variable, and the function that returns its initial value."""
        self._initial.append((variable, initial))


@contextlib.contextmanager
def blank_variables() -> Iterator[Blank]:
    """Makes floating-point variables with zeros within this context; `Blank.fill` ends that."""
    blank = Blank()
    # TensorFlow copies what several variables share when one of them is changed.
    zeros = functools.cache(tf.zeros)

    def make(create: Callable[..., tf.Variable], **given: Any) -> tf.Variable:
        initial = given["initial_value"]
        if not callable(initial):
            return create(**given)
        with tf.Graph().as_default():
            # Nothing is computed in a graph that is not run.
            spec = initial()
        if not spec.dtype.is_floating:
            return create(**given)
        variable = create(**{**given, "initial_value": zeros(tuple(spec.shape), spec.dtype)})
        blank.add(variable, initial)
        return variable

    with tf.variable_creator_scope(make):
        yield blank
