"""What the brokers of a cluster switch on together (KIP-584). All of it is on, and stays on: there is no older broker
that a cluster would have to wait for."""

from __future__ import annotations

from typing import NamedTuple


class Feature(NamedTuple):
    """What clients look at before they use it."""

    name: str
    supported_from: int
    supported_to: int
    finalized: int


FEATURES = (
    Feature("group.version", 0, 1, 1),  # consumer groups (KIP-848)
    Feature("transaction.version", 0, 2, 2),  # a producer epoch for each transaction (KIP-890)
)
FEATURES_EPOCH = 0  # rises whenever another version is finalized, which here never happens while a broker runs
