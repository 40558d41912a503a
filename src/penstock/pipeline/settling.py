"""A worker's first task of ours: what is imported by then lives as long as the process."""

from __future__ import annotations

import gc

_settled = False


def settle() -> None:
    """Spark looks for garbage after each task, through all that was imported; once is enough for that."""
    global _settled
    if not _settled:
        _settled = True
        gc.freeze()
