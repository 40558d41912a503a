"""What a group machine knows of topics: nothing of its own, only what it is shown."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from hashlib import blake2b
from typing import Protocol

from penstock.groups.assignors import TopicShape


class TopicView(Protocol):
    """The topics of the cluster as they are now."""

    @property
    def generation(self) -> int:
        """Changes whenever anything below does."""

    def shape(self, name: str) -> TopicShape | None: ...

    def by_id(self, topic_id: bytes) -> TopicShape | None: ...

    def names(self) -> Iterable[str]:
        """Those that a pattern may match: no internal ones."""

    def awaited_groups(self) -> Iterable[str]:
        """Groups whose commits retention waits for in some topic."""


class NoTopics:
    """A view of a cluster that has none."""

    generation = 0

    def shape(self, name: str) -> TopicShape | None:
        return None

    def by_id(self, topic_id: bytes) -> TopicShape | None:
        return None

    def names(self) -> Iterable[str]:
        return ()

    def awaited_groups(self) -> Iterable[str]:
        return ()


_SHAPE = struct.Struct(">16sI")
_HASH_BYTES = 8


class KnownTopics:
    """A view, with what was worked out from it for as long as it does not change."""

    def __init__(self, view: TopicView) -> None:
        self._view = view
        self._generation: int | None = None
        self._names: frozenset[str] | None = None
        self._awaited: frozenset[str] | None = None
        self._digests: dict[str, bytes] = {}

    @property
    def generation(self) -> int:
        return self._view.generation

    def shape(self, name: str) -> TopicShape | None:
        return self._view.shape(name)

    def by_id(self, topic_id: bytes) -> TopicShape | None:
        return self._view.by_id(topic_id)

    def names(self) -> frozenset[str]:
        self._forget_the_past()
        if self._names is None:
            self._names = frozenset(self._view.names())
        return self._names

    def awaited_groups(self) -> frozenset[str]:
        self._forget_the_past()
        if self._awaited is None:
            self._awaited = frozenset(self._view.awaited_groups())
        return self._awaited

    def ids(self, names: Iterable[str]) -> frozenset[bytes]:
        """Of those that exist."""
        return frozenset(shape.topic_id for name in names if (shape := self._view.shape(name)) is not None)

    def hash_of(self, names: Iterable[str]) -> int:
        """Differs when one of these topics comes, goes, is made anew, grows or moves to other racks; 0 for none."""
        self._forget_the_past()
        digests = [digest for name in sorted(names) if (digest := self._digest(name))]
        if not digests:
            return 0
        return int.from_bytes(blake2b(b"".join(digests), digest_size=_HASH_BYTES).digest(), "big", signed=True)

    def _digest(self, name: str) -> bytes:
        digest = self._digests.get(name)
        if digest is None:
            shape = self._view.shape(name)
            if shape is None:
                return b""  # and not remembered: members may subscribe to any number of names
            digest = self._digests[name] = _digest_of(shape)
        return digest

    def _forget_the_past(self) -> None:
        if self._generation != self._view.generation:
            self._generation = self._view.generation
            self._names = None
            self._awaited = None
            self._digests.clear()


def _digest_of(shape: TopicShape) -> bytes:
    digest = blake2b(_SHAPE.pack(shape.topic_id, shape.partitions), digest_size=_HASH_BYTES)
    digest.update(shape.name.encode())
    for racks in shape.racks:
        digest.update(repr(sorted(racks)).encode())
    return digest.digest()
