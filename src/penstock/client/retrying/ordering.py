"""Order per key, while messages of a key are parked. Pure.

Of each key, the parked messages of a partition are known by their offsets at the origin, and the tier that each is in.
The lowest is the head: it alone may be handled. Any other follows the one before it, into the same tier, and so behind
it, because a tier's partition is a queue too:

    from the origin      goes to the tier of the key's last parked message; if there is none, it is handled
    from a tier          is handled if it is the head; otherwise it goes to the tier of the one before it, which has
                         gone ahead. (If that one were still in this tier, it would have been read before.)

So two messages of one key can never pass each other. Messages without a key have no order to keep.
"""

from __future__ import annotations

from bisect import bisect_left, insort


class ParkedKeys:
    """One partition of an origin."""

    __slots__ = ("_offsets", "_tiers")

    def __init__(self) -> None:
        self._offsets: dict[bytes, list[int]] = {}  # of the parked messages of a key, ascending
        self._tiers: dict[int, str] = {}  # by offset at the origin

    def __len__(self) -> int:
        return len(self._tiers)

    def follows(self, key: bytes | None, offset: int) -> str | None:
        """The tier that a message must go to, because an earlier one of its key is parked; None if it may be handled.

        `offset` is that at the origin, wherever the message was read now.
        """
        offsets = self._offsets.get(key) if key is not None else None
        if not offsets:
            return None
        before = bisect_left(offsets, offset)
        return self._tiers[offsets[before - 1]] if before else None

    def parked(self, key: bytes | None, offset: int, tier: str) -> None:
        if key is None:
            return
        if offset not in self._tiers:
            insort(self._offsets.setdefault(key, []), offset)
        self._tiers[offset] = tier

    def done(self, key: bytes | None, offset: int) -> None:
        """It was handled, or went to the dead letters."""
        if key is None or self._tiers.pop(offset, None) is None:
            return
        offsets = self._offsets[key]
        offsets.remove(offset)
        if not offsets:
            del self._offsets[key]
