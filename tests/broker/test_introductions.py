"""Who is taken for another broker."""

from __future__ import annotations

import pytest

from penstock.broker.introductions import client_id_of, is_broker
from penstock.cluster.model import BrokerState

BROKERS = {1: BrokerState(1, (), folder="drawn-at-random"), 2: BrokerState(2, ())}


def test_a_broker_is_known_by_its_number_and_its_folder() -> None:
    assert is_broker(client_id_of(1, "drawn-at-random"), BROKERS)


@pytest.mark.parametrize(
    "claimed", ["", "client", "penstock-broker-1", client_id_of(1, ""), client_id_of(1, "guessed"),
                client_id_of(2, ""), client_id_of(2, "drawn-at-random"), client_id_of(3, "drawn-at-random")]
)  # fmt: skip
def test_who_only_claims_to_be_one_is_not(claimed: str) -> None:
    assert not is_broker(claimed, BROKERS)
