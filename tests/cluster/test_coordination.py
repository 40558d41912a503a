"""The contract of a coordination service, which every implementation passes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.cluster.coordination import (
    DATA_BYTES_MAX,
    BadVersion,
    Change,
    Check,
    Coordination,
    Create,
    DataTooLarge,
    Delete,
    Disconnected,
    Event,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Set,
    Versioned,
    ensure_path,
)
from penstock.cluster.embedded import EmbeddedStore


class Service:
    """One running service, to which several clients in turn may connect."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clients: list[Coordination] = []

    async def connect(self) -> Coordination:
        client = await EmbeddedStore.open(self._folder)
        self._clients.append(client)
        return client

    async def stop(self) -> None:
        for client in self._clients:
            await client.close()


@pytest.fixture(params=["embedded"])
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Service]:
    service = Service(tmp_path)
    yield service
    await service.stop()


@pytest.fixture
async def store(service: Service) -> Coordination:
    return await service.connect()


async def test_what_is_created_can_be_read_at_version_0(store: Coordination) -> None:
    assert await store.create("/a", b"one") == "/a"
    assert await store.get("/a") == Versioned(b"one", 0)


async def test_every_set_raises_the_version_by_one(store: Coordination) -> None:
    await store.create("/a")
    assert await store.set("/a", b"one") == 1
    assert await store.set("/a", b"two", version=1) == 2
    assert await store.get("/a") == Versioned(b"two", 2)


async def test_a_node_is_created_once(store: Coordination) -> None:
    await store.create("/a", b"one")
    with pytest.raises(NodeExists):
        await store.create("/a", b"two")
    assert (await store.get("/a")).data == b"one"


async def test_a_node_needs_its_parent(store: Coordination) -> None:
    with pytest.raises(NoNode):
        await store.create("/a/b")


async def test_what_does_not_exist_can_be_neither_read_nor_changed(store: Coordination) -> None:
    for attempt in (
        store.get("/a"),
        store.set("/a", b""),
        store.delete("/a"),
        store.children("/a"),
        store.children_with_data("/a"),
    ):
        with pytest.raises(NoNode):
            await attempt


async def test_a_write_on_an_old_version_fails_and_changes_nothing(store: Coordination) -> None:
    await store.create("/a", b"zero")
    await store.set("/a", b"one")
    with pytest.raises(BadVersion):
        await store.set("/a", b"two", version=0)
    with pytest.raises(BadVersion):
        await store.delete("/a", version=0)
    assert await store.get("/a") == Versioned(b"one", 1)
    await store.delete("/a", version=1)


async def test_a_node_with_children_stays(store: Coordination) -> None:
    await ensure_path(store, "/a/b")
    with pytest.raises(NotEmpty):
        await store.delete("/a")
    await store.delete("/a/b")
    await store.delete("/a")
    assert await store.children("/") == []


async def test_a_node_that_was_deleted_and_made_again_starts_at_version_0(store: Coordination) -> None:
    await store.create("/a")
    await store.set("/a", b"one")
    await store.delete("/a")
    await store.create("/a", b"again")
    assert await store.get("/a") == Versioned(b"again", 0)


async def test_children_are_the_direct_ones_sorted_by_name(store: Coordination) -> None:
    for path in ("/t", "/t/b", "/t/a", "/t/a/inner", "/table"):
        await store.create(path, path.encode())
    assert await store.children("/t") == ["a", "b"]
    assert await store.children("/") == ["t", "table"]
    assert await store.children_with_data("/t") == {"a": Versioned(b"/t/a", 0), "b": Versioned(b"/t/b", 0)}


async def test_sequential_nodes_are_numbered_upwards_and_never_again(store: Coordination) -> None:
    await store.create("/q")
    first = await store.create("/q/n-", sequence=True)
    second = await store.create("/q/n-", sequence=True)
    assert first == "/q/n-0000000000"
    assert second > first
    await store.delete(second)
    assert await store.create("/q/n-", sequence=True) > second


