"""What the admin handlers need of a broker: a real administration over the embedded store, and a fake for partitions.

Requests and responses go through the codec at the version of the call, as they would on the wire.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from penstock.cluster.model import BrokerState, Endpoint
from penstock.protocol.codec import decode, encode_bytes
from penstock.protocol.errors import ApiError
from penstock.protocol.schema import Message
from penstock.replication.holds import Hold
from penstock.server.context import Call, Context
from penstock.server.failures import error_response
from tests.cluster.controlled_cluster import LISTENER, NODE_ID, ControlledCluster

M = TypeVar("M", bound=Message)


@dataclass
class FakeProducerEntry:
    producer_id: int
    producer_epoch: int = 0
    last_sequence: int = -1
    last_timestamp_ms: int = -1
    current_transaction_first_offset: int = -1
    coordinator_epoch: int = -1


@dataclass
class FakePartitions:
    data_dir: Path
    held: dict[tuple[str, int], int] = field(default_factory=dict)
    producers: dict[tuple[str, int], list[FakeProducerEntry]] = field(default_factory=dict)

    def sizes(self) -> dict[tuple[str, int], int]:
        return self.held

    def get(self, topic: str, index: int) -> Any:
        entries = self.producers.get((topic, index))
        if entries is None:
            return None
        active: Callable[[], Iterable[FakeProducerEntry]] = lambda: entries  # noqa: E731
        return SimpleNamespace(leads=True, log=SimpleNamespace(producers=SimpleNamespace(active=active)))


class AdminBroker:
    def __init__(self, folder: Path, **settings: str) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.cluster = ControlledCluster(folder, named)
        self.partitions = FakePartitions(folder)
        self.holds: dict[tuple[str, int], Hold] = {}

    async def start(self) -> AdminBroker:
        await self.cluster.start()
        self.image, self.administration = self.cluster.image, self.cluster.administration
        self.image.controller_id = NODE_ID
        self.context = cast(
            Context,
            SimpleNamespace(
                node_id=NODE_ID,
                image=self.image,
                settings=self.cluster.settings,
                administration=self.administration,
                partitions=self.partitions,
                upkeep=SimpleNamespace(holds=lambda: self.holds),
            ),
        )
        return self

    async def stop(self) -> None:
        await self.cluster.stop()

    def add_broker(self, node_id: int, listener: str = LISTENER, rack: str | None = None) -> None:
        self.image.brokers[node_id] = BrokerState(node_id, (Endpoint(listener, f"host{node_id}", 9092),), rack)

    async def ask(
        self, handle: Callable[[Context, Any], Any], request: Message, response: type[M], version: int | None = None
    ) -> M:
        """As the router does it: an error that ends the request is made a response."""
        version = request.versions.last if version is None else version
        received = decode(type(request), encode_bytes(request, version), version)
        call = Call(request=received, version=version, client_id="test", client_host="127.0.0.1", listener=LISTENER)
        try:
            answer = handle(self.context, call)
            if inspect.isawaitable(answer):
                answer = await answer
        except ApiError as error:
            answer = error_response(received, version, error)
        return decode(response, encode_bytes(answer, version), version)
