"""Checkpoints, and folders of models."""
