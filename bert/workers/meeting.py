"""Workers that meet."""

LOST = 75
