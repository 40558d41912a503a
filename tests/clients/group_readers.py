"""Groups of the consumer protocol (KIP-848): members that read in threads of their own, and who owns what."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.drivers import CLIENTS, Outgoing, send_all
from tests.clients.drivers.face import Partition
from tests.clients.members import Poller
from tests.clients.steps import wait_until

CONFLUENT = CLIENTS["confluent"]
# Sessions so short that nobody waits long for a member's death.
QUICK = {
    "group_consumer_min_session_timeout_ms": 1000,
    "group_consumer_session_timeout_ms": 3000,
    "group_consumer_min_heartbeat_interval_ms": 100,
    "group_consumer_heartbeat_interval_ms": 200,
    "group_min_session_timeout_ms": 100,
}


class Ledger:
    """Who owns what, by what members are told. Two owners of one partition are written down."""

    def __init__(self) -> None:
        self.owners: dict[Partition, Reader] = {}
        self.clashes: list[Partition] = []
        self._lock = threading.Lock()

    def assigned(self, reader: Reader, partitions: list[Partition]) -> None:
        with self._lock:
            self.clashes += [each for each in partitions if self.owners.get(each, reader) is not reader]
            self.owners.update(dict.fromkeys(partitions, reader))

    def revoked(self, reader: Reader, partitions: list[Partition]) -> None:
        with self._lock:
            for each in partitions:
                if self.owners.get(each) is reader:
                    del self.owners[each]

    def shares(self) -> list[int]:
        with self._lock:
            return sorted(Counter(self.owners.values()).values())

    def of(self, reader: Reader) -> set[Partition]:
        with self._lock:
            return {partition for partition, owner in self.owners.items() if owner is reader}


class Reader(Poller):
    """A member that reads in a thread of its own, and commits what it has read before it lets go of a partition."""

    def __init__(self, ledger: Ledger, bootstrap: str, group: str, *topics: str, **options: Any) -> None:
        config = {"group.protocol": "consumer", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        config |= {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0, "fetch.wait.max.ms": 50}
        config |= {"topic.metadata.refresh.interval.ms": 500, "reconnect.backoff.max.ms": 200}
        config |= {name.replace("_", "."): value for name, value in options.items()}
        self.ledger = ledger
        self.read: list[tuple[str, int, int]] = []
        self.error: KafkaError | None = None
        self.consumer = Consumer(config)
        self.consumer.subscribe(
            list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        super().__init__()
        self.start()

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.ledger.assigned(self, [(p.topic, p.partition) for p in partitions])

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit()
        self.ledger.revoked(self, [(p.topic, p.partition) for p in partitions])

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.ledger.revoked(self, [(p.topic, p.partition) for p in partitions])

    def _commit(self) -> None:
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError._NO_OFFSET:
                raise

    def poll(self) -> bool:
        message = self.consumer.poll(0.05)
        if message is None:
            return True
        if problem := message.error():
            self.error = problem
            return not problem.fatal()
        self.read.append((message.topic(), message.partition(), message.offset()))
        return True

    @property
    def owned(self) -> set[Partition]:
        return self.ledger.of(self)

    def close(self) -> None:
        self.stop()
        self.consumer.close()
        self.ledger.revoked(self, list(self.owned))


class Group:
    """One group, its members, and what they are told."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.ledger = Ledger()
        self.members: list[Reader] = []
        self.left: list[Reader] = []

    def join(self, *topics: str, **options: Any) -> Reader:
        self.members.append(Reader(self.ledger, self.bootstrap, self.name, *topics, **options))
        return self.members[-1]

    def join_classic(self, *topics: str, **options: Any) -> Reader:
        quick = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 200}
        return self.join(*topics, group_protocol="classic", **quick, **options)

    def leave(self, member: Reader) -> None:
        self.members.remove(member)
        self.left.append(member)
        member.close()

    def settles(self, *shares: int) -> None:
        wait_until(lambda: self.ledger.shares() == sorted(shares), message=f"shares are {self.ledger.shares()}")
        assert self.ledger.clashes == []

    def everything_read(self) -> Counter[tuple[str, int, int]]:
        return Counter(place for member in [*self.members, *self.left] for place in list(member.read))

    def close(self) -> None:
        with ThreadPoolExecutor(max_workers=8) as closers:
            list(closers.map(Reader.close, self.members))


def send(bootstrap: str, topic: str, count: int, partitions: int) -> None:
    send_all(CONFLUENT, bootstrap, topic, [Outgoing(b"%d" % n, partition=n % partitions) for n in range(count)])


def penstock(bootstrap: str, *arguments: str) -> Any:
    command = [sys.executable, "-m", "penstock", *arguments, "--json", "--bootstrap", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def committed(admin: AdminClient, group: str) -> dict[Partition, int]:
    (found,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(p.topic, p.partition): p.offset for p in found.result(20).topic_partitions}
