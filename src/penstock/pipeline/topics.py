"""Topics by their names: what one is set to, and a new one."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.pipeline.brokers import Brokers
from penstock.pipeline.problem import PipelineError
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

TOPIC_RESOURCE = 2
CREATE_TIMEOUT_MS = 30_000
MESSAGE_BYTES_MAX = "max.message.bytes"


def setting(brokers: Brokers, topic: str, name: str) -> str | None:
    """None where there is no such topic, or no such setting."""

    def attempt() -> str | None:
        connection = brokers.any()
        resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=[name])
        request = DescribeConfigsRequest(resources=[resource])
        result = connection.ask(request, connection.newest(DescribeConfigsRequest, 4)).results[0]
        code = ErrorCode(result.error_code)
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if code is not ErrorCode.NONE:
            raise ApiError(code, f"settings of {topic!r}")
        return next((each.value or None for each in result.configs if each.name == name), None)

    try:
        return brokers.until_answered(attempt, f"settings of {topic!r}")
    except ApiError as error:
        raise PipelineError(f"settings of {topic!r}: {error.code.name}") from error


def message_bytes_max(brokers: Brokers, topic: str) -> int | None:
    """The largest batch that the topic takes. None where the broker does not tell, or not everybody."""
    try:
        found = setting(brokers, topic, MESSAGE_BYTES_MAX)
    except PipelineError:
        return None
    return int(found) if found is not None and found.isdigit() else None


def create(brokers: Brokers, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
    """As many replicas as the cluster has by default. A topic that is there already stays as it is."""

    def attempt() -> None:
        connection = brokers.any()
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in settings.items()]
        wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=-1, configs=configs)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=CREATE_TIMEOUT_MS)
        answer = connection.ask(request, connection.newest(CreateTopicsRequest, 7)).topics[0]
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise ApiError(ErrorCode(answer.error_code), answer.error_message or "")

    brokers.until_answered(attempt, f"topic {topic}")
