"""The time of day by which the Python client tries again: this machine's, and how far a test has put it forward.

Both the client and the broker for tests use it, and neither need know the other.
"""

from __future__ import annotations

import time

_ahead_ms = 0


def now_ms() -> int:
    return time.time_ns() // 1_000_000 + _ahead_ms


def put_forward(by_ms: int) -> None:
    """For all clients of this process. A test that is over takes it back."""
    global _ahead_ms
    _ahead_ms += by_ms
