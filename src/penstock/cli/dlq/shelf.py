"""Letters that were read and are still to be dealt with: in a temporary file where they are many, not in memory.

What stays in memory of each is a `Slot`, some hundred bytes; letters are taken from the shelf one by one.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

IN_MEMORY_BYTES_MAX = 64 * 1024 * 1024

Header = tuple[str, bytes | None]
Place = tuple[int, int]  # partition and offset


@dataclass(frozen=True, slots=True)
class Letter:
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]  # the user's
    facts: dict[str, str]  # ours, without `penstock.`

    @property
    def place(self) -> Place:
        return self.partition, self.offset

    @property
    def is_ours(self) -> bool:
        """It says where it comes from, and is not to be tried again by itself."""
        return "topic" in self.facts and "due.at" not in self.facts

    @property
    def origin(self) -> str:
        facts = self.facts
        return f"{facts.get('topic', '?')}[{facts.get('partition', '?')}]@{facts.get('offset', '?')}"

    @property
    def failed_at_ms(self) -> int:
        from datetime import datetime

        try:
            return int(datetime.fromisoformat(self.facts["failed.at"]).timestamp() * 1000)
        except (KeyError, ValueError):
            return self.timestamp_ms


class Slot(NamedTuple):
    """Where a letter lies. Sorted, they are by age: what failed first is first."""

    failed_at_ms: int
    partition: int
    offset: int
    topic: str  # where the letter comes from, if it says so
    begin: int
    size: int

    @property
    def place(self) -> Place:
        return self.partition, self.offset


class Shelf:
    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES_MAX)  # noqa: SIM115  it goes with the shelf
        self._end = 0

    @property
    def is_in_memory(self) -> bool:
        return self._file.name is None

    def put(self, letter: Letter) -> Slot:
        data = pickle.dumps(letter, pickle.HIGHEST_PROTOCOL)
        self._file.seek(self._end)
        self._file.write(data)
        topic = sys.intern(letter.facts.get("topic", ""))
        slot = Slot(letter.failed_at_ms, letter.partition, letter.offset, topic, self._end, len(data))
        self._end += len(data)
        return slot

    def letters(self, slots: Iterable[Slot]) -> Iterator[Letter]:
        for slot in slots:
            self._file.seek(slot.begin)
            letter: Letter = pickle.loads(self._file.read(slot.size))  # written by this process
            yield letter
