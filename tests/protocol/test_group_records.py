"""The records of __consumer_offsets against the bytes that Kafka 4.2's group coordinator writes."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.protocol.codec import decode_versioned, encode_versioned
from penstock.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from penstock.protocol.schema import Message

TIME_MS = 1_700_000_000_000

OFFSETS = {
    0: "0000000000000000002a00016d0000018bcfe56800",
    1: "0001000000000000002a00016d0000018bcfe568000000018bcfe6eab8",
    2: "0002000000000000002a00016d0000018bcfe56800",
    3: "0003000000000000002a0000000700016d0000018bcfe56800",
    4: "0004000000000000002a00000007026d0000018bcfe5680001001000000000000000010000000000000002",
}
GROUPS = {
    0: "00000008636f6e73756d657200000005000572616e676500026d310000000100026d31000163000a2f3132372e302e302e31"
    "000027100000000201020000000103",
    1: "00010008636f6e73756d657200000005000572616e676500026d310000000100026d31000163000a2f3132372e302e302e31"
    "0000ea60000027100000000201020000000103",
    2: "00020008636f6e73756d657200000005000572616e676500026d310000018bcfe568000000000100026d31000163000a2f31"
    "32372e302e302e310000ea60000027100000000201020000000103",
    3: "00030008636f6e73756d657200000005000572616e676500026d310000018bcfe568000000000100026d3100026931000163"
    "000a2f3132372e302e302e310000ea60000027100000000201020000000103",
    4: "000409636f6e73756d6572000000050672616e6765036d310000018bcfe5680002036d3103693102630b2f3132372e302e30"
    "2e310000ea600000271003010202030000",
}
EMPTY_GROUPS = {
    0: "00000008636f6e73756d657200000000ffffffff00000000",
    3: "00030008636f6e73756d657200000000ffffffffffffffffffffffff00000000",
    4: "000409636f6e73756d6572000000000000ffffffffffffffff0100",
}


def offset_value(version: int) -> OffsetCommitValue:
    value = OffsetCommitValue(offset=42, metadata="m", commit_timestamp=TIME_MS)
    if version == 1:
        value.expire_timestamp = TIME_MS + 99_000
    if version >= 3:
        value.leader_epoch = 7
    if version >= 4:
        value.topic_id = (1).to_bytes(8, "big") + (2).to_bytes(8, "big")
    return value


def group_value(version: int) -> GroupMetadataValue:
    member = MemberMetadata(
        member_id="m1",
        client_id="c",
        client_host="/127.0.0.1",
        session_timeout=10_000,
        subscription=b"\1\2",
        assignment=b"\3",
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=5, protocol="range", leader="m1", members=[member])
    if version >= 1:
        member.rebalance_timeout = 60_000
    if version >= 2:
        value.current_state_timestamp = TIME_MS
    if version >= 3:
        member.group_instance_id = "i1"
    return value


CASES: list[Any] = [
    pytest.param(
        OffsetCommitKey(group="g", topic="orders", partition=3),
        1,
        "000100016700066f726465727300000003",
        id="offset key",
    ),
    pytest.param(GroupMetadataKey(group="g"), 2, "0002000167", id="group key"),
    *(pytest.param(offset_value(v), v, data, id=f"offset v{v}") for v, data in OFFSETS.items()),
    *(pytest.param(group_value(v), v, data, id=f"group v{v}") for v, data in GROUPS.items()),
    *(
        pytest.param(
            GroupMetadataValue(protocol_type="consumer", protocol=None, leader=None), v, data, id=f"empty group v{v}"
        )
        for v, data in EMPTY_GROUPS.items()
    ),
]


@pytest.mark.parametrize(("record", "version", "data"), CASES)
def test_a_group_record_has_the_bytes_that_kafka_writes(record: Message, version: int, data: str) -> None:
    assert encode_versioned(record, version).hex() == data
    assert decode_versioned(type(record), bytes.fromhex(data)) == record
