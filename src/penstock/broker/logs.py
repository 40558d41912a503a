"""The broker's own log: one line an event, on standard error.

`log.info("segment rolled", extra={"topic": "orders", "partition": 3})` is written as

    2026-05-01 10:30:00.123 INFO  storage      segment rolled topic=orders partition=3

or, for machines, as one JSON object. The room is the second part of the logger's name. A traceback follows its line,
indented; in JSON it is a field.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, TextIO

# What a record carries by itself; all else came in `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_QUOTED = frozenset(' "=')


def set_up(form: str = "text", level: str = "info", stream: TextIO | None = None) -> None:
    """Replaces whatever was set up before."""
    # Nothing here prints these, and finding them out costs more than the rest of a record.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    logging.raiseExceptions = False
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLine() if form == "json" else TextLine())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def room(logger: str) -> str:
    parts = logger.split(".", 2)
    return parts[1] if parts[0] == "penstock" and len(parts) > 1 else parts[0]


def extras(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in record.__dict__.items() if name not in _OWN}


class TextLine(logging.Formatter):
    def __init__(self) -> None:
        super().__init__()
        self._second = -1
        self._clock = ""

    def format(self, record: logging.LogRecord) -> str:
        second, fraction = divmod(record.created, 1)
        if second != self._second:
            self._second, self._clock = int(second), time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        line = f"{self._clock}.{int(fraction * 1000):03d} {record.levelname:<7} {room(record.name):<12} "
        line += _one_line(record.getMessage())
        for name, value in extras(record).items():
            line += f" {name}={_shown(value)}"
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            line += "".join(f"\n    {_one_line(part)}" for part in trace.splitlines())
        return line


class JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        event: dict[str, Any] = {
            "time": f"{clock}.{int(record.created % 1 * 1000):03d}Z",
            "level": record.levelname.lower(),
            "room": room(record.name),
            "message": record.getMessage(),
        }
        for name, value in extras(record).items():
            event.setdefault(name, value)
        if record.exc_info:
            event["traceback"] = self.formatException(record.exc_info)
        return json.dumps(event, default=str, ensure_ascii=False)


def _one_line(text: str) -> str:
    """A message often quotes what a client sent, which must not be able to write lines of its own."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _shown(value: object) -> str:
    text = str(value)
    if text and text.isprintable() and _QUOTED.isdisjoint(text):
        return text
    return '"' + _one_line(text).replace('"', '\\"') + '"'
