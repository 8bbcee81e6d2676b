"""Multiple choice (paper, section 4.4)."""
