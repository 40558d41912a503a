"""All partitions that this broker holds, opened when they are first asked for.

After a clean stop a log is opened from the summary of that stop without reading a file, so ten thousand partitions
cost nothing until they are used. After any other stop every folder is recovered before the broker answers. A folder
carries the id of its topic, and the summary has it too: one that belongs to no topic of the cluster, or to a former one
of the same name, is set aside and never served. It is taken back by a start at which the cluster has its topic.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from penstock.cluster.elections import commits, insync_needed
from penstock.cluster.model import ClusterImage, PartitionState, TopicState
from penstock.cluster.settings import BrokerSettings, effective_topic_settings
from penstock.protocol.compression import Compression
from penstock.replication import strays
from penstock.replication.commit import Commits
from penstock.replication.high_watermarks import HighWatermarks
from penstock.replication.in_sync import InSyncReplicas
from penstock.replication.leaving import Folder, LeavingFolders
from penstock.replication.partition import Partition
from penstock.replication.partition_settings import Flush, PartitionSettings
from penstock.replication.strays import STRAY
from penstock.replication.unsynced_topics import EVERY_TOPIC, UnsyncedTopics, is_noted
from penstock.storage import checkpoint, recovery, summary, truncation
from penstock.storage.disk import Disk, File
from penstock.storage.log import Log, LogSettings
from penstock.transport.turn import Turn

log = logging.getLogger("penstock.partitions")

DELETED = ".deleted"
FOLDERS_AT_ONCE = 16  # mostly waiting for syncs, which share the file system's journal
NEVER = 2**63 - 1  # how Kafka writes it
FLUSH_INTERVAL_MS = 1000  # of `flush=interval` where nothing else is said


class Recovered(NamedTuple):
    """A log as the start found it, until it is asked for."""

    topic_id: bytes
    log: Log

    @property
    def size(self) -> int:
        return self.log.size


class Partitions:
    def __init__(
        self,
        disk: Disk,
        data_dir: Path,
        image: ClusterImage,
        settings: BrokerSettings,
        turn: Turn,
        committer: Commits,
        node_id: int,
        folders_at_once: int = FOLDERS_AT_ONCE,
    ) -> None:
        self._folders_at_once = folders_at_once
        self.node_id = node_id
        self.disk = disk
        self.data_dir = data_dir
        self._image = image
        self._settings = settings
        self._turn = turn
        self._committer = committer
        self._open: dict[tuple[str, int], Partition] = {}
        self._summaries: dict[str, summary.LogSummary] = {}
        self._recovered: dict[str, Recovered] = {}
        self._high_watermarks = HighWatermarks(disk, data_dir)
        self._unsynced = UnsyncedTopics(disk, data_dir)
        self._leaving = LeavingFolders(disk)
        self._aside: dict[tuple[bytes, int], Folder] = {}  # by topic id: not opened before the next start
        self.damaged: set[tuple[str, int]] = set()  # records that were acknowledged may be missing
        self.lost: set[tuple[str, int]] = set()  # of these, where nothing is left of what was committed
        self._begin_late: set[tuple[str, int]] = set()  # and where the first segments are missing

    # ---- opening

    def load(self, deleted: Collection[str] = ()) -> bool:
        """Before the broker listens: finds out what the last stop left. `deleted` are ids of topics of which whatever
        is found goes, unless the cluster has them again. False if the stop was not clean."""
        deleted = set(deleted) - {topic_id.hex() for topic_id in self._image.topics_by_id}
        doomed = self._doom(deleted) if deleted else ()
        taken_back = self._take_back(self._remove_deleted())
        self._high_watermarks.load()
        self._high_watermarks.forget_topics(deleted)
        if not self._unsynced.load():
            log.error("damaged: which topics the power may have taken something of: each of them, then")
            self._unsynced.replace({EVERY_TOPIC})
        found = summary.load(self.disk, self.data_dir)
        if found is not None:
            self._summaries = {name: known for name, known in found.items() if name not in doomed}
            for folder in taken_back:
                self._recover(folder)
            return True
        began = time.monotonic()
        folders = [(topic, index) for topic in self._image.topics.values() for index in range(len(topic.partitions))]
        with ThreadPoolExecutor(self._folders_at_once) as threads:
            results = [result for result in threads.map(self._recover, folders) if result is not None]
        if results:
            facts = {
                "partitions": len(results), "read": sum(r.bytes_read for r in results),
                "cut": sum(r.bytes_cut for r in results), "ms": int((time.monotonic() - began) * 1000),
            }  # fmt: skip
            log.info("recovered", extra=facts)
        self._set_strays_aside()
        return False

    def _doom(self, deleted: Collection[str]) -> set[str]:
        """The names of the folders that go."""
        doomed = set()
        for name in self.disk.names(self.data_dir):
            held = self._topic_id(name)
            if held is not None and held in deleted:
                self.disk.rename(self.data_dir / name, self._way_out(held, name.rpartition("-")[2]))
                doomed.add(name)
        return doomed

    def _take_back(self, names: Collection[str]) -> list[tuple[TopicState, int]]:
        """Partitions that were set aside, of topics that the cluster has again."""
        taken: list[tuple[TopicState, int]] = []
        for name in names:
            owner = strays.owner_of(name)
            if owner is None:
                continue
            topic_id, index = owner
            topic = self._image.topics_by_id.get(topic_id)
            if topic is None:
                self._aside[(topic_id, index)] = Folder(self.data_dir / name, ())
                continue
            target = folder_name(topic.name, index)
            free = target not in names or not self.disk.names(self.data_dir / target)
            is_here = index < len(topic.partitions) and self.node_id in topic.partitions[index].replicas
            if not (is_here and free):
                continue
            if self._topic_id(name) != topic_id.hex():  # the power took it, and who knows what else
                self.damaged.add((topic.name, index))
                continue
            self.disk.rename(self.data_dir / name, self.data_dir / target)
            log.warning("taken back: the cluster has its topic again", extra={"folder": name, "as": target})
            taken.append((topic, index))
        return taken

    def _recover(self, folder: tuple[TopicState, int]) -> recovery.Recovery | None:
        """In a thread."""
        topic, index = folder
        name = folder_name(topic.name, index)
        if self._topic_id(name) != topic.topic_id.hex():
            self._miss(topic, index)
            return None
        directory = self.data_dir / name
        result = recovery.recover(self.disk, directory, self._log_settings(topic), self._turn.wall_ms())
        self._recovered[name] = Recovered(topic.topic_id, result.log)
        if result.lost_more:  # acknowledged records may be among what is gone
            self.damaged.add((topic.name, index))
        if result.begins_late:
            self._begin_late.add((topic.name, index))
            facts = {"partition": name, "start": result.log.start_offset}
            log.error("damaged: the log has lost its beginning", extra=facts)
        if result.damaged or result.bytes_cut:
            facts = {"partition": name, "end": result.log.end_offset, "cut": result.bytes_cut}
            if result.damaged:
                log.error("damaged: sound batches stood behind the cut, and are kept beside the log", extra=facts)
            else:
                log.warning("cut: the end of the log was torn", extra=facts)
        self._compare_with_committed(topic, index, result.log)
        return result

    def _miss(self, topic: TopicState, index: int) -> None:
        """There is no folder of the partition, or none that is known to be its own. That is as it should be only where
        nothing was ever written."""
        name, committed = folder_name(topic.name, index), self._high_watermarks.of(topic.topic_id, index)
        if self.node_id not in topic.partitions[index].replicas:
            return
        if committed:
            self.lost.add((topic.name, index))
            log.error("lost: the folder of a log is gone", extra={"partition": name, "committed": committed})
        elif not self.disk.names(self.data_dir / name):
            return
        self.damaged.add((topic.name, index))

    def _compare_with_committed(self, topic: TopicState, index: int, found: Log) -> None:
        """However sound the end of a log looks, it can't be below what was committed. A follower that had to take back
        even such records, and crashed before that was noted, is suspected too: it only fetches a little again."""
        committed = self._high_watermarks.of(topic.topic_id, index)
        if found.end_offset >= committed:
            return
        self.damaged.add((topic.name, index))
        if found.end_offset == found.start_offset:
            self.lost.add((topic.name, index))
        facts = {"partition": folder_name(topic.name, index), "end": found.end_offset, "committed": committed}
        log.error("damaged: the log ends below what was committed", extra=facts)

    def _topic_id(self, folder: str) -> str | None:
        return strays.topic_id_of(self.disk, self.data_dir / folder)

    def _set_strays_aside(self) -> None:
        known = {
            folder_name(topic.name, index): (topic.topic_id.hex(), (topic.name, index))
            for topic in self._image.topics.values()
            for index in range(len(topic.partitions))
        }
        names = set(self.disk.names(self.data_dir))
        for name in sorted(names):
            if name.endswith(STRAY):
                continue
            held, (wanted, place) = self._topic_id(name), known.get(name, (None, None))
            if held is None and (place is None or set(self.disk.names(self.data_dir / name)) <= {recovery.DAMAGED}):
                continue  # not a partition's folder, or there is nothing in it
            if held is not None and held == wanted:
                continue
            self._set_aside(name, held or "", names)
            if place in self.damaged:
                self._mark_damaged(name)

    def _mark_damaged(self, name: str) -> None:
        """In place of the folder that showed it, until whoever must know was told."""
        directory = self.data_dir / name
        self.disk.make_directory(directory)
        self.disk.replace(directory / recovery.DAMAGED, b"", durable=True)
        self.disk.sync_directory(self.data_dir)

    def _set_aside(self, name: str, topic_id: str, names: set[str]) -> None:
        aside = strays.free_name(name, topic_id, names)
        names.add(aside)
        self.disk.rename(self.data_dir / name, self.data_dir / aside)
        index = name.rpartition("-")[2]
        if strays.is_topic_id(topic_id) and index.isdecimal():
            topic = self._image.topics_by_id.get(bytes.fromhex(topic_id))
            if topic is None:  # should the cluster tell of it later, it must not begin with nothing
                self._aside[(bytes.fromhex(topic_id), int(index))] = Folder(self.data_dir / aside, ())
        log.error("set aside: it belongs to no topic of this cluster", extra={"folder": name, "as": aside})

    def _remove_deleted(self) -> set[str]:
        """The names of what is left."""
        names = set(self.disk.names(self.data_dir))
        deleted = {name for name in names if name.endswith(DELETED)}
        for name in deleted:
            self.disk.remove_tree(self.data_dir / name)
        return names - deleted

    def suspect_aside(self) -> None:
        """The power was lost. Of what is set aside nobody can be told yet."""
        strays.suspect(self.disk, self.data_dir, self._unsynced.ids)

    def settle(self) -> None:
        """What the last stop left was told to whoever must know: a later start need not find it again. All that logs
        hold by now is on the device."""
        for name, index in self._begin_late:
            self._settle_beginning(name, index)
        for name, index in self.damaged:
            directory = self.data_dir / folder_name(name, index)
            held = self.disk.names(directory)
            if held == [recovery.DAMAGED]:
                self.disk.remove_tree(directory)
            elif recovery.DAMAGED in held:
                self.disk.remove(directory / recovery.DAMAGED)
                self.disk.sync_directory(directory)
        try:
            left = self._left_to_the_system()
            self._unsynced.replace(left if EVERY_TOPIC in left else left | self._noted_aside())
        except OSError as error:  # a full disk, say: what was noted stands, and what was not is when it is opened
            log.warning("what was synced is noted as unsynced still: %s", error)

    def _settle_beginning(self, name: str, index: int) -> None:
        """Should such a replica lead some day, the others would delete what it lacks. So it begins anew, if anyone else
        is known to have all of it; else it goes on, and what it lacks is gone."""
        topic, partition = self._image.topics.get(name), self._open.get((name, index))
        found = self._recovered.get(folder_name(name, index)) or partition
        if topic is None or found is None or found.topic_id != topic.topic_id:
            return
        state = topic.partitions[index]
        members = {*state.isr, *state.eligible}
        if members and self.node_id in state.replicas and self.node_id not in members:
            start = checkpoint.load(self.disk, found.log.directory / checkpoint.START_OFFSET)
            truncation.set_aside(found.log, start or 0)
            if partition is not None:
                partition.was_cut()
        elif members == {self.node_id}:
            found.log.save_start()

    def get(self, topic: str, index: int) -> Partition | None:
        return self._open.get((topic, index)) or self._open_partition(topic, index)

    def _open_partition(self, name: str, index: int) -> Partition | None:
        topic = self._image.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        state = topic.partitions[index]
        if self.node_id not in state.replicas or (topic.topic_id, index) in self._aside:
            return None
        store = self._open_log(topic, index)
        committed = None if len(state.replicas) == 1 else self._high_watermarks.of(topic.topic_id, index)
        # ZooKeeper may have gone back to an older epoch: see epochs_ahead.py.
        epoch = state.leader_epoch if committed is None else max(state.leader_epoch, store.epochs.latest)
        partition = Partition(
            name, topic.topic_id, index, store, self._promised(topic),
            epoch, self._turn, self._committer, topic.internal, committed,
        )  # fmt: skip
        self._open[(name, index)] = partition
        self._take_role(partition, state, opened=True)
        return partition

    def _open_log(self, topic: TopicState, index: int) -> Log:
        directory, settings = self.data_dir / folder_name(topic.name, index), self._log_settings(topic)
        found = self._take_found(topic, index)
        if found is None:
            return Log(self.disk, directory, settings, [], 0, 0)
        if isinstance(found, summary.LogSummary):
            return summary.open_log(self.disk, directory, settings, found)
        found.log.settings = settings  # they may have changed since
        return found.log

    def _take_found(self, topic: TopicState, index: int) -> Recovered | summary.LogSummary | None:
        """What the last stop has left of the partition. What it has left of another topic, which had the same name, is
        set aside."""
        folder = folder_name(topic.name, index)
        recovered, known = self._recovered.pop(folder, None), self._summaries.pop(folder, None)
        found = recovered or known
        if found is None or found.topic_id == topic.topic_id:
            return found
        names = set(self.disk.names(self.data_dir))
        if folder in names:
            self._set_aside(folder, found.topic_id.hex(), names)
        return None

    def _take_role(self, partition: Partition, state: PartitionState, *, opened: bool = False) -> None:
        """As the leader of an epoch, or not."""
        if state.leader_epoch < partition.leader_epoch:  # roles do not go back
            if opened:
                partition.follow(partition.leader_epoch)
            return
        may_commit = commits(state, partition.settings.min_insync_replicas)
        min_insync = insync_needed(state, partition.settings.min_insync_replicas)
        now_ms = self._turn.steady_ms()
        if state.leader != self.node_id:
            if partition.leads or partition.leader_epoch != state.leader_epoch:
                partition.follow(state.leader_epoch)
                facts = {"partition": partition.name, "leader": state.leader, "epoch": state.leader_epoch}
                log.debug("follows", extra=facts)
        elif opened or not partition.leads or partition.leader_epoch != state.leader_epoch:
            in_sync = None
            if len(state.replicas) > 1:
                end = partition.log.next_offset
                in_sync = InSyncReplicas(self.node_id, state.replicas, state.isr, min_insync, may_commit, end, now_ms)
            partition.lead(state.leader_epoch, in_sync)
            if in_sync is not None:
                log.debug("leads", extra={"partition": partition.name, "epoch": state.leader_epoch, "isr": state.isr})
        elif partition.in_sync is None and len(state.replicas) > 1:
            end = partition.log.next_offset
            partition.share(
                InSyncReplicas(self.node_id, state.replicas, state.isr, min_insync, may_commit, end, now_ms)
            )
        elif partition.in_sync is not None:
            partition.in_sync.update(state.replicas, state.isr, min_insync, may_commit, now_ms)
            partition.advance_in_sync()
            partition.wake_followers()  # one that was put out may have caught up meanwhile

    def opened(self) -> Iterator[Partition]:
        return iter(list(self._open.values()))

    def all(self, *, compacted: bool = False) -> Iterator[Partition]:
        """Also those that nobody has asked for yet. The topics may change while they are walked."""
        for name, topic in list(self._image.topics.items()):
            if compacted and "compact" not in self._effective(topic)["cleanup.policy"]:
                continue
            for index in range(len(topic.partitions)):
                partition = self.get(name, index)
                if partition is not None:
                    yield partition

    # ---- settings

    def _effective(self, topic: TopicState) -> Mapping[str, Any]:
        return effective_topic_settings(topic.config, self._settings)

    def _log_settings(self, topic: TopicState) -> LogSettings:
        value = self._effective(topic)
        policy = value["cleanup.policy"]
        return LogSettings(
            segment_bytes=value["segment.bytes"],
            segment_ms=value["segment.ms"],
            index_interval_bytes=value["index.interval.bytes"],
            retention_ms=value["retention.ms"],
            retention_bytes=value["retention.bytes"],
            compact="compact" in policy,
            delete="delete" in policy,
            delete_retention_ms=value["delete.retention.ms"],
            min_compaction_lag_ms=value["min.compaction.lag.ms"],
            max_compaction_lag_ms=value["max.compaction.lag.ms"],
            min_cleanable_dirty_ratio=value["min.cleanable.dirty.ratio"],
            file_delete_delay_ms=value["file.delete.delay.ms"],
            producer_expiration_ms=self._settings.get("producer.id.expiration.ms"),
            retention_hold_group=value["retention.hold.group"],
            retention_hold_max_bytes=value["retention.hold.max.bytes"],
        )

    def _partition_settings(self, topic: TopicState) -> PartitionSettings:
        value = self._effective(topic)
        codec = value["compression.type"]
        compression = {"producer": None, "uncompressed": 0}.get(codec, -1)
        if compression == -1:
            compression = int(Compression[codec.upper()])
        flush = Flush(value["flush"])
        if flush is Flush.OS and min(value["flush.ms"], value["flush.messages"]) < NEVER:
            flush = Flush.INTERVAL  # Kafka's own settings ask for it
        return PartitionSettings(
            flush=flush,
            flush_ms=value["flush.ms"] if value["flush.ms"] < NEVER else FLUSH_INTERVAL_MS,
            flush_messages=value["flush.messages"],
            max_message_bytes=NEVER if topic.internal else value["max.message.bytes"],
            log_append_time=value["message.timestamp.type"] == "LogAppendTime",
            timestamp_before_max_ms=value["message.timestamp.before.max.ms"],
            timestamp_after_max_ms=value["message.timestamp.after.max.ms"],
            compression=compression,
            compression_level=value.get(f"compression.{codec}.level"),
            require_keys="compact" in value["cleanup.policy"] and not topic.internal,
            validate_records=value["record.validation"] == "full",
            min_insync_replicas=value["min.insync.replicas"],
        )

    def _promised(self, topic: TopicState) -> PartitionSettings:
        """The settings, once it is on the device that the topic may lose something with the power."""
        settings = self._partition_settings(topic)
        if settings.flush is Flush.COMMIT or is_noted(topic.topic_id, self._unsynced.ids):
            return settings
        left = self._left_to_the_system()
        try:
            self._unsynced.replace(left if EVERY_TOPIC in left else {*self._unsynced.ids, *left, topic.topic_id})
        except OSError as error:
            log.error("synced at every commit: what is not could not be noted: %s", error, extra={"topic": topic.name})
            return replace(settings, flush=Flush.COMMIT)
        return settings

    def _left_to_the_system(self) -> set[bytes]:
        """The ids of all topics that do not have `flush=commit`, so that the first of many notes them all. Where it is
        not the default they are too many to be noted one by one."""
        topics, commit = self._image.topics.values(), Flush.COMMIT.value
        if self._settings.topic_default("flush") != commit:
            return {EVERY_TOPIC}
        return {topic.topic_id for topic in topics if self._effective(topic)["flush"] != commit}

    def _noted_aside(self) -> set[bytes]:
        """What is aside is not synced by the way."""
        return {topic_id for topic_id, _ in self._aside if is_noted(topic_id, self._unsynced.ids)}

    @property
    def unsynced_topics(self) -> frozenset[bytes]:
        """Of the topics that may have lost something if the power was lost: see `is_noted`."""
        return self._unsynced.ids

    def forget_synced(self) -> None:
        """Topics that came to have `flush=commit` and are on the device by now; those that are gone."""
        if self._unsynced.ids:
            dirty = {partition.topic_id for partition in self._open.values() if partition.unsynced}
            kept = dirty | self._left_to_the_system() | self._noted_aside()
            if EVERY_TOPIC in kept:
                kept = {EVERY_TOPIC}
            elif EVERY_TOPIC not in self._unsynced.ids:
                kept &= self._unsynced.ids
            self._unsynced.replace(kept)

    def settings_changed(self) -> None:
        """The broker's defaults changed: open partitions follow."""
        for topic in self._image.topics.values():
            self.topic_changed(topic, topic)

    # ---- what the catalog tells

    def topic_created(self, topic: TopicState) -> None:
        """A partition is opened when it is first asked for."""
        if any((topic.topic_id, index) in self._aside for index in range(len(topic.partitions))):
            log.error(
                "the cluster has a topic again that was set aside: start this broker again, and it is taken back",
                extra={"topic": topic.name},
            )

    def topic_changed(self, before: TopicState, after: TopicState) -> None:
        settings = None
        for index, state in enumerate(after.partitions):
            partition = self._open.get((after.name, index))
            if partition is None or self.node_id not in state.replicas:
                continue
            if settings is None:
                settings = self._promised(after), self._log_settings(after)
            if partition.settings != settings[0]:
                partition.use_settings(settings[0])
            partition.log.settings = settings[1]
            was = before.partitions[index] if index < len(before.partitions) else None
            if was != state or partition.settings is settings[0]:
                self._take_role(partition, state)
        here = [index for index, state in enumerate(before.partitions) if self.node_id in state.replicas]
        self._delete(after, [index for index in here if self.node_id not in after.partitions[index].replicas])

    def topic_deleted(self, topic: TopicState) -> None:
        self._delete(topic, range(len(topic.partitions)))

    def topic_lost(self, topic: TopicState) -> None:
        """Nobody may ask for it, and another topic may take the name. Nothing is removed."""
        for index in range(len(topic.partitions)):
            if (topic.topic_id, index) in self._aside:
                continue
            target = self._own_place_aside(topic.topic_id.hex(), index)
            aside = self._move(
                self.data_dir / folder_name(topic.name, index), target, self._close(topic, index, target)
            )
            if aside is not None:
                self._aside[(topic.topic_id, index)] = aside

    def _own_place_aside(self, topic_id: str, index: int) -> Path:
        """Free for the partition's own folder, which is the one that is taken back: a copy gives the name up."""
        name = strays.own_name(topic_id, index)
        if self.disk.names(self.data_dir / name):
            other = strays.free_name(name.removesuffix(STRAY), topic_id, set(self.disk.names(self.data_dir)))
            self.disk.rename(self.data_dir / name, self.data_dir / other)
        return self.data_dir / name

    def lost_topic_deleted(self, topic: TopicState) -> None:
        """Another topic may have its name by now: only what was set aside goes."""
        self._delete_aside(topic, range(len(topic.partitions)))

    def _delete_aside(self, topic: TopicState, indexes: Iterable[int]) -> None:
        doomed = []
        for index in indexes:
            aside = self._aside.pop((topic.topic_id, index), None)
            self._high_watermarks.forget(topic.topic_id, index)
            target = self._way_out(topic.topic_id.hex(), index)
            if aside is not None and (gone := self._move(aside.path, target, aside.reads)):
                doomed.append(gone)
        self._leave(topic, doomed)

    def _delete(self, topic: TopicState, indexes: Iterable[int]) -> None:
        doomed = []
        for index in indexes:
            name = folder_name(topic.name, index)
            self._high_watermarks.forget(topic.topic_id, index)
            target = self._way_out(topic.topic_id.hex(), index)
            if gone := self._move(self.data_dir / name, target, self._close(topic, index, target)):
                doomed.append(gone)
        self._leave(topic, doomed)
        self._delete_aside(topic, indexes)

    def _way_out(self, topic_id: str, index: int | str) -> Path:
        """A former replica of the same partition may be on it still."""
        names = (f"{topic_id}-{index}{number}{DELETED}" for number in strays.numbers())
        return next(path for path in map(self.data_dir.joinpath, names) if not self.disk.names(path))

    def _leave(self, topic: TopicState, doomed: list[Folder]) -> None:
        if doomed:
            self._leaving.add(doomed, self._effective(topic)["file.delete.delay.ms"] / 1000)

    def _close(self, topic: TopicState, index: int, target: Path) -> Sequence[weakref.ref[File]]:
        """The partition, if it is open. What may still be read of it."""
        self._take_found(topic, index)
        partition = self._open.pop((topic.name, index), None)
        return partition.delete(target) if partition is not None else ()

    def _move(self, path: Path, target: Path, reads: Sequence[weakref.ref[File]]) -> Folder | None:
        try:
            self.disk.rename(path, target)
        except FileNotFoundError:
            return None
        return Folder(target, reads)

    def sizes(self) -> dict[tuple[str, int], int]:
        sizes = {}
        for topic in self._image.topics.values():
            for index, state in enumerate(topic.partitions):
                if self.node_id not in state.replicas:
                    continue
                partition = self._open.get((topic.name, index))
                name = folder_name(topic.name, index)
                known = self._summaries.get(name) or self._recovered.get(name)
                held = known.size if known and known.topic_id == topic.topic_id else 0
                sizes[(topic.name, index)] = partition.log.size if partition else held
        return sizes

    # ---- the end

    def high_watermarks_to_save(self) -> Callable[[], None] | None:
        """Now and then, in a thread, and at a stop: without them a leader would not know what it may show until others
        have come."""
        offsets = {
            (partition.topic_id, partition.index): partition.high_watermark
            for partition in self._open.values()
            if not partition.leads or partition.in_sync is not None
        }
        return self._high_watermarks.changed(offsets)

    def close(self, *, vouch: bool = True) -> None:
        """Everything on the device, and the summary that lets the next start trust it, unless it must not."""
        try:
            if vouch and (save := self.high_watermarks_to_save()):  # else what they say of a lost log stays
                save()
        except OSError as error:
            log.error("high watermarks not saved: %s", error)
        logs = {folder_name(*key): partition.log for key, partition in self._open.items() if partition.error is None}
        failed = [partition.name for partition in self._open.values() if partition.error is not None]
        try:
            with ThreadPoolExecutor(self._folders_at_once) as threads:
                list(threads.map(lambda p: p.syncs.sync_rest(), (p for p in self._open.values() if p.error is None)))
                list(threads.map(summary.close_cleanly, logs.values()))
                list(threads.map(self._sync_aside, self._aside.items()))
            failed += [name for name, store in logs.items() if any(s.is_elsewhere for s in store.segments)]
            if vouch and not failed:
                summary.save(self.disk, self.data_dir, self._summaries_of(logs))
        except OSError as error:
            log.error("no clean stop, the next start recovers: %s", error)
        if failed:
            log.error("no clean stop, the next start recovers: the disk failed", extra={"partitions": failed})
        for partition in self._open.values():
            for segment in partition.log.segments:
                segment.close()

    def _sync_aside(self, aside: tuple[tuple[bytes, int], Folder]) -> None:
        (topic_id, _), folder = aside
        if is_noted(topic_id, self._unsynced.ids):
            strays.sync(self.disk, folder.path)

    def _summaries_of(self, logs: Mapping[str, Log]) -> dict[str, summary.LogSummary]:
        """Of these, which were opened, and of all that were not."""
        ids = {folder_name(*key): partition.topic_id for key, partition in self._open.items()}
        recovered = {name: summary.summarize(each.log, each.topic_id) for name, each in self._recovered.items()}
        opened = {name: summary.summarize(store, ids[name]) for name, store in logs.items()}
        return {**self._summaries, **recovered, **opened}


def folder_name(topic: str, index: int) -> str:
    return f"{topic}-{index}"
