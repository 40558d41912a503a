"""Spark's errors in a sentence: without the plan, the stack of Java and the name of the class."""

from __future__ import annotations

import re

LENGTH_MAX = 500
OURS = re.compile(r"\bpenstock\.(?:\w+\.)+\w+: (.+)")
ENDS = re.compile(r"(?:;? ?SQLSTATE: \w+|;\s*\n'?|\n\n?== SQL|\n=== Streaming|\nJVM stacktrace|\n\s+at ).*", re.S)


def in_short(error: BaseException) -> str:
    """The reason. One of our own that came through Spark is told in its own words."""
    text = str(error)
    ours = OURS.findall(text)
    if ours:
        return _cut(ours[-1])
    text = text.strip()
    place = re.search(r"line (\d+),? pos (\d+)", text)
    text = re.sub(r"^\[STREAM_FAILED\].*?terminated with exception: ", "", text, flags=re.S)
    text = re.sub(r"^\[[A-Z0-9_.]+\] ", "", ENDS.sub("", text).strip())
    said = _cut(" ".join(text.split()).rstrip("."))
    return f"{said} (line {place[1]}, position {int(place[2]) + 1})" if place else said


def _cut(text: str) -> str:
    return text if len(text) <= LENGTH_MAX else text[:LENGTH_MAX] + "…"
