"""Writes events down. Each is in the file, for whoever reads it later, before the call returns: being killed loses none
that was reported, and at most tears the last."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from tests.history.events import Event, dump

now = time.monotonic


class EventWriter:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        size = os.fstat(self._fd).st_size
        if size and not path.read_bytes().endswith(b"\n"):
            os.ftruncate(self._fd, path.read_bytes().rfind(b"\n") + 1)  # what a killed predecessor tore

    def write(self, *events: Event) -> None:
        self.write_all(events)

    def write_all(self, events: Iterable[Event]) -> None:
        rest = memoryview(b"".join(map(dump, events)))
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
