"""ApiVersions: what this broker serves, read off the table of routes that serves it.

A request in a version that is not served never gets here: the router answers it in version 0 (KIP-511).
"""

from __future__ import annotations

import logging
import re

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from penstock.server.context import Call, Context
from penstock.server.features import FEATURES, FEATURES_EPOCH

log = logging.getLogger(__name__)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
# Clients fail on a feature that is supported from 0 unless they speak this version (KAFKA-17492).
LEVEL_0_SINCE = 4


def handle(context: Context, call: Call[ApiVersionsRequest]) -> ApiVersionsResponse:
    if call.version >= 3:
        name, version = call.request.client_software_name, call.request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        seen = {"host": call.client_host, "id": call.client_id, "software": name, "version": version}
        log.debug("client", extra=seen)
    return ApiVersionsResponse(
        api_keys=served(),
        supported_features=[
            SupportedFeatureKey(name=each.name, min_version=each.supported_from, max_version=each.supported_to)
            for each in FEATURES
            if each.supported_from > 0 or call.version >= LEVEL_0_SINCE
        ],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[
            FinalizedFeatureKey(name=each.name, max_version_level=each.finalized, min_version_level=each.finalized)
            for each in FEATURES
        ],
    )


def served() -> list[ApiVersion]:
    from penstock.server.routing import HANDLERS  # the table imports this handler

    return [
        ApiVersion(key=key, min_version=route.advertised.first, max_version=route.advertised.last)
        for key, route in sorted(HANDLERS.items())
    ]
