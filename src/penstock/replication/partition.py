"""A partition on one of its brokers: appends, the high watermark, and everyone who waits for either.

The high watermark is the offset below which data is committed: written and, under `flush=commit`, on the device, on
every in-sync replica. Consumers see nothing above it, and an answer to acks=all is sent when it has passed the batch. A
leader moves it; a follower is told of it. A failed sync stops the partition for good: what the kernel dropped then
can't be told from what it kept.
"""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.record_batch import HEADER_SIZE
from penstock.protocol.short import WALKED_BYTES_MAX, WALKED_MAX, newest_delta, open_batch, stamp
from penstock.replication.admission import Admission
from penstock.replication.batches import (
    ATTRIBUTES_OF_CLIENTS,
    COMPRESSION_MASK,
    RECORD_SIZE_MIN,
    RECORDS_PER_BYTE_MAX,
    TRANSACTIONAL,
    check_attributes,
    refuse,
    refuse_count,
    stamp_append_time,
    stamp_max_timestamp,
)
from penstock.replication.commit import Commits
from penstock.replication.in_sync import InSyncReplicas
from penstock.replication.partition_settings import Flush, PartitionSettings
from penstock.replication.syncs import SmallFile, Syncs
from penstock.replication.waiters import NEVER_MS, Waiters
from penstock.storage import aborted, checkpoint, leader_epochs
from penstock.storage.aborted import Marker
from penstock.storage.disk import File
from penstock.storage.log import Log, LogPosition
from penstock.storage.segment import NO_TIMESTAMP, Segment
from penstock.transport.turn import Turn

log = logging.getLogger("penstock.partition")

MANY_BYTES: Final = 1 << 40  # more than any reader waits for
ENDS_REMEMBERED: Final = 1024
TOPIC_ID_FILE: Final = "topic-id"
NEWEST_MAX: Final = 20_000  # bytes of a write that are kept until the followers have them

Appended = tuple[int, int, int]
"""Base offset; the offset that the high watermark must reach before acks=all is true; log append time or -1."""


