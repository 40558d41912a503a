"""Topics for dead letters, made when they are not there: a bad record must have somewhere to go, large ones too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from penstock.pipeline import topics
from penstock.pipeline.brokers import Brokers
from penstock.pipeline.transform.model import Source
from penstock.protocol.errors import ApiError

ROOM_BYTES = 64 << 10  # for the headers that say what is wrong with a record
BATCH_BYTES_MAX = (1 << 31) - 1


def create_missing(brokers: Brokers, names: Sequence[str], sources: Sequence[Source]) -> None:
    """With as many partitions and replicas as the brokers make by default, for records as large as the sources take."""
    for name in names:
        largest = _largest(brokers, [each for each in sources if each.dead_letters == name])
        settings = {}
        if largest is not None:
            settings[topics.MESSAGE_BYTES_MAX] = str(min(largest + ROOM_BYTES, BATCH_BYTES_MAX))
        try:
            topics.create(brokers, name, -1, settings)
        except ApiError as error:
            raise ApiError(error.code, f"topic {name!r}: {error.message or ''}") from error


def _largest(brokers: Brokers, sources: Iterable[Source]) -> int | None:
    known = [topics.message_bytes_max(brokers, topic) for source in sources for topic in _topics_of(brokers, source)]
    return max((each for each in known if each is not None), default=None)


def _topics_of(brokers: Brokers, source: Source) -> Iterable[str]:
    if source.pattern is None:
        return source.topics
    pattern = re.compile(source.pattern)
    return [name for name in brokers.topics() if pattern.fullmatch(name)]
