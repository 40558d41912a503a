"""Publish-subscribe: every group reads every message, each at its own pace and from its own place.

Run it while a broker runs: `python examples/publish_subscribe.py`, with HOST:PORT behind it if that is not
127.0.0.1:9092.
"""

import sys
import uuid

from confluent_kafka import Consumer, Producer

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
EVENTS = ["signed up", "ordered", "paid"]


def read(topic: str, group: str) -> list[str]:
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    events: list[str] = []
    while len(events) < len(EVENTS):
        message = consumer.poll(10)
        assert message is not None, "nothing came within ten seconds"
        events.append(message.value().decode())
    consumer.close()
    return events


def main() -> None:
    run = uuid.uuid4().hex[:8]
    topic = f"events-{run}"
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for event in EVENTS:
        producer.produce(topic, key="customer 7", value=event)
    producer.flush()

    for group in ("billing", "audit", "mail"):
        print(f"{group} read: {', '.join(read(topic, f'{group}-{run}'))}")


main()
