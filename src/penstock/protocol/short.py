"""What the short ways do with the bytes of every request, in C where that was compiled, else in Python."""

from __future__ import annotations

try:
    from penstock.protocol._short import (
        AnswerShape,
        FetchShape,
        ProduceShape,
        RecordsShape,
        has_records,
        open_batch,
        stamp,
    )

    COMPILED = True
except ImportError:
    from penstock.protocol.pure_short import (
        AnswerShape,
        FetchShape,
        ProduceShape,
        RecordsShape,
        has_records,
        open_batch,
        stamp,
    )

    COMPILED = False

__all__ = [
    "COMPILED",
    "AnswerShape",
    "FetchShape",
    "ProduceShape",
    "RecordsShape",
    "has_records",
    "open_batch",
    "stamp",
]
