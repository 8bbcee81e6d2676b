"""Observers of a training run that tests make of functions."""

from bert.training.loop import Observer


class Call(Observer):
    """Calls a function after each step; what it returns may end training."""

    def __init__(self, function):
        self._function = function

    def after_step(self, step, results):
        return self._function(step, results)
