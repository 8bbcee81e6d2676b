"""The original's API of 2018, for code that imports it."""
