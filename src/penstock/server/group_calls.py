"""How a handler asks the machine that owns a group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from penstock.coordinator.machine import Ticket
from penstock.coordinator.runtime import Runtime
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.schema import Message
from penstock.server.context import Call, Context
from penstock.server.deferred import Deferred
from penstock.server.failures import error_response

M = TypeVar("M", bound=Message)


def java_hash(text: str) -> int:
    """String.hashCode, which every Kafka broker uses to place a group, without its sign."""
    value = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


def place(context: Context, runtime: Runtime, key: str) -> int:
    """The partition of the coordinator's topic that a group or a transactional id lives in."""
    topic = context.image.topics.get(runtime.topic)
    if topic is None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return java_hash(key) % len(topic.partitions)


def coordinator_of(context: Context, runtime: Runtime, key: str) -> int:
    """The broker that leads the partition of a group or a transactional id; NO_LEADER if none does."""
    return context.image.topics[runtime.topic].partitions[place(context, runtime, key)].leader


def partition_of(context: Context, group_id: str) -> int:
    return place(context, context.groups, group_id)


def ask(context: Context, call: Call[Any], group_id: str, make: Callable[[Ticket], Any]) -> Deferred[Any]:
    """The machine's reply is the response."""
    deferred: Deferred[Any] = Deferred()

    def answered(reply: Any) -> None:
        if isinstance(reply, ApiError):
            reply = error_response(call.request, call.version, reply)
        deferred.resolve(reply)

    context.groups.submit(partition_of(context, group_id), make, answered)
    return deferred


async def ask_each(
    context: Context,
    group_ids: Iterable[str],
    make: Callable[[Ticket, tuple[str, ...]], Any],
    failed: Callable[[str, ErrorCode], Any],
) -> list[Any]:
    """For requests that name several groups: one command per machine; an answer for each name, in their order."""
    by_partition: dict[int, list[str]] = {}
    answers: dict[str, Any] = {}
    names = list(dict.fromkeys(group_ids))
    for group_id in names:
        try:
            by_partition.setdefault(partition_of(context, group_id), []).append(group_id)
        except ApiError as error:
            answers[group_id] = failed(group_id, error.code)

    async def one(index: int, owned: tuple[str, ...]) -> None:
        try:
            found = await context.groups.ask(index, lambda ticket: make(ticket, owned))
            answers.update(zip(owned, found, strict=True))
        except ApiError as error:
            answers.update((group_id, failed(group_id, error.code)) for group_id in owned)

    await asyncio.gather(*(one(index, tuple(owned)) for index, owned in by_partition.items()))
    return [answers[group_id] for group_id in names]
