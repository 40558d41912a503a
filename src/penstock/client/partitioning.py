"""Which partition a message goes to, where the program wants to say so itself."""

from __future__ import annotations

from collections.abc import Callable

from penstock.client.errors import SettingsError, UsageError, near_miss

Partitioner = Callable[[bytes | None, int], int]  # key and count of partitions to partition

# librdkafka's own. `murmur2_random` is what Java's clients do.
PARTITIONERS = (
    "random",
    "consistent",
    "consistent_random",
    "murmur2",
    "murmur2_random",
    "fnv1a",
    "fnv1a_random",
)
DEFAULT_PARTITIONER = "murmur2_random"


def split_partitioner(given: str | Partitioner | None) -> tuple[str, Partitioner | None]:
    """What librdkafka is told, and the function that we call ourselves, if it is one."""
    if given is None:
        return DEFAULT_PARTITIONER, None
    if callable(given):
        return DEFAULT_PARTITIONER, given
    if isinstance(given, str) and given in PARTITIONERS:
        return given, None
    hint = near_miss(str(given), PARTITIONERS) or f"There are {', '.join(PARTITIONERS)}; or give a callable."
    raise SettingsError(f"there is no partitioner {given!r}.", hint)


def choose_partition(partitioner: Partitioner, key: bytes | None, partitions: int, topic: str) -> int:
    try:
        chosen = partitioner(key, partitions)
    except Exception as failure:
        raise UsageError(
            f"the partitioner failed for topic {topic!r}: {type(failure).__name__}: {failure}.",
            "It gets the key's bytes, or None, and the count of partitions. Nothing was sent.",
        ) from failure
    if not isinstance(chosen, int) or not 0 <= chosen < partitions:
        raise UsageError(
            f"the partitioner chose {chosen!r} for topic {topic!r}.", f"It must return 0 to {partitions - 1} here."
        )
    return chosen
