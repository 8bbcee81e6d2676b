"""What goes on within a model that reads a text: its pieces, its attention, its guesses."""
