"""What this machine has read of the decisions' topic, the newest record of each key: a commit reads on from there.

Spark runs each commit in a process of its own, so what was read is kept in a file of this user, one for each topic. It
is a copy and never the truth: one that can't be used is thrown away, and the topic is read from its beginning. Nothing
is synced, so that a file is of use until the machine is started again, and no longer.

    sink       decision, done, stuck      the values of the newest records under the sink's keys
               is_open                    whether its transactions may still have to be committed

What is done is kept without its transactions, which nobody asks for any more.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from penstock.pipeline.folders import state_folder
from penstock.protocol.record_batch import Record

DONE = "#done"
STUCK = "#stuck"
CLAIM = "#claim"
AGE_S_MAX = 12 * 3600  # compaction may take a record of deletion out of the topic a day after it was written
UNUSED_S_MAX = 30 * 86400
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
LAYOUT = """
CREATE TABLE IF NOT EXISTS position (stop INTEGER, read_s REAL);
CREATE TABLE IF NOT EXISTS sinks (
  sink TEXT PRIMARY KEY, offset INTEGER, timestamp_ms INTEGER, decision BLOB, done BLOB, stuck BLOB, is_open INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS open ON sinks (is_open) WHERE is_open;
"""


class Known(NamedTuple):
    """The newest records of one sink."""

    sink: str
    offset: int
    timestamp_ms: int
    decision: bytes | None
    done: bytes | None
    stuck: bytes | None


class ReadDecisions:
    def __init__(self, path: Path | None) -> None:
        """In memory without a path."""
        self._store = sqlite3.connect(path or ":memory:", timeout=5, isolation_level=None)
        self._store.execute("PRAGMA synchronous=OFF")
        self._store.execute("PRAGMA journal_mode=PERSIST")
        self._store.executescript(LAYOUT)

    def close(self) -> None:
        self._store.close()

    def stop(self, end: int) -> int:
        """How far it has read of a log that ends there; 0 if that can't be so, or was too long ago."""
        found = self._store.execute("SELECT stop, read_s FROM position").fetchone()
        if found is None:
            return 0
        stop, read_s = found
        return int(stop) if stop <= end and 0 <= time.time() - read_s < AGE_S_MAX else 0

    def add(self, start: int, newest: Mapping[bytes, Record], stop: int) -> None:
        """What was read between two offsets, by key; instead of what was known, if it is from the beginning."""
        self._store.execute("BEGIN IMMEDIATE")
        try:
            before = self._store.execute("SELECT stop FROM position").fetchone()
            if start == 0:
                self._store.execute("DELETE FROM sinks")
            elif before is None or before[0] != start:
                self._store.execute("ROLLBACK")  # another commit has read on meanwhile
                return
            for sink, records in _by_sink(newest).items():
                self._put(sink, records)
            self._store.execute("DELETE FROM position")
            self._store.execute("INSERT INTO position VALUES (?, ?)", (stop, time.time()))
            self._store.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._store.execute("ROLLBACK")
            raise

    def _put(self, sink: str, records: Mapping[str, Record]) -> None:
        found = self._select("sink = ?", sink)
        known = found[0] if found else Known(sink, 0, 0, None, None, None)
        if decision := records.get("decision"):
            known = known._replace(
                decision=decision.value, offset=decision.offset, timestamp_ms=decision.timestamp_ms
            )  # fmt: skip
        if done := records.get("done"):
            known = known._replace(done=done.value)
        if stuck := records.get("stuck"):
            known = known._replace(stuck=stuck.value)
        is_open = _is_open(known)
        if not is_open:
            known = known._replace(decision=_without_transactions(known.decision))
        if known.decision is known.done is known.stuck is None:
            self._store.execute("DELETE FROM sinks WHERE sink = ?", (sink,))
        else:
            self._store.execute("INSERT OR REPLACE INTO sinks VALUES (?, ?, ?, ?, ?, ?, ?)", (*known, is_open))

    def of(self, sink: str) -> list[Known]:
        """Of that one, and of all that may have something left to do."""
        return self._select("is_open OR sink = ?", sink)

    def all(self) -> list[Known]:
        return self._select("true")

    def _select(self, condition: str, *values: str) -> list[Known]:
        columns = ", ".join(Known._fields)
        return [Known(*each) for each in self._store.execute(f"SELECT {columns} FROM sinks WHERE {condition}", values)]


def _by_sink(newest: Mapping[bytes, Record]) -> dict[str, dict[str, Record]]:
    """By sink, and then by column."""
    found: dict[str, dict[str, Record]] = {}
    for key, record in newest.items():
        name = key.decode(errors="replace")
        sink, mark, kind = name.rpartition("#")
        if name == CLAIM:
            continue
        if mark + kind in (DONE, STUCK):
            found.setdefault(sink, {})[kind] = record
        else:
            found.setdefault(name, {})["decision"] = record
    return found


def _is_open(known: Known) -> bool:
    """What can't be read counts as open, for whoever looks at it to tell."""
    if known.decision is None:
        return False
    try:
        return known.done is None or int(json.loads(known.done)["batch"]) < int(json.loads(known.decision)["batch"])
    except (ValueError, KeyError, TypeError):
        return True


def _without_transactions(decision: bytes | None) -> bytes | None:
    return None if decision is None else json.dumps({**json.loads(decision), "transactions": []}).encode()


# ---- where it is kept


@contextmanager
def opened(topic_id: bytes) -> Iterator[ReadDecisions]:
    """Of one topic; of none, in memory. Raises sqlite3.Error where the file is of no use, or OSError where none can be
    had; what is damaged is gone then."""
    path = _path(topic_id) if any(topic_id) else None
    try:
        known = ReadDecisions(path)
        try:
            yield known
        finally:
            known.close()
    except sqlite3.Error as error:
        if path is not None and error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            _remove(path)
        raise


def _path(topic_id: bytes) -> Path:
    folder = state_folder() / "decisions"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{topic_id.hex()}-{BOOT_ID.read_text().strip()}.db"
    if not path.exists():
        for each in folder.glob("*.db"):
            if time.time() - each.stat().st_mtime > UNUSED_S_MAX:
                _remove(each)
    return path


def _remove(path: Path) -> None:
    for each in (path, Path(f"{path}-journal")):
        each.unlink(missing_ok=True)
