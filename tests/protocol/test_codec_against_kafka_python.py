"""Every message and version, byte for byte against kafka-python, which interprets Kafka's own definitions."""

from __future__ import annotations

import importlib
import uuid
from typing import Any

from kafka.protocol.schemas.fields.codecs.types import BitField

from penstock.protocol.codec import decode, encode_bytes
from penstock.protocol.schema import Message, Struct

from .random_messages import CONSUMER_PROTOCOL, MESSAGES, carried_fields, every_message_version, random_messages

MODULES = [
    "admin.cluster",
    "admin.configs",
    "admin.groups",
    "admin.topics",
    "admin.transactions",
    "consumer.fetch",
    "consumer.group",
    "consumer.metadata",
    "consumer.offsets",
    "metadata.api_versions",
    "metadata.find_coordinator",
    "metadata.metadata",
    "producer.produce",
    "producer.transaction",
    "sasl",
]
CLASSES: dict[str, Any] = {}
for module in MODULES:
    CLASSES |= vars(importlib.import_module(f"kafka.protocol.{module}"))


def to_kafka_python(message: Any, version: int, field: Any, cls: Any) -> Any:
    values = {}
    theirs = [f for f in field.fields.values() if f.for_version_q(version)]
    ours = carried_fields(type(message), version)
    assert len(theirs) == len(ours), f"{cls} has {[f.name for f in theirs]}, ours {ours}"
    for name, f in zip(ours, theirs, strict=True):
        value = getattr(message, name)
        tagged_default = version in message.fields[name].tagged and value is None
        if not tagged_default:
            values[f.name] = kafka_python_value(value, version, f)
    return cls(version=version, **values)


def kafka_python_value(value: Any, version: int, field: Any) -> Any:
    if isinstance(value, list):
        element = field.array_of if field.is_array() else field
        return [kafka_python_value(item, version, element) for item in value]
    if isinstance(value, Struct):
        return to_kafka_python(value, version, field, field.data_class)
    if field.type_str == "bitfield":
        return BitField.from_32_bit_field(value & 0xFFFFFFFF)
    if field.type_str == "uuid":
        return None if value == bytes(16) else uuid.UUID(bytes=value)
    return value


# It does not speak the protocol of consumer groups (KIP-848).
KNOWN = [cls for cls in MESSAGES if not cls.__name__.startswith("ConsumerGroup")]


@every_message_version(KNOWN)
def test_a_message_has_the_bytes_that_kafka_python_writes_and_reads_back_from_them(
    cls: type[Message], version: int
) -> None:
    target = CLASSES[cls.__name__]
    for message in random_messages(cls, version, 12):
        other = to_kafka_python(message, version, target._struct, target)
        theirs = other.encode(header=False) if cls in CONSUMER_PROTOCOL else other.encode(version=version)
        assert encode_bytes(message, version) == theirs
        assert decode(cls, theirs, version) == message
