from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Callable, Iterator

import pytest

from penstock.broker import logs

SetUp = Callable[..., io.StringIO]


@pytest.fixture
def set_up() -> Iterator[SetUp]:
    """Everything that a set-up changes is as it was when the test is over."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    names = ("logThreads", "logProcesses", "logMultiprocessing", "_srcfile", "raiseExceptions")
    flags = {name: getattr(logging, name) for name in names}

    def start(form: str = "text", level: str = "info") -> io.StringIO:
        stream = io.StringIO()
        logs.set_up(form, level, stream)
        return stream

    yield start
    root.handlers[:], level = before
    root.setLevel(level)
    for name, value in flags.items():
        setattr(logging, name, value)


def test_an_event_is_one_readable_line(set_up: SetUp) -> None:
    stream = set_up()
    logging.getLogger("penstock.storage.log").info("segment rolled", extra={"topic": "orders", "partition": 3})
    pattern = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO    storage      segment rolled topic=orders partition=3\n"
    assert re.fullmatch(pattern, stream.getvalue())


def test_an_event_in_json_is_one_object(set_up: SetUp) -> None:
    stream = set_up("json")
    logging.getLogger("penstock.groups.machine").warning("member %s left", "m-1", extra={"group": "g"})
    event = json.loads(stream.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event.pop("time"))
    assert event == {"level": "warning", "room": "groups", "message": "member m-1 left", "group": "g"}


def test_a_client_can_not_write_lines_of_its_own(set_up: SetUp) -> None:
    stream = set_up()
    logging.getLogger("penstock.server").error("bad topic %s", "a\nERROR b\x1b[2J", extra={"client": 'x y="\n'})
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert "\x1b" not in line
    assert line.endswith('client="x y=\\"\\n"\n')


def test_a_traceback_follows_its_line_indented(set_up: SetUp) -> None:
    stream = set_up()
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        logging.getLogger("penstock.broker").exception("failed")
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("failed")
    assert all(line.startswith("    ") for line in rest)
    assert rest[-2:] == ["    ValueError: first", "    second"]


def test_a_traceback_in_json_is_a_field(set_up: SetUp) -> None:
    stream = set_up("json")
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("penstock.broker").exception("failed")
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: no" in json.loads(line)["traceback"]


def test_less_than_the_level_is_not_written(set_up: SetUp) -> None:
    stream = set_up(level="warning")
    logging.getLogger("penstock.server").info("quiet")
    logging.getLogger("penstock.server").warning("loud")
    assert "quiet" not in stream.getvalue()
    assert "loud" in stream.getvalue()


def test_setting_up_again_replaces_what_was(set_up: SetUp) -> None:
    first, second = set_up(), set_up()
    logging.getLogger("penstock").info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1


def test_a_field_that_json_does_not_know_is_written_as_text(set_up: SetUp) -> None:
    stream = set_up("json")
    logging.getLogger("other.library").info("hello", extra={"raw": b"\x00", "level": "mine"})
    event = json.loads(stream.getvalue())
    assert event["room"] == "other"
    assert event["raw"] == "b'\\x00'"
    assert event["level"] == "info"
