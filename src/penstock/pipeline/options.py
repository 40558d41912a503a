"""The options of `format("penstock")`, under the names of Spark's own connector to Kafka.

Names are compared without regard to case, as Spark does. An option that we do not have is refused by its name, not
passed over: a job that moves here must not lose a setting in silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from penstock.pipeline.brokers import TopicPartition
from penstock.pipeline.connection import Address, ClientSettings, Security
from penstock.pipeline.durations import seconds
from penstock.pipeline.problem import OptionError
from penstock.pipeline.sasl import MECHANISMS, Sasl
from penstock.protocol.compression import Compression

DEFAULT_PORT = 9092
USED_ONCE = "#usedonce"  # set by pushdown.py alone: a source that one place of one query has to itself
PLANNED = "#planned"  # likewise: what the DataFrame reads of which that place is one use
JAAS_ENTRY = re.compile(r'''(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"''')
JAAS_ESCAPE = re.compile(r"\\(.)")
OF_SPARK = frozenset({"path", "checkpointlocation", "queryname"})  # which Spark hands on to sources and sinks

OF_CLIENTS = frozenset(
    {
        "kafka.bootstrap.servers",
        "kafka.client.id",
        "kafka.request.timeout.ms",
        "kafka.security.protocol",
        "kafka.ssl.truststore.location",
        "kafka.ssl.truststore.type",
        "kafka.ssl.keystore.location",
        "kafka.ssl.keystore.type",
        "kafka.ssl.key.password",
        "kafka.ssl.endpoint.identification.algorithm",
        "kafka.sasl.mechanism",
        "kafka.sasl.jaas.config",
        "kafka.sasl.username",
        "kafka.sasl.password",
    }
)
OF_READERS = frozenset(
    {
        "subscribe",
        "subscribepattern",
        "assign",
        "startingoffsets",
        "endingoffsets",
        "startingtimestamp",
        "endingtimestamp",
        "startingoffsetsbytimestamp",
        "endingoffsetsbytimestamp",
        "startingoffsetsbytimestampstrategy",
        "failondataloss",
        "maxoffsetspertrigger",
        "minoffsetspertrigger",
        "maxtriggerdelay",
        "availablenowoffsets",
        "minpartitions",
        "maxrecordsperpartition",
        "includeheaders",
        "groupidprefix",
        "kafka.isolation.level",
        "kafka.group.id",
        "kafka.max.partition.fetch.bytes",
    }
)

OF_WRITERS = frozenset(
    {"topic", "delivery", "kafka.acks", "kafka.compression.type", "includeheaders", "batchid", "writeid"}
)

# What makes Kafka's own clients quicker or more patient, and changes no row. Taken, and without effect: tasks fetch and
# send as much as is good for Spark, and try again for as long as it may help.
HINTS = frozenset(
    {
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "kafkaconsumer.polltimeoutms",
        "kafka.batch.size",
        "kafka.buffer.memory",
        "kafka.connections.max.idle.ms",
        "kafka.default.api.timeout.ms",
        "kafka.delivery.timeout.ms",
        "kafka.fetch.max.bytes",
        "kafka.fetch.max.wait.ms",
        "kafka.fetch.min.bytes",
        "kafka.heartbeat.interval.ms",
        "kafka.linger.ms",
        "kafka.max.block.ms",
        "kafka.max.in.flight.requests.per.connection",
        "kafka.max.poll.interval.ms",
        "kafka.max.poll.records",
        "kafka.metadata.max.age.ms",
        "kafka.receive.buffer.bytes",
        "kafka.reconnect.backoff.max.ms",
        "kafka.reconnect.backoff.ms",
        "kafka.retries",
        "kafka.retry.backoff.max.ms",
        "kafka.retry.backoff.ms",
        "kafka.send.buffer.bytes",
        "kafka.session.timeout.ms",
    }
)

BINARY = "keys and values are columns of bytes: cast them, or decode them by Spark's functions"
REASONS = {
    "filterpushdown": "filters narrow what is read in sessions for which penstock.spark.push_filters was called",
    "kafka.auto.offset.reset": "startingOffsets says where a query begins, and failOnDataLoss what a gap means",
    "kafka.enable.auto.commit": "a query's offsets are in its checkpoint; report_progress commits them to a group",
    "kafka.enable.idempotence": "rows are always written so",
    "kafka.interceptor.classes": "no Java class runs here",
    "kafka.key.deserializer": BINARY,
    "kafka.key.serializer": BINARY,
    "kafka.max.request.size": "the topic's max.message.bytes is what counts",
    "kafka.partitioner.class": "a column 'partition' chooses, or the key as in every client",
    "kafka.transactional.id": "tasks write under names of their own, if delivery is exactly-once",
    "kafka.value.deserializer": BINARY,
    "kafka.value.serializer": BINARY,
}


class Options:
    """The options of one source or sink. Every one that is asked for must be among those that it takes."""

    def __init__(self, given: Mapping[str, str], known: frozenset[str], what: str) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        self._names = {name.lower(): name for name in given}
        self._what = what
        for name in sorted(self._given):
            if name not in known and name not in OF_SPARK and name not in HINTS:
                reason = f": {REASONS[name]}" if name in REASONS else ""
                raise OptionError(f"the penstock {what} has no option {self._names[name]!r}{reason}")

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._given

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def required(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise OptionError(f"option {name!r} of the penstock {self._what} is missing")
        return value

    def number(self, name: str, smallest: int = 0) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            raise OptionError(f"option {name!r} is {value!r}, which is no number") from None
        if number < smallest:
            raise OptionError(f"option {name!r} is {number}; it must be at least {smallest}")
        return number

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise OptionError(f"option {name!r} is {value!r}; it must be true or false")
        return value.lower() == "true"

    def choice(self, name: str, among: tuple[str, ...], default: str) -> str:
        value = (self.text(name) or default).lower()
        if value not in among:
            raise OptionError(f"option {name!r} is {value!r}; it must be one of {', '.join(among)}")
        return value

    def by_partition(self, name: str) -> dict[TopicPartition, int] | None:
        """Such as {"orders": {"0": 23, "1": -2}}."""
        value = self.text(name)
        if value is None:
            return None
        try:
            found = json.loads(value)
            return {
                TopicPartition(topic, int(partition)): int(number)
                for topic, partitions in found.items()
                for partition, number in partitions.items()
            }
        except (ValueError, OverflowError, AttributeError, TypeError):
            raise OptionError(
                f'option {name!r} is {value!r}; it must be like {{"topic": {{"0": 23, "1": -2}}}}'
            ) from None

    def client(self) -> ClientSettings:
        bootstrap = tuple(
            _address(each) for each in self.required("kafka.bootstrap.servers").split(",") if each.strip()
        )
        if not bootstrap:
            raise OptionError("option 'kafka.bootstrap.servers' names no broker")
        timeout_ms = self.number("kafka.request.timeout.ms", 1) or 30_000
        return ClientSettings(
            bootstrap=bootstrap,
            client_id=self.text("kafka.client.id") or "penstock-spark",
            request_timeout_s=timeout_ms / 1000,
            security=self._security(),
        )

    def _security(self) -> Security:
        among = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
        protocol = self.choice("kafka.security.protocol", among, "plaintext")
        for name in ("kafka.ssl.truststore.type", "kafka.ssl.keystore.type"):
            if (self.text(name) or "PEM").upper() != "PEM":
                raise OptionError(f"option {name!r} is {self.text(name)!r}; only PEM files are read")
        keystore = self.text("kafka.ssl.keystore.location")
        return Security(
            tls=protocol.endswith("ssl"),
            ca_file=self.text("kafka.ssl.truststore.location"),
            certificate_file=keystore,
            key_file=keystore,
            key_password=self.text("kafka.ssl.key.password"),
            check_host=self.text("kafka.ssl.endpoint.identification.algorithm") != "",
            sasl=self._sasl() if protocol.startswith("sasl") else None,
        )

    def _sasl(self) -> Sasl:
        mechanism = self.required("kafka.sasl.mechanism").upper()
        if mechanism not in MECHANISMS:
            among = ", ".join(MECHANISMS)
            raise OptionError(f"option 'kafka.sasl.mechanism' is {mechanism!r}; it must be one of {among}")
        if "kafka.sasl.jaas.config" not in self:
            return Sasl(mechanism, self.required("kafka.sasl.username"), self.required("kafka.sasl.password"))
        found = dict(JAAS_ENTRY.findall(self.required("kafka.sasl.jaas.config")))
        if not {"username", "password"} <= found.keys():
            raise OptionError(
                "option 'kafka.sasl.jaas.config' must be like org.apache.kafka.common.security.plain.PlainLoginModule "
                'required username="…" password="…";'
            )
        return Sasl(mechanism, *(JAAS_ESCAPE.sub(r"\1", found[name]) for name in ("username", "password")))


def _address(text: str) -> Address:
    host, colon, port = text.strip().rpartition(":")
    if not colon:
        return text.strip(), DEFAULT_PORT
    if not port.isdigit():
        raise OptionError(f"option 'kafka.bootstrap.servers': {text.strip()!r} has no port")
    return host.strip("[]"), int(port)


# ---- what a reader is told


class Edge(Enum):
    EARLIEST = -2
    LATEST = -1


@dataclass(frozen=True, slots=True)
class Position:
    """Where to begin, or to end: at an edge of the log, at offsets, or at times."""

    edge: Edge | None = None
    offsets: dict[TopicPartition, int] | None = None  # -2 and -1 stand for the edges
    timestamp_ms: int | None = None
    timestamps_ms: dict[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class Subscription:
    """Exactly one of them."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    client: ClientSettings
    subscription: Subscription
    starting: Position
    ending: Position
    latest_if_too_late: bool  # what a starting time means that is later than every record
    fail_on_data_loss: bool
    offsets_max: int | None
    offsets_min: int | None
    delay_max_s: float
    partitions_min: int | None
    records_max: int | None  # in one partition of Spark's
    headers: bool
    committed: bool
    group: str | None  # for whoever reports progress
    fetch_bytes: int | None
    available: dict[TopicPartition, int] | None = None  # where a stream ends that takes what is there
    used_once: bool = False  # in one place of one query: then its filters may narrow what is read
    planned: str | None = None  # which it may not leave then: partitions of Spark's, pickled, in Base64


