"""The records of consumer groups: Kafka's bytes, and a machine that is made again from them, wherever they end."""

from __future__ import annotations

import random

import pytest
from group_engine import GroupEngine, offers, subscription

from penstock.coordinator.machine import LogRecord
from penstock.groups.consumer.group import ResolvedPattern
from penstock.groups.consumer.member import ClassicSide, ConsumerMember
from penstock.groups.consumer.records import (
    assignment_epoch_record,
    current_record,
    group_epoch_record,
    member_record,
    pattern_record,
    target_record,
)
from penstock.groups.consumer.states import ConsumerGroupState, MemberState
from penstock.protocol.errors import ErrorCode

TOPIC = bytes(range(16))
KEY = b"\0\1g\0\1m"
PARTITIONS = b"\x02" + TOPIC + b"\x03" + b"\0\0\0\1" + b"\0\0\0\2" + b"\0"

MEMBER = ConsumerMember(
    "m",
    instance_id="i",
    rack_id=None,
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=1_000,
    topic_names=("t",),
    topic_regex=None,
    server_assignor="range",
    member_epoch=5,
    previous_member_epoch=4,
    state=MemberState.UNREVOKED_PARTITIONS,
    assigned={TOPIC: frozenset({1, 2})},
    pending_revocation={},
)
METADATA = b"\0\0" + b"\x02i" + b"\0" + b"\x02c" + b"\x03/h" + b"\x02\x02t" + b"\0" + b"\0\0\x03\xe8" + b"\x06range"


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (group_epoch_record("g", 7), b"\0\3\0\1g", b"\0\0" + b"\0\0\0\7" + b"\0"),
        (group_epoch_record("g", 7, 258), b"\0\3\0\1g", b"\0\0\0\0\0\7" + b"\1\0\x08" + b"\0" * 6 + b"\1\2"),
        (group_epoch_record("g", None), b"\0\3\0\1g", None),
        (assignment_epoch_record("g", 7), b"\0\6\0\1g", b"\0\0\0\0\0\7\0"),
        (assignment_epoch_record("g", None), b"\0\6\0\1g", None),
        (member_record("g", MEMBER), b"\0\5" + KEY, METADATA + b"\0"),
        (target_record("g", "m", MEMBER.assigned), b"\0\7" + KEY, b"\0\0" + PARTITIONS + b"\0"),
        (
            current_record("g", MEMBER),
            b"\0\x08" + KEY,
            b"\0\0" + b"\0\0\0\5" + b"\0\0\0\4" + b"\1" + PARTITIONS + b"\1" + b"\0",
        ),
        (
            pattern_record("g", "a.*", ResolvedPattern(frozenset({"ab", "a"}), 3, 4)),
            b"\0\x10\0\1g\0\3a.*",
            b"\0\0" + b"\3\2a\3ab" + b"\0" * 7 + b"\3" + b"\0" * 7 + b"\4" + b"\0",
        ),
        (pattern_record("g", "a.*", None), b"\0\x10\0\1g\0\3a.*", None),
    ],
)
def test_records_are_kafkas(record: LogRecord, key: bytes, value: bytes | None) -> None:
    assert (record.key, record.value) == (key, value)


def test_a_classic_members_protocols_are_a_tagged_field() -> None:
    classic = ConsumerMember("m", client_id="c", client_host="/h", classic=ClassicSide(9, (("range", b"x"),)))
    value = member_record("g", classic).value
    assert value is not None
    assert value.endswith(b"\1\0" + b"\x10" + b"\1" + b"\0\0\0\x09" + b"\2" + b"\6range" + b"\2x" + b"\0" + b"\0")


def busy(engine: GroupEngine) -> None:
    """Members of both protocols come, go and change."""
    engine.start("a", "t", "u")
    engine.start("b", regex="t")
    engine.beat("a", 1)
    engine.start("s", instance="one")
    held = engine.given(engine.start("a", "t", "u")) or {}
    engine.beat("a", engine.consumer_group.members["a"].member_epoch, owned=held)
    engine.join("classic", protocols=offers(range=subscription("t", "u")))
    engine.commit({("t", 0): 5}, "classic", engine.consumer_group.members["classic"].member_epoch)
    engine.beat("s", -2, instance="one")
    engine.start("s2", instance="one")
    engine.topics.set("t", 9)
    engine.beat("b", engine.consumer_group.members["b"].member_epoch)
    engine.beat("b", -1)
    for member_id in ("a", "s2"):
        engine.start(member_id, instance="one" if member_id == "s2" else None)


