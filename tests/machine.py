"""How slow the machine is that the tests run on: bounds of processor time are written for a quick one."""

from __future__ import annotations

import time

_QUICK_S = 0.012  # what the yardstick takes where the bounds were written


def slowness() -> float:
    """How many times slower than a quick machine this one is now, and never less than 1."""
    return max(1.0, max(_yardstick_s() for _ in range(3)) / _QUICK_S)


def _yardstick_s() -> float:
    """Processor time of what our code does most: objects made, put into a dictionary and looked at."""
    began = time.thread_time()
    held = {str(n): (n, [n]) for n in range(40_000)}
    assert sum(number for number, _ in held.values()) > 0
    return time.thread_time() - began
