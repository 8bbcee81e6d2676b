"""Checkpoints, and folders of models."""

from bert.command_line import quiet_import  # noqa: F401
