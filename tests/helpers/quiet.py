"""Imports TensorFlow without its lines, for the tests and the processes that they fork."""

from bert.files.process import import_tensorflow

import_tensorflow()
