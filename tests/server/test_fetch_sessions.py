"""Fetch sessions (KIP-227) against a model, and what a consumer sees of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData
from penstock.server import fetch_sessions
from penstock.server.fetch_sessions import EPOCH_MAX, FetchSessions, Session
from tests.server.rooms import Rooms, batch, produce

SLOTS = 3


def request(
    session: tuple[int, int], asked: dict[int, int] | None = None, forgotten: list[int] | None = None
) -> FetchRequest:
    """Of partitions of one topic: index and offset."""
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in (asked or {}).items()
    ]
    return FetchRequest(
        session_id=session[0], session_epoch=session[1], max_bytes=1 << 20, min_bytes=1,
        topics=[FetchTopic(topic="t", partitions=partitions)] if partitions else [],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=forgotten)] if forgotten else [],
    )  # fmt: skip


class SessionsModel(RuleBasedStateMachine):
    """Sessions as a list, the one used longest ago first: id, epoch that is expected next, what is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions = FetchSessions(SLOTS, random.Random(5))
        self.model: list[tuple[int, int, dict[int, int]]] = []
        self.gone: list[int] = [12345]

    def _held(self, session_id: int) -> dict[int, int]:
        session = self.sessions._sessions[session_id]
        return {key[2]: partition.request.fetch_offset for key, partition in session.partitions.items()}

    def _forget(self, session_id: int) -> None:
        for slot, each in enumerate(self.model):
            if each[0] == session_id:
                del self.model[slot]
                self.gone.append(session_id)
                return

    @rule(asked=st.dictionaries(st.integers(0, 4), st.integers(0, 9)), slot=st.integers(-1, SLOTS - 1))
    def begin_a_new_one(self, asked: dict[int, int], slot: int) -> None:
        former = self.model[slot][0] if 0 <= slot < len(self.model) else 0
        session, full = self.sessions.begin(request((former, 0), asked))
        assert full
        self._forget(former)
        if not asked:
            assert session is None
            return
        assert session is not None
        if len(self.model) == SLOTS:
            self._forget(self.model[0][0])
        assert session.session_id > 0
        assert session.session_id not in [each[0] for each in self.model]
        self.model.append((session.session_id, 1, dict(asked)))

    @precondition(lambda self: self.model)
    @rule(
        slot=st.integers(0, SLOTS - 1),
        asked=st.dictionaries(st.integers(0, 4), st.integers(0, 9)),
        forgotten=st.lists(st.integers(0, 4), max_size=2),
    )
    def go_on(self, slot: int, asked: dict[int, int], forgotten: list[int]) -> None:
        session_id, epoch, held = self.model.pop(slot % len(self.model))
        session, full = self.sessions.begin(request((session_id, epoch), asked, forgotten))
        assert session is not None
        assert (session.session_id, full) == (session_id, False)
        for index in forgotten:
            held.pop(index, None)
        held.update(asked)
        self.model.append((session_id, epoch + 1, held))

    @precondition(lambda self: self.model)
    @rule(slot=st.integers(0, SLOTS - 1), off=st.sampled_from([-1, 1, 5]))
    def go_on_with_a_wrong_epoch(self, slot: int, off: int) -> None:
        session_id, epoch, held = self.model[slot % len(self.model)]
        if epoch + off < 1:
            return
        with pytest.raises(ApiError) as failure:
            self.sessions.begin(request((session_id, epoch + off), {0: 77}))
        assert failure.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
        self.model.remove((session_id, epoch, held))
        self.model.append((session_id, epoch, held))

    @rule(which=st.integers(0, 100))
    def go_on_with_one_that_is_gone(self, which: int) -> None:
        session_id = self.gone[which % len(self.gone)]
        if session_id in [each[0] for each in self.model]:
            return
        with pytest.raises(ApiError) as failure:
            self.sessions.begin(request((session_id, 1), {0: 0}))
        assert failure.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    @precondition(lambda self: self.model)
    @rule(slot=st.integers(0, SLOTS - 1))
    def end(self, slot: int) -> None:
        session_id = self.model[slot % len(self.model)][0]
        assert self.sessions.begin(request((session_id, -1), {0: 0})) == (None, True)
        self._forget(session_id)

    @rule()
    def do_without(self) -> None:
        assert self.sessions.begin(request((0, -1), {0: 0})) == (None, True)

    @invariant()
    def they_agree(self) -> None:
        assert list(self.sessions._sessions) == [each[0] for each in self.model]
        for session_id, epoch, held in self.model:
            assert self.sessions._sessions[session_id].epoch == epoch
            assert self._held(session_id) == held


TestSessionsModel = SessionsModel.TestCase
TestSessionsModel.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)