def read_options(given: Mapping[str, str], *, streaming: bool | None) -> ReadOptions:
    """Of a stream, of a batch, or of something that may become either."""
    options = Options(given, OF_CLIENTS | OF_READERS | {USED_ONCE, PLANNED}, "source")
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name in options:
                raise OptionError(f"option {name!r} is not for a stream, which has no end")
    starting = _position(options, "starting", Edge.LATEST if streaming else Edge.EARLIEST)
    ending = _position(options, "ending", Edge.LATEST)
    if streaming is False:
        _refuse_edge(starting, -1, "startingOffsets", "latest")
        _refuse_edge(ending, -2, "endingOffsets", "earliest")
    prefix = options.text("groupIdPrefix")
    return ReadOptions(
        client=options.client(),
        subscription=_subscription(options),
        starting=starting,
        ending=ending,
        latest_if_too_late=options.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
        == "latest",
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        offsets_max=options.number("maxOffsetsPerTrigger", 1),
        offsets_min=options.number("minOffsetsPerTrigger", 1),
        delay_max_s=_duration_s(options, "maxTriggerDelay", 15 * 60.0),
        partitions_min=options.number("minPartitions", 1),
        records_max=options.number("maxRecordsPerPartition", 1),
        headers=options.flag("includeHeaders", False),
        committed=options.choice("kafka.isolation.level", ("read_committed", "read_uncommitted"), "read_committed")
        == "read_committed",
        group=options.text("kafka.group.id") or prefix,
        fetch_bytes=options.number("kafka.max.partition.fetch.bytes", 1),
        available=options.by_partition("availableNowOffsets"),
        used_once=options.flag(USED_ONCE, False),
        planned=options.text(PLANNED),
    )