def settle(engine: GroupEngine) -> dict[str, set[int]]:
    """All members go on as they are known, until nothing changes; returns what of the topic `t` each of them has."""
    for _ in range(6):
        for member in list(engine.consumer_group.members.values()):
            if member.classic is None:
                owned = {engine.topics.name_of(topic): each for topic, each in member.assigned.items()}
                engine.beat(
                    member.member_id,
                    member.member_epoch if member.member_epoch > 0 else 0,
                    owned=owned if member.member_epoch > 0 else {},
                    topics=member.topic_names,
                    rebalance_ms=1_000_000,
                    instance=member.instance_id,
                )
            else:
                engine.join(member.member_id, protocols=offers(range=subscription("t", "u")))
    return {m.member_id: set(m.assigned.get(engine.id_of("t"), ())) for m in engine.consumer_group.members.values()}


def test_wherever_the_log_ends_the_group_can_go_on() -> None:
    engine = GroupEngine()
    busy(engine)
    for end in engine.batch_ends:
        again = GroupEngine(log=engine.log[:end], topics=engine.topics)
        group = again.consumer_group
        held = [(t, p) for m in group.members.values() for t, each in m.assigned.items() for p in each]
        assert len(held) == len(set(held))
        if group.members:
            shares = settle(again)
            assert group.state is ConsumerGroupState.STABLE
            if any("t" in m.topic_names or m.topic_regex for m in group.members.values()):
                assert sorted(p for share in shares.values() for p in share) == list(range(9))


def test_the_log_may_be_compacted_at_any_time() -> None:
    engine = GroupEngine()
    busy(engine)
    rng = random.Random(7)
    for _ in range(50):
        upto = rng.randrange(len(engine.log) + 1)
        latest = {record.key: n for n, record in enumerate(engine.log[:upto])}
        kept = [record for n, record in enumerate(engine.log[:upto]) if latest[record.key] == n]
        drops_tombstones = rng.random() < 0.5
        if drops_tombstones:
            kept = [record for record in kept if record.value is not None]
        again = GroupEngine(log=[*kept, *engine.log[upto:]], topics=engine.topics)
        assert again.consumer_group.members == engine.consumer_group.members
        assert again.consumer_group.owners == engine.consumer_group.owners
        assert again.consumer_group.targets == engine.consumer_group.targets
        assert again.fetch() == engine.fetch()


def test_tombstones_of_what_is_not_there_are_passed_over() -> None:
    engine = GroupEngine()
    engine.start("a")
    tombstones = [LogRecord(record.key, None) for record in engine.log]
    for order in (tombstones, tombstones[::-1]):
        again = GroupEngine(log=order)
        assert not again.machine.groups


def test_members_have_a_full_session_and_a_full_rebalance_timeout_from_the_end_of_the_load() -> None:
    engine = GroupEngine()
    engine.start("a", rebalance_ms=50_000)
    engine.start("b")
    engine.beat("a", 1)
    engine.now_ms += 1_000_000
    engine.reload()
    for _ in range(4):
        engine.advance(12_000)
        assert engine.beat("a", 1).error_code == engine.beat("b", 2).error_code == ErrorCode.NONE
    engine.advance(2_000)
    assert engine.beat("a", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_topics_that_changed_while_nobody_looked_are_noticed() -> None:
    engine = GroupEngine()
    engine.start("a")
    engine.topics.set("t", 7)
    engine.reload()
    assert engine.beat("a", 1).member_epoch == 2


def test_a_state_from_the_future_makes_the_member_begin_again() -> None:
    engine = GroupEngine()
    engine.start("a")
    current = next(record for record in engine.log if record.key.startswith(b"\0\x08"))
    assert current.value is not None
    engine.log.append(LogRecord(current.key, current.value[:10] + b"\x09" + current.value[11:]))
    engine.reload()
    assert engine.consumer_group.members["a"].state is MemberState.UNKNOWN
    assert engine.beat("a", 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert engine.given(engine.start("a")) == {"t": {0, 1, 2, 3, 4, 5}}


def test_unknown_records_between_known_ones_are_passed_over() -> None:
    engine = GroupEngine()
    engine.start("a")
    partition_metadata = LogRecord(b"\0\4\0\1g", b"\0\0\1\0")  # as Kafka wrote it before 4.1
    engine.log.insert(2, partition_metadata)
    engine.log.append(LogRecord(partition_metadata.key, None))
    engine.reload()
    assert engine.beat("a", 1).error_code == ErrorCode.NONE
