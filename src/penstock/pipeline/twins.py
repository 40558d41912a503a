"""Two ways to do the work on single records: in C where it was compiled, else in Python. Both give the same bytes."""

from __future__ import annotations

try:
    from penstock.pipeline._columns import Columns, Partitions, encode

    COMPILED = True
except ImportError:
    from penstock.pipeline.pure_columns import Columns
    from penstock.pipeline.pure_records import Partitions, encode

    COMPILED = False

__all__ = ["COMPILED", "Columns", "Partitions", "encode"]
