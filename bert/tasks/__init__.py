"""What the paper does with BERT: a room for each task, and the heads that they share."""
