"""Models that answer: fine-tuned, pre-trained and exported ones, and vectors of texts."""
