import struct

import pytest
from group_engine import GroupEngine

from penstock.coordinator.machine import LogRecord
from penstock.groups.offsets import OffsetAndMetadata
from penstock.groups.records import GroupStored, OffsetCommitted, group_record, offset_record, read_record
from penstock.protocol.codec import DecodeError, encode_versioned
from penstock.protocol.messages.group_records import GroupMetadataValue, MemberMetadata, OffsetCommitValue

TOPIC_ID = bytes(range(16))


def a_group() -> GroupMetadataValue:
    member = MemberMetadata(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="/h",
        rebalance_timeout=60_000,
        session_timeout=10_000,
        subscription=b"sub",
        assignment=b"as",
    )
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=7,
        protocol="range",
        leader="m",
        current_state_timestamp=99,
        members=[member],
    )


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def test_a_committed_offset_is_key_1_and_value_4() -> None:
    record = offset_record("g", "t", 3, OffsetAndMetadata(42, 5, "note", 1000, topic_id=TOPIC_ID))
    assert record.key == struct.pack(">h", 1) + string("g") + string("t") + struct.pack(">i", 3)
    assert (
        record.value == struct.pack(">hqi", 4, 42, 5) + b"\x05note" + struct.pack(">q", 1000) + b"\1\0\x10" + TOPIC_ID
    )


def test_an_offset_with_an_expire_timestamp_is_value_1() -> None:
    record = offset_record("g", "t", 3, OffsetAndMetadata(42, 5, "note", 1000, expire_timestamp_ms=2000))
    assert record.value == struct.pack(">hq", 1, 42) + string("note") + struct.pack(">qq", 1000, 2000)


def test_a_group_is_key_2_and_value_3() -> None:
    record = group_record("g", a_group())
    assert record.key == struct.pack(">h", 2) + string("g")
    members = string("m") + string("i") + string("c") + string("/h") + struct.pack(">ii", 60_000, 10_000)
    members += struct.pack(">i", 3) + b"sub" + struct.pack(">i", 2) + b"as"
    head = struct.pack(">h", 3) + string("consumer") + struct.pack(">i", 7) + string("range") + string("m")
    assert record.value == head + struct.pack(">qi", 99, 1) + members


@pytest.mark.parametrize(
    "offset",
    [OffsetAndMetadata(42, 5, "note", 1000, topic_id=TOPIC_ID), OffsetAndMetadata(0, -1, "", 0), None],
)
def test_an_offset_is_read_as_it_was_written(offset: OffsetAndMetadata | None) -> None:
    assert read_record(offset_record("g", "t", 3, offset)) == OffsetCommitted("g", "t", 3, offset)


@pytest.mark.parametrize("value", [a_group(), None])
def test_a_group_is_read_as_it_was_written(value: GroupMetadataValue | None) -> None:
    assert read_record(group_record("g", value)) == GroupStored("g", value)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_offsets_of_older_brokers_are_read(version: int) -> None:
    key = struct.pack(">h", 0) + string("g") + string("t") + struct.pack(">i", 3)
    value = OffsetCommitValue(offset=42, metadata="", commit_timestamp=1000)
    stored = read_record(LogRecord(key, encode_versioned(value, version)))
    assert stored == OffsetCommitted("g", "t", 3, OffsetAndMetadata(42, -1, "", 1000))


def test_a_member_of_a_version_0_record_has_its_session_timeout_for_a_rebalance_timeout() -> None:
    value = a_group()
    key = group_record("g", value).key
    engine = GroupEngine(log=[LogRecord(key, encode_versioned(value, 0))])
    member = engine.group.members["m"]
    assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (10_000, 10_000)
    assert engine.group.current_state_timestamp_ms is None


@pytest.mark.parametrize("version", [4, 9, 15, 17, 32767, -1])
def test_a_key_of_an_unknown_version_is_skipped(version: int) -> None:
    engine = GroupEngine(log=[LogRecord(struct.pack(">h", version) + b"anything", b"\0\0")])
    assert not engine.machine.groups


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\0", b""),
        (b"\0\1", b""),
        (group_record("g", None).key, b""),
        (group_record("g", None).key, b"\0\x63"),
        (group_record("g", None).key, b"\0\3cut"),
    ],
)
def test_a_record_that_makes_no_sense_is_an_error(key: bytes, value: bytes) -> None:
    with pytest.raises(DecodeError):
        read_record(LogRecord(key, value))
