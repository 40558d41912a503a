"""What a handler was registered with, and what the work needs of its consumer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstock.client.committer import Committer
from penstock.client.filtering import HeaderFilter
from penstock.client.message import Place
from penstock.client.retrying.policy import Retry
from penstock.client.serializers import Decoder
from penstock.client.turns import Turns

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from penstock.client.listeners import Listener


class Told(Protocol):
    """Who may tell the work to stop, and is told of what the group gives and takes away."""

    stopping: bool
    turns: Turns  # `with` each time that librdkafka is asked for messages

    def came(self, places: Iterable[Place]) -> None: ...
    def went(self, places: Iterable[Place]) -> None: ...


@dataclass(frozen=True, slots=True)
class Source:
    client: Consumer
    connection: Mapping[str, Any]  # settings for other clients of the same brokers
    group: str
    topics: tuple[str, ...]
    decoder: Decoder
    filter: HeaderFilter | None
    is_exactly_once: bool
    instance: str | None  # a member with a name of its own, which it keeps when it starts anew
    commit_interval_s: float
    commit_every: int
    reader: Told
    committer: Committer
    on_assign: tuple[Listener, ...] = ()
    on_revoke: tuple[Listener, ...] = ()
    on_lost: tuple[Listener, ...] = ()


@dataclass(frozen=True, slots=True)
class Options:
    retry: Retry | None = None
    dead_letter: bool | str = False
    ordered: bool = False
    timeout_ms: int | None = None
