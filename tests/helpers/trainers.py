"""What tests of several modules share of `training_loop`."""

import numpy as np

from bert.training.loop import train
from bert.training.observers import begin_saving


def values_of(trainer):
    return {name: np.asarray(variable.numpy()) for name, variable in trainer.state().items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def train_and_save(trainer, batches, *, num_train_steps, **options):
    """Trains with the observers of `begin_saving`, which takes the other options."""
    observers = begin_saving(trainer, num_train_steps=num_train_steps, **options)
    train(trainer, batches, num_train_steps, observers)


# On two devices where there is only one processor, and without the dropout of fine-tuned heads.
TRAIN_SOME_STEPS = """
import importlib, json, sys
import keras, tensorflow as tf
arguments = json.loads(sys.argv[1])
if arguments["devices"] > 1:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * arguments["devices"],
    )
script = importlib.import_module(arguments.get("script", "run_pretraining"))
from bert.network import heads
heads.HEAD_DROPOUT_PROB = 0.0
results = []
for settings in arguments["settings"]:
    keras.utils.set_random_seed(1)
    results.append(script.run(script.Settings(**settings)))
print(json.dumps(results))
"""
