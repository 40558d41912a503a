"""Fetch sessions (KIP-227): a consumer names its partitions once, then sends and receives only what changed.

A session remembers, for each partition, what the client asked for and what it was last told. Sessions are bounded in
number; the one that was used longest ago makes room for a new one, and its client begins again with a full fetch.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1
PARTITIONS_MAX = 10_000  # of a session; a fetch of more is answered without one

Key = tuple[str, bytes, int]  # topic name or id, whichever the version uses, and partition


@dataclass(slots=True)
class SessionPartition:
    request: FetchPartition
    told: tuple[int, int] = (-1, -1)  # high watermark and log start offset of the last answer


@dataclass(slots=True)
class Session:
    session_id: int
    epoch: int = 1
    partitions: dict[Key, SessionPartition] = field(default_factory=dict)

    def update(self, request: FetchRequest) -> None:
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self.partitions.pop((forgotten.topic, forgotten.topic_id, index), None)
        for key, partition in flatten(request.topics):
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = SessionPartition(partition)
            else:
                known.request = partition

    def changed(self, key: Key, data: PartitionData) -> bool:
        """Whether an incremental answer must mention the partition; remembers that it was told."""
        known = self.partitions.get(key)
        if known is None:
            return True
        told = (data.high_watermark, data.log_start_offset)
        worth = bool(data.error_code) or bool(data.records) or known.told != told or data.diverging_epoch is not None
        known.told = told if not data.error_code else (-1, -1)  # an error is told until it is gone
        if data.records:  # the next answer begins with others: where they don't all fit, each has its turn
            self.partitions[key] = self.partitions.pop(key)
        return worth


def flatten(topics: Iterable[FetchTopic]) -> list[tuple[Key, FetchPartition]]:
    return [((topic.topic, topic.topic_id, p.partition), p) for topic in topics for p in topic.partitions]


class FetchSessions:
    def __init__(self, slots: int, rng: random.Random) -> None:
        self._slots = slots
        self._random = rng
        self._sessions: dict[int, Session] = {}  # the one used longest ago first

    def known(self, session_id: int) -> Session | None:
        return self._sessions.get(session_id)

    def begin(self, request: FetchRequest) -> tuple[Session | None, bool]:
        """The session of a request, if it has one, and whether the answer must be full."""
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            if request.session_epoch == FINAL_EPOCH:
                return None, True
            return self._create(request), True
        session = self._sessions.pop(request.session_id, None)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self._sessions[session.session_id] = session
        if request.session_epoch != session.epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        session.update(request)
        if len(session.partitions) > PARTITIONS_MAX:
            del self._sessions[session.session_id]
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return session, False

    def _create(self, request: FetchRequest) -> Session | None:
        if not request.topics or self._slots <= 0:
            return None
        if sum(len(topic.partitions) for topic in request.topics) > PARTITIONS_MAX:
            return None
        if len(self._sessions) >= self._slots:
            del self._sessions[next(iter(self._sessions))]
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._random.randint(1, 2**31 - 1)
        session = Session(session_id)
        session.update(request)
        self._sessions[session_id] = session
        return session
