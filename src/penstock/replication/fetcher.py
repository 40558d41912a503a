"""Copies from one leading broker all partitions that it leads and this broker follows.

One connection, one incremental fetch session (KIP-227): a request names only partitions whose position has changed, and
waits at the leader until one of them has something. What came is written, and under `flush=commit` on the device,
before it is asked for more: to the leader, asking for an offset means having all before it. A partition that begins an
epoch asks first where the epoch of its newest batch ends at the leader, and cuts off what the leader does not have.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Final, Protocol

from penstock.protocol import plain_fetch
from penstock.protocol.errors import ApiError, CorruptBatch, ErrorCode
from penstock.protocol.messages.fetch import (
    FetchResponse,
    PartitionData,
)
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.protocol.plain_fetch import Answered, Asked
from penstock.replication.copying import copy
from penstock.replication.fetching import (
    FETCH_VERSION,
    Key,
    PlainFetch,
    Round,
    fetch_request,
    forgotten_topics,
    topics_of,
)
from penstock.replication.partition import Partition
from penstock.replication.reconciling import parting
from penstock.transport.peer import Address, Network, Peer
from penstock.transport.turn import Turn

log = logging.getLogger("penstock.replication")

EPOCHS_VERSION: Final = 4
REQUEST_S_MAX: Final = 10.0
BACKOFF_S_FIRST: Final = 0.02
BACKOFF_S_MAX: Final = 1.0
PARTITION_MAX: Final = 1024 * 1024
PARTITIONS_PER_REQUEST: Final = 10_000
SESSION_EPOCH_LAST: Final = 0x7FFFFFFF
PLAIN_MAX: Final = 100  # partitions in a fetch that is written without the codec


class Keeper(Protocol):
    """What happens to a follower's log besides appends, in its own time."""

    def truncate(self, partition: Partition, offset: int) -> Awaitable[None]: ...
    def restart(self, partition: Partition, offset: int) -> Awaitable[None]: ...
    def advance_start(self, partition: Partition, offset: int, advanced: Callable[[], None]) -> None: ...
    def reached(self, leader: int, reached: bool) -> None: ...
    def fetch_delay_ms(self, partition: Partition, now_ms: int) -> int: ...
    def took(self, partition: Partition, size: int, now_ms: int) -> None: ...
    def now_ms(self) -> int: ...


class Phase(Enum):
    PARTING = "parting"  # finding out where the logs part
    BUSY = "busy"  # the leader was asked, or the log is being cut
    DUE = "due"  # to be asked for in the next fetch
    ASKED = "asked"  # the leader will answer when there is something
    STORING = "storing"  # something came, and is on its way to the device
    RESTING = "resting"  # something went wrong


class _Following:
    __slots__ = ("asked_in", "backoff_s", "committed", "epoch", "partition", "phase", "start", "stored_at")

    def __init__(self, partition: Partition, epoch: int) -> None:
        self.partition = partition
        self.epoch = epoch
        self.phase = Phase.PARTING
        self.backoff_s = BACKOFF_S_FIRST
        self.asked_in = 0  # the number of the fetch that named it last
        self.stored_at = 0  # the offset that must be stored before more is asked for
        self.start = 0  # where the leader's log begins
        self.committed = 0  # what the leader said of its high watermark, which may be ahead of this log


