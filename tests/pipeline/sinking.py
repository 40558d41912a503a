"""The sink without Spark: a test does what tasks do, and looks at what readers of committed data see."""

from __future__ import annotations

import time

from penstock.pipeline import decisions, transactions
from penstock.pipeline.brokers import LATEST, Brokers, TopicPartition
from penstock.pipeline.columns import Encoded
from penstock.pipeline.decisions import Decision
from penstock.pipeline.fetching import OffsetRange, RangeFetcher
from penstock.pipeline.options import WriteOptions, write_options
from penstock.pipeline.producing import Producer
from penstock.pipeline.sink import Written
from penstock.pipeline.transactions import Identity, Prepared
from penstock.protocol.record_batch import HEADER_SIZE, Record, build_batch, read_records


class Cluster:
    """What a test sees and does with a connection of its own."""

    def __init__(self, bootstrap: str, topic: str, **options: object) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self._options = options
        self.options = self.options_of()
        self.brokers = Brokers(self.options.client)

    def options_of(self, topic: str | None = "", **more: object) -> WriteOptions:
        given = {
            "kafka.bootstrap.servers": self.bootstrap,
            **{name: str(value) for name, value in {**self._options, **more}.items()},
        }
        return write_options(given if topic is None else {**given, "topic": topic or self.topic})

    def begin(self, name: str) -> Identity:
        _, identity, ongoing = transactions.take_over(self.brokers, name)
        assert ongoing == transactions.NOBODY
        return identity

    def put(self, value: bytes, name: str | None = None, identity: Identity | None = None) -> Producer:
        identity = identity or transactions.init_idempotent(self.brokers)
        producer = Producer(self.brokers, identity, transactional_id=name)
        producer.send(encoded(self.topic, b"key", value))
        producer.flush()
        return producer

    def prepare(self, sink: str, run: str, value: bytes, task: int = 0) -> Written:
        """What a task does that comes to its end."""
        name = f"{sink}/{run}/{task}.0"
        identity = self.begin(name)
        producer = self.put(value, name, identity)
        assert producer.first is not None
        return Written(sink, run, Prepared(name, identity, *producer.first))

    def open_names(self, prefix: str) -> dict[str, str]:
        return transactions.names_under(self.brokers, prefix)

    def decision(self, sink: str) -> Decision:
        return decisions.read_all(self.brokers)[sink]

    def seen(self) -> list[bytes | None]:
        """By readers of committed data. Fails if something holds them back."""
        place = TopicPartition(self.topic, 0)
        stop = self.brokers.offsets({place: LATEST}, committed=False)[place]
        deadline = time.monotonic() + 10
        while self.brokers.offsets({place: LATEST})[place] < stop:
            assert time.monotonic() < deadline, "a transaction holds readers back"
            time.sleep(0.02)
        batches = RangeFetcher(self.brokers, OffsetRange(place, 0, stop)).batches()
        return [record.value for batch in batches for record in read_records(batch, 1 << 20)]


def encoded(topic: str, key: bytes, value: bytes) -> Encoded:
    now_ms = int(time.time() * 1000)
    return Encoded(topic, 0, build_batch([Record(0, now_ms, key, value)])[HEADER_SIZE:], 1, now_ms, now_ms)


def prepared_of(*messages: Written) -> tuple[Prepared, ...]:
    return tuple(each.prepared for each in messages if each.prepared is not None)
