"""The table of handlers. What stands here is served, and is what ApiVersions announces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from penstock.protocol.apis import REQUESTS
from penstock.protocol.schema import Message, Versions
from penstock.server.handlers import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)

_SERVED: dict[int, ModuleType] = {
    0: produce,
    1: fetch,
    2: list_offsets,
    3: metadata,
    8: offset_commit,
    9: offset_fetch,
    10: find_coordinator,
    11: join_group,
    12: heartbeat,
    13: leave_group,
    14: sync_group,
    15: describe_groups,
    16: list_groups,
    18: api_versions,
    19: create_topics,
    20: delete_topics,
    21: delete_records,
    22: init_producer_id,
    23: offset_for_leader_epoch,
    32: describe_configs,
    33: alter_configs,
    35: describe_log_dirs,
    37: create_partitions,
    42: delete_groups,
    44: incremental_alter_configs,
    47: offset_delete,
    60: describe_cluster,
    61: describe_producers,
    74: list_config_resources,
    75: describe_topic_partitions,
}

# Older librdkafka drops compression in silence unless Produce is announced from version 0 (KIP-896); versions below
# the request's own are refused when they are sent.
_ANNOUNCED_FROM = {0: 0}


@dataclass(frozen=True, slots=True)
class Route:
    request: type[Message]
    handle: Callable[..., Any]
    advertised: Versions


HANDLERS: dict[int, Route] = {
    key: Route(
        REQUESTS[key],
        module.handle,
        Versions(_ANNOUNCED_FROM.get(key, REQUESTS[key].versions.first), REQUESTS[key].versions.last),
    )
    for key, module in _SERVED.items()
}
