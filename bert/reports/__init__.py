"""Pages to look at what a run has learned: what they hold, and how they are put together."""
