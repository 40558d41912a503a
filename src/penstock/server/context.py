"""What a handler may reach: the rooms below, already wired. Built once, in broker/app.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.protocol.schema import Message

if TYPE_CHECKING:
    from penstock.cluster.administration import Administration
    from penstock.cluster.model import ClusterImage
    from penstock.cluster.settings import BrokerSettings
    from penstock.coordinator.runtime import Runtime
    from penstock.replication.partitions import Partitions
    from penstock.replication.replicas import Replicas
    from penstock.replication.upkeep import Upkeep
    from penstock.server.fetch_sessions import FetchSessions
    from penstock.server.remote_transactions import RemoteTransactions
    from penstock.server.replica_fetch import ReplicaSession
    from penstock.storage.worker import Worker
    from penstock.transactions.markers import Markers

R = TypeVar("R", bound=Message)


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """One request, decoded, and who sent it."""

    request: R
    version: int
    client_id: str | None
    client_host: str
    listener: str = "PLAINTEXT"
    connection: Any = None  # what a fetch session belongs to


@dataclass(slots=True)
class Context:
    node_id: int
    image: ClusterImage
    settings: BrokerSettings
    administration: Administration
    partitions: Partitions
    groups: Runtime
    transactions: Runtime
    markers: Markers
    upkeep: Upkeep
    worker: Worker
    fetch_sessions: FetchSessions
    now_ms: Callable[[], int]
    replicas: Replicas
    remote_transactions: RemoteTransactions
    replica_sessions: dict[int, ReplicaSession] = field(default_factory=dict)  # by the follower's number


Reply = Message | Awaitable[Message]
Handle = Callable[[Context, Call[Any]], Reply]
