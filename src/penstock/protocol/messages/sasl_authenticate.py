"""SaslAuthenticate (36): one step of the mechanism's own conversation (KIP-152)."""

from __future__ import annotations

from penstock.protocol.schema import BYTES, INT16, INT64, STRING, Message, field


class SaslAuthenticateRequest(Message, api_key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = field(BYTES)


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+"):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    auth_bytes: bytes = field(BYTES)
    session_lifetime_ms: int = field(INT64, "1+")
