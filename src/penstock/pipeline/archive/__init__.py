"""Topics as Parquet files, for good.

Owns: the names of the files and what they cover, the job that writes them, and what looks after them later.
Never: a record that is in no file, or in two. What is covered is told by names alone, so that a job that was killed
leaves nothing behind that the next one could misread.
"""
