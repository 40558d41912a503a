from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.history.events import (
    Acknowledged,
    BadHistory,
    Began,
    Event,
    FinalRead,
    Message,
    Sent,
    load,
    payload,
    read_payload,
)
from tests.history.writer import EventWriter

EVENTS: list[Event] = [
    Began(0.5, "p", True, None),
    Sent(1.0, "p", 0, "t", None, "key", 3),
    Acknowledged(1.25, "p", 0, "t", 2, 7),
    FinalRead(2.0, "f", "t", "read_committed", [8, 9]),
]


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    with EventWriter(tmp_path / "events") as writer:
        writer.write(*EVENTS[:2])
        writer.write_all(EVENTS[2:])
    assert list(load(tmp_path / "events")) == EVENTS


def test_a_file_is_complete_while_its_writer_lives(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path / "events")
    writer.write(*EVENTS)
    assert list(load(tmp_path / "events")) == EVENTS
    writer.close()


def test_a_torn_end_is_left_out_and_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "events"
    with EventWriter(path) as writer:
        writer.write(*EVENTS)
    os.truncate(path, path.stat().st_size - 5)
    assert list(load(path)) == EVENTS[:-1]
    with EventWriter(path) as writer:
        writer.write(EVENTS[0])
    assert list(load(path)) == [*EVENTS[:-1], EVENTS[0]]


@pytest.mark.parametrize("line", [b"nonsense", b"[]", b'["sent",1]', b'["unknown",1]', b"5"])
def test_what_is_no_event_is_refused(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "events").write_bytes(line + b"\n")
    with pytest.raises(BadHistory, match="line 1"):
        list(load(tmp_path / "events"))


def test_a_payload_says_which_message_it_is() -> None:
    message = Message("writer:with.colons", 123)
    assert read_payload(payload(message)) == message
    assert read_payload(b"something else").number == -1
    assert read_payload(None).number == -1
