"""The tree of a coordination service: nodes with data and versions, changed by several operations at once or by none.

It knows nothing of clients and time. Whoever changes it learns which nodes changed and whose children did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.cluster.coordination import (
    ANY_VERSION,
    BadVersion,
    Check,
    CoordinationError,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    Set,
    Versioned,
    parent_of,
)
from penstock.cluster.zookeeper_follow import Found

PERSISTENT = 0  # in place of the session that an ephemeral node belongs to


@dataclass(slots=True)
class Node:
    data: bytes
    owner: int
    changed_by: int
    version: int = 0
    numbered: int = 0  # children so far that were created with a number
    children: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class Changes:
    """For those who watch, in the order in which it happened."""

    nodes: dict[str, None] = field(default_factory=dict)
    folders: dict[str, None] = field(default_factory=dict)


class Tree:
    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {"/": Node(b"", PERSISTENT, 0)}
        self._transaction = 0
        self._undo: list[Callable[[], None]] = []

    # ---- reading

    def node(self, path: str) -> Node:
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path)
        return node

    def has(self, path: str) -> bool:
        return path in self._nodes

    def find(self, path: str) -> Found:
        node = self.node(path)
        return Found(Versioned(node.data, node.version), node.changed_by)

    def children(self, path: str) -> list[str]:
        return sorted(self.node(path).children)

    def owned_by(self, session: int) -> list[str]:
        return [path for path, node in self._nodes.items() if node.owner == session]

    # ---- changing

    def apply(self, operations: Sequence[Operation], session: int) -> tuple[list[Result], Changes]:
        """All of them, or the error of the first that fails and none."""
        self._transaction += 1
        self._undo = []
        changes = Changes()
        try:
            results = [self._apply(operation, session, changes) for operation in operations]
        except CoordinationError:
            for undo in reversed(self._undo):
                undo()
            raise
        return results, changes

    def _apply(self, operation: Operation, session: int, changes: Changes) -> Result:
        if isinstance(operation, Create):
            return self._create(operation, session, changes)
        node = self.node(operation.path)
        if operation.version not in (ANY_VERSION, node.version):
            raise BadVersion(operation.path)
        if isinstance(operation, Set):
            self._set(operation, node)
            changes.nodes[operation.path] = None
            return node.version
        if isinstance(operation, Delete):
            self._delete(operation.path, node)
            changes.nodes[operation.path] = changes.folders[parent_of(operation.path)] = None
            changes.folders[operation.path] = None
            return None
        assert isinstance(operation, Check)
        return None

    def _create(self, operation: Create, session: int, changes: Changes) -> str:
        folder = parent_of(operation.path)
        parent = self.node(folder)
        if parent.owner != PERSISTENT:
            raise NoChildrenForEphemerals(operation.path)
        path = operation.path
        if operation.sequence:
            path = f"{path}{parent.numbered:010d}"
            parent.numbered += 1  # a number that was given to nobody does no harm
        if path in self._nodes:
            raise NodeExists(path)
        owner = session if operation.ephemeral else PERSISTENT
        self._nodes[path] = Node(operation.data, owner, self._transaction)
        parent.children[path.rpartition("/")[2]] = None
        self._undo.append(lambda: self._remove(path))
        changes.nodes[path] = changes.folders[folder] = None
        return path

    def _set(self, operation: Set, node: Node) -> None:
        before = (node.data, node.version, node.changed_by)
        node.data, node.version, node.changed_by = operation.data, node.version + 1, self._transaction

        def undo() -> None:
            node.data, node.version, node.changed_by = before

        self._undo.append(undo)

    def _delete(self, path: str, node: Node) -> None:
        if node.children or path == "/":
            raise NotEmpty(path)
        self._remove(path)

        def undo() -> None:
            self._nodes[path] = node
            self._nodes[parent_of(path)].children[path.rpartition("/")[2]] = None

        self._undo.append(undo)

    def _remove(self, path: str) -> None:
        del self._nodes[path]
        del self._nodes[parent_of(path)].children[path.rpartition("/")[2]]
