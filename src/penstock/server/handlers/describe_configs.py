"""DescribeConfigs: the settings in force on a topic, a broker or a group, and where each of them comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.cluster.settings import GROUP_SETTINGS
from penstock.cluster.topic_names import check_topic_name
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from penstock.server.config_entries import (
    CONNECTED,
    ConfigEntry,
    broker_entries,
    cluster_entries,
    connected_entry,
    topic_entries,
)
from penstock.server.config_resources import ResourceType, own_broker_id
from penstock.server.context import Call, Context


async def handle(context: Context, call: Call[DescribeConfigsRequest]) -> DescribeConfigsResponse:
    names = [each.resource_name for each in call.request.resources if each.resource_type == ResourceType.TOPIC]
    try:
        await context.administration.learn(names)  # another broker may have made them just now
    except ApiError:
        pass  # what is not known then is said of each
    asked = {(resource.resource_type, resource.resource_name): resource for resource in call.request.resources}
    return DescribeConfigsResponse(results=[_describe(context, call.request, resource) for resource in asked.values()])


def _describe(
    context: Context, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    wanted = resource.configuration_keys  # none, or an empty list, is all
    try:
        result.configs = [
            _shown(entry, request)
            for entry in _entries(context, resource)
            if not wanted or entry.setting.name in wanted
        ]
    except ApiError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


def _entries(context: Context, resource: DescribeConfigsResource) -> Iterable[ConfigEntry]:
    kind, name, settings = resource.resource_type, resource.resource_name, context.settings
    if kind == ResourceType.TOPIC:
        check_topic_name(name)
        topic = context.image.topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic_entries(topic.config, settings)
    if kind == ResourceType.BROKER:
        if not name:
            return cluster_entries(settings)
        own_broker_id(context, name)
        entries = broker_entries(settings, _following(context))
        if CONNECTED.name in (resource.configuration_keys or ()):
            return [*entries, connected_entry(context.administration.is_connected)]
        return entries
    if kind == ResourceType.BROKER_LOGGER:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        own_broker_id(context, name)
        return ()
    if kind in (ResourceType.CLIENT_METRICS, ResourceType.GROUP):
        if not name:
            what = "Client metrics subscription" if kind == ResourceType.CLIENT_METRICS else "Group"
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{what} name must not be empty")
        return _group_entries(context, name) if kind == ResourceType.GROUP else ()
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")


def _following(context: Context) -> dict[str, str]:
    """Where this broker is, which clients look for in settings that need not be given here."""
    node_id = str(context.node_id)
    found = {"node.id": node_id, "broker.id": node_id}
    if (broker := context.image.brokers.get(context.node_id)) is not None:
        listener = broker.endpoints[0].listener
        found["listeners"] = f"{listener}://{context.settings.get('listen')}"
        told = (f"{each.listener}://{each.host}:{each.port}" for each in broker.endpoints)
        found["advertised.listeners"] = ",".join(told)
    return found


def _group_entries(context: Context, group_id: str) -> Iterator[ConfigEntry]:
    """Of any name: a group has settings before it exists."""
    config = context.image.group_configs.get(group_id, {})
    for name, setting in GROUP_SETTINGS.items():
        (origin,) = context.settings.group_origins(name, config)
        yield ConfigEntry(setting, origin.text, origin.source, False, [origin])


def _shown(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = []
    if request.include_synonyms:
        synonyms = [
            DescribeConfigsSynonym(name=origin.name, value=origin.text, source=origin.source)
            for origin in entry.origins
        ]
    return DescribeConfigsResourceResult(
        name=entry.setting.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        synonyms=synonyms,
        config_type=entry.setting.type,
        documentation=entry.setting.documentation if request.include_documentation else None,
    )
