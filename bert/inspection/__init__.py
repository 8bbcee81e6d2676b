"""Inspection of a model that reads a text: its pieces, its attention, its predictions."""
