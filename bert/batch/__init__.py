"""Models at work on files of any size, by one process, by several or by a cluster."""
