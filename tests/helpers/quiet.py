"""Imports TensorFlow without its lines, for the tests and the processes that they fork."""

import gc
import os

from bert.files.process import import_tensorflow

# What is compiled runs a few times, here and in all processes that are started.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
import_tensorflow()
# It stays: the garbage collector need not look through it, above all in processes that are forked.
gc.freeze()
