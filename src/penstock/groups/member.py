"""One member of a group: who it is, what it can do, what it was given, and what it waits for."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import NamedTuple

from penstock.coordinator.machine import Ticket
from penstock.groups.timers import Timer


class ParkedJoin(NamedTuple):
    """A JoinGroup that is answered when the join phase ends, in the version that was asked."""

    ticket: Ticket
    version: int


@dataclass(slots=True, eq=False)
class Member:
    member_id: str
    group_instance_id: str | None  # of a static member (KIP-345)
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: dict[str, bytes]  # the member's metadata by protocol, what it likes best first
    session: Timer
    assignment: bytes = b""
    parked_join: ParkedJoin | None = None
    parked_sync: Ticket | None = None
    is_new: bool = False  # its first JoinGroup is parked, and it may not know its id

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """A member that waits for us can't be late, unless it is new: it may have gone without our noticing."""
        return not self.is_new and (self.parked_join is not None or self.parked_sync is not None)

    def offers_same(self, protocols: dict[str, bytes]) -> bool:
        """The order counts: it is how the member votes."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: Container[str]) -> str:
        return next(name for name in self.protocols if name in candidates)
