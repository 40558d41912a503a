"""The table of handlers. What stands here is served, and but for a few versions is what ApiVersions announces.

A handler is imported when it is first needed, and all of them soon after the start: a broker answers before it has
loaded what its first clients will not ask for.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from penstock.protocol.apis import REQUESTS
from penstock.protocol.schema import Message, Versions

_SERVED = {
    0: "produce",
    1: "fetch",
    2: "list_offsets",
    3: "metadata",
    8: "offset_commit",
    9: "offset_fetch",
    10: "find_coordinator",
    11: "join_group",
    12: "heartbeat",
    13: "leave_group",
    14: "sync_group",
    15: "describe_groups",
    16: "list_groups",
    18: "api_versions",
    19: "create_topics",
    20: "delete_topics",
    21: "delete_records",
    22: "init_producer_id",
    23: "offset_for_leader_epoch",
    24: "add_partitions_to_txn",
    25: "add_offsets_to_txn",
    26: "end_txn",
    27: "write_txn_markers",
    28: "txn_offset_commit",
    32: "describe_configs",
    33: "alter_configs",
    35: "describe_log_dirs",
    37: "create_partitions",
    42: "delete_groups",
    43: "elect_leaders",
    44: "incremental_alter_configs",
    45: "alter_partition_reassignments",
    46: "list_partition_reassignments",
    47: "offset_delete",
    57: "update_features",
    60: "describe_cluster",
    61: "describe_producers",
    65: "describe_transactions",
    66: "list_transactions",
    68: "consumer_group_heartbeat",
    69: "consumer_group_describe",
    74: "list_config_resources",
    75: "describe_topic_partitions",
}

# Older librdkafka drops compression in silence unless Produce is announced from version 0 (KIP-896); versions below
# the request's own are refused when they are sent.
_ANNOUNCED_FROM = {0: 0}
# What Kafka calls unstable is served to whoever sends it, and not chosen by clients that look for the newest: version 6
# of InitProducerId, for transactions in two phases (KIP-939).
_ANNOUNCED_TO = {22: 5}


class Route:
    """A request, and who handles it."""

    __slots__ = ("_handle", "_module", "advertised", "request")

    def __init__(self, request: type[Message], module: str, advertised: Versions) -> None:
        self.request = request
        self.advertised = advertised
        self._module = f"penstock.server.handlers.{module}"
        self._handle: Callable[..., Any] | None = None

    @property
    def handle(self) -> Callable[..., Any]:
        if self._handle is None:
            self._handle = import_module(self._module).handle
        return self._handle


HANDLERS: dict[int, Route] = {
    key: Route(
        REQUESTS[key],
        module,
        Versions(
            _ANNOUNCED_FROM.get(key, REQUESTS[key].versions.first),
            _ANNOUNCED_TO.get(key, REQUESTS[key].versions.last),
        ),
    )
    for key, module in _SERVED.items()
}
