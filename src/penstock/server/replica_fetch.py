"""Fetch by a follower: what the leader has, committed or not, as soon as it is written.

A follower keeps one session. The leader remembers where each of its partitions stands, and looks only at those that
were written to or asked for since: what a fetch costs depends on what moves, not on how many partitions there are. What
was sent is not sent again until the follower asks for the partition anew, which says that it has stored what it got.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from penstock.cluster.model import BrokerState
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from penstock.replication.in_sync import UNKNOWN
from penstock.replication.partition import Partition
from penstock.replication.replicas import Replicas
from penstock.server.catching_up import AT_ONCE_BYTES, SENT_AT_ONCE_BYTES, CatchingUp
from penstock.server.context import Call, Context
from penstock.server.deferred import Deferred
from penstock.server.replica_place import Key, Place
from penstock.storage.segment import CorruptSegment

log = logging.getLogger("penstock.server")

WAIT_MS_MAX = 60_000
ROUNDS_MAX = 4  # of the event loop, in which more may arrive before a follower is answered
FULL_EPOCH, NO_SESSION_EPOCH = 0, -1


def handle(context: Context, call: Call[FetchRequest]) -> FetchResponse | Deferred[FetchResponse]:
    request = call.request
    claimed = request.replica_state
    broker = context.image.brokers.get(claimed.replica_id) if claimed is not None else None
    if claimed is None or broker is None or broker.epoch != claimed.replica_epoch or broker.node_id == context.node_id:
        _tell_refusal(context, call, broker)
        return FetchResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    sessions = context.replica_sessions
    session = sessions.get(broker.node_id)
    if request.session_epoch in (FULL_EPOCH, NO_SESSION_EPOCH):
        if session is not None:
            session.close()
        session_id = (session.session_id if session is not None else 0) % 0x7FFFFFFF + 1
        session = sessions[broker.node_id] = ReplicaSession(context, broker.node_id, session_id, broker.epoch)
    elif session is None or session.session_id != request.session_id or session.broker_epoch != broker.epoch:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    elif session.epoch != request.session_epoch:
        return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    return session.fetch(request)


def _tell_refusal(context: Context, call: Call[FetchRequest], known: BrokerState | None) -> None:
    """A broker that has started anew may ask before its announcement was told here, and asks again."""
    claimed = call.request.replica_state
    facts: dict[str, object] = {"from": call.client_host}
    if claimed is not None and claimed.replica_id != context.node_id:
        is_newer = known is None or claimed.replica_epoch > known.epoch
        if is_newer and (known is not None or _has_replicas(context, call.request, claimed.replica_id)):
            log.info("a fetch was refused: its broker's announcement is not known yet", extra=facts)
            return
    log.warning("a fetch was refused: it does not come from the broker that it names", extra=facts)


def _has_replicas(context: Context, request: FetchRequest, node_id: int) -> bool:
    """Of what it asks for."""
    for asked in request.topics:
        topic = context.image.topics_by_id.get(asked.topic_id)
        if topic is not None and any(node_id in state.replicas for state in topic.partitions):
            return True
    return False


def close_gone(context: Context) -> None:
    """Of followers that are gone, or live anew: nobody is to be woken for them."""
    for node_id, session in list(context.replica_sessions.items()):
        broker = context.image.brokers.get(node_id)
        if broker is None or broker.epoch != session.broker_epoch:
            session.close()
            del context.replica_sessions[node_id]


class Waiting(Protocol):
    """An answer that is waited for."""

    def answer(self) -> bool:
        """Whether it needs no response: it has said by itself what there is, if anything."""

    def resolve(self, message: FetchResponse) -> None: ...


class _Deferring:
    def __init__(self) -> None:
        self.deferred: Deferred[FetchResponse] = Deferred()

    def answer(self) -> bool:
        return False

    def resolve(self, message: FetchResponse) -> None:
        self.deferred.resolve(message)


class ReplicaSession:
    def __init__(self, context: Context, replica: int, session_id: int, broker_epoch: int) -> None:
        self.broker_epoch = broker_epoch  # another life of the follower names its partitions anew
        self._context = context
        self._replicas: Replicas = context.replicas
        self.replica = replica
        self._turn = context.replicas.turn
        self.serves_consumers = context.image.brokers[replica].rack is not None  # those of its rack
        self.session_id = session_id
        self.epoch = 0
        self.places: dict[Key, Place] = {}
        self.ready: dict[Place, None] = {}
        self._waiting: Waiting | None = None
        self._request: FetchRequest = FetchRequest(max_wait_ms=0, min_bytes=0)
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0  # how long the one who waits does, by the clock of the loop
        self._catching_up = CatchingUp()
        self._outside: dict[Place, None] = {}  # where the follower is not in sync
        self._held: dict[Place, None] = {}
        self._held_timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._rounds = 0
        self._is_lone = False  # nothing more had arrived when a message had been waited with for the last time
        self._closed = False
        self._loop = asyncio.get_running_loop()

    def fetch(self, request: FetchRequest) -> FetchResponse | Deferred[FetchResponse]:
        self.next_epoch()
        self._request = request
        now_ms = self._turn.steady_ms()
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self._forget((forgotten.topic_id, index))
        for topic in request.topics:
            for asked in topic.partitions:
                self._ask((topic.topic_id, asked.partition), asked, now_ms)
        if self._outside:
            self._look_at_outsiders()
            self._catch_up()
        if self.ready and (response := self._response()) is not None:
            return response
        if request.max_wait_ms <= 0 or request.session_epoch <= FULL_EPOCH:
            # The first of a session waits for nothing: until it is answered the follower could not ask for more.
            return self._response(idle=True) or FetchResponse(session_id=self.session_id)
        waiting = _Deferring()
        waiting.deferred.cancel = lambda: self.given_up(waiting)
        waiting.deferred.hurry = lambda: self.hurry(waiting)
        self.wait(waiting, request.max_wait_ms)
        return waiting.deferred

    def next_epoch(self) -> None:
        self.epoch = self.epoch + 1 if self.epoch < 0x7FFFFFFF else 1

    @property
    def is_plain(self) -> bool:
        """Whether a fetch can take the short way: nobody waits, and the follower is in sync wherever it stands."""
        return self._waiting is None and not self._outside and not self._held and not self._closed

    # ---- what is asked for

    def _ask(self, key: Key, asked: FetchPartition, now_ms: int) -> None:
        place = self.places.get(key)
        if place is None:
            place = self.places[key] = Place(self, key, asked)
        place.asked = asked
        place.armed = True
        partition = self._find(key)
        if partition is not place.partition:
            self._leave(place)
            place.partition = partition
            if partition is not None:
                partition.followers[place.wake] = None
                if self.serves_consumers:  # they see nothing before this follower knows that it is committed
                    partition.fetchers[place.wake] = None
        if partition is None or self._refusal(partition, asked) is not None:
            self.ready[place] = None
            return
        store = partition.log
        diverges = self._diverges(partition, asked) is not None
        if store.start_offset <= asked.fetch_offset <= store.end_offset and not diverges:
            self._replicas.fetched(partition, self.replica, asked.fetch_offset, now_ms)
            self._replicas.low_watermarks.begins_at(partition, self.replica, asked.log_start_offset)
            self._note_outsider(place)
        if diverges or store.end_offset != asked.fetch_offset:
            self.ready[place] = None

    def _note_outsider(self, place: Place) -> None:
        in_sync = place.partition.in_sync if place.partition is not None else None
        if in_sync is not None and self.replica not in in_sync.members:
            self._outside[place] = None

    def _look_at_outsiders(self) -> None:
        """A fetch that does not name a partition asks for what it asked for before: a follower that was not taken in,
        because a write met another, may be now. One that was put out since must show anew what it has, and is told so:
        where nothing is written, it would not name the partition again by itself."""
        for place in list(self._outside):
            partition = place.partition
            in_sync = partition.in_sync if partition is not None else None
            if partition is None or in_sync is None or self.replica in in_sync.members:
                del self._outside[place]
            elif place.armed and self._refusal(partition, place.asked) is None:
                if in_sync.position(self.replica) == UNKNOWN:
                    self.ready[place] = None
                else:
                    self._replicas.propose(partition, self.replica)

    def _catch_up(self) -> None:
        catching_up, now_s = self._catching_up, self._loop.time()
        if not self._outside:
            catching_up.has_arrived()
        elif catching_up.is_to_be_looked_at(now_s):
            behind = [
                place.partition.log.end_offset - place.asked.fetch_offset
                for place in self._outside
                if place.partition is not None
            ]
            catching_up.look(sum(behind), now_s)
        catching_up.asks(now_s)

    def _find(self, key: Key) -> Partition | None:
        topic = self._context.image.topics_by_id.get(key[0])
        return self._context.partitions.get(topic.name, key[1]) if topic is not None else None

    def _refusal(self, partition: Partition, asked: FetchPartition) -> ErrorCode | None:
        if asked.current_leader_epoch > partition.leader_epoch:
            self._replicas.shown_epoch(partition, asked.current_leader_epoch)
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not partition.leads:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if asked.current_leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if partition.error is not None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition.deleted else ErrorCode.KAFKA_STORAGE_ERROR
        if partition.in_sync is None or not partition.in_sync.knows(self.replica):
            # It has heard of its new replica before its leader has. What it asks for now would not be counted, and if
            # nothing is written it would not ask again: so it is to come back.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return None

    def _diverges(self, partition: Partition, asked: FetchPartition) -> EpochEndOffset | None:
        if asked.last_fetched_epoch < 0:
            return None
        store = partition.log
        epoch, end = store.epochs.end_offset(asked.last_fetched_epoch, store.end_offset)
        if epoch < 0 and store.epochs.starts and asked.fetch_offset <= store.epochs.starts[0]:
            return None  # all that the follower has is deleted here
        if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
            return EpochEndOffset(epoch=epoch, end_offset=end)
        return None

    def _forget(self, key: Key) -> None:
        place = self.places.pop(key, None)
        if place is not None:
            self._leave(place)
            self.ready.pop(place, None)
            self._held.pop(place, None)
            self._outside.pop(place, None)

    def _leave(self, place: Place) -> None:
        if place.partition is not None:
            place.partition.followers.pop(place.wake, None)
            place.partition.fetchers.pop(place.wake, None)

    # ---- waiting

    def wait(self, waiting: Waiting, wait_ms: int) -> None:
        loop = self._loop
        if self._waiting is not None:  # of another connection, which must not go on with this session
            self._resolve(FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH))
        self._waiting = waiting
        self._until = loop.time() + min(wait_ms, WAIT_MS_MAX) / 1000
        if self._timer is not None and self._timer.when() > self._until:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = loop.call_at(self._until, self._look_at_clock)

    def _look_at_clock(self) -> None:
        """One timer serves many that wait one after another, most of them for a moment only."""
        self._timer = None
        if self._waiting is None:
            return
        if self._loop.time() < self._until:
            self._timer = self._loop.call_at(self._until, self._look_at_clock)
        else:
            self.finish()

    def wake(self, place: Place) -> None:
        """Behind the writes of this turn. If more has arrived meanwhile, that goes with it: a fetch costs about as much
        for one message as for ten. Where messages come one by one, there is nothing to be looked for."""
        self.ready[place] = None
        self._note_outsider(place)
        if self._waiting is None or self._scheduled:
            return
        self._scheduled = True
        if self._is_lone and self._turn.readers <= 1:
            self._turn.answers.append(self.answer)
            self._turn.schedule()
        else:
            self._rounds = 0
            self._loop.call_soon(self._answer_soon)

    def _answer_soon(self) -> None:
        self._rounds += 1
        if self._turn.readers and self._rounds < ROUNDS_MAX:
            self._loop.call_soon(self._answer_soon)
            return
        self._is_lone = self._rounds == 1
        self._turn.answers.append(self.answer)
        self._turn.schedule()

    def answer(self) -> None:
        self._scheduled = False
        waiting = self._waiting
        if waiting is None or waiting.answer():
            return
        if (response := self._response()) is not None:
            self._resolve(response)

    def finish(self) -> None:
        """The wait is over, or the follower has more to ask."""
        if self._waiting is not None:
            self._resolve(self._response(idle=True) or FetchResponse(session_id=self.session_id))

    def _resolve(self, response: FetchResponse) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.resolve(response)

    def hurry(self, waiting: Waiting) -> None:
        if self._waiting is waiting:
            self.finish()

    def given_up(self, waiting: Waiting) -> None:
        """Nobody waits for that answer any more, or it was sent."""
        if self._waiting is waiting:
            self._waiting = None

    def close(self) -> None:
        """Another session takes its place, or the follower is gone."""
        self._closed = True
        if self._waiting is not None:
            self._resolve(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        if self._timer is not None:
            self._timer.cancel()
        if self._held_timer is not None:
            self._held_timer.cancel()
        for key in list(self.places):
            self._forget(key)

    def _hold(self, place: Place, delay_s: float) -> None:
        """What is throttled is looked at again when there may be budget for it, and who rests when that is over."""
        self._held[place] = None
        if self._held_timer is None:
            self._held_timer = self._loop.call_later(delay_s, self._release)

    def _release(self) -> None:
        self._held_timer = None
        held, self._held = self._held, {}
        for place in held:
            place.wake()

    # ---- answering

    def _response(self, *, idle: bool = False) -> FetchResponse | None:
        """None if there is nothing to say. When the wait is over, followers learn how far is committed, too."""
        response = FetchResponse(session_id=self.session_id)
        topics: dict[bytes, FetchableTopicResponse] = {}
        room = self._request.max_bytes
        self._catching_up.begin_answer()
        places = list(self.places.values()) if idle else list(self.ready)
        self.ready = {}
        for place in places:
            if not place.armed or (idle and place.is_told):
                continue
            key = place.key
            data, size = self._data(place, room, idle)
            if data is None:
                if size:  # there is more, and no room for it
                    self.ready[place] = None
                continue
            room -= size
            topic = topics.get(key[0])
            if topic is None:
                topic = topics[key[0]] = FetchableTopicResponse(topic_id=key[0])
                response.responses.append(topic)
            topic.partitions.append(data)
        return response if topics else None

    def _data(self, place: Place, room: int, idle: bool) -> tuple[PartitionData | None, int]:
        partition, asked = place.partition, place.asked
        data = PartitionData(
            partition_index=asked.partition, error_code=0, high_watermark=-1, aborted_transactions=None, records=b""
        )
        if partition is None:
            place.armed = False
            data.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            return data, 0
        code = self._refusal(partition, asked)
        if code is not None:
            place.armed = False
            data.error_code = code
            data.current_leader = LeaderIdAndEpoch(leader_id=-1, leader_epoch=partition.leader_epoch)
            return data, 0
        store, offset = partition.log, asked.fetch_offset
        data.high_watermark = partition.high_watermark
        data.log_start_offset = store.start_offset
        diverging = self._diverges(partition, asked)
        if diverging is not None:
            place.armed = False
            data.diverging_epoch = diverging
            return data, 0
        if not store.start_offset <= offset <= store.end_offset:
            place.armed = False
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return data, 0
        if offset == store.end_offset:
            if partition.in_sync is not None and partition.in_sync.position(self.replica) == UNKNOWN:
                # What it has shown was forgotten, and it rests: an error makes it find out anew where the logs part.
                place.armed = False
                data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                return data, 0
            if not place.is_to_learn(partition.high_watermark, store.start_offset, idle or self.serves_consumers):
                return None, 0
            place.told = (partition.high_watermark, store.start_offset)
            return data, 0
        if room <= 0:
            return None, 1
        now_ms = self._turn.steady_ms()
        if not self._replicas.may_send(partition, self.replica, now_ms):
            self._hold(place, self._replicas.next_send_ms(now_ms) / 1000)
            return None, 0
        size_max = min(asked.partition_max_bytes, room)
        in_sync = partition.in_sync
        catches_up = in_sync is not None and self.replica not in in_sync.members
        if catches_up:
            now_s = self._loop.time()
            if rest_s := self._catching_up.rest_s(now_s):
                self._hold(place, rest_s)
                return None, 0
            if self._catching_up.room <= 0:
                return None, 1
            size_max = min(size_max, AT_ONCE_BYTES)
            self._catching_up.give(size_max, now_s)
        records: Any
        try:
            found = store.read(offset, size_max, store.end, at_least_one=True)
            if found is None:
                return None, 0
            if catches_up:
                found.at_once = SENT_AT_ONCE_BYTES
            records = found.at_hand()
        except (CorruptSegment, OSError, ApiError) as error:
            self._replicas.unreadable(partition, offset, error)
            place.armed = False
            data.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return data, 0
        self._replicas.sent(partition, found.size, now_ms)
        place.armed = False
        place.told = (partition.high_watermark, store.start_offset)
        data.records = records
        return data, found.size
