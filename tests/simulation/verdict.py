"""Whether what clients were promised is so in the end: nothing acknowledged is lost, nothing seen is unseen."""

from __future__ import annotations

from pathlib import Path

from tests.history.replicas import replicas_identical
from tests.simulation.brokers import SimulatedBrokers
from tests.simulation.client import Client, History


def violations(history: History, log: list[tuple[int, str]]) -> list[str]:
    """Of the promises, given all that the partition holds."""
    at = dict(log)
    found = [f"{value} was acknowledged and is lost" for value in history.acknowledged if value not in at.values()]
    found += [
        f"{value} was acknowledged at {offset}, where {at.get(offset)} is"
        for value, offset in history.acknowledged.items()
        if offset >= 0 and at.get(offset) != value
    ]
    found += [f"{value} was read at {offset}, where {at.get(offset)} is" for offset, value in history.seen.items()
              if at.get(offset) != value]  # fmt: skip
    for value in sorted(history.once):
        count = list(at.values()).count(value)
        if count > 1:
            found.append(f"{value} is there {count} times")
    return found


async def judge(cluster: SimulatedBrokers, client: Client, topic: str) -> list[tuple[int, str]]:
    """When all is well again: what the partition holds. All brokers are stopped then, and their folders compared."""
    await cluster.until_in_sync(topic)
    log = await client.read(topic, cluster.loop.time() + 60.0)
    for broker in cluster.up:
        await broker.stop()
    found = violations(client.history(topic), log)
    assert not found, found
    compare(machine.folder for machine in cluster.machines.values())
    return log


def compare(folders: object) -> None:
    assert not isinstance(folders, Path)
    comparison = replicas_identical(list(folders))  # type: ignore[call-overload]
    assert comparison.is_identical, str(comparison)
    assert not comparison.behind, str(comparison)
