"""Clients in processes of their own, which write down what the broker told them.

    python -m tests.faults.load produce BOOTSTRAP TOPIC PARTITIONS NAME JOURNAL
    python -m tests.faults.load consume BOOTSTRAP TOPIC GROUP JOURNAL

A producer's journal has a line for each acknowledgement: partition, offset, number. Its messages are numbered from 0 in
each partition, and its number is the last thing before the padding: `name:partition:number`.

A consumer's journal has `read PARTITION OFFSET` and `committed PARTITION OFFSET`, in the order in which it learned.
Both end on SIGTERM: the producer once everything is acknowledged, the consumer once it has committed what it read.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

REPOSITORY = Path(__file__).parents[2]
MESSAGE_BYTES = 400
MESSAGES_PER_SECOND = 4000
STOP_TIMEOUT_S = 60.0

PATIENT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 50, "log_level": 0}


class Load:
    """One such process, as the test sees it."""

    def __init__(self, journal: Path, *arguments: str) -> None:
        self.journal = journal
        journal.touch()
        command = [sys.executable, "-m", "tests.faults.load", *arguments, str(journal)]
        self._said = journal.with_suffix(".errors")
        with self._said.open("w") as errors:
            self.process = subprocess.Popen(command, cwd=REPOSITORY, stderr=errors)

    def size(self) -> int:
        assert self.process.poll() is None, f"a client gave up:\n{self._said.read_text()[-2000:]}"
        return self.journal.stat().st_size

    def finish(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(STOP_TIMEOUT_S + 10) == 0, self._said.read_text()[-2000:]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(20)

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.journal.read_text().splitlines()]


class _Stop:
    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self.asked = True


def produce(bootstrap: str, topic: str, partitions: str, name: str, journal: str) -> None:
    stop = _Stop()
    config = {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 2}
    producer = Producer({**config, **PATIENT, "message.timeout.ms": 300_000})
    sent: dict[int, int] = defaultdict(int)
    with open(journal, "w") as written:

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                raise SystemExit(f"{name} lost a message: {error}")
            number = (message.value() or b"").split(b" ", 1)[0].rsplit(b":", 1)[1].decode()
            written.write(f"{message.partition()} {message.offset()} {number}\n")

        began, total = time.monotonic(), 0
        while not stop.asked:
            partition = total % int(partitions)
            value = f"{name}:{partition}:{sent[partition]} ".encode().ljust(MESSAGE_BYTES, b".")
            try:
                producer.produce(topic, value, partition=partition, on_delivery=delivered)
            except BufferError:
                producer.poll(0.1)
                continue
            sent[partition] += 1
            total += 1
            if total % 50 == 0:
                written.flush()
                producer.poll(max(0.0, total / MESSAGES_PER_SECOND - (time.monotonic() - began)))
        if left := producer.flush(STOP_TIMEOUT_S):
            raise SystemExit(f"{name} has {left} messages that nobody acknowledged")


IDLE_S = 6.0  # longer than a session, so that a group which gathers anew is not taken for one that has read all


def consume(bootstrap: str, topic: str, group: str, journal: str) -> None:
    stop = _Stop()
    config = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    timing = {"session.timeout.ms": 3000, "heartbeat.interval.ms": 200, "fetch.wait.max.ms": 50}
    consumer = Consumer({**config, **timing, **PATIENT, "enable.auto.commit": False})
    consumer.subscribe([topic])
    with open(journal, "w") as written:
        idle_s = 0.0
        while not (stop.asked and idle_s > IDLE_S):
            began = time.monotonic()
            messages = [message for message in consumer.consume(500, 0.1) if message.error() is None]
            idle_s = 0.0 if messages else idle_s + time.monotonic() - began
            following: dict[int, int] = {}
            for message in messages:
                written.write(f"read {message.partition()} {message.offset()}\n")
                following[message.partition()] = message.offset() + 1
            if not following:
                continue
            offsets = [TopicPartition(topic, partition, offset) for partition, offset in following.items()]
            try:
                answers = consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException:
                continue  # the broker is away, or the group gathers anew: what was read will be read again
            for answer in answers:
                if answer.error is None:
                    written.write(f"committed {answer.partition} {answer.offset}\n")
            written.flush()
    consumer.close()


if __name__ == "__main__":
    {"produce": produce, "consume": consume}[sys.argv[1]](*sys.argv[2:])
