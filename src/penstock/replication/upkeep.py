"""What logs need now and then: rolled segments sealed, old ones deleted, compacted topics compacted, disks synced.

The loop only decides; files are synced, written and removed in a thread, and compaction runs in the worker process. A
piece of upkeep that fails is logged and tried again the next time: no client waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from penstock.cluster.settings import BrokerSettings
from penstock.replication.holds import Committed, Hold, Holds, Key, nobody_knows
from penstock.replication.partition import Partition
from penstock.replication.partition_settings import Flush
from penstock.replication.partitions import Partitions
from penstock.storage import retention, truncation
from penstock.storage.hold import Piece
from penstock.storage.log import Log, seal
from penstock.storage.segment import CorruptSegment, Segment
from penstock.storage.worker import Worker, WorkerFailed

if TYPE_CHECKING:
    from penstock.storage.rewriting import CompactionPlan

log = logging.getLogger("penstock.upkeep")

SEAL_EVERY_S = 1.0
CHECKPOINT_EVERY_S = 60.0
CLOSE_EVERY_S = 10.0
DISCARD_AGAIN_S = 30.0


def _sync_all(segments: list[Segment]) -> None:
    for segment in segments:
        segment.sync()


def _seal_all(segments: list[Segment]) -> None:
    for segment in segments:
        seal(segment)


def _discard(store: Log, segments: list[Segment]) -> bool:
    try:
        store.discard(segments)
    except FileNotFoundError:
        pass  # the topic is gone with its folder
    except OSError as error:  # the disk is full, say: they lie below the start, and can wait
        log.warning("segments not removed: %s", error, extra={"folder": store.directory.name})
        return False
    return True


class Upkeep:
    def __init__(
        self,
        partitions: Partitions,
        settings: BrokerSettings,
        worker: Worker,
        now_ms: Callable[[], int],
        committed: Committed = nobody_knows,
    ) -> None:
        self._partitions = partitions
        self._settings = settings
        self._worker = worker
        self._now_ms = now_ms
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="upkeep")
        self._tasks: list[asyncio.Task[None]] = []
        self._segments = asyncio.Lock()  # held while sealed segments are replaced or removed
        self._starts: dict[Partition, int] = {}  # how far leaders have deleted, while their followers are at it
        self._doomed: list[tuple[Log, list[Segment]]] = []  # dropped, but their files are still there for readers
        self._retention_holds = Holds("retention", committed, now_ms)
        self._compaction_holds = Holds("compaction", committed, now_ms)

    def start(self) -> None:
        self._tasks = [
            asyncio.ensure_future(self._every(lambda: SEAL_EVERY_S, self._seal_and_flush)),
            asyncio.ensure_future(self._every(lambda: CHECKPOINT_EVERY_S, self._checkpoint)),
            asyncio.ensure_future(self._every(lambda: CLOSE_EVERY_S, self._close_unused)),
            asyncio.ensure_future(
                self._every(lambda: self._settings.get("log.retention.check.interval.ms") / 1000, self._retain)
            ),
            asyncio.ensure_future(
                self._every(lambda: self._settings.get("log.cleaner.backoff.ms") / 1000, self._compact)
            ),
        ]

    async def _every(self, period_s: Callable[[], float], work: Callable[[], object]) -> None:
        while True:
            await asyncio.sleep(max(period_s(), 0.05))
            try:
                result = work()
                if asyncio.iscoroutine(result):
                    await result
            except Exception:
                log.exception("upkeep failed: it will be tried again")

    async def _in_thread(self, work: Callable[..., None], *arguments: object) -> None:
        """To its end, even if the broker is told to stop meanwhile."""
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments))

    # ---- segments

    async def _seal_and_flush(self) -> None:
        now_ms = self._now_ms()
        for partition in self._partitions.opened():
            if partition.settings.flush is Flush.INTERVAL:
                partition.flush_if_due(now_ms)
            if partition.retired and partition.error is None:
                async with self._segments:
                    await self._seal(partition)

    async def _seal(self, partition: Partition) -> None:
        """Only what is committed: an error of the device is reported once, and the commit must be the one to see it."""
        committed = partition.committed.segment
        segments = [s for s in partition.retired if committed is not None and s.base_offset < committed.base_offset]
        try:
            await self._in_thread(_sync_all, segments)
        except OSError as error:
            if not partition.deleted:
                partition.stop(error)
            return
        try:
            await self._in_thread(_seal_all, segments)
        except OSError as error:  # no room for an index, say: without it, all there is to lose is time
            log.warning("segment not sealed: %s", error, extra={"partition": partition.name})
        held = partition.log.segments
        partition.retired = [s for s in partition.retired if s in held and (s not in segments or s.sealed_to != s.size)]

    def _close_unused(self) -> None:
        """Descriptors of sealed segments that nobody has read from since the last look."""
        for partition in self._partitions.opened():
            for segment in partition.log.segments[:-1]:
                if segment.is_open and not segment.was_used:
                    segment.close()
                segment.was_used = False

    async def _checkpoint(self) -> None:
        """The index of a growing segment, so that recovery need not read what is known to be on the device."""
        self._forget_synced()
        for partition in self._partitions.opened():
            partition.log.expire_producers(self._now_ms())
            segment, position = partition.committed.segment, partition.committed.position
            if partition.settings.flush is not Flush.COMMIT or segment is None or segment is not partition.log.active:
                continue
            if partition.checkpointed < position:
                try:
                    await self._in_thread(segment.save_index, position)
                except OSError as error:
                    log.warning("index not saved: %s", error, extra={"partition": partition.name})
                    continue
                if segment is partition.log.active:
                    partition.checkpointed = position

    def _forget_synced(self) -> None:
        try:
            self._partitions.forget_synced()
        except OSError as error:
            log.warning("what was synced is noted as unsynced still: %s", error)

    # ---- what grows old

    def holds(self) -> dict[Key, Hold]:
        """What is kept for groups, where anything is; of retention and compaction, the one that is worse."""
        known = self._compaction_holds.known()
        for key, hold in self._retention_holds.known().items():
            other = known.get(key, hold)
            known[key] = max(hold, other, key=lambda each: (each.over_limit, each.held_bytes))
        return known

    async def _retain(self) -> None:
        held = []
        for partition in self._partitions.all():
            await asyncio.sleep(0)
            if not partition.log.settings.retention_hold_group:
                await self._retain_one(partition)
            elif partition.leads:  # followers do as their leader has done
                held.append(partition)
        async for partition, offset in self._retention_holds.released(held, self._past_retention):
            await self._retain_one(partition, offset)

    def _past_retention(self, partition: Partition) -> list[Piece]:
        if not partition.leads:
            return []
        return retention.past_retention(partition.log, self._now_ms(), partition.high_watermark)

    async def _retain_one(self, partition: Partition, offset: int | None = None) -> None:
        """All that is past retention, or only what lies below the offset."""
        try:
            if offset is None:
                offset = retention.start_offset(partition.log, self._now_ms(), partition.high_watermark)
            if offset > partition.log.start_offset:
                log.info("retention", extra={"partition": partition.name, "start": offset})
                await self._delete_before(partition, offset)
                await self._save_start(partition)
        except Exception:
            log.exception("retention failed: it will be tried again", extra={"partition": partition.name})

    async def _save_start(self, partition: Partition) -> None:
        """The files stay for a while, and with them what they hold would come back after a crash."""
        try:
            await self._in_thread(partition.log.save_start)
        except OSError as error:  # a full disk: it is saved when they go
            log.warning("where the log begins was not saved yet: %s", error, extra={"partition": partition.name})

    async def cut(self, partition: Partition, offset: int, epoch: int, end: int, *, restart: bool = False) -> None:
        """A follower takes back what its leader does not have, if it still follows in that epoch and its log ends where
        it did when that was found. On the loop: no role may begin on a log that is half cut."""
        async with self._segments:
            while partition.syncs.under_way:
                quiet = asyncio.Event()
                partition.syncs.when_quiet(quiet.set)
                await quiet.wait()
            if partition.leads or partition.deleted or partition.leader_epoch != epoch:
                return  # whoever takes the role over begins with a log that is whole
            if partition.log.next_offset != end:
                return  # it has copied more since: that is not what was found to be wrong
            if restart:
                if not partition.log.segments:
                    partition.own_folder()
                truncation.restart_at(partition.log, offset)
            else:
                truncation.truncate_to(partition.log, offset)
            partition.was_cut()

    def advance_start_soon(self, partition: Partition, offset: int, advanced: Callable[[], None]) -> None:
        """As the leader has done, and as far as this replica is committed. Calls back when that is durable."""
        is_under_way = partition in self._starts
        self._starts[partition] = max(offset, self._starts.get(partition, 0))
        if not is_under_way:
            task = asyncio.ensure_future(self._follow_start(partition))
            self._tasks.append(task)
            task.add_done_callback(self._tasks.remove)
            task.add_done_callback(lambda _: advanced())

    async def _follow_start(self, partition: Partition) -> None:
        try:
            while (offset := min(self._starts[partition], partition.high_watermark)) > partition.log.start_offset:
                await self.advance_start(partition, offset)
        except OSError as error:
            log.warning("the start was not advanced: %s", error, extra={"partition": partition.name})
        finally:
            del self._starts[partition]

    async def save_high_watermarks(self) -> None:
        save = self._partitions.high_watermarks_to_save()
        if save is not None:
            await self._in_thread(save)

    async def advance_start(self, partition: Partition, offset: int) -> None:
        """On request: returns when the new beginning is on the device."""
        if offset <= partition.log.start_offset:
            return
        before = partition.log.start_offset
        partition.log.advance_start(offset)
        try:
            await self._in_thread(partition.log.save_start)
        except OSError:
            if partition.log.start_offset == offset:  # and nothing was deleted meanwhile
                partition.log.start_offset = before
            raise
        await self._delete_before(partition, offset)
        partition.wake_followers()

    async def _delete_before(self, partition: Partition, offset: int) -> None:
        async with self._segments:
            segments = partition.begin_at(offset, self._now_ms())
        if segments:
            delay_s = partition.log.settings.file_delete_delay_ms / 1000
            doomed = (partition.log, segments)
            self._doomed.append(doomed)
            asyncio.get_running_loop().call_later(delay_s, self._discard, doomed)

    def _discard(self, doomed: tuple[Log, list[Segment]]) -> None:
        if doomed in self._doomed:
            self._doomed.remove(doomed)
            done = asyncio.get_running_loop().run_in_executor(self._thread, _discard, *doomed)
            done.add_done_callback(lambda done: self._try_discard_again(doomed, not done.cancelled() and done.result()))

    def _try_discard_again(self, doomed: tuple[Log, list[Segment]], removed: bool) -> None:
        if not removed:
            self._doomed.append(doomed)
            asyncio.get_running_loop().call_later(DISCARD_AGAIN_S, self._discard, doomed)

    async def _compact(self) -> None:
        if not self._settings.get("log.cleaner.enable"):
            return
        held = []
        for partition in self._partitions.all(compacted=True):
            await asyncio.sleep(0)
            if partition.log.settings.retention_hold_group:
                held.append(partition)
            else:
                await self._compact_one(partition)
        async for partition, offset in self._compaction_holds.released(held, self._to_be_compacted):
            await self._compact_one(partition, offset)

    def _plan(self, partition: Partition, end_offset: int | None = None) -> CompactionPlan | None:
        from penstock.storage import compaction

        if partition.error is not None:
            return None
        stable = partition.last_stable_offset
        try:
            return compaction.plan(
                partition.log, self._now_ms(), stable if end_offset is None else min(stable, end_offset)
            )
        except (CorruptSegment, OSError) as error:
            log.error("compaction failed: %s", error, extra={"partition": partition.name})
            return None

    def _to_be_compacted(self, partition: Partition) -> list[Piece]:
        plan = self._plan(partition)
        return [Piece(segment.end_offset, segment.size) for segment in plan.segments] if plan is not None else []

    async def _compact_one(self, partition: Partition, end_offset: int | None = None) -> None:
        """All that may be compacted, or only what lies below the offset."""
        from penstock.storage import compaction

        plan = self._plan(partition, end_offset)
        if plan is None:
            return
        try:
            result = await self._worker.run(compaction.run, plan)
            async with self._segments:
                if not partition.deleted:
                    taken = compaction.take_over(partition.log, result)
                    await self._in_thread(compaction.settle, partition.log, result, taken)
                    log.info("compacted", extra={"partition": partition.name})
        except (WorkerFailed, CorruptSegment, OSError) as error:
            log.error("compaction failed: %s", error, extra={"partition": partition.name})

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for doomed in list(self._doomed):  # after a clean stop, nobody would look for these files again
            self._discard(doomed)
        self._thread.shutdown(wait=True)
