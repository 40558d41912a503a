"""A short run over each target, the same in every run; `make fuzz` goes on for as long as it is told to."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz import campaign as campaigns
from tests.fuzz.broker import LiveBroker
from tests.fuzz.campaign import Broken, campaign
from tests.fuzz.readers import Batches, Decoding

SEED = 20_260_501


def test_damaged_messages_raise_decode_errors_and_nothing_else() -> None:
    assert campaign(Decoding(), seconds=4, seed=SEED) > 100


def test_damaged_batches_are_corrupt_and_nothing_else() -> None:
    assert campaign(Batches(), seconds=3, seed=SEED) > 100


def test_a_broker_under_fire_keeps_its_promises() -> None:
    assert campaign(LiveBroker(), seconds=8, seed=SEED) > 100


class Fragile:
    """Breaks at a certain input."""

    name = "fragile"

    def __init__(self) -> None:
        self.seen: list[list[bytes]] = []
        self.is_closed = False

    def make(self, rng: random.Random) -> list[bytes]:
        return [rng.randbytes(4), b""]

    def run(self, lines: list[bytes]) -> None:
        self.seen.append(lines)
        if lines[0][0] > 0xF0:
            raise ValueError("it broke")

    def finish(self) -> None:
        """Nothing to check."""

    def close(self) -> None:
        self.is_closed = True


def test_what_breaks_a_target_is_shown_kept_and_tried_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaigns, "CORPUS", tmp_path)
    first, second = Fragile(), Fragile()
    with pytest.raises(Broken, match="seed 5: ValueError: it broke"):
        campaign(first, seconds=5, seed=5)
    assert first.is_closed
    (kept,) = tmp_path.iterdir()
    assert campaigns.read(kept) == first.seen[-campaigns.RECENT :]
    with pytest.raises(Broken, match="at input 0"):
        campaign(second, seconds=5, seed=6)
    assert second.seen == first.seen[-campaigns.RECENT :]


def test_a_seed_gives_the_same_inputs_every_time() -> None:
    for target in (Decoding(), Batches()):
        assert target.make(random.Random("a")) == target.make(random.Random("a"))
