"""Classifiers of texts and pairs (paper, section 4.1)."""
