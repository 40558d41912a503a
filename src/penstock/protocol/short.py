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
    WALKED_MAX = WALKED_BYTES_MAX = 2**31
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
    # Records of a batch, and its bytes, which may all be headers: to walk through more would hold everybody up.
    WALKED_MAX, WALKED_BYTES_MAX = 500, 64 * 1024

__all__ = [
    "COMPILED",
    "WALKED_BYTES_MAX",
    "WALKED_MAX",
    "AnswerShape",
    "FetchShape",
    "ProduceShape",
    "RecordsShape",
    "newest_delta",
    "open_batch",
    "stamp",
]
