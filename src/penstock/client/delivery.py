"""How often a message may be processed, by name: what each name fixes in librdkafka, and when offsets are committed.

| delivery        | the producer                            | the consumer commits                                  |
| --------------- | --------------------------------------- | ----------------------------------------------------- |
| `at-most-once`  | `acks=1`, never sends again             | before it hands a message out                         |
| `at-least-once` | `acks=all`, idempotent                  | behind what was processed                             |
| `exactly-once`  | the same, transactional                 | in the transaction that has what was written          |

What is fixed here is the meaning of the name: settings that contradict it are refused, not overridden.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Literal

from penstock.client.errors import SettingsError, near_miss

DeliveryName = Literal["at-most-once", "at-least-once", "exactly-once"]


class CommitOrder(Enum):
    """When a consumer's offsets move, seen from the processing of its messages."""

    BEFORE = "before"
    AFTER = "after"
    IN_TRANSACTION = "in transaction"


@dataclass(frozen=True, slots=True)
class DeliveryMode:
    name: DeliveryName
    producer: Mapping[str, Any]
    consumer: Mapping[str, Any]
    commit_order: CommitOrder
    producer_usual: Mapping[str, Any] = field(default_factory=dict)  # which may be overridden

    @property
    def is_transactional(self) -> bool:
        return self.commit_order is CommitOrder.IN_TRANSACTION


# Offsets are committed by this package, from what was really processed: librdkafka would count what it handed over.
_OWN_COMMITS: Mapping[str, Any] = {"enable.auto.commit": False, "enable.auto.offset.store": False}

AT_MOST_ONCE = DeliveryMode(
    "at-most-once",
    producer=MappingProxyType({"acks": 1, "enable.idempotence": False, "retries": 0}),
    consumer=MappingProxyType(_OWN_COMMITS),
    commit_order=CommitOrder.BEFORE,
)
AT_LEAST_ONCE = DeliveryMode(
    "at-least-once",
    producer=MappingProxyType({"acks": "all", "enable.idempotence": True}),
    consumer=MappingProxyType(_OWN_COMMITS),
    commit_order=CommitOrder.AFTER,
)
EXACTLY_ONCE = DeliveryMode(
    "exactly-once",
    # A producer that bootstraps again forgets its producer id, and waits for ever for the end of its transaction
    # (librdkafka 5511).
    producer=MappingProxyType({"acks": "all", "enable.idempotence": True, "metadata.recovery.strategy": "none"}),
    consumer=MappingProxyType({**_OWN_COMMITS, "isolation.level": "read_committed"}),
    commit_order=CommitOrder.IN_TRANSACTION,
    # What a process leaves open when it dies is hidden for as long, and with it all that others have written behind it.
    # librdkafka's own default is a minute.
    producer_usual=MappingProxyType({"transaction.timeout.ms": 15_000}),
)

_MODES: dict[str, DeliveryMode] = {each.name: each for each in (AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE)}


def find_delivery(name: str) -> DeliveryMode:
    if isinstance(name, str) and name in _MODES:
        return _MODES[name]
    hint = near_miss(str(name), _MODES) or f"There are {', '.join(map(repr, _MODES))}."
    raise SettingsError(f"there is no delivery {name!r}.", hint)
