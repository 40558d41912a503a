"""What a handler of the Python client is given, for tests that call it themselves: no broker has to run for that."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Message as RawMessage

from penstock.client.message import DecodedMessage, Message
from penstock.testing.arguments import (
    BadArgument,
    Headers,
    as_bytes,
    as_headers,
    check_int,
    check_text,
    check_timestamp,
)

CREATE_TIME = 1


class _Again(RawMessage):
    """What was tried before: `Message` asks its raw message how often."""

    attempt = 1


def message(
    value: Any = None,
    key: Any = None,
    headers: Headers | None = None,
    *,
    topic: str = "topic",
    partition: int = 0,
    offset: int = 0,
    timestamp_ms: int | None = None,
    attempt: int = 1,
) -> Message[Any, Any]:
    """A message as a consumer hands it out: `handle(message({"total": 5}, key="ada"))`.

    Key and value are what the consumer's deserializers would have made, so they may be anything. `raw_key` and
    `raw_value` are their bytes: text is UTF-8, what is neither is JSON, and what can't be JSON has none. Headers are
    bytes, text, None or JSON, by name or as pairs. It was made now, unless `timestamp_ms` says when.
    """
    raw = (RawMessage if check_int(attempt, "attempt", least=1) == 1 else _Again)(
        topic=check_text(topic, "the name of a topic"),
        partition=check_int(partition, "partition", least=0),
        offset=check_int(offset, "offset", least=0),
        key=_bytes_of(key),
        value=_bytes_of(value),
        headers=list(as_headers(headers)),
        timestamp=(CREATE_TIME, round(time.time() * 1000) if timestamp_ms is None else check_timestamp(timestamp_ms)),
    )
    if isinstance(raw, _Again):
        raw.attempt = attempt
    if all(each is None or isinstance(each, bytes) for each in (key, value)):
        return Message(raw)
    return DecodedMessage(raw, key, value)


def _bytes_of(given: Any) -> bytes | None:
    try:
        return as_bytes(given)
    except BadArgument:
        return None
