"""Work on several processes or machines: workers, shards, pipelines of Apache Beam."""
