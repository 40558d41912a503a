"""Valid requests of every API and version, with the names and numbers that take them deep into a broker."""

from __future__ import annotations

import random
from typing import Any

from penstock.protocol.apis import REQUESTS
from penstock.protocol.framing import request_frame
from penstock.protocol.schema import Message
from tests.fuzz.batches import random_batch
from tests.fuzz.mutation import damaged, spliced
from tests.hostile.clients import sized
from tests.protocol.random_messages import _struct as random_struct

TOPICS = {
    "plain": {},
    "recompressed": {"compression_type": "lz4"},
    "validated": {"record_validation": "full"},
    "compacted": {"cleanup_policy": "compact"},
    "stamped": {"message_timestamp_type": "LogAppendTime"},
}  # type: dict[str, dict[str, str]]
GROUPS = ["readers", "writers", ""]
CLIENT_IDS = ["fuzz", "four"]  # of one length, so that the body begins in one place
LENGTH_SIZE = 4
HEADER_SIZE = LENGTH_SIZE + 14
DAMAGE_IN_THE_BODY = 0.85
KNOWN_MORE_OFTEN_THAN_NOT = 0.7

_NAMES = {"name", "topic", "topic_name", "resource_name"}
_TRANSACTIONAL_IDS = {"transactional_id", "v3_and_below_transactional_id"}
_LISTS_OF_GROUPS = {"groups", "groups_names", "coordinator_keys"}
_INDEXES = {"partition", "index", "partition_index", "partition_indexes"}
_CHOICES: dict[str, list[Any]] = {
    "group_id": GROUPS,
    "key": GROUPS,
    "acks": [-1, 1, 0],
    "max_wait_ms": [0, 0, 5],
    "timeout_ms": [0, 50],
    "session_timeout_ms": [6_000, 10_000],
    "rebalance_timeout_ms": [0, 50, 6_000],
    "member_id": ["", "somebody"],
    "group_instance_id": ["one", "two", None],
    "generation_id": [-1, 1, 2],
    "generation_id_or_member_epoch": [-1, 1],
    "protocol_type": ["consumer"],
    "num_partitions": [1, -1, 2],
    "replication_factor": [1, -1],
    "assignments": [[]],
    "session_epoch": [-1, 0, 1],
    "session_id": [0],
    "max_bytes": [1 << 20, 0],
    "partition_max_bytes": [1 << 20, 0],
    "current_leader_epoch": [-1, 0],
    "fetch_offset": [0, 1, 5, -1],
    "timestamp": [-1, -2, -3, 0, 1_700_000_000_000],
    "resource_type": [2, 4],
    "replica_id": [-1],
    "producer_id": [-1, 0, 7],
}


def random_request(rng: random.Random) -> tuple[Message, int]:
    """A message and a version that carries it."""
    cls = rng.choice(_APIS)
    version = rng.randint(cls.versions.first, cls.versions.last)
    return random_struct(cls, version, rng, _narrow), version


def random_frame(rng: random.Random) -> bytes:
    message, version = random_request(rng)
    return request_frame(message, version, rng.randrange(1 << 31), rng.choice(CLIENT_IDS))


def damaged_frame(rng: random.Random) -> bytes:
    """Most often only in its body, and with its length put right: else few would get further than the door."""
    frame = random_frame(rng)
    head = HEADER_SIZE if rng.random() < DAMAGE_IN_THE_BODY else LENGTH_SIZE
    return sized(frame[LENGTH_SIZE:head] + damaged(frame[head:], rng))


def spliced_frame(rng: random.Random) -> bytes:
    one, other = random_frame(rng), random_frame(rng)
    return sized(one[LENGTH_SIZE:HEADER_SIZE] + spliced(one[HEADER_SIZE:], other[HEADER_SIZE:], rng))


# What most clients send most of the time gets the most attention.
_APIS = [*REQUESTS.values(), *[REQUESTS[0]] * 6, *[REQUESTS[1]] * 4]


def _narrow(name: str, value: Any, rng: random.Random) -> Any:
    """Values that a broker knows, most of the time, where any other would be turned away at the door."""
    if name == "records":
        return memoryview(random_batch(rng))
    if rng.random() > KNOWN_MORE_OFTEN_THAN_NOT:
        return value
    if name in _TRANSACTIONAL_IDS and isinstance(value, str):
        return rng.choice(["first", "second"])
    if name in _NAMES and isinstance(value, str):
        return rng.choice(list(TOPICS))
    if name == "topic_names":
        return ["gone"]
    if name in _LISTS_OF_GROUPS and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return rng.choices(GROUPS, k=len(value))
    if name in _INDEXES:
        return rng.choice([0, 0, 1, -1]) if isinstance(value, int) else [0, 1, 0]
    return rng.choice(_CHOICES[name]) if name in _CHOICES else value
