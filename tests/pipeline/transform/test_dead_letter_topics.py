"""A bad record has somewhere to go, however large it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.pipeline.brokers import Brokers
from penstock.pipeline.topics import message_bytes_max
from penstock.pipeline.transform.dead_letter_topics import ROOM_BYTES, create_missing
from penstock.pipeline.transform.model import Format, Source
from penstock.protocol.errors import ApiError
from tests.brokers import BrokerProcess
from tests.pipeline.histories import settings_of


def test_a_new_topic_takes_records_as_large_as_its_sources_and_their_headers_more(
    broker: BrokerProcess, new_topic: Callable[..., str]
) -> None:
    small, large = new_topic(), new_topic(max_message_bytes=8_000_000)
    dead = [f"{large}-dead", f"{small}-dead", f"{large}-fits-dead"]
    source = Source("view", (small, large), None, Format.JSON, "id BIGINT", dead[0])
    others = [
        replace(source, topics=(small,), dead_letters=dead[1]),
        replace(source, topics=(), pattern=f"{large}$", dead_letters=dead[2]),
    ]
    with Brokers(settings_of(broker.bootstrap)) as brokers:
        create_missing(brokers, dead, [source, *others])
        create_missing(brokers, dead[:1], [])  # stays as it is
        limits = [message_bytes_max(brokers, each) for each in (small, *dead)]
        assert limits[0] is not None
        assert limits[1:] == [8_000_000 + ROOM_BYTES, limits[0] + ROOM_BYTES, 8_000_000 + ROOM_BYTES]
        with pytest.raises(ApiError, match="topic 'no/such name'"):
            create_missing(brokers, ["no/such name"], [])