def test_without_slots_there_are_no_sessions() -> None:
    assert FetchSessions(0, random.Random(1)).begin(request((0, 0), {0: 0})) == (None, True)


def test_the_epoch_wraps_to_1() -> None:
    sessions = FetchSessions(1, random.Random(1))
    session, _ = sessions.begin(request((0, 0), {0: 0}))
    assert session is not None
    session.epoch = EPOCH_MAX
    sessions.begin(request((session.session_id, EPOCH_MAX)))
    assert session.epoch == 1


def test_a_session_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 3)
    sessions = FetchSessions(5, random.Random(1))
    assert sessions.begin(request((0, 0), dict.fromkeys(range(4), 0)))[0] is None
    session, _ = sessions.begin(request((0, 0), dict.fromkeys(range(3), 0)))
    assert session is not None
    with pytest.raises(ApiError):
        sessions.begin(request((session.session_id, 1), {7: 0}))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({}, {}, False),
        ({}, {"high_watermark": 6}, True),
        ({}, {"log_start_offset": 1}, True),
        ({}, {"records": b"data"}, True),
        ({}, {"error_code": 1}, True),
        ({"error_code": 1}, {}, True),
        ({"error_code": 1}, {"error_code": 1}, True),
    ],
)
def test_an_incremental_answer_tells_what_changed(before: dict[str, Any], after: dict[str, Any], told: bool) -> None:
    session = Session(1)
    session.update(request((0, 0), {0: 0}))
    key = ("t", bytes(16), 0)

    def data(changes: dict[str, Any]) -> PartitionData:
        return PartitionData(**{"partition_index": 0, "high_watermark": 5, "log_start_offset": 0, **changes})

    assert session.changed(key, data(before))
    assert session.changed(key, data(after)) is told


# ---- as a consumer sees them


def answered(response: Any) -> dict[int, int]:
    """Partitions in the answer, and how many bytes of records each has."""
    return {p.partition_index: len(p.records or b"") for topic in response.responses for p in topic.partitions}


async def test_a_session_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    rooms = Rooms(tmp_path)
    rooms.create_topic("t", 3)
    client = rooms.connect()
    for index in (0, 1):
        await client.ask(produce("t", batch(), index), 9)
    first = await client.ask(request((0, 0), {0: 0, 1: 0, 2: 0}), 11)
    assert (first.error_code, list(answered(first))) == (0, [0, 1, 2])
    session = first.session_id
    assert session > 0
    quiet = await client.ask(request((session, 1), {0: 1, 1: 1}), 11)
    assert (quiet.session_id, answered(quiet)) == (session, {})
    await client.ask(produce("t", batch(), 1), 9)
    news = await client.ask(request((session, 2)), 11)
    assert list(answered(news)) == [1]
    again = await client.ask(request((session, 3)), 11)
    assert list(answered(again)) == [1], "until the consumer asks for more, it is the same"
    forgotten = await client.ask(request((session, 4), None, [1]), 11)
    assert answered(forgotten) == {}
    wrong = await client.ask(request((session, 9)), 11)
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    last = await client.ask(request((session, -1), {0: 0}), 11)
    assert (last.session_id, list(answered(last))) == (0, [0])
    gone = await client.ask(request((session, 5)), 11)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    await rooms.close()


async def test_an_error_in_a_session_is_told_until_it_is_gone(tmp_path: Path) -> None:
    rooms = Rooms(tmp_path)
    rooms.create_topic("t")
    client = rooms.connect()
    first = await client.ask(request((0, 0), {0: 0, 1: 0}), 11)
    for epoch in (1, 2):
        response = await client.ask(request((first.session_id, epoch)), 11)
        (data,) = response.responses[0].partitions
        assert (data.partition_index, data.error_code) == (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    await rooms.close()


async def test_where_not_all_partitions_fit_into_an_answer_each_has_its_turn(tmp_path: Path) -> None:
    rooms = Rooms(tmp_path)
    rooms.create_topic("t", 4)
    client = rooms.connect()
    for _ in range(3):
        for index in range(4):
            await client.ask(produce("t", batch(size=1000), index), 9)
    positions = dict.fromkeys(range(4), 0)
    beginning = request((0, 0), positions)
    beginning.max_bytes = 1500
    response = await client.ask(beginning, 11)
    session, epoch, served = response.session_id, 1, []
    for _ in range(12):
        moved = {}
        for index, size in answered(response).items():
            if size:
                served.append(index)
                positions[index] += 1
                moved[index] = positions[index]
        going_on = request((session, epoch), moved)
        going_on.max_bytes = 1500
        response = await client.ask(going_on, 11)
        epoch += 1
    assert sorted(served[:4]) == [0, 1, 2, 3]
    assert sorted(served) == sorted([0, 1, 2, 3] * 3)
    await rooms.close()
