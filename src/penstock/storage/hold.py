"""How much of a log a group keeps from being deleted or compacted (`retention.hold.group`): a decision only.

What would go is looked at in pieces, oldest first. A piece goes if the group has committed all of it. What stays for
the group is bounded by `retention.hold.max.bytes`: beyond it the oldest pieces go as if there were no group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

NO_LIMIT = -1


class Piece(NamedTuple):
    """A segment that would go if no group held it."""

    end_offset: int
    size: int


class Verdict(NamedTuple):
    may_go: int  # so many of the pieces
    held_bytes: int  # what stays for the group
    given_up_bytes: int  # what goes though the group has not committed it


def judge(pieces: Sequence[Piece], committed: int, max_bytes: int) -> Verdict:
    """`committed` is the offset of the first record that the group may still want."""
    may_go = 0
    while may_go < len(pieces) and pieces[may_go].end_offset <= committed:
        may_go += 1
    held_bytes = sum(piece.size for piece in pieces[may_go:])
    given_up_bytes = 0
    while max_bytes > NO_LIMIT and held_bytes > max_bytes:
        size = pieces[may_go].size
        held_bytes -= size
        given_up_bytes += size
        may_go += 1
    return Verdict(may_go, held_bytes, given_up_bytes)
