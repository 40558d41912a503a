"""What each delivery promises, with consumers and brokers killed and groups balanced anew, and what it does not.

At most once never processes a message twice, and may lose some. At least once never loses one, and may process some
twice. Exactly once does neither.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition

from penstock.client import Consumer, PenstockError, Producer
from tests.brokers import BrokerProcess
from tests.client.conftest import create_topic

MESSAGES = 200
VALUES = [str(number) for number in range(MESSAGES)]
WAIT_S = 40.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("faults")
    broker = BrokerProcess(folder, group_min_session_timeout_ms=500, group_initial_rebalance_delay_ms=0).start()
    yield broker
    broker.close()


class Scene:
    """A topic with messages, a group, and workers that can be killed."""

    def __init__(self, broker: BrokerProcess, folder: Path, name: str, delivery: str) -> None:
        self.broker = broker
        self.delivery = delivery
        self.topic = create_topic(broker.bootstrap, f"{name}-in", partitions=2)
        self.output = create_topic(broker.bootstrap, f"{name}-out", partitions=1)
        self.folder = folder
        self.workers: list[subprocess.Popen[bytes]] = []

    def fill(self, values: list[str] = VALUES) -> None:
        with Producer(self.broker.bootstrap) as producer:
            for number, value in enumerate(values):
                producer.send(self.topic, value, partition=number % 2)

    def start(self, **more: Any) -> subprocess.Popen[bytes]:
        job = {
            "bootstrap": self.broker.bootstrap,
            "group": self.topic,
            "topic": self.topic,
            "output": self.output,
            "file": str(self._file(len(self.workers))),
            "delivery": self.delivery,
            **more,
        }
        worker = subprocess.Popen([sys.executable, "-m", "tests.client.worker", json.dumps(job)])
        self.workers.append(worker)
        return worker

    def finish(self, *workers: subprocess.Popen[bytes]) -> None:
        """Waits until the group has read everything, and ends the workers in peace."""
        places = [TopicPartition(self.topic, partition) for partition in range(2)]
        with KafkaConsumer({"bootstrap.servers": self.broker.bootstrap, "group.id": self.topic}) as asking:
            wait_until(lambda: sum(each.offset for each in asking.committed(places, WAIT_S)) >= MESSAGES)
        for worker in workers:
            self.wait_until_joined(worker)
            worker.terminate()
        assert [worker.wait(WAIT_S) for worker in workers] == [0] * len(workers)

    def _file(self, number: int) -> Path:
        return self.folder / f"noted-{number}"

    def noted(self, worker: subprocess.Popen[bytes]) -> list[str]:
        """What it processed; in transactions, what it tried to."""
        file = self._file(self.workers.index(worker))
        return file.read_text().splitlines() if file.exists() else []

    def wait_until_joined(self, worker: subprocess.Popen[bytes]) -> None:
        wait_until(self._file(self.workers.index(worker)).exists)

    def processed(self) -> Counter[str]:
        if self.delivery != "exactly-once":
            return Counter(value for worker in self.workers for value in self.noted(worker))
        reader = Consumer[bytes, str](self.broker.bootstrap, f"{self.output}-check", self.output, value="text")
        with reader:
            found = Counter(message.value for message in reader.messages(MESSAGES, timeout=WAIT_S / 2))
            return found + Counter(message.value for message in reader.messages(timeout=0.5))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "it does not get on"
        time.sleep(0.02)


MakeScene = Callable[[str], Scene]


@pytest.fixture
def scene(broker: BrokerProcess, tmp_path: Path, unique: Callable[[str], str]) -> Iterator[MakeScene]:
    made: list[Scene] = []

    def make(delivery: str) -> Scene:
        made.append(Scene(broker, tmp_path, unique("faults"), delivery))
        return made[-1]

    yield make
    for each in made:
        for worker in each.workers:
            worker.kill()
            worker.wait()


def check(delivery: str, processed: Counter[str]) -> None:
    if delivery != "at-most-once":
        assert set(VALUES) == set(processed)
    if delivery != "at-least-once":
        assert max(processed.values()) == 1


DELIVERIES = ["at-most-once", "at-least-once", "exactly-once"]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_consumer_is_killed_in_the_midst_of_a_batch(scene: MakeScene, delivery: str) -> None:
    here = scene(delivery)
    here.fill()
    assert here.start(die_after=33).wait(WAIT_S) < 0
    here.finish(here.start())
    processed = here.processed()
    check(delivery, processed)
    if delivery == "at-most-once":
        assert len(processed) < MESSAGES, "it should have lost what it had taken: is this test able to fail?"
    if delivery == "at-least-once":
        assert max(processed.values()) > 1, "it should have repeated what was not committed: can this test fail?"


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_members_come_and_go(scene: MakeScene, delivery: str) -> None:
    """Two members join one that reads, one is killed, one leaves."""
    here = scene(delivery)
    first = here.start(pause_s=0.005)
    here.wait_until_joined(first)
    here.fill(VALUES[:100])
    second = here.start(pause_s=0.005)
    here.wait_until_joined(second)
    here.fill(VALUES[100:])
    third = here.start(pause_s=0.005)
    wait_until(lambda: bool(here.noted(second)))
    second.kill()
    first.terminate()
    assert first.wait(WAIT_S) == 0
    here.finish(third)
    check(delivery, here.processed())


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_the_broker_is_killed_and_comes_back(scene: MakeScene, broker: BrokerProcess, delivery: str) -> None:
    here = scene(delivery)
    here.fill()
    worker = here.start(pause_s=0.005)
    wait_until(lambda: bool(here.noted(worker)))
    broker.kill()
    broker.start()
    here.finish(worker)
    check(delivery, here.processed())


@pytest.mark.parametrize("delivery", ["at-most-once", "at-least-once"])
def test_a_producer_whose_broker_is_killed(scene: MakeScene, broker: BrokerProcess, delivery: Any) -> None:
    """Sent at least once, everything arrives, and once as the producer is idempotent; at most once, some may not."""
    here = scene("at-least-once")
    producer = Producer(broker.bootstrap, delivery=delivery, profile="latency")
    sent = [producer.send(here.topic, value, partition=0) for value in VALUES[:100]]
    broker.kill()
    sent += [producer.send(here.topic, value, partition=0) for value in VALUES[100:]]
    broker.start()
    failed = 0
    for delivered in sent:
        try:
            delivered.result(WAIT_S)
        except PenstockError:
            failed += 1
    producer.close()
    with Consumer[bytes, str](broker.bootstrap, f"{here.topic}-check", here.topic, value="text") as consumer:
        arrived = Counter(message.value for message in consumer.messages(MESSAGES, timeout=2))
    assert max(arrived.values()) == 1
    assert len(arrived) >= MESSAGES - failed
    if delivery == "at-least-once":
        assert failed == 0
        assert len(arrived) == MESSAGES
