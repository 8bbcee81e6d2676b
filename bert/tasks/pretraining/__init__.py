"""Masked language modeling and next-sentence prediction (paper, section 3.1)."""
