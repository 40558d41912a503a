"""What a topic may be called, and which names are the broker's own."""

from __future__ import annotations

import re
from collections.abc import Iterable

from penstock.protocol.errors import ApiError, ErrorCode

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state"})
CLUSTER_METADATA_TOPIC = "__cluster_metadata"  # Kafka's own log of metadata: never a topic
NAME_LENGTH_MAX = 249

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def why_illegal(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def check_topic_name(name: str) -> None:
    if reason := why_illegal(name):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def missing_topic_error(name: str) -> ErrorCode:
    """What a request gets that names a topic which does not exist."""
    return ErrorCode.INVALID_TOPIC_EXCEPTION if why_illegal(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class NameIndex:
    """Finds the topic whose name differs from another only in '.' against '_', which metrics can't tell apart."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: dict[str, str] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        if "." in name or "_" in name:
            self._names[name.replace(".", "_")] = name

    def remove(self, name: str) -> None:
        if self._names.get(name.replace(".", "_")) == name:
            del self._names[name.replace(".", "_")]

    def collision(self, name: str) -> str | None:
        other = self._names.get(name.replace(".", "_"))
        return other if other != name else None
