"""What may be given to a call, checked before a broker or librdkafka gets to see it.

Both would say something else, later, or nothing: a number that is text fails in the midst of a call, and what is no
partition is paused without a word.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from penstock.client.errors import SettingsError, UsageError
from penstock.client.message import Place

TIMESTAMP_MS_MAX = 2**63 - 1
PARTITION_MAX = 2**31 - 1
OFFSET_MAX = 2**63 - 1
PLACES_SHOWN = 5


def check_count(count: int | None) -> None:
    """How many messages, where None is all there will ever be."""
    if count is not None and (not _is_whole(count) or count < 0):
        raise UsageError(f"count={count!r} is no number of messages.", "For example: count=10, or None for no end.")


def check_seconds(value: float, name: str) -> float:
    """For settings that are a time to wait."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise SettingsError(f"{name}={value!r} is no number of seconds.", f"For example: {name}=5.0")
    return value


def check_positive(value: float, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise SettingsError(f"{name}={value!r} is no number above 0.", f"For example: {name}=1")
    return value


def check_flag(value: bool, name: str) -> bool:
    if not isinstance(value, bool):
        raise SettingsError(f"{name}={value!r} is neither True nor False.", f"For example: {name}=False")
    return value


def check_timestamp(timestamp_ms: int) -> int:
    """librdkafka takes 0 for now, so what is of 1970's first moment can't be sent as such."""
    if not _is_whole(timestamp_ms) or not 0 < timestamp_ms <= TIMESTAMP_MS_MAX:
        raise UsageError(
            f"timestamp_ms={timestamp_ms!r} is no time of a message.",
            "It is a whole number of milliseconds since 1970, above 0: int(moment.timestamp() * 1000). "
            "Without one, it is the time of sending.",
        )
    return timestamp_ms


def check_partition(partition: int) -> None:
    if not _is_whole(partition) or abs(partition) > PARTITION_MAX:
        raise UsageError(
            f"partition={partition!r} is no number of a partition.",
            "Partitions are counted from 0; without one, the key decides.",
        )


def check_offset(offset: int) -> None:
    """Two below 0 are Kafka's for the beginning and the end."""
    if not _is_whole(offset) or not -2 <= offset <= OFFSET_MAX:
        raise UsageError(
            f"offset={offset!r} is no offset.", "Offsets are whole numbers, counted from 0: message.offset is one."
        )


def check_header_names(headers: Any) -> None:
    """confluent-kafka would write down what Python shows of other objects, and ends the process where a name is no
    Unicode, as are those that stand for bytes of a file's name."""
    for name in headers if isinstance(headers, dict) else (pair[0] for pair in headers):
        if not isinstance(name, str):
            raise TypeError(f"{name!r} is no name of a header")
        if not name.isascii():
            name.encode()


def check_places(places: Sequence[Place], ours: Collection[Place]) -> Iterable[Place]:
    """Those that were given, which must be of this member; or all that it has."""
    for place in places:
        is_pair = isinstance(place, tuple) and len(place) == 2
        if not is_pair or not isinstance(place[0], str) or not _is_whole(place[1]):
            raise UsageError(
                f"{place!r} is no partition.", "Name topic and partition, as consumer.assignment does: ('orders', 0)"
            )
        if place not in ours:
            raise UsageError(f"this member does not read {place[0]}[{place[1]}].", f"It reads {_shown(ours)}.")
    return places or ours


def _shown(places: Collection[Place]) -> str:
    names = [f"{topic}[{partition}]" for topic, partition in sorted(places)]
    more = len(names) - PLACES_SHOWN
    return ", ".join(names[:PLACES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
