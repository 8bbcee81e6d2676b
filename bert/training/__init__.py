"""How any of it is trained."""
