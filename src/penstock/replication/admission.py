"""Which producers may begin a transaction in a partition: those whose coordinator knows of it (KIP-890).

Nobody else would ever end what they began. A marker that arrives while the coordinator is being asked makes the answer
worthless, so what is asked is remembered until it is answered.
"""

from __future__ import annotations


class Admission:
    __slots__ = ("_verified", "_verifying")

    def __init__(self) -> None:
        self._verifying: dict[int, object] = {}  # producers whose transaction the coordinator is being asked about
        self._verified: dict[int, int] = {}  # the epoch in which a producer may begin a transaction here

    def begin(self, producer_id: int) -> object:
        """Before the coordinator is asked; `verified` takes what this returns."""
        return self._verifying.setdefault(producer_id, object())

    def verified(self, producer_id: int, epoch: int, begun: object) -> None:
        """The coordinator knows of the transaction, unless a marker has ended it meanwhile."""
        if self._verifying.get(producer_id) is begun:
            del self._verifying[producer_id]
            self._verified[producer_id] = epoch

    def abandon(self, producer_id: int, begun: object) -> None:
        if self._verifying.get(producer_id) is begun:
            del self._verifying[producer_id]

    def knows(self, producer_id: int, epoch: int) -> bool:
        return self._verified.get(producer_id) == epoch

    def use(self, producer_id: int, epoch: int) -> bool:
        """True once."""
        return self._verified.pop(producer_id, -1) == epoch

    def end(self, producer_id: int) -> None:
        self._verifying.pop(producer_id, None)
        self._verified.pop(producer_id, None)

    def clear(self) -> None:
        self._verifying.clear()
        self._verified.clear()
