"""Topics with everything that an archive must keep or leave out."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DAY_MS = 86_400_000
NOON_MS = 20_000 * DAY_MS + DAY_MS // 2

Row = dict[str, Any]


def produce_everything(bootstrap: str, topic: str, partitions: int) -> None:
    """Codecs, headers, nulls and days; then transactions, of which some were aborted, also the last of each.

    Its times are long ago: the topic must keep them.
    """
    for codec in CODECS:
        plain = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})
        for number in range(60):
            plain.produce(
                topic,
                partition=number % partitions,
                key=None if number % 5 == 0 else f"{codec} {number}".encode(),
                value=None if number % 7 == 0 else f"value {number} ".encode() * 20,
                headers=[("codec", codec.encode()), ("none", None), ("codec", b"")] if number % 3 == 0 else None,
                timestamp=NOON_MS + (number % 2) * DAY_MS + number,
            )
        plain.flush(30)
    settings = {"bootstrap.servers": bootstrap, "transactional.id": f"of-{topic}", "linger.ms": 5}
    transactional = Producer(settings)
    transactional.init_transactions(30)
    for number, commit in enumerate((True, False, True, False)):
        transactional.begin_transaction()
        for at in range(20):
            value = f"{'kept' if commit else 'aborted'} {number} {at}"
            transactional.produce(topic, partition=at % partitions, value=value.encode(), timestamp=NOON_MS)
        transactional.flush(30)
        if commit:
            transactional.commit_transaction(30)
        else:
            transactional.abort_transaction(30)


def produce_plain(bootstrap: str, topic: str, count: int, partitions: int = 1, size: int = 100) -> None:
    plain = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": count + 1})
    for number in range(count):
        plain.produce(topic, partition=number % partitions, key=str(number).encode(), value=b"v" * size)
        if number % 1000 == 0:
            plain.poll(0)
    plain.flush(60)


def consume_committed(bootstrap: str, topic: str, partitions: int) -> list[Row]:
    """What a consumer reads, as the archive's columns, without the leader's epochs."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False}
    ending = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}
    consumer = Consumer({**settings, "isolation.level": "read_committed", **ending})
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    found: list[Row] = []
    ended = 0
    while ended < partitions:
        message = consumer.poll(20)
        assert message is not None, "the broker does not answer"
        if message.error() is not None:
            ended += 1
            continue
        headers = message.headers()
        found.append(
            {
                "key": message.key(),
                "value": message.value(),
                "headers": [{"key": name, "value": value} for name, value in headers] if headers else None,
                "partition": message.partition(),
                "offset": message.offset(),
                "timestamp_ms": message.timestamp()[1],
            }
        )
    consumer.close()
    return sorted(found, key=lambda each: (each["partition"], each["offset"]))


def as_consumed(rows: list[Row]) -> list[Row]:
    """Rows of an archive in the shape of those."""
    names = ("key", "value", "headers", "partition", "offset")
    found = [
        {**{name: row[name] for name in names}, "timestamp_ms": round(row["timestamp"].timestamp() * 1000)}
        for row in rows
    ]
    return sorted(found, key=lambda each: (each["partition"], each["offset"]))
