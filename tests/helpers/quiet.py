"""Imports TensorFlow without its lines, for the tests and the processes that they fork."""

import gc

from bert.files.process import import_tensorflow

import_tensorflow()
# It stays: the garbage collector need not look through it, above all in processes that are forked.
gc.freeze()