async def test_an_ephemeral_node_goes_with_its_client(service: Service) -> None:
    first = await service.connect()
    await first.create("/brokers")
    await first.create("/brokers/1", b"here", ephemeral=True)
    await first.create("/kept", b"data")
    await first.close()
    second = await service.connect()
    assert await second.children("/brokers") == []
    assert await second.get("/kept") == Versioned(b"data", 0)


async def test_an_ephemeral_node_has_no_children(store: Coordination) -> None:
    await store.create("/e", ephemeral=True)
    with pytest.raises(NoChildrenForEphemerals):
        await store.create("/e/child")


async def test_several_writes_are_one(store: Coordination) -> None:
    await store.create("/old", b"x")
    await store.create("/gone")
    results = await store.multi(
        [Create("/new", b"1"), Create("/new/child"), Set("/old", b"y", 0), Check("/new", 0), Delete("/gone", 0)]
    )
    assert results == ["/new", "/new/child", 1, None, None]
    assert await store.children("/") == ["new", "old"]


@pytest.mark.parametrize(
    ("spoiler", "error"),
    [
        (Create("/old"), NodeExists),
        (Set("/old", b"z", 7), BadVersion),
        (Check("/old", 7), BadVersion),
        (Check("/nowhere", 0), NoNode),
        (Delete("/nowhere"), NoNode),
    ],
)
async def test_if_one_of_several_writes_fails_none_happens(
    store: Coordination, spoiler: Create | Set | Check | Delete, error: type[Exception]
) -> None:
    await store.create("/old", b"x")
    with pytest.raises(error):
        await store.multi([Create("/new"), Set("/old", b"y"), spoiler])
    assert await store.children("/") == ["old"]
    assert await store.get("/old") == Versioned(b"x", 0)


async def test_a_watch_tells_of_the_node_and_what_is_below_in_order(store: Coordination) -> None:
    events: list[Event] = []
    unwatch = store.watch("/topics", events.append)
    await store.create("/topics")
    await store.create("/topics/a")
    await store.set("/topics/a", b"1")
    await store.create("/topics-not")
    await store.delete("/topics/a")
    await asyncio.sleep(0.05)
    assert events == [
        Event(Change.CREATED, "/topics"),
        Event(Change.CREATED, "/topics/a"),
        Event(Change.SET, "/topics/a"),
        Event(Change.DELETED, "/topics/a"),
    ]
    unwatch()
    await store.create("/topics/b")
    await asyncio.sleep(0.05)
    assert len(events) == 4


async def test_a_write_that_failed_is_not_told(store: Coordination) -> None:
    events: list[Event] = []
    store.watch("/", events.append)
    with pytest.raises(NoNode):
        await store.multi([Create("/a"), Delete("/b")])
    await asyncio.sleep(0.05)
    assert events == []


async def test_of_writes_at_once_on_one_version_one_wins(store: Coordination) -> None:
    await store.create("/a")
    outcomes = await asyncio.gather(*(store.set("/a", b"%d" % n, 0) for n in range(10)), return_exceptions=True)
    assert sum(outcome == 1 for outcome in outcomes) == 1
    assert sum(isinstance(outcome, BadVersion) for outcome in outcomes) == 9


async def test_data_has_a_bound(store: Coordination) -> None:
    await store.create("/a", bytes(DATA_BYTES_MAX))
    with pytest.raises(DataTooLarge):
        await store.set("/a", bytes(DATA_BYTES_MAX + 1))
    assert (await store.get("/a")).version == 0


@pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a/../b", "/."])
async def test_what_is_no_path_is_a_mistake(store: Coordination, path: str) -> None:
    with pytest.raises(ValueError, match="not a path"):
        await store.create(path)


async def test_after_close_nothing_answers(service: Service) -> None:
    store = await service.connect()
    await store.close()
    await store.close()
    with pytest.raises(Disconnected):
        await store.get("/")
