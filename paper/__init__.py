"""The paper's tables at a small scale: what is run, what it costs, and what came of it."""
