"""Writes the markers of a transaction that was decided, into every partition that it wrote to, on whichever broker.

Nothing may stop it but the end of a partition: where a disk is full, a leader is gone or a coordinator loads, it is
tried again, until all partitions have their marker. Then the machine is told. When this broker coordinates the
transaction no more, whoever does finds the decision in its log and begins again, so a partition may get a marker twice,
which means nothing to its readers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from penstock.cluster.model import ClusterImage
from penstock.coordinator.machine import ProducerStamp, Ticket
from penstock.coordinator.runtime import Runtime
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.replication.partition import Partition
from penstock.storage.aborted import Marker
from penstock.transactions.commands import MarkersWritten, WriteMarkers
from penstock.transactions.marker_requests import MarkerFor, MarkerRequests
from penstock.transactions.markers import Markers
from penstock.transactions.transaction import TopicPartition
from penstock.transport.peers import Peers

log = logging.getLogger("penstock.transactions")

MARKERS_PER_TURN = 100
RETRY_MS_FIRST = 20
RETRY_MS_MAX = 1_000
GONE_AFTER_MS = 2_000  # among several brokers, one may not have heard yet of a topic that another has written to

# The partition knows of a later decision: there is nothing left to end.
_ENDED_OTHERWISE = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)


class MarkerWriter:
    """Carries `WriteMarkers` out."""

    def __init__(
        self, markers: Markers, runtime: Callable[[], Runtime], node_id: int, image: ClusterImage, peers: Peers
    ) -> None:
        self.markers = markers
        self.requests = MarkerRequests(peers)
        self.node_id = node_id
        self.image = image
        self._runtime = runtime
        self._retries: set[asyncio.TimerHandle] = set()
        self._closed = False
        self._newest: dict[tuple[str, str], _Decision] = {}  # by partition of the coordinator and transactional id

    def __call__(self, coordinator: Partition, effect: WriteMarkers) -> None:
        """Whoever was at it for the same id has no part in it any more: a marker of its could end what comes next."""
        decision = _Decision(self, coordinator, effect)
        self._newest[decision.key] = decision
        decision.begin()

    def is_newest(self, decision: _Decision) -> bool:
        return self._newest.get(decision.key) is decision

    def forget(self, decision: _Decision) -> None:
        if self.is_newest(decision):
            del self._newest[decision.key]

    def tell(
        self, coordinator: Partition, make: Callable[[Ticket], MarkersWritten], told: Callable[[object], None]
    ) -> None:
        if not self._closed:
            self._runtime().submit(coordinator.index, make, told)

    def later(self, delay_ms: int, go_on: Callable[[], None]) -> None:
        def run() -> None:
            self._retries.discard(handle)
            go_on()

        if not self._closed:
            handle = asyncio.get_running_loop().call_later(delay_ms / 1000, run)
            self._retries.add(handle)

    def close(self) -> None:
        self._closed = True
        for handle in self._retries:
            handle.cancel()
        self._retries.clear()


class _Decision:
    """One transaction's markers, each tried until it is there."""

    def __init__(self, writer: MarkerWriter, coordinator: Partition, effect: WriteMarkers) -> None:
        self._writer = writer
        self._coordinator = coordinator
        self._epoch = coordinator.leader_epoch
        self._effect = effect
        self._producer = ProducerStamp(effect.producer_id, effect.producer_epoch)
        self._marker = Marker(effect.committed, coordinator.leader_epoch)
        self._missing = set(effect.partitions)
        self._again: list[TopicPartition] = []  # with the next try
        self._pause_ms = RETRY_MS_FIRST
        self._waited_ms = 0
        self.key = (coordinator.name, effect.transactional_id)

    def begin(self) -> None:
        if self._missing:
            self._write_some(sorted(self._missing))
        else:
            self._tell()

    def _is_void(self) -> bool:
        """It was decided anew, or somebody else coordinates the transaction."""
        coordinator = self._coordinator
        if coordinator.leads and coordinator.leader_epoch == self._epoch and coordinator.error is None:
            return not self._writer.is_newest(self)
        self._writer.forget(self)
        return True

    # ---- markers

    def _write_some(self, left: list[TopicPartition]) -> None:
        """A wide transaction takes several turns of the loop, so that others get theirs."""
        if self._is_void():
            return
        for where in left[:MARKERS_PER_TURN]:
            self._write(where)
        if rest := left[MARKERS_PER_TURN:]:
            self._writer.later(0, lambda: self._write_some(rest))

    def _write(self, where: TopicPartition) -> None:
        def done(error: ApiError | None) -> None:
            self._done(where, error)

        writer, bumped = self._writer, self._effect.bumped
        state = writer.markers.state_of(where)
        if state is None:
            if self._is_gone():
                self._done(where, None)
            else:
                self._done(where, ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif state.leader == writer.node_id:
            writer.markers.write(where, self._producer, self._marker, done, bumped=bumped)
        elif state.leader in writer.image.brokers:
            wanted = MarkerFor(where, self._producer, self._marker, bumped, self._is_void, done)
            writer.requests.put(state.leader, wanted)
        else:
            self._done(where, ApiError(ErrorCode.LEADER_NOT_AVAILABLE))

    def _is_gone(self) -> bool:
        return len(self._writer.image.brokers) <= 1 or self._waited_ms >= GONE_AFTER_MS

    def _done(self, where: TopicPartition, error: ApiError | None) -> None:
        if error is None or error.code in _ENDED_OTHERWISE:
            self._missing.discard(where)
            if not self._missing:
                self._tell()
            return
        self._again.append(where)
        if len(self._again) == 1 and not self._is_void():
            if self._pause_ms < RETRY_MS_MAX:
                facts = {"partition": f"{where[0]}-{where[1]}", "id": self._effect.transactional_id}
                log.warning("no marker yet: %s", error, extra=facts)
            self._writer.later(self._pause(), self._try_again)

    def _pause(self) -> int:
        pause_ms, self._pause_ms = self._pause_ms, min(2 * self._pause_ms, RETRY_MS_MAX)
        self._waited_ms += pause_ms
        return pause_ms

    def _try_again(self) -> None:
        again, self._again = self._again, []
        self._write_some(again)

    # ---- the end

    def _tell(self) -> None:
        """All partitions have their marker: until the machine has written that down, it is told again."""
        effect = self._effect

        def told(reply: object) -> None:
            if isinstance(reply, ApiError) and not self._is_void():
                self._writer.later(self._pause(), self._tell)
            else:
                self._writer.forget(self)

        if not self._is_void():
            self._writer.tell(
                self._coordinator,
                lambda ticket: MarkersWritten(
                    ticket, effect.transactional_id, effect.producer_id, effect.producer_epoch, effect.attempt
                ),
                told,
            )
