"""Durations as people write them: 500ms, 90s, 15m, 15min, 2h, 1d."""

from __future__ import annotations

import re

UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
DURATION = re.compile(rf"\s*(\d{{1,9}})\s*({'|'.join(UNITS_S)})\s*", re.ASCII)


def seconds(text: str) -> float | None:
    """None for what is no duration."""
    match = DURATION.fullmatch(text)
    return int(match[1]) * UNITS_S[match[2]] if match else None
