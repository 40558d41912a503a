"""Every setting of a broker, under Kafka's name where Kafka has one.

The defaults of topics (`log.*` and the like) are derived from the topic settings they stand in for, so that a default
and its rule are written once.
"""

from __future__ import annotations

from penstock.cluster.setting_types import (
    INT_MAX,
    LONG_MAX,
    Check,
    Setting,
    SettingType,
    Value,
    assignors,
    at_least,
    between,
    one_of,
    with_classic,
)
from penstock.cluster.topic_settings import DAY_MS, MEBIBYTE, MINUTE_MS, SYNONYMS, TOPIC_SETTINGS

BOOLEAN, STRING, INT, SHORT = SettingType.BOOLEAN, SettingType.STRING, SettingType.INT, SettingType.SHORT
LONG, LIST = SettingType.LONG, SettingType.LIST

REQUEST_BYTES_MAX = 128 * MEBIBYTE  # what one request brings must fit into an answer to followers

BROKER_SETTINGS: dict[str, Setting] = {}


def _broker(
    name: str, kind: SettingType, default: Value, check: Check | None, documentation: str, *, dynamic: bool = False
) -> None:
    BROKER_SETTINGS[name] = Setting(name, kind, default, documentation, check, dynamic=dynamic)


# fmt: off
# ---- the process
_broker("node.id", INT, 1, at_least(0), "The number of this broker in its cluster. broker.id is another name for it.")
_broker("broker.id", INT, None, at_least(0), "Another name for node.id.")
_broker("listen", STRING, "127.0.0.1:9092", None, "HOST:PORT on which connections are accepted.")
_broker("advertised", STRING, None, None, "HOST:PORT that clients are told to connect to; as `listen` if not set.")
_broker("listeners", LIST, (), None,
        "NAME://HOST:PORT of each listener, where one is not enough; `listen` is not used then.")
_broker("advertised.listeners", LIST, (), None,
        "NAME://HOST:PORT that clients of a listener are told to connect to, where it is not where it listens.")
_broker("inter.broker.listener.name", STRING, None, None,
        "The listener on which brokers reach each other; the first one if not set.")
_broker("data", STRING, "penstock-data", None, "The folder that holds everything the broker keeps.")
_broker("broker.rack", STRING, None, None, "The rack of this broker. Replicas are spread over racks.")
_broker("log.level", STRING, "info", one_of("debug", "info", "warning", "error"), "How much the broker logs.")
_broker("log.format", STRING, "text", one_of("text", "json"), "How the broker's own log lines are written.")

# ---- bounds on what clients may ask for
_broker("max.connections", INT, INT_MAX, at_least(0), "How many connections the broker holds at once.", dynamic=True)
_broker("connections.max.idle.ms", LONG, 10 * MINUTE_MS, None,
        "A connection that has said nothing for this long is closed.")
_broker("socket.request.max.bytes", INT, 32 * MEBIBYTE, between(1, REQUEST_BYTES_MAX),
        "The largest request that is read; a larger one ends its connection, whatever max.message.bytes a topic has.")
_broker("queued.max.bytes", LONG, 64 * MEBIBYTE, at_least(1),
        "How many bytes of requests the whole broker holds at once; beyond it, connections wait to be read.")
