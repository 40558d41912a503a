"""The short way through a follower's fetch, for one that is in sync and asks for what comes next.

A message that must be on all replicas is acknowledged by the fetches that follow it, so they are read without decoding
and answered without encoding. Anything else (a new session, an error, another epoch, a follower that catches up) goes
the ordinary way, and the session is the same for both.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from penstock.protocol.framing import response_frame
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.plain_fetch import API_KEY, VERSION, Answered, read_asked, request_ends, write_answer
from penstock.replication.partition import Partition
from penstock.server.context import Context
from penstock.server.replica_fetch import ReplicaSession
from penstock.server.replica_place import Place
from penstock.storage.segment import CorruptSegment
from penstock.transport.connection import UNSENT_MAX, Connection, Slot
from penstock.transport.turn import Turn

HEADER_BEFORE_CLIENT: Final = 12
SESSION_SIZE: Final = 8

_head = Struct(">ii").unpack_from  # api key and version as one, correlation id
_session = Struct(">ii").unpack_from


class ShortReply:
    """Who waits for an answer, and how it is sent."""

    __slots__ = ("_connection", "_correlation_id", "_memo", "_slot")

    def __init__(self, memo: ReplicaMemo, connection: Connection, correlation_id: int) -> None:
        self._memo = memo
        self._connection = connection
        self._correlation_id = correlation_id
        self._slot: Slot = connection.slot()
        self._slot.cancel = self._cancelled
        self._slot.hurry = self._hurry

    def _cancelled(self) -> None:
        self._memo.session.given_up(self)

    def _hurry(self) -> None:
        self._memo.session.hurry(self)

    def answer(self) -> bool:
        """Sends what there is, if it is plain. False: it is to be answered the ordinary way."""
        answered = self._memo.answered()
        if answered is None:
            return False
        if answered:
            self._memo.session.given_up(self)
            parts = write_answer(self._correlation_id, self._memo.session.session_id, answered)
            self._connection.answer(self._slot, parts)
        return True

    def resolve(self, response: FetchResponse) -> None:
        self._connection.answer(self._slot, response_frame(response, VERSION, self._correlation_id))


class ReplicaMemo:
    __slots__ = (
        "_context", "_generation", "_max_bytes", "_prefix", "_replica", "_tail", "_turn", "_wait_ms", "session",
    )  # fmt: skip

    def __init__(
        self, context: Context, turn: Turn, session: ReplicaSession, request: FetchRequest, prefix: bytes, tail: bytes
    ) -> None:
        self.session = session
        self._context = context
        self._turn = turn
        self._replica: int = session.replica
        self._prefix = prefix
        self._tail = tail
        self._wait_ms: int = request.max_wait_ms
        self._max_bytes: int = request.max_bytes
        self._generation: int = context.image.generation

    def is_of(self, session: ReplicaSession, request: FetchRequest) -> bool:
        """Whether it is still true, though that request did not take the short way."""
        alike = self._wait_ms == request.max_wait_ms and self._max_bytes == request.max_bytes
        return alike and self.session is session and self._generation == self._context.image.generation

    def run(self, connection: Connection, data: bytearray, view: memoryview, start: int, stop: int) -> bool:
        session_at = start + HEADER_BEFORE_CLIENT + len(self._prefix)
        tail_at = stop - len(self._tail)
        session = self.session
        if (
            tail_at <= session_at + SESSION_SIZE
            or not data.startswith(self._prefix, start + HEADER_BEFORE_CLIENT)
            or not data.startswith(self._tail, tail_at)
            or self._generation != self._context.image.generation
            or connection.slots
            or connection.unsent > UNSENT_MAX
            or not session.is_plain
        ):
            return False
        key_and_version, correlation_id = _head(data, start + 4)
        session_id, epoch = _session(data, session_at)
        if key_and_version != API_KEY << 16 | VERSION or session_id != session.session_id or epoch != session.epoch:
            return False
        asked = read_asked(data, session_at + SESSION_SIZE, tail_at)
        if asked is None:
            return False
        places, found = session.places, []
        for topic_id, index, leader_epoch, offset, last_epoch, log_start, size_max in asked:
            place = places.get((topic_id, index))
            if place is None:
                return False
            partition: Partition | None = place.partition
            if partition is None or not self._is_plain(partition, leader_epoch, offset):
                return False
            wanted = place.asked
            if leader_epoch != wanted.current_leader_epoch or last_epoch != partition.log.epochs.latest:
                return False
            if log_start != wanted.log_start_offset or size_max != wanted.partition_max_bytes:
                return False
            found.append((place, partition, offset))
        session.next_epoch()
        now_ms, ready = self._turn.steady_ms(), session.ready
        for place, partition, offset in found:
            wanted = place.asked
            wanted.fetch_offset, wanted.last_fetched_epoch = offset, partition.log.epochs.latest
            place.armed = True
            partition.fetched(self._replica, offset, now_ms)
            if partition.log.end_offset != offset:
                ready[place] = None
        reply = ShortReply(self, connection, correlation_id)
        session.wait(reply, self._wait_ms)
        if ready and not reply.answer():
            session.answer()
        return True

    def _is_plain(self, partition: Partition, leader_epoch: int, offset: int) -> bool:
        in_sync, store = partition.in_sync, partition.log
        return (
            partition.leads
            and leader_epoch == partition.leader_epoch
            and partition.error is None
            and in_sync is not None
            and self._replica in in_sync.members
            and store.start_offset <= offset <= store.end_offset
        )

    def answered(self) -> list[Answered] | None:
        """What there is to say; None if some of it is not plain. Until that is known nothing is taken for said."""
        session, room = self.session, self._max_bytes
        found: list[Answered] = []
        said: list[tuple[Place, Partition, tuple[int, int], int]] = []
        left: dict[Place, None] = {}
        for place in session.ready:
            if not place.armed:
                continue
            partition: Partition | None = place.partition
            wanted = place.asked
            offset: int = wanted.fetch_offset
            if partition is None or not self._is_plain(partition, wanted.current_leader_epoch, offset):
                return None
            store = partition.log
            high_watermark, start = partition.high_watermark, store.start_offset
            records: Any = b""
            if offset == store.end_offset:
                if not place.is_to_learn(high_watermark, start, session.serves_consumers):
                    continue
            elif room <= 0:
                left[place] = None
                continue
            else:
                records = self._records(partition, offset, min(wanted.partition_max_bytes, room))
                if records is None:
                    return None
                room -= len(records)
            said.append((place, partition, (high_watermark, start), len(records)))
            found.append((place.key[0], place.key[1], high_watermark, start, records))
        session.ready = left
        replicas, now_ms = self._context.replicas, self._turn.steady_ms()
        for place, partition, told, size in said:
            place.told = told
            if size:
                place.armed = False
                replicas.sent(partition, size, now_ms)
        return found

    def _records(self, partition: Partition, offset: int, size_max: int) -> Any:
        """From the memory that was just written, or from the file; None if the ordinary way is to find out why not."""
        newest = partition.newest
        if newest is not None and newest[0] == offset and len(newest[1]) <= size_max:
            return newest[1]
        store = partition.log
        try:
            taken = store.read(offset, size_max, store.end)
            return taken.at_hand() if taken is not None else None
        except (CorruptSegment, OSError):
            return None


def remember(
    context: Context, turn: Turn, connection: Connection, request: FetchRequest, version: int, frame: memoryview,
    body_at: int,
) -> None:  # fmt: skip
    """After an ordinary fetch of a session: the next may take the short way."""
    state = request.replica_state
    session = context.replica_sessions.get(state.replica_id) if state is not None else None
    if state is None or session is None or state.replica_epoch != session.broker_epoch:
        return  # whoever it was, it was refused
    if version != VERSION or request.forgotten_topics_data or request.session_id == 0:
        return
    memo = connection.memo
    if isinstance(memo, ReplicaMemo) and memo.is_of(session, request):
        return
    head, tail = request_ends(request)
    whole = bytes(frame)
    if session.session_id == request.session_id and whole.endswith(tail) and whole.startswith(head, body_at):
        prefix = whole[HEADER_BEFORE_CLIENT : body_at + len(head)]
        connection.memo = ReplicaMemo(context, turn, session, request, prefix, tail)
