from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from penstock.cluster.catalog import Catalog
from penstock.cluster.coordination import Create, Disconnected, Versioned
from penstock.cluster.embedded import FILE_NAME, EmbeddedStore
from penstock.cluster.model import ClusterImage, PartitionState, TopicState
from penstock.cluster.nodes import TopicNode, save
from penstock.cluster.settings import BrokerSettings
from tests.machine import slowness


async def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    store = await EmbeddedStore.open(tmp_path)
    await store.create("/a", b"one")
    await store.set("/a", b"two")
    await store.close()
    store = await EmbeddedStore.open(tmp_path)
    assert await store.get("/a") == Versioned(b"two", 1)
    await store.close()


async def test_what_was_written_is_there_though_nobody_closed_the_file(tmp_path: Path) -> None:
    """A crash, as far as the files are concerned: they are copied while the store is open."""
    store = await EmbeddedStore.open(tmp_path)
    await store.create("/kept", b"one")
    await store.create("/alive", ephemeral=True)
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in os.listdir(tmp_path):
        if name.startswith(FILE_NAME):
            (copy / name).write_bytes((tmp_path / name).read_bytes())
    await store.close()
    survivor = await EmbeddedStore.open(copy)
    assert await survivor.children_with_data("/") == {"kept": Versioned(b"one", 0)}
    await survivor.close()


async def test_a_second_broker_is_kept_off_the_folder(tmp_path: Path) -> None:
    first = await EmbeddedStore.open(tmp_path)
    with pytest.raises(Disconnected, match="is another broker running"):
        await EmbeddedStore.open(tmp_path)
    await first.create("/still-works")
    await first.close()


async def test_ten_thousand_topics_load_in_a_fifth_of_a_second(tmp_path: Path) -> None:
    store = await EmbeddedStore.open(tmp_path)
    await Catalog(store, ClusterImage("", 1), BrokerSettings(), 1).load(os.urandom)
    partition = PartitionState(1, 0, (1,), (1,))
    topics = [TopicState(f"t{n}", os.urandom(16), (partition,), {"retention.ms": "5"}) for n in range(10_000)]
    await store.multi([save(TopicNode(topic)) for topic in topics])
    await store.close()

    durations = []
    for _ in range(4):  # the best of four: other processes on the machine are none of our business
        image = ClusterImage("", 1)
        began = time.perf_counter()
        store = await EmbeddedStore.open(tmp_path)
        await Catalog(store, image, BrokerSettings(), 1).load(os.urandom)
        durations.append(time.perf_counter() - began)
        await store.close()
        assert len(image.topics) == 10_000
        assert image.topics["t77"] == topics[77]
    assert min(durations) < 0.2 * slowness(), f"{min(durations) * 1000:.0f} ms"


async def test_many_writes_in_one_transaction_are_quick(tmp_path: Path) -> None:
    store = await EmbeddedStore.open(tmp_path)
    began = time.perf_counter()
    await store.multi([Create(f"/n{n}") for n in range(1000)])
    assert time.perf_counter() - began < 1 * slowness()
    await store.close()


async def test_a_full_disk_fails_the_write_and_heals(tmp_path: Path) -> None:
    store = await EmbeddedStore.open(tmp_path)
    await store.create("/before", b"x")
    await _limit_pages(store, 10)
    with pytest.raises(Disconnected, match="full"):
        await store.multi([Create("/small"), Create("/large", bytes(500_000))])
    assert await store.children("/") == ["before"]
    await _limit_pages(store, 1_000_000)
    await store.create("/large", bytes(500_000))
    await store.close()


async def _limit_pages(store: EmbeddedStore, pages: int) -> None:
    await store._run(lambda: store._open.execute(f"PRAGMA max_page_count={pages}").fetchall())