class Partition:
    __slots__ = (
        "_dirty", "_ends", "_epoch_begins", "_flushed_ms", "_gaps_noted", "_stable", "_turn", "_unsynced_messages",
        "admission", "checkpointed", "commits_on_write", "committed", "committed_bytes", "deleted", "error",
        "failures", "fetchers", "followers", "high_watermark", "in_sync", "index", "internal", "leader_epoch", "leads",
        "local_end", "log", "name", "newest", "retired", "settings", "stored", "syncs", "topic", "topic_id", "unsynced",
        "waiters",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: Log,
        settings: PartitionSettings,
        leader_epoch: int,
        turn: Turn,
        committer: Commits,
        internal: bool = False,
        high_watermark: int | None = None,
    ) -> None:
        """Without a high watermark all of the log is committed: there is no other replica that might lack some."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.name = f"{topic}-{index}"
        self.internal = internal  # only coordinators write to it
        self.log = log
        self.settings = settings
        self.commits_on_write = settings.flush is not Flush.COMMIT  # nothing more to wait for
        self.unsynced = settings.flush is not Flush.COMMIT  # something may be that was promised without a sync
        self.leader_epoch = leader_epoch
        self.leads = True
        self.in_sync: InSyncReplicas | None = None  # while this broker leads, if it is not the only replica
        self.local_end: LogPosition = log.end  # what this replica has for sure
        self.committed: LogPosition = log.end
        self.committed_bytes = 0  # since this was opened, or more: whoever waits for so many looks when it has risen
        self.high_watermark = log.end_offset
        if high_watermark is not None and high_watermark < log.end_offset:
            self.high_watermark = max(high_watermark, log.start_offset)
            self.committed = log.position_of(self.high_watermark)
        self.waiters = Waiters()
        self.fetchers: dict[Callable[[], None], None] = {}  # called when the high watermark moves
        self.followers: dict[Callable[[], None], None] = {}  # called when something was written
        self.newest: tuple[int, bytes] | None = None  # an offset, and what was written there last, for followers
        self.stored: Callable[[], None] | None = None  # called when a follower has for sure what it was sent
        self.error: OSError | None = None  # set once the partition has stopped
        self.deleted = False
        self.retired: list[Segment] = []  # rolled, not sealed yet
        self.failures = 0
        self._turn = turn
        self.syncs = Syncs(log, committer, self._synced)
        self._dirty = False
        self._epoch_begins = True  # with the next batch: an epoch that writes nothing leaves no trace
        self._gaps_noted = False
        self._unsynced_messages = 0
        self._flushed_ms = 0
        self.checkpointed = 0  # how much of the active segment its saved index covers
        self._stable: LogPosition | None = None  # where the first open transaction begins, while one is open
        self._ends: deque[LogPosition] = deque(maxlen=ENDS_REMEMBERED)  # where the high watermark may come to stand
        self.admission = Admission(log, self.name)

    def use_settings(self, settings: PartitionSettings) -> None:
        before, self.settings = self.settings, settings
        self.commits_on_write = settings.flush is not Flush.COMMIT and self.in_sync is None
        if settings.flush is not Flush.COMMIT:
            self.unsynced = True
        if before.flush is not Flush.COMMIT and settings.flush not in (before.flush, Flush.OS):
            self._sync_what_was_left()

    def _sync_what_was_left(self) -> None:
        """What was left to the operating system lies before what is promised from now on."""
        for segment in self.retired:
            self.syncs.add(segment)
        if self.log.active is None:
            self.unsynced = self.settings.flush is not Flush.COMMIT
        elif self.error is None:
            self._flush()

    # ---- appending

    def append(self, batch: memoryview, now_ms: int, may_be_transactional: bool = True) -> Appended:
        """Checks the batch, stamps it in place and stages it; the bytes must stay until the turn ends. Of one that is
        compressed only the header is looked at, and whether it could hold so many records."""
        if not self.leads:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        size = len(batch)
        if size < HEADER_SIZE:
            code = ErrorCode.CORRUPT_MESSAGE if size else ErrorCode.INVALID_RECORD
            raise ApiError(code, f"a batch of {size} bytes is shorter than its header")
        sound, _, length, _, magic, attributes, last_delta, max_timestamp, producer_id, epoch, sequence, count = (
            open_batch(batch, 0)
        )
        settings = self.settings
        if (
            length != size - 12
            or magic != 2
            or attributes & ~ATTRIBUTES_OF_CLIENTS
            or count <= 0
            or last_delta != count - 1
        ):
            refuse(size, length, magic, attributes, last_delta, count)
        if size > settings.max_message_bytes:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The record batch size is {size} bytes, which exceeds max.message.bytes of "
                f"{settings.max_message_bytes} for {self.name}",
            )
        if not sound:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (crc does not match in {self.name})")
        newest = 0
        if attributes & COMPRESSION_MASK:
            if count > RECORDS_PER_BYTE_MAX * (size - HEADER_SIZE):
                refuse_count(size, count)
        elif count <= WALKED_MAX and size <= WALKED_BYTES_MAX:
            walked = newest_delta(batch, count)
            if walked is None:
                raise ApiError(ErrorCode.INVALID_RECORD, f"the batch for {self.name} does not hold its {count} records")
            newest = walked
        elif count * RECORD_SIZE_MIN > size - HEADER_SIZE:
            refuse_count(size, count)
        if attributes & (TRANSACTIONAL | COMPRESSION_MASK):
            check_attributes(attributes, producer_id, may_be_transactional)
        if max_timestamp == NO_TIMESTAMP and not settings.log_append_time:
            max_timestamp = stamp_max_timestamp(batch, newest)
        ahead_ms = max_timestamp - now_ms
        out_of_range = ahead_ms > settings.timestamp_after_max_ms or -ahead_ms > settings.timestamp_before_max_ms
        if out_of_range and not settings.log_append_time:
            problem = f"Timestamp {max_timestamp} of message is out of range for {self.name}"
            raise ApiError(ErrorCode.INVALID_TIMESTAMP, problem)
        if self.error is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} has stopped: {self.error}")
        store = self.log
        if producer_id >= 0:
            if epoch < 0 or (sequence < 0 and not self.internal):
                problem = f"producer {producer_id} sent epoch {epoch} and sequence {sequence}"
                raise ApiError(ErrorCode.INVALID_RECORD, problem)
            producers = store.producers
            known = producers.check(producer_id, epoch, sequence, count, attributes & TRANSACTIONAL != 0)
            if known is not None:
                return known.base_offset, known.last_offset + 1, known.timestamp_ms
            if attributes & TRANSACTIONAL or producers.any_open:
                self.admission.check_batch(producer_id, epoch, attributes & TRANSACTIONAL != 0)
        base_offset = store.next_offset
        append_time = -1
        if settings.log_append_time:
            append_time = max_timestamp = now_ms
            stamp_append_time(batch, attributes, now_ms)
        stamp(batch, base_offset, self.leader_epoch)
        last_offset = base_offset + last_delta
        self._stage(batch, size, base_offset, last_offset, max_timestamp, now_ms)
        if producer_id >= 0:
            store.producers.add(
                producer_id, epoch, sequence, base_offset, last_offset, max_timestamp, attributes & TRANSACTIONAL != 0
            )
        return base_offset, last_offset + 1, append_time

    def _stage(
        self, batch: memoryview, size: int, base_offset: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> None:
        store = self.log
        try:
            before = store.active
            if self._epoch_begins:
                if before is None:
                    self._begin_folder(self.leader_epoch)
                else:
                    self._begin_epoch(self.leader_epoch)
                self._epoch_begins = False
            store.stage(batch, size, base_offset, last_offset, max_timestamp, now_ms)
            if store.active is not before:
                self._rolled(before)
        except OSError as error:
            self._write_failed(error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None
        if not self._dirty:
            self._dirty = True
            turn = self._turn
            turn.writes.append(self._write)
            if not turn.scheduled:
                turn.schedule()

    def stage_copy(
        self,
        batch: memoryview,
        size: int,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        epoch: int,
        now_ms: int,
    ) -> None:
        """A batch as the leader has it, whose epoch may be new to this log. Raises ApiError if it can't be written."""
        try:
            if self.log.active is None:
                self._begin_folder(epoch)
            else:
                self._begin_epoch(epoch)
            if base_offset > self.log.next_offset and not self._gaps_noted:
                self._note_gaps(base_offset)
        except OSError as error:
            self._write_failed(error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None
        self._epoch_begins = False
        self._stage(batch, size, base_offset, last_offset, max_timestamp, now_ms)

    # ---- transactions

    def append_marker(self, producer_id: int, epoch: int, marker: Marker, now_ms: int) -> int:
        """Ends what the producer has open here, if anything. The offset that the high watermark must reach."""
        store = self.log
        if not self.leads:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.error is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} has stopped: {self.error}")
        store.producers.check_marker(producer_id, epoch, marker.coordinator_epoch)
        self.admission.end(producer_id)
        if store.active is None:
            return store.next_offset  # nothing was ever written here: there is nothing to end
        batch = memoryview(aborted.build_marker(producer_id, epoch, marker, now_ms))
        offset, size = store.next_offset, len(batch)
        stamp(batch, offset, self.leader_epoch)
        self._stage(batch, size, offset, offset, now_ms, now_ms)
        store.end_transaction(producer_id, epoch, marker, offset, now_ms)
        return offset + 1

    @property
    def last_stable_offset(self) -> int:
        producers = self.log.producers
        producers.committed_to(self.high_watermark)  # what was replayed after a restart is known to nobody else yet
        first = producers.first_unstable_offset()
        return self.high_watermark if first is None else min(max(first, self.log.start_offset), self.high_watermark)

    @property
    def stable(self) -> LogPosition:
        """The end of what is committed and decided: how far readers of committed transactions may go."""
        offset = self.last_stable_offset
        if offset == self.high_watermark:
            return self.committed
        if self._stable is None or self._stable.offset != offset:
            self._stable = self.log.position_of(offset)
        return self._stable

    def _begin_folder(self, epoch: int) -> None:
        """Before anything is staged: what is staged must not stay there if this fails."""
        store = self.log
        try:
            store.begin_epoch(epoch, durable=False)
            topic_id = SmallFile(store.disk, store.directory / TOPIC_ID_FILE)
            store.disk.replace(topic_id.path, self.topic_id.hex().encode(), durable=False)
        except OSError:
            store.epochs = leader_epochs.load(store.disk, store.directory)
            raise
        # Without them, recovery would not know whose data this is and since when.
        self.syncs.add(topic_id)
        self.syncs.add(SmallFile(store.disk, store.directory / leader_epochs.FILE_NAME))

    def _note_gaps(self, offset: int) -> None:
        """The leader's log was compacted, this one perhaps never will be. Synced with the batch: without the note,
        recovery would take offsets that are missing for damage, and cut off what stands behind them."""
        store = self.log
        note = SmallFile(store.disk, store.directory / checkpoint.COPIED_GAPS)
        if checkpoint.load(store.disk, note.path) is None:
            checkpoint.save(store.disk, note.path, offset, durable=False)
        self.syncs.add(note)
        self._gaps_noted = True

    def own_folder(self) -> None:
        """Before anything is kept of a log that has no segment yet, if only where it begins. Durable on return: a
        folder that is not known for its own is set aside after a crash."""
        store = self.log
        store.disk.make_directory(store.directory)
        store.disk.replace(store.directory / TOPIC_ID_FILE, self.topic_id.hex().encode())
        store.disk.sync_directory(store.directory.parent)

    def _rolled(self, before: Segment | None) -> None:
        self.checkpointed = 0
        if before is None:
            return
        self.retired.append(before)
        if self.settings.flush is not Flush.OS:
            self.syncs.add(before)

    def _write(self) -> None:
        """At the end of the turn: one write for all that was staged."""
        self._dirty = False
        store = self.log
        if self.error is not None:
            store.staged.clear()
            return
        if store.staged:
            newest: tuple[int, bytes] | None = None
            if self.followers and store.staged_bytes <= NEWEST_MAX:
                newest = (store.end_offset, b"".join(store.staged))
            try:
                store.write_staged()
                self.newest = newest
            except OSError as error:
                self._write_failed(error)
        if store.end_offset > self.local_end.offset:  # if only by what a roll wrote before something failed
            self.written()
            if self.followers:
                self.wake_followers()

    def written(self) -> None:
        flush = self.settings.flush
        if flush is Flush.COMMIT:
            self.syncs.begin()
            return
        before = self.local_end.offset
        self._has(self.log.end)
        if flush is Flush.INTERVAL:
            self._unsynced_messages += self.local_end.offset - before
            if self._unsynced_messages >= self.settings.flush_messages:
                self._flush()

    def _has(self, end: LogPosition) -> None:
        """This replica has all before the end for sure. Never back: the end of a sync may be behind what writes alone
        have reached since it began."""
        if end.offset < self.local_end.offset:
            return
        self.local_end = end
        if not self.leads:
            self._ends.append(end)
            if self.stored is not None:
                self.stored()
        elif self.in_sync is None:
            self._advance(end)
        else:
            self._ends.append(end)
            self.advance_in_sync()

    def _write_failed(self, error: OSError) -> None:
        """What was staged is not in the log; it may go on when the disk can."""
        self.failures += 1
        log.error("write failed: %s", error, extra={"partition": self.name})
        self.waiters.release_above(self.log.end_offset)
        if self.stored is not None:
            self.stored()

    # ---- committing

    def _synced(self, end: LogPosition, error: OSError | None) -> None:
        if self.error is not None:
            return
        if error is not None:
            self.stop(error)
            return
        self._turn.schedule()
        self._has(end)
        self.syncs.go_on()
        if self.unsynced and not self.syncs.under_way and self.settings.flush is Flush.COMMIT:
            self.unsynced = False  # the sync that was begun with these settings has ended, and nothing is behind it

    def flush_if_due(self, now_ms: int) -> None:
        """Under `flush=interval`, called now and then: syncs what was written since the last time."""
        if self._unsynced_messages and now_ms - self._flushed_ms >= self.settings.flush_ms:
            self._flushed_ms = now_ms
            self._flush()

    def _flush(self) -> None:
        self._unsynced_messages = 0
        self.syncs.begin()

    def begin_at(self, offset: int, now_ms: int) -> list[Segment]:
        """Drops whole segments below the offset; the caller removes their files."""
        active = self.log.active
        try:
            dropped = self.log.delete_before(offset, now_ms)
        except OSError:  # no room for a new segment: those before the active one make some
            dropped = self.log.delete_before(offset)
        if self.log.active is not active:
            self.checkpointed = 0
        if self.local_end.offset == self.log.end_offset:
            self.local_end = self.log.end
        if self.high_watermark == self.log.end_offset:
            self.committed = self.log.end
        self._ends.clear()
        self.retired = [segment for segment in self.retired if segment not in dropped]
        return dropped

    def stop(self, error: OSError) -> None:
        """A sync failed: nothing more is acknowledged or accepted until the broker restarts and reads the disk."""
        self.error = error
        self.failures += 1
        log.critical("stopped: the disk failed to sync: %s", error, extra={"partition": self.name})
        self.release_waiters()

    def delete(self, directory: Path) -> list[weakref.ref[File]]:
        """The topic is gone and its folder renamed: whoever waits learns it, and nothing more is accepted. Work that is
        under way on the old files must not find those of a topic that takes the name. Returns what may still be read.
        """
        self.log.relocate(directory)
        self.deleted = True
        self._epoch_begins = False
        self.error = OSError("the topic was deleted")
        self.failures += 1
        self.log.staged.clear()
        self.release_waiters()
        return self.log.let_go()

    def release_waiters(self) -> None:
        """Wakes everyone: what they find is that the partition has stopped or is gone."""
        self.committed_bytes += MANY_BYTES
        self.waiters.release()
        for fetcher in list(self.fetchers):
            fetcher()
        self.wake_followers()
        if self.stored is not None:
            self.stored()

    def wake_followers(self) -> None:
        for follower in list(self.followers):
            follower()

    def _advance(self, end: LogPosition) -> None:
        """Never back: the end of a sync may be behind what writes alone have committed since it began."""
        if end.offset < self.high_watermark or (
            end.offset == self.high_watermark and end.segment is self.committed.segment
        ):
            return
        before = self.committed
        self.committed_bytes += end.position - before.position if end.segment is before.segment else MANY_BYTES
        self.high_watermark = offset = end.offset
        if offset == self.log.end_offset:
            self.newest = None  # every in-sync replica has it
        self.committed = end
        producers = self.log.known_producers
        if producers is not None and producers.committed_to(offset):
            self.committed_bytes += MANY_BYTES  # those who wait for decisions see much at once
        self.waiters.reached(offset)
        if self.fetchers:
            for fetcher in list(self.fetchers):
                fetcher()

    def when_written(self, wake: Callable[[], None]) -> None:
        """Calls back behind the writes of this turn."""
        self._turn.answers.append(wake)
        self._turn.schedule()

    def when_committed(self, next_offset: int, wake: Callable[[], None], deadline_ms: int = NEVER_MS) -> None:
        """Calls back at once or later; the caller looks at the high watermark then, and asks `failure` if it is too
        low."""
        if next_offset <= self.high_watermark or self.error is not None or not self.leads:
            wake()
        else:
            self.waiters.add(next_offset, wake, deadline_ms)

    def deadline_ms(self, timeout_ms: int) -> int:
        """Of someone who waits for the other replicas; where there are none, nobody waits for long."""
        return NEVER_MS if self.in_sync is None else self._turn.steady_ms() + timeout_ms

    def failure(self) -> ApiError:
        """Why something that was appended is not committed."""
        if self.deleted:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.name} was deleted")
        if not self.leads:
            return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.error is None and self.in_sync is not None and self.high_watermark < self.local_end.offset:
            if not self.in_sync.enough:
                return ApiError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            return ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{self.name} was not replicated in time")
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} could not be written")

    # ---- leading and following

    def lead(self, epoch: int, in_sync: InSyncReplicas | None) -> None:
        """From now on batches are of this leader epoch, and committed when the in-sync replicas have them."""
        self._settle()
        self.syncs.keep()
        self.leader_epoch = epoch
        self.leads = True
        self.in_sync = in_sync
        self.stored = None
        self.commits_on_write = self.settings.flush is not Flush.COMMIT and in_sync is None
        self._epoch_begins = True
        if in_sync is None:
            self._advance(self.local_end)
        else:
            self.advance_in_sync()

    def share(self, in_sync: InSyncReplicas) -> None:
        """The partition is to have more replicas than this one, which goes on leading it."""
        self.in_sync = in_sync
        self.commits_on_write = False

    def _begin_epoch(self, epoch: int) -> None:
        """Synced with the first batch of the epoch: until then nothing depends on it."""
        store = self.log
        if epoch > store.epochs.latest:
            try:
                store.begin_epoch(epoch, durable=False)
            except OSError:
                store.epochs = leader_epochs.load(store.disk, store.directory)
                raise
            self.syncs.add(SmallFile(store.disk, store.directory / leader_epochs.FILE_NAME))

    def follow(self, epoch: int) -> None:
        """Another broker leads, or nobody: whoever waits here learns it, and nothing is accepted from clients."""
        self._settle()
        self.leader_epoch = epoch
        self.leads = False
        self.in_sync = None
        self.commits_on_write = False
        self.failures += 1
        self.admission.clear()
        self.release_waiters()

    def _settle(self) -> None:
        """What was staged for the role that ends is written."""
        if self._dirty:
            self._turn.settle()
        self.newest = None

    def fetched(self, replica: int, offset: int, now_ms: int) -> bool:
        """A follower asks for the offset, so it has all before it. False if it is none of this partition."""
        in_sync = self.in_sync
        if in_sync is None or not in_sync.fetched(replica, offset, self.log.end_offset, now_ms):
            return False
        if offset > self.high_watermark:
            self.advance_in_sync()
        return True

    @property
    def enough_in_sync(self) -> bool:
        """Whether acks=all can be promised."""
        return self.in_sync is None or self.in_sync.enough

    def advance_in_sync(self) -> None:
        """The high watermark goes as far as the in-sync replicas have come."""
        if self.in_sync is not None and self.error is None:
            offset = self.in_sync.committed(self.local_end.offset)
            if offset > self.high_watermark:
                self._turn.schedule()
                self._advance(self._position(offset))

    def leader_committed(self, offset: int) -> None:
        """What the leader says of the high watermark, as far as this follower has come."""
        offset = min(offset, self.local_end.offset)
        if not self.leads and offset > self.high_watermark:
            self._advance(self._position(offset))

    def _position(self, offset: int) -> LogPosition:
        if offset == self.log.end_offset:
            return self.log.end
        ends = self._ends
        while ends and ends[0].offset < offset:
            ends.popleft()
        return ends[0] if ends and ends[0].offset == offset else self.log.position_of(offset)

    def was_cut(self) -> None:
        """The log was truncated, to its start perhaps: what is remembered of its end holds no more."""
        store = self.log
        self.newest = None
        self._epoch_begins = True
        held = store.segments
        if self.local_end.offset >= store.end_offset or not held:
            self.local_end = store.end
        elif self.local_end.segment not in held:
            self.local_end = store.position_of(self.local_end.offset)
        self._ends.clear()
        self._stable = None
        self.retired = [segment for segment in self.retired if segment in held]
        self.syncs.was_cut(held)
        if not held:
            self._unsynced_messages = 0
        self.checkpointed = 0
        if self.high_watermark > store.end_offset or self.high_watermark < store.start_offset:
            if self.high_watermark > store.end_offset:
                log.error("committed records were truncated", extra={"partition": self.name, "end": store.end_offset})
            self.high_watermark = store.end_offset
        self.committed = store.position_of(self.high_watermark)
        if self.local_end.offset < store.end_offset:
            self.written()
