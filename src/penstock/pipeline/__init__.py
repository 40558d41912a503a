"""Topics as tables and back: the data pipeline on Spark.

Owns: record batches as Arrow columns, the blocking client that Spark's tasks use, the source and the sink, the archive.
Never: the broker's inside. It speaks the Kafka protocol, like everyone else outside.

Spark and Arrow come with the extra `spark`, so nothing outside this room imports it at the top of a file.
"""
