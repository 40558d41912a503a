"""What the cluster needs from a coordination service: a small tree of nodes, each with data and a version.

The words and the rules are ZooKeeper's, because ZooKeeper is one of the implementations. Every write can be made
conditional on a version, and several writes can be made one: that is all the controller builds on. A method that
returns has made its write durable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

ANY_VERSION = -1
DATA_BYTES_MAX = 1024 * 1024 - 1024  # ZooKeeper refuses frames beyond a mebibyte


class CoordinationError(Exception):
    """The path, or what is wrong, is the argument."""


class NodeExists(CoordinationError):
    pass


class NoNode(CoordinationError):
    """The node, or the parent of the node to be created, does not exist."""


class BadVersion(CoordinationError):
    """The node has changed since the version that the write was conditional on."""


class NotEmpty(CoordinationError):
    """The node to be deleted has children."""


class NoChildrenForEphemerals(CoordinationError):
    pass


class DataTooLarge(CoordinationError):
    pass


class Disconnected(CoordinationError):
    """The service can't be reached. Whether a write that was under way has happened is not known."""


class Versioned(NamedTuple):
    data: bytes
    version: int  # 0 when created, one more with every set


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Changes nothing, but fails unless the node is at this version."""

    path: str
    version: int


Operation = Create | Set | Delete | Check
Result = str | int | None  # of a create: the path made; of a set: the new version


class Session(Enum):
    """What a client of the service is told of its connection."""

    SUSPENDED = "suspended"  # the service can't be reached; ephemeral nodes live until the session expires
    RESUMED = "resumed"  # it can be reached again, and ephemeral nodes are there still
    RENEWED = "renewed"  # it can be reached again, but by a new session: what was ephemeral is gone


Told = Callable[[str, Versioned | None], None]


class Coordination(Protocol):
    @property
    def connected(self) -> bool:
        """Whether it makes sense to ask. If not, every method raises Disconnected at once: nothing is queued."""
        ...

    def on_session(self, callback: Callable[[Session], None]) -> None:
        """Called on the event loop. Whoever keeps ephemeral nodes makes them anew when the session was renewed."""
        ...

    async def get(self, path: str) -> Versioned: ...

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        """The path made. An ephemeral node goes when this client does; a sequential one has ten digits appended, which
        are larger than those of every sibling before it."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """The new version."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None: ...

    async def children(self, path: str) -> list[str]:
        """The names of the children, sorted."""
        ...

    async def children_with_data(self, path: str) -> dict[str, Versioned]:
        """Every child's name and content, in one go: how a broker that starts reads thousands of topics."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """All of them, in this order, or none."""
        ...

    async def follow(self, path: str, told: Told) -> dict[str, Versioned]:
        """Every child's content now, and from now on: `told` gets the name of a child that was created or changed and
        its content, or None when it is gone.

        It runs on the event loop, after the change is durable. Contents that were replaced soon may be left out; the
        last one never is, whatever connection or session was lost between. A node that was deleted and made again may
        be told of as one that changed.
        """
        ...

    async def close(self) -> None: ...


class SingleWrites(ABC):
    """Writes of one operation, for whoever has `multi`."""

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> list[Result]: ...

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        (made,) = await self.multi((Create(path, data, ephemeral, sequence),))
        assert isinstance(made, str)
        return made

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        (now,) = await self.multi((Set(path, data, version),))
        assert isinstance(now, int)
        return now

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi((Delete(path, version),))


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def check_path(path: str) -> None:
    """A path is absolute, has no empty part and no '.' or '..'. Breaking this is a mistake in the program."""
    parts = path.split("/")
    absolute = len(parts) > 1 and not parts[0]
    if path != "/" and not (absolute and all(part and part not in (".", "..") for part in parts[1:])):
        raise ValueError(f"not a path of a node: {path!r}")


async def ensure_path(store: Coordination, path: str) -> None:
    """Creates the node, empty, and those above it, where they are missing."""
    if path == "/":
        return
    await ensure_path(store, parent_of(path))
    try:
        await store.create(path)
    except NodeExists:
        pass
