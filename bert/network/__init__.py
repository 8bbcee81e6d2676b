"""What surrounds the encoder: heads of all tasks, and faster kernels for training and inference."""
