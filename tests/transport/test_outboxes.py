"""One that fails among those who wait for a broker keeps no other from it."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.schema import Message
from penstock.transport.outboxes import Outboxes
from penstock.transport.peer import Answered
from penstock.transport.peers import Peers
from tests.fakes import FakePeers, turns

BROKER = 2


class Wish(NamedTuple):
    number: int
    size: int = 1
    matter: int = 0

    @property
    def subject(self) -> int:
        return self.number

    def is_void(self) -> bool:
        return False


class HeldAnswers(FakePeers):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Answered] = []

    def told(self, node_id: int, request: Message, version: int, answered: Answered) -> None:
        self.asked.append(answered)


class Wishes(Outboxes[Wish, ApiVersionsResponse]):
    def __init__(self, peers: Peers, bad: str) -> None:
        super().__init__(peers, 3, ApiVersionsResponse, 10)
        self.told: list[tuple[int, bool]] = []
        self._bad = bad

    def request(self, batch: list[Wish]) -> ApiVersionsRequest:
        self._fail("request")
        return ApiVersionsRequest()

    def answered(self, node_id: int, batch: list[Wish], response: ApiVersionsResponse | None) -> None:
        self.told += [(wish.number, response is not None) for wish in batch]
        self._fail("answered")

    def _fail(self, where: str) -> None:
        if self._bad == where:
            self._bad = ""
            raise RuntimeError("a bug")


@pytest.mark.parametrize(("bad", "first"), [("request", False), ("answered", True)])
async def test_what_fails_once_does_not_hold_up_the_next(bad: str, first: bool) -> None:
    peers = HeldAnswers()
    wishes = Wishes(peers, bad)
    for number in (1, 2):
        wishes.put(BROKER, Wish(number))
        await turns()
        while peers.asked:
            try:
                peers.asked.pop(0)(ApiVersionsResponse())
            except RuntimeError:
                assert bad == "answered"
    assert wishes.told == [(1, first), (2, True)]