def _subscription(options: Options) -> Subscription:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if name in options]
    if len(given) != 1:
        which = " and ".join(given) if given else "none of them"
        raise OptionError(f"one of the options 'subscribe', 'subscribePattern' and 'assign' is needed, not {which}")
    if pattern := options.text("subscribePattern"):
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(f"option 'subscribePattern' is {pattern!r}: {error}") from None
        return Subscription(pattern=pattern)
    if "assign" in options:
        return Subscription(partitions=_assigned(options.required("assign")))
    topics = tuple(dict.fromkeys(each.strip() for each in options.required("subscribe").split(",") if each.strip()))
    if not topics:
        raise OptionError("option 'subscribe' names no topic")
    return Subscription(topics=topics)


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    try:
        found = json.loads(text)
        return tuple(TopicPartition(topic, int(each)) for topic, partitions in found.items() for each in partitions)
    except (ValueError, OverflowError, AttributeError, TypeError):
        raise OptionError(f"option 'assign' is {text!r}; it must be like {{\"topic\": [0, 1]}}") from None


def _position(options: Options, side: str, default: Edge) -> Position:
    if (timestamp := options.number(f"{side}Timestamp")) is not None:
        return Position(timestamp_ms=timestamp)
    if (timestamps := options.by_partition(f"{side}OffsetsByTimestamp")) is not None:
        return Position(timestamps_ms=timestamps)
    text = (options.text(f"{side}Offsets") or default.name).strip()
    if text.lower() in ("earliest", "latest"):
        return Position(edge=Edge[text.upper()])
    return Position(offsets=options.by_partition(f"{side}Offsets"))


