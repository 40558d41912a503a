"""One member of a consumer group. It is a value: a change makes another, and the log decides which one holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.groups.consumer.partitions import NO_PARTITIONS, Partitions
from penstock.groups.consumer.states import JOIN_EPOCH, MemberState
from penstock.groups.timers import Kind, Timer


def _nothing() -> Partitions:
    return NO_PARTITIONS


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """What is known of a member that speaks the classic protocol: it joins, syncs and beats as ever."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # name and metadata, what it likes best first


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    member_id: str
    instance_id: str | None = None  # of a static member (KIP-345)
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] = ()  # sorted, each once
    topic_regex: str | None = None
    server_assignor: str | None = None
    classic: ClassicSide | None = None

    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=_nothing)
    pending_revocation: Partitions = field(default_factory=_nothing)

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch


class Watch:
    """The clocks of one member."""

    __slots__ = ("join", "rebalance", "session", "sync")

    def __init__(self, group_id: str, member_id: str) -> None:
        self.session = Timer(Kind.CONSUMER_SESSION, group_id, member_id)
        self.rebalance = Timer(Kind.REVOCATION, group_id, member_id)
        self.join = Timer(Kind.CLASSIC_JOIN, group_id, member_id)
        self.sync = Timer(Kind.CLASSIC_SYNC, group_id, member_id)

    @property
    def timers(self) -> tuple[Timer, ...]:
        return self.session, self.rebalance, self.join, self.sync
