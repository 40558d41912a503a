"""How a story is told with a rule and without it."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.simulation.brokers import SimulatedBrokers, simulate
from tests.simulation.client import Client, Writer
from tests.simulation.verdict import violations

TOPIC = "orders"
ALL = [1, 2, 3]

Story = Callable[[SimulatedBrokers, Client], Awaitable[None]]

with_and_without = pytest.mark.parametrize("rule", [True, False], ids=["with the rule", "without it"])


def tell(
    story: Story,
    folder: Path,
    *,
    rule: bool,
    members: Sequence[int] = ALL,
    slow: Mapping[str, tuple[float, float]] | None = None,
    seed: int = 1,
    **settings: object,
) -> None:
    """With the rule all is as promised in the end. Without it something acknowledged is lost, or replicas differ.

    `members` are the replicas, `slow` machines whose devices take that long."""

    async def scenario() -> list[str]:
        cluster = SimulatedBrokers(folder, 3, seed, **settings)
        for name, seconds in (slow or {}).items():
            cluster.machines[name].sync_s = seconds
        async with cluster:
            client = Client(cluster)
            await story(cluster, client)
            return await violations(cluster, client, TOPIC, members)

    found = simulate(seed, scenario)
    if rule:
        assert not found, "\n".join(found)
    else:
        noticed = [each for each in found if each.endswith("is lost") or each.startswith("DIFFERENT")]
        assert noticed, f"the rule was taken out, and what is noticed is {found}"


def take_out(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, value: object) -> None:
    """Puts something else in place of a rule. What is compiled can't be changed: then the story is told once only."""
    if not str(sys.modules[owner.__module__].__file__).endswith(".py"):
        pytest.skip(f"{owner.__name__} is compiled, so nothing can be taken out of it")
    monkeypatch.setattr(owner, name, value)


async def write(cluster: SimulatedBrokers, client: Client, count: int, name: str = "w") -> Writer:
    """So many values, each acknowledged."""
    writer = Writer(client, cluster, TOPIC, name, idempotent=False)
    for _ in range(count):
        await writer.write()
    return writer


async def note_if_acknowledged(client: Client, broker: int, value: str) -> None:
    """One attempt at one broker, whatever comes of it: what is acknowledged is expected to stay."""
    code, offset = await client.produce(broker, TOPIC, [value])
    client.note(f"{value} at {broker}: {code} {offset}")
    if code == 0:
        client.history(TOPIC).acknowledged[value] = offset
