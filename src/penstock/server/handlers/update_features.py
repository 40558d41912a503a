"""UpdateFeatures: what brokers can do is on and stays on, so only what is so already may be asked for (KIP-584)."""

from __future__ import annotations

from enum import IntEnum

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from penstock.server.context import Call, Context
from penstock.server.features import FEATURES

FINALIZED = {each.name: each.finalized for each in FEATURES}


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def handle(context: Context, call: Call[UpdateFeaturesRequest]) -> UpdateFeaturesResponse:
    updates = call.request.feature_updates
    for update in updates:
        if problem := _problem(update):
            # All or none, and the client looks for it at the top, as Kafka's controller has it.
            start = "The update failed for all features since the following feature had an error: "
            invalid = f"Invalid update version {update.max_version_level} for feature {update.feature}. "
            raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, start + invalid + problem)
    return UpdateFeaturesResponse(results=[UpdatableFeatureResult(feature=update.feature) for update in updates])


def _problem(update: FeatureUpdateKey) -> str | None:
    finalized = FINALIZED.get(update.feature)
    if finalized is None:
        return "Brokers do not support this feature."
    if update.max_version_level > finalized:
        return f"Brokers support it up to version {finalized}."
    if update.upgrade_type not in set(UpgradeType):
        return "The controller does not support the given upgrade type."
    if update.max_version_level == finalized:
        return None
    if update.allow_downgrade or update.upgrade_type != UpgradeType.UPGRADE:
        return f"Brokers are always at version {finalized}."
    return "It can't be downgraded without setting the upgrade type to either safe or unsafe downgrade."
