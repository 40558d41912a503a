"""Exactly once: what is read, what is made of it and the note that it was read are one transaction.

Run it while a broker runs: `python examples/exactly_once.py`, with HOST:PORT behind it if that is not 127.0.0.1:9092.
A till turns orders into invoices. In the middle of its work it falls over and another takes its place, with the same
transactional id: what the first had begun is undone, and every order gets one invoice.
"""

import sys
import uuid

from confluent_kafka import Consumer, Producer, TopicPartition

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
ORDERS = 10


def reader(topic: str, group: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,  # the transaction does that
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    return consumer


def till(run: str) -> Producer:
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": f"till-{run}"})
    producer.init_transactions()  # undoes what the last one left open
    return producer


def write_invoices(orders: Consumer, producer: Producer, run: str, count: int) -> None:
    """One transaction, not yet committed: so many invoices, and where to go on reading."""
    producer.begin_transaction()
    for _ in range(count):
        order = orders.poll(10)
        assert order is not None, "nothing came within ten seconds"
        producer.produce(f"invoices-{run}", value=f"invoice for {order.value().decode()}")
    following = [TopicPartition(order.topic(), order.partition(), order.offset() + 1)]
    producer.send_offsets_to_transaction(following, orders.consumer_group_metadata())
    producer.flush()


def main() -> None:
    run = uuid.uuid4().hex[:8]
    shop = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    for number in range(1, ORDERS + 1):
        shop.produce(f"orders-{run}", value=f"order {number}")
    shop.flush()

    first, orders = till(run), reader(f"orders-{run}", f"tills-{run}")
    write_invoices(orders, first, run, 4)
    first.commit_transaction()
    write_invoices(orders, first, run, 3)
    print("the first till wrote 7 invoices, and fell over before the last 3 were committed")
    orders.close()

    second, orders = till(run), reader(f"orders-{run}", f"tills-{run}")
    write_invoices(orders, second, run, 6)
    second.commit_transaction()
    orders.close()
    print("the second till wrote 6")

    invoices = reader(f"invoices-{run}", f"audit-{run}")
    found: list[str] = []
    while message := invoices.poll(10 if len(found) < ORDERS else 1):
        found.append(message.value().decode())
    invoices.close()
    print(f"{len(found)} invoices for {len(set(found))} orders, the last of them: {found[-1]}")


main()
