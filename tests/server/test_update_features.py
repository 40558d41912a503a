from __future__ import annotations

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from penstock.server.features import FEATURES
from penstock.server.handlers import update_features
from penstock.server.handlers.update_features import UpgradeType
from tests.server.admin_broker import AdminBroker


async def ask(broker: AdminBroker, *updates: FeatureUpdateKey, version: int = 2) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(feature_updates=list(updates))
    return await broker.ask(update_features.handle, request, UpdateFeaturesResponse, version)


def update(feature: str, level: int, kind: UpgradeType | int = UpgradeType.UPGRADE) -> FeatureUpdateKey:
    return FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)


@pytest.mark.parametrize("version", range(3))
async def test_what_is_so_already_is_granted(admin_broker: AdminBroker, version: int) -> None:
    updates = [FeatureUpdateKey(feature=each.name, max_version_level=each.finalized) for each in FEATURES]
    response = await ask(admin_broker, *updates, version=version)
    assert response.error_code == ErrorCode.NONE
    answered = [(result.feature, result.error_code) for result in response.results]
    assert answered == ([(each.name, ErrorCode.NONE) for each in FEATURES] if version < 2 else [])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (update("some.feature", 1), "do not support this feature"),
        (update("group.version", 2), "up to version 1"),
        (update("group.version", 0), "without setting the upgrade type"),
        (update("group.version", 0, UpgradeType.SAFE_DOWNGRADE), "always at version 1"),
        (update("transaction.version", -1, UpgradeType.UNSAFE_DOWNGRADE), "always at version 2"),
        (update("group.version", 1, 9), "upgrade type"),
    ],
)
async def test_nothing_is_switched_to_another_version(
    admin_broker: AdminBroker, asked: FeatureUpdateKey, said: str
) -> None:
    response = await ask(admin_broker, update("transaction.version", 2), asked)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert said in (response.error_message or "")


async def test_a_downgrade_is_refused_as_version_0_asks_for_it(admin_broker: AdminBroker) -> None:
    asked = FeatureUpdateKey(feature="group.version", max_version_level=0, allow_downgrade=True)
    response = await ask(admin_broker, asked, version=0)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "always at version 1" in (response.error_message or "")
