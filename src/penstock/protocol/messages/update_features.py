"""UpdateFeatures (57): switches features of a cluster to other versions (KIP-584)."""

from __future__ import annotations

from penstock.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Message, Struct, array, field


class FeatureUpdateKey(Struct):
    feature: str = field(STRING)
    max_version_level: int = field(INT16)
    allow_downgrade: bool = field(BOOL, "0")
    upgrade_type: int = field(INT8, "1+", default=1)


class UpdateFeaturesRequest(Message, api_key=57, versions="0-2", flexible="0+"):
    timeout_ms: int = field(INT32, default=60_000)
    feature_updates: list[FeatureUpdateKey] = field(array(FeatureUpdateKey))
    validate_only: bool = field(BOOL, "1+")


class UpdatableFeatureResult(Struct):
    feature: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


class UpdateFeaturesResponse(Message, api_key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    results: list[UpdatableFeatureResult] = field(array(UpdatableFeatureResult), "0-1")
