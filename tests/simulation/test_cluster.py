from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.storage.log import Log
from tests.simulation.cluster import SimulatedCluster, SimulatedMachine
from tests.storage.logs import append, batch_at, new_log, recovered, sync


async def write(machine: SimulatedMachine, logs: list[Log]) -> None:
    """Two batches, the first of which is synced."""
    directory = machine.folder / "t-0"
    machine.disk.make_directory(directory)
    log = new_log(directory, disk=machine.disk)
    logs.append(log)
    append(log, batch_at(0))
    sync(log)
    append(log, batch_at(1))
    await asyncio.Event().wait()


async def test_what_is_written_outlives_a_kill_and_what_is_synced_a_loss_of_power(tmp_path: Path) -> None:
    ends = set()
    for seed in range(8):
        cluster = SimulatedCluster(tmp_path / str(seed), ["one", "two"], seed)
        logs: list[Log] = []
        for machine in cluster.machines.values():
            machine.start(write(machine, logs))
        await asyncio.sleep(1)
        one, two = cluster.machines.values()
        boot = two.boot_id
        one.kill()
        two.lose_power()
        assert two.boot_id != boot
        assert recovered(one.folder / "t-0", disk=one.disk).log.end_offset == 2
        ends.add(recovered(two.folder / "t-0", disk=two.disk).log.end_offset)
    assert ends == {1, 2}, "what was not synced is lost or not, but what was synced never is"


async def test_a_machine_that_is_cut_off_loses_others_and_its_session(tmp_path: Path) -> None:
    cluster = SimulatedCluster(tmp_path, ["one", "two"])
    stores = {name: await machine.store() for name, machine in cluster.machines.items()}
    await stores["one"].create("/one", ephemeral=True)
    cluster.cut_off("one")
    await asyncio.sleep(5)
    assert await stores["two"].children("/") == []
    assert not cluster.network.reaches("two", "one")
    cluster.heal()
    await asyncio.sleep(1)
    assert stores["one"].connected
    assert cluster.network.reaches("two", "one")
    assert [line.split(" ", 1)[1] for line in cluster.trace] == ["one: cut off", "network: healed"]


async def test_a_clock_may_be_ahead_and_time_passes_all_the_same(tmp_path: Path) -> None:
    machine = SimulatedCluster(tmp_path, ["one"]).machines["one"]
    before, steady = machine.now_ms(), machine.steady_ms()
    machine.ahead_s = 3600.0
    await asyncio.sleep(10)
    assert machine.now_ms() - before == pytest.approx(3_610_000, abs=1)
    assert machine.steady_ms() - steady == pytest.approx(10_000, abs=1)
