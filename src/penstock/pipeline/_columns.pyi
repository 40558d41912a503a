"""Written in C, and the same as what is written in Python."""

from penstock.pipeline.pure_columns import Columns as Columns
from penstock.pipeline.pure_records import Partitions as Partitions
from penstock.pipeline.pure_records import encode as encode
