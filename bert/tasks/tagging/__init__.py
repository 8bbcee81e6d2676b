"""Labels for words, such as names (paper, section 5.3)."""
