"""With asyncio as without: the same classes, calls and arguments; and those that are handed on by name are known."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock.client import (
    AsyncConsumer,
    AsyncProducer,
    AsyncQueue,
    AsyncTopic,
    Consumer,
    Producer,
    Queue,
    Topic,
    Transaction,
    options,
)
from penstock.client.async_consumer import AsyncReadingTransaction
from penstock.client.async_producer import AsyncTransaction
from penstock.client.retrying import handling
from penstock.testing import PenstockBroker

PAIRS: list[tuple[type, type]] = [
    (Producer, AsyncProducer),
    (Consumer, AsyncConsumer),
    (Queue, AsyncQueue),
    (Topic, AsyncTopic),
    (Transaction, AsyncReadingTransaction),
]
# Parts of the one that the other is made of, and what a coroutine has no use for.
INSIDE = {
    Producer: {
        "meet", "knows", "poll", "keep_polling", "note_failure", "forget_failure", "forget_failures", "first_failure",
        "begin_transaction", "end_transaction", "check_transactional", "wait_for_room", "explained",
    },
    Consumer: {"begin", "check_plain", "is_missing", "handing_over"},
    Queue: {"take", "acknowledge", "fail", "interrupt", "give_up", "check_open"},
    Topic: {"producer_options", "consumer_options"},
    Transaction: {"check_not_lost", "abandon"},
}  # fmt: skip
AWAITED = {"lag", "lags"}  # a property can't be


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def arguments(call: Callable[..., Any]) -> list[tuple[str, object]]:
    parameters = list(inspect.signature(call).parameters.values())[1:]
    return [(parameter.name, parameter.default) for parameter in parameters]


def keywords(call: Callable[..., Any]) -> set[str]:
    parameters = inspect.signature(call).parameters.values()
    return {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}


@pytest.mark.parametrize(("plain", "asynchronous"), PAIRS, ids=lambda kind: kind.__name__)
def test_what_one_can_do_the_other_can_do(plain: type, asynchronous: type) -> None:
    assert public(plain) - INSIDE[plain] - public(asynchronous) == set()


@pytest.mark.parametrize(
    ("plain", "asynchronous", "name"),
    [
        (plain, asynchronous, name)
        for plain, asynchronous in PAIRS
        for name in sorted(public(plain) & public(asynchronous) - AWAITED)
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_it_takes_the_same_arguments(plain: type, asynchronous: type, name: str) -> None:
    one, other = getattr(plain, name), getattr(asynchronous, name)
    assert isinstance(one, property) == isinstance(other, property)
    if not isinstance(one, property):
        assert arguments(one) == arguments(other)


@pytest.mark.parametrize(
    ("named", "call", "known"),
    [
        (options.SendOptions, Producer.send, set()),
        (options.ProducerOptions, Producer, {"send_timeout_s"}),
        (options.ConsumerOptions, Consumer, {"handle_signals"}),
        (options.SubscribeOptions, Consumer, set()),
        (options.QueueOptions, Queue, {"handle_signals"}),
        (options.TopicOptions, Topic, set()),
    ],
)
def test_options_that_are_handed_on_are_all_there_are(named: Any, call: Callable[..., Any], known: set[str]) -> None:
    assert set(named.__annotations__) | known == keywords(call)


def test_the_options_of_handlers_are_all_there_are() -> None:
    assert set(options.HandlerOptions.__annotations__) == set(handling.OPTIONS)


def test_every_class_that_waits_has_its_twin() -> None:
    assert {kind.__name__ for _, kind in PAIRS[:4]} == {name for name in penstock.__all__ if name.startswith("Async")}
    assert public(Transaction) - INSIDE[Transaction] - public(AsyncTransaction) == {"messages"}, "it has no consumer"


async def test_a_topic_of_asyncio(penstock: PenstockBroker) -> None:
    async with AsyncTopic("prices", penstock.bootstrap, key="text", value="json") as prices:
        receipt = await (await prices.publish({"apples": 3}, key="apples", headers={"unit": "kg"}))
        await prices.flush()
        assert (receipt.topic, receipt.offset) == ("prices", 0)
        async with prices.subscribe("shop", start="earliest") as subscriber:
            await subscriber.also_read(["other"])
            found = [(message.key, message.value) async for message in subscriber.messages(count=1, timeout=20)]
            assert found == [("apples", {"apples": 3})]
            assert subscriber.group == subscriber.settings["group.id"] == "shop"
