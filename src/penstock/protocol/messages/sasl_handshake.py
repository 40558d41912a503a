"""SaslHandshake (17): which mechanism a client will authenticate by."""

from __future__ import annotations

from penstock.protocol.schema import INT16, STRING, Message, array, field


class SaslHandshakeRequest(Message, api_key=17, versions="0-1", flexible=None):
    mechanism: str = field(STRING)


class SaslHandshakeResponse(Message, api_key=17, versions="0-1", flexible=None):
    error_code: int = field(INT16)
    mechanisms: list[str] = field(array(STRING))
