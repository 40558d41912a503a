"""Makes the state machines of groups from the broker's settings and its image of the cluster."""

from __future__ import annotations

import uuid

from penstock.broker.topic_view import ImageTopics
from penstock.cluster.group_settings import HEARTBEAT, SESSION
from penstock.cluster.model import ClusterImage
from penstock.cluster.settings import BrokerSettings
from penstock.groups.config import GroupConfig, GroupSettings, MigrationPolicy
from penstock.groups.machine import GroupMachine

APPEND_MAX_BYTES = 4 << 20


def new_group_machine(settings: BrokerSettings, image: ClusterImage, topics: ImageTopics) -> GroupMachine:
    return GroupMachine(
        group_config(settings), lambda prefix: f"{prefix}-{uuid.uuid4()}", topics, _SettingsOfGroups(settings, image)
    )


def group_config(settings: BrokerSettings) -> GroupConfig:
    get = settings.get
    return GroupConfig(
        min_session_timeout_ms=get("group.min.session.timeout.ms"),
        max_session_timeout_ms=get("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=get("group.initial.rebalance.delay.ms"),
        group_max_size=get("group.max.size"),
        consumer_session_timeout_ms=get("group.consumer.session.timeout.ms"),
        consumer_min_session_timeout_ms=get("group.consumer.min.session.timeout.ms"),
        consumer_max_session_timeout_ms=get("group.consumer.max.session.timeout.ms"),
        consumer_heartbeat_interval_ms=get("group.consumer.heartbeat.interval.ms"),
        consumer_min_heartbeat_interval_ms=get("group.consumer.min.heartbeat.interval.ms"),
        consumer_max_heartbeat_interval_ms=get("group.consumer.max.heartbeat.interval.ms"),
        consumer_max_size=get("group.consumer.max.size"),
        consumer_assignors=get("group.consumer.assignors"),
        consumer_migration_policy=MigrationPolicy(get("group.consumer.migration.policy")),
        offset_metadata_max_bytes=get("offset.metadata.max.bytes"),
        append_max_bytes=APPEND_MAX_BYTES,
        offsets_retention_ms=get("offsets.retention.minutes") * 60_000,
        offsets_retention_check_interval_ms=get("offsets.retention.check.interval.ms"),
    )


class _SettingsOfGroups:
    """Asked with every heartbeat, and most groups have no settings of their own."""

    def __init__(self, settings: BrokerSettings, image: ClusterImage) -> None:
        self._settings = settings
        self._image = image
        self._none = GroupSettings()

    def __call__(self, group_id: str) -> GroupSettings:
        config = self._image.group_configs.get(group_id)
        if config is None:
            return self._none
        values = self._settings.effective_group(config)
        return GroupSettings(
            consumer_session_timeout_ms=values[SESSION], consumer_heartbeat_interval_ms=values[HEARTBEAT]
        )
