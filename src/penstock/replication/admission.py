"""Which producers may begin a transaction in a partition: those whose coordinator knows of it (KIP-890).

Nobody else would ever end what they began. A marker that arrives while the coordinator is being asked makes the answer
worthless, so what is asked is remembered until it is answered.
"""

from __future__ import annotations

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.storage.log import Log


class Admission:
    __slots__ = ("_log", "_name", "_verified", "_verifying")

    def __init__(self, log: Log, name: str) -> None:
        self._log = log
        self._name = name  # of the partition
        self._verifying: dict[int, object] = {}  # producers whose transaction the coordinator is being asked about
        self._verified: dict[int, int] = {}  # the epoch in which a producer may begin a transaction here

    # ---- who may append

    def check_batch(self, producer_id: int, epoch: int, transactional: bool) -> None:
        """A batch may begin a transaction here only if its coordinator knows of it."""
        producers = self._log.producers
        if not transactional:
            if producers.has_open(producer_id):
                raise ApiError(
                    ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} has a transaction open in {self._name}"
                )
        elif not producers.is_open(producer_id, epoch) and not self._use(producer_id, epoch):
            raise ApiError(ErrorCode.INVALID_TXN_STATE, "the batch is not part of an ongoing transaction")

    def check_producer(self, producer_id: int, epoch: int) -> None:
        """Whether a coordinator may append in this producer's transaction."""
        producers = self._log.producers
        if producer_id < 0 or epoch < 0:
            raise ApiError(ErrorCode.INVALID_RECORD, f"there is no producer {producer_id} of epoch {epoch}")
        producers.check(producer_id, epoch, -1, 1)
        if not producers.is_open(producer_id, epoch) and not self._knows(producer_id, epoch):
            raise ApiError(ErrorCode.INVALID_TXN_STATE, "the records are not part of an ongoing transaction")

    # ---- asking the coordinator

    def needs_verification(self, producer_id: int, epoch: int) -> bool:
        return not self._log.producers.is_open(producer_id, epoch)

    def begin(self, producer_id: int) -> object:
        """Before the coordinator is asked; `verified` takes what this returns."""
        return self._verifying.setdefault(producer_id, object())

    def verified(self, producer_id: int, epoch: int, begun: object) -> bool:
        """The coordinator knows of the transaction. False if a marker has ended it meanwhile."""
        if self._verifying.get(producer_id) is begun:
            del self._verifying[producer_id]
            self._verified[producer_id] = epoch
        # Another request of the producer may have been faster, and may even have begun it.
        return self._knows(producer_id, epoch) or self._log.producers.is_open(producer_id, epoch)

    def abandon(self, producer_id: int, begun: object) -> None:
        if self._verifying.get(producer_id) is begun:
            del self._verifying[producer_id]

    def _knows(self, producer_id: int, epoch: int) -> bool:
        return self._verified.get(producer_id) == epoch

    def _use(self, producer_id: int, epoch: int) -> bool:
        """True once."""
        return self._verified.pop(producer_id, -1) == epoch

    def end(self, producer_id: int) -> None:
        self._verifying.pop(producer_id, None)
        self._verified.pop(producer_id, None)

    def clear(self) -> None:
        self._verifying.clear()
        self._verified.clear()