class Fetcher:
    def __init__(
        self,
        leader: int,
        network: Network,
        address: Callable[[], Address | None],
        node_id: int,
        broker_epoch: Callable[[], int],
        wait_ms: Callable[[], int],
        keeper: Keeper,
        turn: Turn,
    ) -> None:
        self.leader = leader
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._wait_ms = wait_ms
        self._keeper = keeper
        self._turn = turn
        self._loop = asyncio.get_running_loop()
        self._fetches: Peer = network.peer(address)
        self._questions: Peer = network.peer(address)
        self._following: dict[Key, _Following] = {}
        self._parting: dict[Key, None] = {}
        self._due: dict[Key, None] = {}
        self._storing: dict[Key, None] = {}
        self._forgotten: dict[Key, None] = {}
        self._session_id = 0
        self._session_epoch = 0
        self._sent = 0  # fetches; answers come in the same order
        self._answers = 0
        self._asking = False  # a question about epochs is on its way
        self._scheduled = False
        self._backoff_s = BACKOFF_S_FIRST
        self._resting = False
        self._reached = True
        self._round = Round(node_id, -1, 0)
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    # ---- what is followed

    @property
    def follows(self) -> bool:
        """Whether there is anything that it copies."""
        return bool(self._following)

    def add(self, partition: Partition, epoch: int) -> None:
        key = (partition.topic_id, partition.index)
        self._drop(key)
        following = self._following[key] = _Following(partition, epoch)
        partition.stored = lambda: self._stored(key, following)
        self._parting[key] = None
        self._schedule()

    def remove(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        if self._drop(key):
            self._forgotten[key] = None
            self._schedule()

    def _drop(self, key: Key) -> bool:
        following = self._following.pop(key, None)
        self._parting.pop(key, None)
        self._due.pop(key, None)
        self._storing.pop(key, None)
        if following is None:
            return False
        following.partition.stored = None
        return True

    def close(self) -> None:
        self._closed = True
        for key in list(self._following):
            self._drop(key)
        for task in self._tasks:
            task.cancel()
        self._fetches.close()
        self._questions.close()

    # ---- the next step

    def _schedule(self) -> None:
        """Behind the writes of this turn: what they have stored is in the next fetch, which leaves with it."""
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._turn.answers.append(self._step)
            self._turn.schedule()

    def _step(self) -> None:
        self._scheduled = False
        if self._closed:
            return
        if self._parting:
            self._ask_about_epochs()
        if self._resting or self._storing:
            return
        # A partition that is new need not wait until the leader has something of another.
        may_fetch = not self._in_flight or (self._due and self._in_flight == 1 and self._session_id)
        if may_fetch and (self._following or self._forgotten):
            self._fetch()

    @property
    def _in_flight(self) -> int:
        return self._sent - self._answers

    def _rest(self, following: _Following, phase: Phase = Phase.PARTING, reason: int = 0) -> None:
        """Tries again later, and each time later than before."""
        facts = {"partition": following.partition.name, "leader": self.leader, "error": reason}
        log.debug("rests", extra=facts)
        following.phase = Phase.RESTING
        delay_s = following.backoff_s
        following.backoff_s = min(2 * delay_s, BACKOFF_S_MAX)
        self._loop.call_later(delay_s, self._wake, following, phase)

    def _wake(self, following: _Following, phase: Phase) -> None:
        key = (following.partition.topic_id, following.partition.index)
        if self._following.get(key) is following and following.phase is Phase.RESTING:
            if following.partition.error is not None:
                self._rest(following, phase)
                return
            following.phase = phase
            (self._due if phase is Phase.DUE else self._parting)[key] = None
            self._schedule()

    # ---- where the logs part

    def _ask_about_epochs(self) -> None:
        if self._asking:
            return
        asked: dict[str, OffsetForLeaderTopic] = {}
        questions: list[tuple[Key, _Following]] = []
        for key in list(self._parting)[:PARTITIONS_PER_REQUEST]:
            del self._parting[key]
            following = self._following[key]
            latest = following.partition.log.epochs.latest
            if latest < 0:  # nothing is there to part with
                following.phase = Phase.DUE
                self._due[key] = None
                continue
            following.phase = Phase.BUSY
            name = following.partition.topic
            topic = asked.setdefault(name, OffsetForLeaderTopic(topic=name))
            topic.partitions.append(
                OffsetForLeaderPartition(partition=key[1], current_leader_epoch=following.epoch, leader_epoch=latest)
            )
            questions.append((key, following))
        if asked:
            self._asking = True
            request = OffsetForLeaderEpochRequest(replica_id=self._node_id, topics=list(asked.values()))
            self._questions.ask(
                request, EPOCHS_VERSION, OffsetForLeaderEpochResponse,
                lambda response: self._epochs_answered(questions, response), REQUEST_S_MAX,
            )  # fmt: skip

    def _epochs_answered(
        self, asked: list[tuple[Key, _Following]], response: OffsetForLeaderEpochResponse | None
    ) -> None:
        self._asking = False
        if self._closed:
            return
        answers = {
            (topic.topic, end.partition): end
            for topic in (response.topics if response else ())
            for end in topic.partitions
        }
        for key, following in asked:
            if self._following.get(key) is not following or following.phase is not Phase.BUSY:
                continue
            end = answers.get((following.partition.topic, key[1]))
            if end is None or end.error_code:
                self._rest(following, reason=end.error_code if end is not None else -1)
            else:
                self._part(key, following, end.leader_epoch, end.end_offset)
        self._schedule()

    def _part(self, key: Key, following: _Following, epoch: int, end_offset: int) -> None:
        store = following.partition.log
        found = parting(store.epochs, store.end_offset, epoch, end_offset)
        following.phase = Phase.BUSY
        if found.offset >= store.end_offset:
            self._go_on(key, following, found.agreed)
            return
        facts = {"partition": following.partition.name, "from": store.end_offset, "to": found.offset, "epoch": epoch}
        log.info("truncated: the leader has other records", extra=facts)
        self._carry_out(key, following, self._keeper.truncate(following.partition, found.offset), found.agreed)

    def _carry_out(self, key: Key, following: _Following, work: Awaitable[None], agreed: bool) -> None:
        async def carry_out() -> None:
            try:
                await work
            except OSError as error:
                log.error("not truncated: %s", error, extra={"partition": following.partition.name})
                following.partition.stop(error)
                return
            except Exception:
                log.exception("not truncated", extra={"partition": following.partition.name})
                if following.phase is Phase.BUSY:
                    self._rest(following)
                return
            self._go_on(key, following, agreed)

        task = self._loop.create_task(carry_out())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _go_on(self, key: Key, following: _Following, agreed: bool) -> None:
        if self._following.get(key) is following and following.phase is Phase.BUSY and not self._closed:
            following.phase = Phase.DUE if agreed else Phase.PARTING
            (self._due if agreed else self._parting)[key] = None
            self._schedule()

    # ---- fetching

    def _fetch(self) -> None:
        asked: list[Asked] = []
        due, self._due = self._due, {}
        if self._session_epoch == 0:  # a new session names everything that it is about
            every = [key for key, each in self._following.items() if each.phase in (Phase.DUE, Phase.ASKED)]
            due = dict.fromkeys(every[:PARTITIONS_PER_REQUEST])
            for key in every[PARTITIONS_PER_REQUEST:]:
                self._following[key].phase = Phase.DUE
                self._due[key] = None
            self._forgotten.clear()
        for key in due:
            following = self._following[key]
            if following.partition.local_end.offset < following.partition.log.end_offset:  # it led until now
                self._store(key, following)
                continue
            try:
                delay_ms = self._keeper.fetch_delay_ms(following.partition, self._keeper.now_ms())
            except OSError as error:  # no descriptor, say: the others go on, and this one later
                log.warning("not asked for yet: %s", error, extra={"partition": following.partition.name})
                self._rest(following, Phase.DUE)
                continue
            if delay_ms:
                following.phase = Phase.RESTING
                self._loop.call_later(delay_ms / 1000, self._wake, following, Phase.DUE)
                continue
            following.phase = Phase.ASKED
            following.asked_in = self._sent + 1
            store = following.partition.log
            start, end, last_epoch = store.start_offset, store.end_offset, store.epochs.latest
            asked.append((key[0], key[1], following.epoch, end, last_epoch, start, PARTITION_MAX))
        epoch, wait_ms = self._broker_epoch(), self._wait_ms()
        timeout_s = REQUEST_S_MAX + wait_ms / 1000
        if self._session_id and not self._forgotten and len(asked) <= PLAIN_MAX:
            if self._round.broker_epoch != epoch or self._round.wait_ms != wait_ms:
                self._round = Round(self._node_id, epoch, wait_ms)
            middle = plain_fetch.write_asked(self._session_id, self._session_epoch, asked)
            self._fetches.exchange(PlainFetch(self._round, middle), self._answered, timeout_s)
        else:
            request = fetch_request(self._node_id, epoch, wait_ms)
            request.session_id, request.session_epoch = self._session_id, self._session_epoch
            request.topics = topics_of(asked)
            request.forgotten_topics_data = forgotten_topics(self._forgotten)
            self._forgotten.clear()
            self._fetches.ask(request, FETCH_VERSION, FetchResponse, self._answered, timeout_s)
        if self._session_id:
            self._session_epoch = self._session_epoch + 1 if self._session_epoch < SESSION_EPOCH_LAST else 1
        self._sent += 1

    def _answered(self, response: FetchResponse | list[Answered] | None) -> None:
        self._answers += 1
        if self._closed:
            return
        if isinstance(response, list):
            self._reaches()
            now_ms = self._keeper.now_ms()
            for topic_id, index, high_watermark, start, records in response:
                key = (topic_id, index)
                following = self._awaiting(key)
                if following is not None:
                    self._took(key, following, records, high_watermark, start, now_ms)
            self._schedule()
            return
        if response is None or response.error_code:
            if response is None and self._reached:
                self._reached = False
                self._keeper.reached(self.leader, False)
            self._session_lost(response)
            return
        self._reaches()
        if self._session_epoch == 0:
            self._session_id = response.session_id
            self._session_epoch = 1 if response.session_id else 0
        now_ms = self._keeper.now_ms()
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                following = self._awaiting(key)
                if following is not None:
                    self._take(key, following, data, now_ms)
        self._schedule()

    def _reaches(self) -> None:
        self._backoff_s = BACKOFF_S_FIRST
        if not self._reached:
            self._reached = True
            self._keeper.reached(self.leader, True)

    def _awaiting(self, key: Key) -> _Following | None:
        """Whoever is to have what was answered. An answer to an earlier fetch may be of a log that was cut since."""
        following = self._following.get(key)
        if following is None or following.phase is not Phase.ASKED or following.asked_in > self._answers:
            return None
        return following

    def _session_lost(self, response: FetchResponse | None) -> None:
        """Everything is asked for anew, a little later: the leader may be gone, or not know of this broker yet."""
        self._session_id = self._session_epoch = 0
        for key, following in self._following.items():
            if following.phase is Phase.ASKED:
                following.phase = Phase.DUE
                self._due[key] = None
        if self._in_flight or self._resting:
            return
        self._resting = True
        self._loop.call_later(self._backoff_s, self._rested)
        self._backoff_s = min(2 * self._backoff_s, BACKOFF_S_MAX)
        if response is not None:
            log.debug("fetch refused", extra={"leader": self.leader, "error": response.error_code})

    def _rested(self) -> None:
        self._resting = False
        self._schedule()

    def _take(self, key: Key, following: _Following, data: PartitionData, now_ms: int) -> None:
        if data.error_code:
            self._refused(key, following, data)
            return
        if data.diverging_epoch is not None:
            self._part(key, following, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            return
        self._took(key, following, data.records, data.high_watermark, data.log_start_offset, now_ms)

    def _took(
        self, key: Key, following: _Following, records: Any, high_watermark: int, start: int, now_ms: int
    ) -> None:
        if records:
            partition = following.partition
            self._keeper.took(partition, len(records), now_ms)
            try:
                copy(partition, records, now_ms)
            except (CorruptBatch, ApiError) as error:
                log.error("not copied: %s", error, extra={"partition": partition.name, "leader": self.leader})
                self._rest(following)
                return
            self._store(key, following)
        following.backoff_s = BACKOFF_S_FIRST
        following.committed, following.start = high_watermark, start
        self._learn(key, following)

    def _learn(self, key: Key, following: _Following) -> None:
        """What the leader has said of its log, as far as this one has come."""
        partition = following.partition
        partition.leader_committed(following.committed)
        if following.start > partition.log.start_offset:
            self._keeper.advance_start(partition, following.start, lambda: self._started(key, following))

    def _started(self, key: Key, following: _Following) -> None:
        """The leader is to know where this log begins now, though it is asked for nothing else."""
        if self._following.get(key) is following and following.phase is Phase.ASKED and not self._closed:
            following.phase = Phase.DUE
            self._due[key] = None
            self._schedule()

    def _refused(self, key: Key, following: _Following, data: PartitionData) -> None:
        store = following.partition.log
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and data.log_start_offset > store.end_offset:
            log.warning(
                "begins anew: the leader's log begins behind the end of this one",
                extra={"partition": following.partition.name, "start": data.log_start_offset},
            )
            following.phase = Phase.BUSY
            self._carry_out(key, following, self._keeper.restart(following.partition, data.log_start_offset), True)
            return
        self._rest(following, reason=data.error_code)

    def _store(self, key: Key, following: _Following) -> None:
        following.phase = Phase.STORING
        following.stored_at = following.partition.log.next_offset
        self._storing[key] = None
        self._stored(key, following)

    def _stored(self, key: Key, following: _Following) -> None:
        """Called whenever the partition has more for sure, or can't go on."""
        if following.phase is not Phase.STORING:
            return
        partition = following.partition
        if partition.local_end.offset >= following.stored_at:
            self._learn(key, following)
            following.phase = Phase.DUE
            self._due[key] = None
        elif partition.error is not None or partition.log.next_offset < following.stored_at:
            self._rest(following)  # the disk failed, or was full
        else:
            return
        self._storing.pop(key, None)
        if not self._storing:
            self._schedule()
