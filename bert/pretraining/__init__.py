"""Pre-training: records, masking, objectives (paper, section 3.1)."""
