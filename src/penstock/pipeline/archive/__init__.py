"""Topics as Parquet files, for good.

Owns: the names of the files and what they cover, the job that writes them, and what looks after them later.
Never: a record in two files that count. What is covered is told by names alone, so that a job that was killed leaves
nothing behind that the next one could misread; the notes under `_penstock` only guard that.
"""