def _refuse_edge(position: Position, number: int, name: str, word: str) -> None:
    if position.edge is Edge(number) or number in (position.offsets or {}).values():
        raise OptionError(f"option {name!r} can't be {word} for a batch: it would read nothing")


def _duration_s(options: Options, name: str, default: float) -> float:
    text = options.text(name)
    if text is None:
        return default
    found = seconds(f"{text.strip()}ms" if text.strip().isdecimal() else text)
    if found is None:
        raise OptionError(f"option {name!r} is {text!r}; it must be like 90s, 15m or 1h")
    return found


# ---- what a writer is told


@dataclass(frozen=True, slots=True)
class WriteOptions:
    client: ClientSettings
    topic: str | None  # for every row; else each row names its own
    exactly_once: bool
    acks: int
    compression: Compression
    batch: int | None = None  # of the query in whose foreachBatch this is written
    write: str | None = None  # which of the writes of that batch


def write_options(given: Mapping[str, str]) -> WriteOptions:
    options = Options(given, OF_CLIENTS | OF_WRITERS, "sink")
    exactly_once = options.choice("delivery", ("exactly-once", "at-least-once"), "exactly-once") == "exactly-once"
    acks = options.choice("kafka.acks", ("all", "-1", "1"), "all")
    if acks == "1" and exactly_once:
        raise OptionError("option 'kafka.acks' must be all where delivery is exactly-once")
    names = tuple(each.name.lower() for each in Compression)
    batch, write = options.number("batchId"), options.text("writeId")
    if write is not None and batch is None:
        raise OptionError("option 'writeId' tells the writes of one batch apart, and needs option 'batchId'")
    if write is not None and not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", write):
        raise OptionError(f"option 'writeId' is {write!r}; it must be letters, digits, '.', '_' and '-'")
    return WriteOptions(
        client=options.client(),
        topic=options.text("topic"),
        exactly_once=exactly_once,
        acks=1 if acks == "1" else -1,
        compression=Compression[options.choice("kafka.compression.type", names, "none").upper()],
        batch=batch,
        write=write,
    )
