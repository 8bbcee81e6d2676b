"""What is on disk: paths, records, tables, vectors, and processes that read them."""
