"""What the short ways do with the bytes of every request, in C where that was compiled, else in Python."""

from __future__ import annotations

try:
    from penstock.protocol._short import (
        AnswerShape,
        FetchShape,
        ProduceShape,
        RecordsShape,
        newest_delta,
        open_batch,
        stamp,
    )

    COMPILED = True
    WALKED_MAX = 2**31
except ImportError:
    from penstock.protocol.pure_short import (
        AnswerShape,
        FetchShape,
        ProduceShape,
        RecordsShape,
        newest_delta,
        open_batch,
        stamp,
    )

    COMPILED = False
    WALKED_MAX = 500  # records of a batch: to walk through more of them here would hold everybody up

__all__ = [
    "COMPILED",
    "WALKED_MAX",
    "AnswerShape",
    "FetchShape",
    "ProduceShape",
    "RecordsShape",
    "newest_delta",
    "open_batch",
    "stamp",
]
