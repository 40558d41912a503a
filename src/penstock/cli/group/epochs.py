"""What librdkafka does not pass on of a consumer group: epochs, and states that it has no names for.

One ConsumerGroupDescribe on a connection of its own, to the coordinator. Nothing depends on it: where that is not
possible, the description has gaps.
"""

from __future__ import annotations

from typing import Any

from penstock.cli.problem import Problem
from penstock.cli.raw import address_of, ask
from penstock.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

VERSION = 0  # what is read here is in all of them


def ask_coordinator(coordinator: Any, name: str) -> DescribedGroup | None:
    """`coordinator` has a host and a port. None where it does not answer, or answers something else."""
    request = ConsumerGroupDescribeRequest(group_ids=[name])
    try:
        response = ask(address_of(coordinator), request, VERSION, ConsumerGroupDescribeResponse)
    except Problem:
        return None
    return next((group for group in response.groups if group.group_id == name and not group.error_code), None)


def places(assignment: Assignment) -> set[tuple[str, int]]:
    return {(topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions}
