"""Point-to-point: several workers in one group, and every job is done by one of them.

Run it while a broker runs: `python examples/point_to_point.py`, with HOST:PORT behind it if that is not
127.0.0.1:9092. A topic's partitions are shared out among the members of a group. Start more workers and they take over
partitions; stop one and the others take its part.
"""

import sys
import threading
import uuid
from itertools import chain

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
JOBS = 20
PARTITIONS = 4


class Worker(threading.Thread):
    def __init__(self, topic: str, all_done: threading.Event) -> None:
        super().__init__()
        self.topic = topic
        self.all_done = all_done
        self.assigned = threading.Event()
        self.done: list[str] = []

    def run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": BOOTSTRAP,
                "group.id": "workers-of-" + self.topic,
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 300,  # how soon a worker learns that another has come; 3 s if not set
            }
        )
        consumer.subscribe([self.topic], on_assign=self.on_assign)
        while not self.all_done.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.done.append(message.value().decode())
        consumer.close()

    def on_assign(self, consumer: Consumer, partitions: list) -> None:
        if len(partitions) == PARTITIONS // 2:
            self.assigned.set()


def main() -> None:
    topic = f"jobs-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result()

    all_done = threading.Event()
    workers = [Worker(topic, all_done), Worker(topic, all_done)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.assigned.wait(10)

    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for number in range(JOBS):
        producer.produce(topic, value=f"job {number}", partition=number % PARTITIONS)
    producer.flush()

    while sum(len(worker.done) for worker in workers) < JOBS:
        all_done.wait(0.05)
    all_done.set()
    for number, worker in enumerate(workers, start=1):
        worker.join()
        print(f"worker {number} did {len(worker.done)} jobs")
    print(f"{len(set(chain(*(worker.done for worker in workers))))} different jobs were done")


main()
