"""Every message and version, byte for byte against kio, which is generated from Kafka's own definitions."""

from __future__ import annotations

import dataclasses
import datetime
import io
import random
import types
import typing
import uuid
from collections.abc import Iterator
from typing import Any

from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_writer
from kio.static.constants import EntityType

from penstock.protocol.codec import decode, encode_bytes
from penstock.protocol.schema import Message, Struct

from .random_messages import CONSUMER_PROTOCOL, MESSAGES, carried_fields, every_message_version, random_messages

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
NEWEST_DATETIME_MS = 253_402_300_799_999  # the end of the year 9999
LONGEST_TIMEDELTA_MS = 1 << 52  # kio converts through a float


def narrow_to_kio(name: str, value: Any, rng: random.Random) -> Any:
    """kio holds errors as an enum and times as Python's own, which reach less far than an int64."""
    if name in ("error_code", "partition_error_code"):
        return rng.randrange(-1, 134)
    if name in ("retention_time_ms", "session_lifetime_ms"):
        return max(-LONGEST_TIMEDELTA_MS, min(value, LONGEST_TIMEDELTA_MS))
    if name == "transaction_start_time_ms":
        return rng.choice([0, 1_700_000_000_123, NEWEST_DATETIME_MS])
    if name == "log_append_time_ms":
        return rng.choice([-1, 0, 1_700_000_000_123, NEWEST_DATETIME_MS])
    return value


def kio_class(cls: type[Message], version: int) -> Any:
    name = "".join("_" + c.lower() if c.isupper() else c for c in cls.__name__).removeprefix("_")
    if cls in CONSUMER_PROTOCOL:
        return load_entity_schema(name, version, EntityType.data)
    name, _, kind = name.rpartition("_")
    return load_entity_schema(name, version, getattr(EntityType, kind))


def nested_class(annotation: Any) -> Any:
    """The dataclass inside `X`, `X | None`, `tuple[X, ...]` or `tuple[X, ...] | None`."""
    if dataclasses.is_dataclass(annotation):
        return annotation
    inner = (
        typing.get_args(annotation) if typing.get_origin(annotation) in (tuple, types.UnionType, typing.Union) else ()
    )
    return next((found for found in map(nested_class, inner) if found), None)


def to_kio(message: Any, version: int, target: Any) -> Any:
    fields = dataclasses.fields(target)
    names = carried_fields(type(message), version)
    assert len(names) == len(fields), f"{target} has {[f.name for f in fields]}, ours {names}"
    return target(**dict(kio_values(message, names, version, fields)))


def kio_values(message: Any, names: list[str], version: int, fields: Any) -> Iterator[tuple[str, Any]]:
    """Fields are matched by their place: kio renames those that hold times."""
    for name, f in zip(names, fields, strict=True):
        value = getattr(message, name)
        kafka_type = f.metadata.get("kafka_type")
        tagged_default = version in type(message).fields[name].tagged and value is None
        if tagged_default and kafka_type != "string":
            continue
        yield f.name, kio_value(value, kafka_type, nested_class(f.type), version)


def kio_value(value: Any, kafka_type: str | None, nested: Any, version: int) -> Any:
    if isinstance(value, list):
        return tuple(kio_value(item, kafka_type, nested, version) for item in value)
    if isinstance(value, Struct):
        return to_kio(value, version, nested)
    if kafka_type == "error_code":
        return KioErrorCode(value)
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return datetime.timedelta(milliseconds=value)
    if kafka_type == "datetime_i64":
        return None if value == -1 else EPOCH + datetime.timedelta(milliseconds=value)
    if kafka_type == "uuid":
        return None if value == bytes(16) else uuid.UUID(bytes=value)
    return value


@every_message_version(MESSAGES)
def test_a_message_has_the_bytes_that_kio_writes_and_reads_back_from_them(cls: type[Message], version: int) -> None:
    target = kio_class(cls, version)
    write = entity_writer(target)
    for message in random_messages(cls, version, 12, narrow_to_kio):
        buffer = io.BytesIO()
        write(buffer, to_kio(message, version, target))
        theirs = buffer.getvalue()
        assert encode_bytes(message, version) == theirs
        assert decode(cls, theirs, version) == message
