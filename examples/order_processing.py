"""Orders with retries and dead letters: what can't be done now is tried again later, and nothing waits behind it.

Run it while a broker runs: `python examples/order_processing.py`, with HOST:PORT in PENSTOCK_BOOTSTRAP if that is not
127.0.0.1:9092. Payments go through a bank that is closed at first. One order asks for something that does not exist,
which no further attempt would change, and one is no JSON. Both end among the dead letters.
"""

import uuid
from collections import Counter
from typing import Any

from penstock import Consumer, Message, Producer, Retry, steps

RUN = uuid.uuid4().hex[:8]
ORDERS = f"orders-{RUN}"
PRICES = {"apples": 3, "pears": 4}
BANK_OPENS_AT_ATTEMPT = 3

attempts: Counter[int] = Counter()
done: list[int] = []

consumer = Consumer(group="till", topics=ORDERS, value="json")


class NoSuchItem(Exception):
    pass


@consumer.handler(
    retry=Retry(attempts=5, backoff=steps("200ms", "1s"), give_up_on=NoSuchItem),
    dead_letter=True,
)
def process(message: Message) -> None:
    order = message.value
    attempts[order["id"]] += 1
    if order["item"] not in PRICES:
        raise NoSuchItem(order["item"])
    charge(order)
    done.append(order["id"])
    if len(done) == 4:
        consumer.stop()  # only because this is an example: a service runs until a signal comes


def charge(order: dict[str, Any]) -> None:
    if order["pays_by"] == "bank" and attempts[order["id"]] < BANK_OPENS_AT_ATTEMPT:
        raise ConnectionError("the bank is closed")


def take_orders() -> None:
    with Producer() as broken:
        broken.send(ORDERS, "one box of apples, please")
    with Producer(value="json") as shop:
        shop.send(ORDERS, {"id": 1, "item": "apples", "pays_by": "bank"})
        shop.send(ORDERS, {"id": 2, "item": "pears", "pays_by": "cash"})
        shop.send(ORDERS, {"id": 3, "item": "unicorns", "pays_by": "cash"})
        shop.send(ORDERS, {"id": 4, "item": "apples", "pays_by": "cash"})
        shop.send(ORDERS, {"id": 5, "item": "pears", "pays_by": "cash"})


def show_dead_letters() -> None:
    """As `penstock dlq show` does; `penstock dlq redrive` would send them back."""
    with Consumer(group=f"clerk-{RUN}", topics=f"{ORDERS}.till.dlq", value="text") as letters:
        for letter in letters.messages(count=2, timeout=10):
            error = (letter.header("penstock.error.type") or "").rpartition(".")[2]
            print(f"dead letter: {letter.value} ({error}, attempts: {letter.header('penstock.attempts')})")


def main() -> None:
    take_orders()
    with consumer:
        consumer.run()
    print(f"done, in this order: {', '.join(map(str, done))}")
    print(f"attempts of order 1: {attempts[1]}, of order 3: {attempts[3]}")
    show_dead_letters()


main()
