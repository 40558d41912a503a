"""Rule 7: what may have lost something says so before it is back, even if the first start comes to nothing."""

from __future__ import annotations

import asyncio
import gc
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.broker.app import Unreachable
from penstock.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.rules.telling import ALL, TOPIC, tell, write
from tests.rules.test_damage import damage
from tests.simulation.attacks import in_sync, on_write
from tests.simulation.brokers import SimulatedBroker, SimulatedBrokers
from tests.simulation.client import Client
from tests.simulation.disk import SimulatedDisk

HURT = 2
OTHERS = [number for number in ALL if number != HURT]


def lose_some(broker: SimulatedBroker) -> None:
    broker.kill()
    damage(broker, 0.3)


def lose_all(broker: SimulatedBroker) -> None:
    """The same number on a machine whose disk is new."""
    broker.kill()
    shutil.rmtree(broker.machine.folder)
    broker.machine.folder.mkdir()
    broker.machine.disk = SimulatedDisk(broker.machine.folder, 5)


LOSSES = pytest.mark.parametrize(
    ("flush", "lose"),
    [("commit", lose_some), ("commit", lose_all), ("os", SimulatedBroker.lose_power)],
    ids=["damage", "a new folder", "power"],
)


def cut_off_from_brokers(cluster: SimulatedBrokers) -> None:
    """It can't fetch what it lacks yet."""
    for other in OTHERS:
        cluster.network.cut(f"b{HURT}", f"b{other}")


async def fail_to_start(cluster: SimulatedBrokers) -> None:
    """ZooKeeper goes away the moment it is told what may be lost."""
    on_write(cluster, f"b{HURT}", TOPIC, lambda operation, let_through: cluster.zookeeper.cut(f"b{HURT}"))
    with pytest.raises(Unreachable):
        await cluster[HURT].start()
    del cluster.zookeeper.write
    cluster.zookeeper.heal(f"b{HURT}")


async def be_killed_in_the_start(cluster: SimulatedBrokers) -> None:
    """The moment ZooKeeper would be told what may be lost."""
    killed = asyncio.Event()

    def kill() -> None:
        cluster[HURT].kill()
        killed.set()

    on_write(cluster, f"b{HURT}", TOPIC, lambda operation, let_through: kill())
    starting = asyncio.ensure_future(cluster[HURT].start())
    await killed.wait()
    del cluster.zookeeper.write
    starting.cancel()


async def needed_by_itself(cluster: SimulatedBrokers, client: Client) -> None:
    """The others go and come back; what would lead without them meanwhile is what it has."""
    assert HURT not in in_sync(cluster)
    for other in OTHERS:
        cluster[other].kill()
    await cluster.until("their sessions are over", lambda: set(_image(cluster)) == {HURT})
    cluster.heal()
    for other in OTHERS:
        await cluster[other].start()
    client.forget_leader(TOPIC)
    await write(cluster, client, 2, "later")


def _image(cluster: SimulatedBrokers) -> dict[int, object]:
    broker = cluster[HURT].broker
    assert broker is not None
    return dict(broker.image.brokers)


@LOSSES
@pytest.mark.parametrize("first_start", [fail_to_start, be_killed_in_the_start], ids=["fails", "is killed"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Python ends tasks of what was killed
def test_what_may_be_lost_is_not_forgotten_if_the_first_start_does_not_finish(
    first_start: Callable[[SimulatedBrokers], object],
    flush: str,
    lose: Callable[[SimulatedBroker], None],
    tmp_path: Path,
) -> None:
    """By the second start recovery has mended the log, and the machine has not gone down again."""

    async def two_starts(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, ALL, min_insync_replicas=3)  # whoever leaves the set stays eligible
        await write(cluster, client, 8)
        lose(cluster[HURT])
        cut_off_from_brokers(cluster)
        await first_start(cluster)
        await cluster[HURT].start()
        await needed_by_itself(cluster, client)

    tell(two_starts, tmp_path, rule=True, flush=flush)
    gc.collect()  # while that is expected


def test_after_a_start_that_finished_nothing_is_suspected_again(tmp_path: Path) -> None:
    async def killed_once_more(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, ALL)
        await write(cluster, client, 8)
        lose_some(cluster[HURT])
        await cluster[HURT].start()
        await cluster.until_in_sync(TOPIC)
        cluster[HURT].kill()
        await cluster[HURT].start()
        assert sum("begins anew with its replicas" in line for line in cluster.trace) == 1
        await cluster.until_in_sync(TOPIC)

    tell(killed_once_more, tmp_path, rule=True, flush="os")


def test_what_was_written_under_os_may_be_lost_whatever_flush_is_set_by_the_next_start(tmp_path: Path) -> None:
    async def set_while_it_is_down(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, ALL, min_insync_replicas=3)
        await write(cluster, client, 8)
        cluster[HURT].lose_power()
        cluster[HURT].settings["flush"] = "commit"
        cut_off_from_brokers(cluster)
        await cluster[HURT].start()
        await needed_by_itself(cluster, client)

    tell(set_while_it_is_down, tmp_path, rule=True, flush="os")


def test_a_topic_that_is_altered_to_commit_has_all_of_it_on_the_device_soon(tmp_path: Path) -> None:
    async def altered_before_the_power_goes(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, ALL, min_insync_replicas=3, flush="os")
        await write(cluster, client, 8)
        await alter_flush(client, "commit")
        await cluster.until("it is synced", lambda: not cluster[HURT].partition(TOPIC).unsynced)
        cluster[HURT].lose_power()
        cut_off_from_brokers(cluster)
        await cluster[HURT].start()
        assert cluster[HURT].partition(TOPIC).log.end_offset == 8
        await needed_by_itself(cluster, client)

    tell(altered_before_the_power_goes, tmp_path, rule=True)


async def alter_flush(client: Client, flush: str) -> None:
    config = AlterableConfig(name="flush", config_operation=0, value=flush)
    resource = AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    found = await client.ask(1, request, 1, IncrementalAlterConfigsResponse)
    assert found is not None
    assert found.responses[0].error_code == 0
