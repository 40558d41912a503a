"""What a ConsumerGroupHeartbeat must look like, whatever the group."""

from __future__ import annotations

from penstock.groups.config import GroupConfig, is_too_long
from penstock.groups.consumer.states import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

CLIENT_CHOOSES_ID_VERSION = 1  # KIP-1082
UNCHANGED_MS = -1


def validate_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int, config: GroupConfig) -> None:
    epoch = request.member_epoch
    if version >= CLIENT_CHOOSES_ID_VERSION or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        _require(not _is_blank(request.member_id), "MemberId can't be empty.")
    _require(not _is_blank(request.group_id), "GroupId can't be empty.")
    _require(not _is_blank(request.instance_id), "InstanceId can't be empty.")
    _require(not _is_blank(request.rack_id), "RackId can't be empty.")
    too_long = is_too_long(request.group_id, request.member_id, request.instance_id, request.rack_id)
    _require(not too_long, "An id is too long.")
    _require(request.rebalance_timeout_ms >= UNCHANGED_MS, "RebalanceTimeoutMs is invalid.")
    if epoch == JOIN_EPOCH:
        _validate_join(request)
    elif epoch == LEAVE_STATIC_EPOCH:
        _require(request.instance_id is not None, "InstanceId can't be null.")
    else:
        _require(epoch >= LEAVE_EPOCH, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in config.consumer_assignors:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(config.consumer_assignors)}.",
        )
    _validate_size(request, config)


def _validate_join(request: ConsumerGroupHeartbeatRequest) -> None:
    _require(request.rebalance_timeout_ms != UNCHANGED_MS, "RebalanceTimeoutMs must be provided in first request.")
    _require(request.topic_partitions == [], "TopicPartitions must be empty when (re-)joining.")
    _require(
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    )


def _validate_size(request: ConsumerGroupHeartbeatRequest, config: GroupConfig) -> None:
    """A subscription is held in memory, and goes to the log as one record."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    if names is None and regex is None:
        return
    size = sum(len(name.encode()) for name in names or ()) + len((regex or "").encode())
    _require(size <= config.member_metadata_max_bytes, "The subscription is too large.")


def _is_blank(text: str | None) -> bool:
    return text is not None and not text.strip()


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
