"""A handler whose call runs nothing by itself: it is run, or it is refused, but its message never counts as handled."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from penstock.client import AsyncConsumer, Consumer, Producer, SettingsError, UsageError
from penstock.client.retrying.policy import Retry
from penstock.testing import PenstockBroker

NOWHERE = "127.0.0.1:1"
TOPIC = "orders"
WAIT_S = 20.0


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker(group_initial_rebalance_delay_ms=0) as broker:
        broker.produce(TOPIC, "1", "2")
        yield broker


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


class Collector:
    """Counts what has really been run, and stops its consumer behind the second."""

    def __init__(self, consumer: AsyncConsumer[Any, Any] | Consumer[Any, Any]) -> None:
        self.consumer = consumer
        self.values: list[bytes] = []

    async def collect(self, message: Any) -> None:
        await asyncio.sleep(0)
        self.values.append(message.value)
        if len(self.values) == 2:
            self.consumer.stop()

    async def collect_later(self, message: Any) -> Any:
        return self.collect(message)

    async def __call__(self, message: Any) -> None:
        await self.collect(message)


HANDLERS: dict[str, Callable[[Collector], Callable[..., Any]]] = {
    "lambda": lambda collector: lambda message: collector.collect(message),
    "object": lambda collector: collector,
    "partial": lambda collector: functools.partial(collector.collect),
    "partial of an object": lambda collector: functools.partial(collector),
    "twice": lambda collector: collector.collect_later,
}


@pytest.mark.parametrize("options", [{}, {"timeout": "10s"}], ids=["plain", "timeout"])
@pytest.mark.parametrize("kind", HANDLERS)
async def test_an_asynchronous_consumer_awaits_whatever_is_to_be_awaited(
    broker: PenstockBroker, group: str, kind: str, options: Any
) -> None:
    async with AsyncConsumer[bytes, bytes](broker.bootstrap, group, TOPIC) as consumer:
        collector = Collector(consumer)
        consumer.handler(**options)(HANDLERS[kind](collector))
        await asyncio.wait_for(consumer.run(), WAIT_S)
    assert collector.values == [b"1", b"2"]


async def test_what_is_awaited_may_ask_the_consumer(broker: PenstockBroker, group: str) -> None:
    lags: list[int] = []

    async def ask(consumer: AsyncConsumer[bytes, bytes]) -> None:
        lags.append(await consumer.lag())
        consumer.stop()

    async with AsyncConsumer[bytes, bytes](broker.bootstrap, group, TOPIC, delivery="at-most-once") as consumer:
        consumer.handler(lambda message: ask(consumer))
        await asyncio.wait_for(consumer.run(), WAIT_S)
    assert lags


def _generated(message: Any) -> Any:
    return (value for value in [message])


@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
@pytest.mark.parametrize("options", [{}, {"timeout": "10s"}], ids=["plain", "timeout"])
@pytest.mark.parametrize("kind", ["lambda", "generated"])
def test_a_consumer_does_not_take_it_for_handled(
    broker: PenstockBroker, group: str, kind: str, options: Any, delivery: Any
) -> None:
    if delivery == "at-least-once":  # which would lay it down
        options = {**options, "retry": Retry(attempts=1), "dead_letter": True}
    with Consumer[bytes, bytes](broker.bootstrap, group, TOPIC, delivery=delivery) as consumer:
        consumer.handler(**options)(_generated if kind == "generated" else HANDLERS["lambda"](Collector(consumer)))
        with pytest.raises(UsageError, match="the message was not handled"):
            consumer.run()
    if delivery == "at-least-once":
        with Consumer[bytes, bytes](broker.bootstrap, group, TOPIC) as again:
            assert [message.value for message in again.messages(2, timeout=WAIT_S)] == [b"1", b"2"]


@pytest.mark.parametrize("kind", ["object", "partial", "partial of an object", "twice"])
def test_a_consumer_refuses_what_shows_that_it_is_asynchronous(kind: str) -> None:
    consumer = Consumer[bytes, bytes](NOWHERE, "group", TOPIC)
    consumer.handler(HANDLERS[kind](Collector(consumer)))
    with pytest.raises(UsageError, match="coroutine function"):
        consumer.run()


def test_a_handler_may_return_what_needs_nobody_to_run_it(broker: PenstockBroker, group: str) -> None:
    with Producer(broker.bootstrap) as producer, Consumer[bytes, bytes](broker.bootstrap, group, TOPIC) as consumer:
        sent: list[Any] = []

        @consumer.handler
        def pass_on(message: Any) -> Any:
            sent.append(producer.send("copies", message.value))
            if len(sent) == 2:
                consumer.stop()
            return sent[-1]  # which can be awaited, but is on its way

        consumer.run()
        assert [delivery.result(WAIT_S).offset for delivery in sent] == [0, 1]


def _yields(message: Any) -> Iterator[Any]:
    yield message


async def _yields_later(message: Any) -> AsyncIterator[Any]:
    yield message


class _Yielding:
    def __call__(self, message: Any) -> Iterator[Any]:
        yield message


@pytest.mark.parametrize("function", [_yields, _yields_later, functools.partial(_yields), _Yielding()])
@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_a_generator_function_can_not_be_a_handler(kind: Any, function: Any) -> None:
    with pytest.raises(SettingsError, match="generator function"):
        kind(NOWHERE, "group", TOPIC).handler(function)
