"""Every setting a topic may carry, and which of the broker's settings stands in where the topic does not carry it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.cluster.setting_types import (
    LONG_MAX,
    Check,
    Setting,
    SettingError,
    SettingType,
    Value,
    at_least,
    between,
    group_id,
    gzip_level,
    one_of,
    only,
    subset_of,
    throttled_replicas,
)

BOOLEAN, STRING, INT = SettingType.BOOLEAN, SettingType.STRING, SettingType.INT
LONG, DOUBLE, LIST = SettingType.LONG, SettingType.DOUBLE, SettingType.LIST

MINUTE_MS = 60 * 1000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
MEBIBYTE = 1024 * 1024

NO_TIERS = "Tiered Storage functionality is disabled in the broker. Only the default is accepted"

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
FLUSH_MODES = ("commit", "interval", "os")
VALIDATION_MODES = ("header", "full")

TOPIC_SETTINGS: dict[str, Setting] = {}


def _topic(name: str, kind: SettingType, default: Value, check: Check | None, documentation: str) -> None:
    TOPIC_SETTINGS[name] = Setting(name, kind, default, documentation, check, internal=name.startswith("internal."))


# fmt: off
_topic("cleanup.policy", LIST, ("delete",), subset_of("compact", "delete"),
       "What happens to old segments: 'delete' drops them, 'compact' keeps the newest record of each key. "
       "Both may be given; none keeps everything.")
_topic("compression.gzip.level", INT, -1, gzip_level, "The level at which compression.type=gzip compresses.")
_topic("compression.lz4.level", INT, 9, between(1, 17), "The level at which compression.type=lz4 compresses.")
_topic("compression.type", STRING, "producer", one_of(*COMPRESSION_TYPES),
       "How batches are compressed in the log; 'producer' keeps what the producer chose.")
_topic("compression.zstd.level", INT, 3, between(-131072, 22), "The level at which compression.type=zstd compresses.")
_topic("delete.retention.ms", LONG, DAY_MS, at_least(0),
       "How long a compacted topic keeps the markers of deleted keys, which is how long a full read may take.")
_topic("file.delete.delay.ms", LONG, MINUTE_MS, at_least(0),
       "How long a removed segment's file stays on disk, for reads that are under way. What a deleted topic leaves "
       "goes sooner where nobody reads it and other data is written, and up to five times as late where there "
       "is plenty of room.")
_topic("flush", STRING, "commit", one_of(*FLUSH_MODES),
       "When data is forced to disk: 'commit' before acks=all is answered, 'interval' every flush.ms, "
       "'os' when the operating system does it.")
_topic("flush.messages", LONG, LONG_MAX, at_least(1), "Force data to disk after this many records.")
_topic("flush.ms", LONG, LONG_MAX, at_least(0), "Force data to disk when it is this old.")
_topic("follower.replication.throttled.replicas", LIST, (), throttled_replicas,
       "Replicas whose fetches as followers are throttled: partition:broker pairs, or * for all.")
_topic("index.interval.bytes", INT, 4096, at_least(0), "How many bytes of the log go by between two index entries.")
_topic("internal.segment.bytes", INT, None, at_least(1), "Overrides segment.bytes without its lower bound, for tests.")
_topic("leader.replication.throttled.replicas", LIST, (), throttled_replicas,
       "Replicas whose reads from the leader are throttled: partition:broker pairs, or * for all.")
_topic("local.retention.bytes", LONG, -2, only(-2, NO_TIERS), "There is no tiered storage: always retention.bytes.")
_topic("local.retention.ms", LONG, -2, only(-2, NO_TIERS), "There is no tiered storage: always retention.ms.")
_topic("max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), "The longest a record may wait to be compacted.")
_topic("max.message.bytes", INT, MEBIBYTE + 12, at_least(0), "The largest record batch, as compressed, that is taken.")
_topic("message.timestamp.after.max.ms", LONG, HOUR_MS, at_least(0),
       "How far a record's timestamp may lie after the broker's clock, where timestamps are the producer's.")
_topic("message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0),
       "How far a record's timestamp may lie before the broker's clock, where timestamps are the producer's.")
_topic("message.timestamp.type", STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"),
       "Whose timestamp a record carries: the producer's (CreateTime) or the broker's (LogAppendTime).")
_topic("min.cleanable.dirty.ratio", DOUBLE, 0.5, between(0, 1),
       "The share of the log that must be uncompacted before it is compacted again.")
_topic("min.compaction.lag.ms", LONG, 0, at_least(0), "The shortest time for which a record stays uncompacted.")
_topic("min.insync.replicas", INT, 1, at_least(1),
       "How many replicas must hold a write for acks=all to succeed; all of them, where a topic has fewer.")
_topic("preallocate", BOOLEAN, False, None, "Reserve a segment's space on disk when it is created.")
_topic("record.validation", STRING, "header", one_of(*VALIDATION_MODES),
       "How closely a batch is checked before it is appended: its header, its CRC and, unless it is compressed, how "
       "its records are laid out; or every record in it.")
_topic("remote.log.copy.disable", BOOLEAN, False, only(False, NO_TIERS), "There is no tiered storage.")
_topic("remote.log.delete.on.disable", BOOLEAN, False, only(False, NO_TIERS), "There is no tiered storage.")
_topic("remote.storage.enable", BOOLEAN, False, only(False, NO_TIERS), "There is no tiered storage.")
_topic("retention.bytes", LONG, -1, None, "The size at which a partition drops its oldest segments; -1 is no limit.")
_topic("retention.hold.group", STRING, "", group_id,
       "A consumer group that retention and compaction wait for: nothing goes that it has not committed, nothing at "
       "all before its first commit. Its offsets never expire. DeleteRecords and deleting the topic do not wait.")
_topic("retention.hold.max.bytes", LONG, -1, at_least(-1),
       "The most that a partition keeps for retention.hold.group alone. Beyond it the oldest segments go, committed or "
       "not, and the log and the status say so. With -1, no limit, a group that stays away can fill the disk.")
_topic("retention.ms", LONG, 14 * DAY_MS, at_least(-1), "The age at which segments are dropped; -1 is no limit.")
_topic("segment.bytes", INT, 1024 * MEBIBYTE, at_least(MEBIBYTE), "The size at which the log starts a new segment.")
_topic("segment.index.bytes", INT, 10 * MEBIBYTE, at_least(4), "The largest an index of a segment may grow.")
_topic("segment.jitter.ms", LONG, 0, at_least(0), "The most by which segment.ms is shortened at random.")
_topic("segment.ms", LONG, 7 * DAY_MS, at_least(1), "The age at which the log starts a new segment.")
_topic("unclean.leader.election.enable", BOOLEAN, False, None,
       "Whether a replica that is not in sync may lead when no other can. It loses data.")
# fmt: on


class Synonym(NamedTuple):
    """A broker setting that gives a topic setting its default; `unit_ms` is how many milliseconds one of it is."""

    name: str
    unit_ms: int = 1


# In Kafka's order: of several that are set at the same level, the first counts.
SYNONYMS: dict[str, tuple[Synonym, ...]] = {
    "cleanup.policy": (Synonym("log.cleanup.policy"),),
    "compression.gzip.level": (Synonym("compression.gzip.level"),),
    "compression.lz4.level": (Synonym("compression.lz4.level"),),
    "compression.type": (Synonym("compression.type"),),
    "compression.zstd.level": (Synonym("compression.zstd.level"),),
    "delete.retention.ms": (Synonym("log.cleaner.delete.retention.ms"),),
    "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms"),),
    "flush": (Synonym("flush"),),
    "flush.messages": (Synonym("log.flush.interval.messages"),),
    "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    "index.interval.bytes": (Synonym("log.index.interval.bytes"),),
    "max.compaction.lag.ms": (Synonym("log.cleaner.max.compaction.lag.ms"),),
    "max.message.bytes": (Synonym("message.max.bytes"),),
    "message.timestamp.after.max.ms": (Synonym("log.message.timestamp.after.max.ms"),),
    "message.timestamp.before.max.ms": (Synonym("log.message.timestamp.before.max.ms"),),
    "message.timestamp.type": (Synonym("log.message.timestamp.type"),),
    "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
    "min.compaction.lag.ms": (Synonym("log.cleaner.min.compaction.lag.ms"),),
    "min.insync.replicas": (Synonym("min.insync.replicas"),),
    "preallocate": (Synonym("log.preallocate"),),
    "record.validation": (Synonym("record.validation"),),
    "retention.bytes": (Synonym("log.retention.bytes"),),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", MINUTE_MS),
        Synonym("log.retention.hours", HOUR_MS),
    ),
    "segment.bytes": (Synonym("log.segment.bytes"),),
    "segment.index.bytes": (Synonym("log.index.size.max.bytes"),),
    "segment.jitter.ms": (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS)),
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS)),
    "unclean.leader.election.enable": (Synonym("unclean.leader.election.enable"),),
}

assert SYNONYMS.keys() <= TOPIC_SETTINGS.keys()


def parse_topic_config(config: Mapping[str, str]) -> dict[str, Value]:
    for name in config:
        if name not in TOPIC_SETTINGS:
            raise SettingError(f"Unknown topic config name: {name}")
    return {name: TOPIC_SETTINGS[name].parse(text) for name, text in config.items()}
