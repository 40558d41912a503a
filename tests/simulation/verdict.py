"""Whether what clients were promised is so in the end: nothing acknowledged is lost, nothing seen is unseen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tests.history.replicas import replicas_identical
from tests.simulation.brokers import NotInTime, SimulatedBrokers
from tests.simulation.client import Client, GaveUp, History

READ_S_MAX = 60.0


def broken_promises(history: History, log: list[tuple[int, str]]) -> list[str]:
    """Given all that the partition holds."""
    at = dict(log)
    counts = Counter(at.values())
    found = [f"{value} was acknowledged and is lost" for value in history.acknowledged if not counts[value]]
    found += [
        f"{value} was acknowledged at {offset}, where {at.get(offset)} is"
        for value, offset in history.acknowledged.items()
        if counts[value] and at.get(offset) != value
    ]
    found += [
        f"{value} was read at {offset}, where {at.get(offset)} is"
        for offset, value in history.seen.items()
        if at.get(offset) != value
    ]
    found += [f"{value} is there {counts[value]} times" for value in sorted(history.once) if counts[value] > 1]
    return found


async def violations(cluster: SimulatedBrokers, client: Client, topic: str, members: Iterable[int] = ()) -> list[str]:
    """When all is well again, and all replicas could be in sync. Brokers are stopped then, and folders compared."""
    found = []
    try:
        await cluster.until_in_sync(topic, members)
        found += broken_promises(client.history(topic), await client.read(topic, cluster.loop.time() + READ_S_MAX))
    except (NotInTime, GaveUp) as problem:
        found.append(str(problem))
    for broker in cluster.up:
        await broker.stop()
    comparison = replicas_identical([machine.folder for machine in cluster.machines.values()])
    if comparison.differences or comparison.behind:
        found.append(str(comparison))
    return found


async def judge(cluster: SimulatedBrokers, client: Client, topic: str) -> None:
    found = await violations(cluster, client, topic)
    assert not found, "\n".join(found)
