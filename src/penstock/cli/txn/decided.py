"""What sinks of Spark have decided about transactions: those are to be committed, and by whom."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.cli.connection import Connection
from penstock.cli.problem import Problem
from penstock.protocol.messages.describe_transactions import TransactionState

if TYPE_CHECKING:
    from penstock.pipeline.decisions import Decision

PATIENCE_S = 10.0
OF_SINKS = "penstock-sink-"  # what the names of their transactions begin with


class Decided:
    """By name and identity of whoever has written: a name is used for the next batch too."""

    def __init__(self, by: dict[tuple[str, tuple[int, int]], str]) -> None:
        self._by = by

    def by(self, state: TransactionState | None) -> str | None:
        """The sink and its batch, of a transaction that is open."""
        if state is None:
            return None
        return self._by.get((state.transactional_id, (state.producer_id, state.producer_epoch)))


def look_for_decided(connection: Connection) -> Decided:
    """For those who only show it: what is not known is told, and left out."""
    try:
        return read_decided(connection)
    except Problem as problem:
        print(problem.render(), file=sys.stderr)
        return Decided({})


def read_decided(connection: Connection) -> Decided:
    """Raises a Problem if that can't be known."""
    from penstock.pipeline.decisions import TOPIC

    return _read(connection) if TOPIC in connection.topics else Decided({})


def claim_decided(connection: Connection, transactional_id: str) -> Decided:
    """Claims the sink that has prepared it, if a sink has: no driver can decide any more, and what was decided before
    is known. Raises a Problem if that can't be."""
    sink, _, task = transactional_id.partition("/")
    return _read(connection, sink) if task and sink.startswith(OF_SINKS) else read_decided(connection)


def _read(connection: Connection, sink: str | None = None) -> Decided:
    from penstock.pipeline.brokers import Brokers
    from penstock.pipeline.connection import ClientSettings
    from penstock.pipeline.deciding import Claim
    from penstock.pipeline.decisions import TOPIC, read_all
    from penstock.pipeline.problem import PipelineError
    from penstock.protocol.errors import ApiError, CorruptBatch

    settings = ClientSettings(tuple(connection.bootstrap.places()), "penstock-cli", patience_s=PATIENCE_S)
    try:
        with Brokers(settings) as brokers:
            decisions = (read_all(brokers) if sink is None else Claim(brokers, sink).known()).values()
    except (PipelineError, ApiError, CorruptBatch, OSError) as error:
        raise Problem(f"can't read what sinks have decided: {error}.", f"It is in topic {TOPIC}.") from error
    return Decided(_by(decisions))


def _by(decisions: Iterable[Decision]) -> dict[tuple[str, tuple[int, int]], str]:
    return {
        each.key: f"{decision.sink} batch {decision.batch}"
        for decision in decisions
        for each in decision.transactions
    }  # fmt: skip