_broker("fetch.max.bytes", INT, 55 * MEBIBYTE, at_least(1024), "The most bytes one fetch is answered with.")
_broker("max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0), "How many fetch sessions are remembered.")
_broker("max.request.partition.size.limit", INT, 2000, at_least(1),
        "The most partitions one DescribeTopicPartitions is answered with.")

_broker("idle.poll.us", INT, None, between(0, 10_000),
        "For how many microseconds after each request the broker looks for the next one before it sleeps. If not set: "
        "50 where it has two cores or more, else 0. In a cluster it lets others have the core between two looks.")

# ---- topics
_broker("num.partitions", INT, 1, at_least(1), "How many partitions a topic gets that asks for no number.")
# Kafka's is 1, which loses a topic with its broker.
_broker("default.replication.factor", INT, 3, at_least(1),
        "How many replicas a topic gets that asks for no number; as many as there are brokers if there are fewer.")
_broker("auto.create.topics.enable", BOOLEAN, True, None, "Whether asking for a topic that does not exist makes it.")
_broker("delete.topic.enable", BOOLEAN, True, None, "Whether topics may be deleted.")

# ---- the cluster
_broker("zookeeper.connect", STRING, None, None,
        "HOST:PORT,HOST:PORT/CHROOT of the ZooKeeper that coordinates the cluster; without it a broker stands alone.")
_broker("zookeeper.session.timeout.ms", INT, 2_000, at_least(500),
        "A broker that ZooKeeper has not heard of for so long is dead, and others lead what it led.")
_broker("zookeeper.connection.timeout.ms", INT, 30_000, at_least(1),
        "How long a broker that starts waits for ZooKeeper.")
_broker("replica.lag.time.max.ms", LONG, 10_000, at_least(100),
        "A follower that has not had all of its leader's log for so long is not in sync.")
_broker("replica.fetch.wait.max.ms", INT, 500, at_least(1), "How long a leader lets a follower wait for something new.")
_broker("leader.replication.throttled.rate", LONG, LONG_MAX, at_least(0),
        "Bytes a second of throttled partitions that this broker sends to followers which are not in sync. The topic "
        "setting leader.replication.throttled.replicas says which partitions those are.", dynamic=True)
_broker("follower.replication.throttled.rate", LONG, LONG_MAX, at_least(0),
        "Bytes a second of throttled partitions that this broker fetches where it is not in sync. The topic setting "
        "follower.replication.throttled.replicas says which partitions those are.", dynamic=True)
_broker("auto.leader.rebalance.enable", BOOLEAN, True, None,
        "Whether partitions return to their preferred leaders by themselves.", dynamic=True)
_broker("leader.imbalance.check.interval.seconds", LONG, 30, at_least(1), "How often that is looked at.")
_broker("controlled.shutdown.enable", BOOLEAN, True, None,
        "Whether a broker that stops moves its leaderships to others first.")
_broker("controlled.shutdown.timeout.ms", LONG, 15_000, at_least(0), "How long it waits for that.")

# ---- upkeep of logs
_broker("log.retention.check.interval.ms", LONG, 5 * MINUTE_MS, at_least(1),
        "How often logs are checked for segments past their retention.")
_broker("log.cleaner.enable", BOOLEAN, True, None, "Whether compacted topics are compacted.")
_broker("log.cleaner.backoff.ms", LONG, 15_000, at_least(0),
        "How long compaction rests when there was nothing to do.", dynamic=True)
_broker("num.recovery.threads.per.data.dir", INT, 2, at_least(1), "How many logs are recovered at once at the start.",
        dynamic=True)

# ---- transactions
_broker("transaction.state.log.num.partitions", INT, 50, at_least(1),
        "Partitions of __transaction_state, once it is created.")
_broker("transaction.state.log.replication.factor", SHORT, 3, at_least(1),
        "Replicas of __transaction_state; as many as there are brokers if there are fewer.")
_broker("transaction.state.log.segment.bytes", INT, 100 * MEBIBYTE, at_least(MEBIBYTE),
        "segment.bytes of __transaction_state.")
_broker("transaction.max.timeout.ms", INT, 15 * MINUTE_MS, at_least(1),
        "The longest time that a producer may ask for until its transaction is aborted.")
_broker("transaction.two.phase.commit.enable", BOOLEAN, True, None,
        "Whether producers may ask for transactions that two phases commit, which are not aborted by time (KIP-939)."
        " Kafka's default is false, and an ACL says who may; as long as there are none here, it is true.")
_broker("transactional.id.expiration.ms", INT, 7 * 24 * 60 * MINUTE_MS, at_least(1),
        "A transactional id that was not used for so long is forgotten.")
_broker("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 60 * MINUTE_MS, at_least(1),
        "How often transactional ids are checked for their expiration.")
_broker("transaction.partition.verification.enable", BOOLEAN, True, None,
        "Whether the coordinator is asked before a batch of an older client begins a transaction in a partition.")

# ---- groups
_broker("offsets.topic.num.partitions", INT, 50, at_least(1), "Partitions of __consumer_offsets, once it is created.")
_broker("offsets.topic.replication.factor", SHORT, 3, at_least(1),
        "Replicas of __consumer_offsets; as many as there are brokers if there are fewer.")
_broker("offsets.topic.segment.bytes", INT, 100 * MEBIBYTE, at_least(MEBIBYTE), "segment.bytes of __consumer_offsets.")
_broker("offsets.retention.minutes", INT, 7 * 24 * 60, at_least(1),
        "How long the offsets of an empty group, or of a topic it no longer reads, are kept.")
_broker("offsets.retention.check.interval.ms", LONG, 10 * MINUTE_MS, at_least(1),
        "How often offsets are checked for their retention.")
_broker("offset.metadata.max.bytes", INT, 4096, at_least(0), "The longest note a commit may carry.")
_broker("group.min.session.timeout.ms", INT, 6_000, at_least(1), "The shortest session a member may ask for.")
_broker("group.max.session.timeout.ms", INT, 30 * MINUTE_MS, at_least(1), "The longest session a member may ask for.")
# Kafka waits 3 s. A start that is quick is worth more than a rebalance saved.
_broker("group.initial.rebalance.delay.ms", INT, 0, at_least(0),
        "How long the first rebalance of an empty group waits for more members.")
_broker("group.max.size", INT, INT_MAX, at_least(1), "The most members a group may have.")
_broker("group.coordinator.rebalance.protocols", LIST, ("classic", "consumer"), with_classic,
        "The protocols that groups may use. 'classic' always can be; 'consumer' is that of KIP-848.")

# ---- groups of the consumer protocol
_broker("group.consumer.session.timeout.ms", INT, 45_000, at_least(1),
        "A member of a consumer group that was not heard of for this long has left. A group may have its own.")
_broker("group.consumer.min.session.timeout.ms", INT, 45_000, at_least(1), "The shortest session a group may have.")
_broker("group.consumer.max.session.timeout.ms", INT, 60_000, at_least(1), "The longest session a group may have.")
_broker("group.consumer.heartbeat.interval.ms", INT, 5_000, at_least(1),
        "How often members of consumer groups are told to make themselves heard. A group may have its own.")
_broker("group.consumer.min.heartbeat.interval.ms", INT, 5_000, at_least(1), "The shortest interval a group may have.")
_broker("group.consumer.max.heartbeat.interval.ms", INT, 15_000, at_least(1), "The longest interval a group may have.")
_broker("group.consumer.max.size", INT, INT_MAX, at_least(1), "The most members a consumer group may have.")
_broker("group.consumer.assignors", LIST, ("uniform", "range"), assignors,
        "How partitions may be spread over the members of a consumer group; the first is for those who do not ask.")
_broker("group.consumer.migration.policy", STRING, "bidirectional",
        one_of("disabled", "upgrade", "downgrade", "bidirectional"),
        "Which way a group with members may go: 'upgrade' is from the classic protocol to the consumer protocol.")

# ---- producers
_broker("producer.id.expiration.ms", INT, DAY_MS, at_least(1),
        "How long a partition remembers an idempotent producer that has gone quiet.", dynamic=True)

# ---- what tools for Kafka set on a running broker, and this one has nothing of
_broker("background.threads", INT, 10, at_least(1), "There are no such threads.", dynamic=True)
_broker("num.io.threads", INT, 8, at_least(1), "One event loop answers all requests.", dynamic=True)
_broker("num.network.threads", INT, 3, at_least(1), "One event loop reads all connections.", dynamic=True)
_broker("num.replica.fetchers", INT, 1, at_least(1), "A follower has one connection to each leader.", dynamic=True)
_broker("log.cleaner.threads", INT, 1, at_least(0), "One worker process compacts.", dynamic=True)
_broker("log.cleaner.dedupe.buffer.size", LONG, 128 * MEBIBYTE, None, "Compaction takes what it needs.", dynamic=True)
_broker("log.cleaner.io.buffer.size", INT, 512 * 1024, at_least(0), "Compaction takes what it needs.", dynamic=True)
_broker("max.connections.per.ip", INT, INT_MAX, at_least(0), "Only max.connections is a limit.", dynamic=True)
_broker("max.connections.per.ip.overrides", STRING, "", None, "Only max.connections is a limit.", dynamic=True)
_broker("max.connection.creation.rate", INT, INT_MAX, at_least(0), "There is no limit.", dynamic=True)
_broker("sasl.kerberos.min.time.before.relogin", LONG, 60_000, None, "There is no SASL.", dynamic=True)

# ---- defaults of topics
_broker("log.retention.minutes", INT, None, None, "retention.ms of topics in minutes; log.retention.ms goes before it.")
_broker("log.retention.hours", INT, 14 * 24, None, "retention.ms of topics in hours; minutes and ms go before it.")
_broker("log.roll.hours", INT, 7 * 24, at_least(1), "segment.ms of topics in hours; log.roll.ms goes before it.")
_broker("log.roll.jitter.hours", INT, 0, between(0, 24 * 365),
        "segment.jitter.ms of topics in hours; log.roll.jitter.ms goes before it.")
_broker("log.flush.scheduler.interval.ms", LONG, LONG_MAX, at_least(0),
        "flush.ms of topics where log.flush.interval.ms is not set.")
# fmt: on


def _define_defaults_of_topics() -> None:
    """The first synonym of each topic setting, which like in Kafka is the one that may change at runtime.

    Where another synonym holds the default in another unit, the first has none of its own.
    """
    for name, synonyms in SYNONYMS.items():
        topic = TOPIC_SETTINGS[name]
        default = topic.default if len(synonyms) == 1 else None
        documentation = f"{name} of topics that do not set it. {topic.documentation}"
        _broker(synonyms[0].name, topic.type, default, topic.check, documentation, dynamic=True)


_define_defaults_of_topics()

# Names that mean the same setting, in the order in which they count.
ALTERNATIVES: dict[str, tuple[str, ...]] = {
    synonym.name: tuple(s.name for s in synonyms) for synonyms in SYNONYMS.values() for synonym in synonyms
}
