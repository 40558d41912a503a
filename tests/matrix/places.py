"""Where the processes of a cluster run. On the loopback everyone reaches everyone, always."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tests.brokers import free_port


@dataclass(frozen=True, slots=True)
class Place:
    """An address, and the network namespace that it is in, if it is in one of its own."""

    host: str
    port: int
    namespace: str | None = None


class Places(Protocol):
    can_be_cut: bool

    def of_broker(self, node_id: int) -> Place: ...
    def of_zookeeper(self) -> Place: ...
    def close(self) -> None: ...


class Loopback:
    can_be_cut = False

    def of_broker(self, node_id: int) -> Place:
        return Place("127.0.0.1", free_port())

    def of_zookeeper(self) -> Place:
        return Place("127.0.0.1", free_port())

    def close(self) -> None:
        pass
