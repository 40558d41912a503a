"""Topics for dead letters, made when they are not there: a bad record must have somewhere to go."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.pipeline.brokers import Brokers
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest


def create_missing(brokers: Brokers, names: Sequence[str]) -> None:
    """With as many partitions and replicas as the brokers make by default."""
    if not names:
        return

    def attempt() -> None:
        connection = brokers.any()
        topics = [CreatableTopic(name=name, num_partitions=-1, replication_factor=-1) for name in names]
        request = CreateTopicsRequest(topics=topics, timeout_ms=30_000)
        for answer in connection.ask(request, connection.newest(CreateTopicsRequest, 7)).topics:
            if answer.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise ApiError(ErrorCode(answer.error_code), f"topic {answer.name!r}: {answer.error_message or ''}")

    brokers.until_answered(attempt, f"creation of topic {names[0]!r}")
