"""Runs of training, evaluation, prediction and export around an output folder."""
