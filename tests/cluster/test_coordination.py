"""The contract of a coordination service, which every implementation passes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from penstock.cluster.coordination import (
    DATA_BYTES_MAX,
    BadVersion,
    Check,
    Coordination,
    Create,
    DataTooLarge,
    Delete,
    Disconnected,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Set,
    Versioned,
    ensure_path,
)
from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.zookeeper import ZooKeeperStore
from penstock.testing.coordination import CoordinationService
from tests.zookeepers import Followed, eventually


class Service:
    """One running service, to which several clients in turn may connect."""

    def __init__(self, opener: Callable[[], Awaitable[Coordination]]) -> None:
        self._opener = opener
        self._clients: list[Coordination] = []

    async def connect(self) -> Coordination:
        client = await self._opener()
        self._clients.append(client)
        return client

    async def stop(self) -> None:
        for client in self._clients:
            await client.close()


@pytest.fixture(params=["embedded", "in-process", "zookeeper"])
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Service]:
    if request.param == "zookeeper":
        address = request.getfixturevalue("zookeeper_path")
        service = Service(lambda: ZooKeeperStore.open(address))
    elif request.param == "in-process":
        in_process = CoordinationService()
        service = Service(lambda: asyncio.sleep(0, in_process.connect()))
    else:
        service = Service(lambda: EmbeddedStore.open(tmp_path))
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


async def test_no_writes_are_none(store: Coordination) -> None:
    assert await store.multi([]) == []


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


async def test_who_follows_gets_what_is_there_and_is_told_what_changes(store: Coordination) -> None:
    await ensure_path(store, "/topics/old/inner")
    followed = await Followed().start(store, "/topics")
    assert followed.contents == {"old": Versioned(b"", 0)}
    await store.create("/topics/new", b"1")
    await eventually(lambda: followed.data == {"old": b"", "new": b"1"})
    await store.set("/topics/new", b"2")
    await store.set("/topics/old/inner", b"not a child")
    await store.create("/topics-not")
    await eventually(lambda: followed.contents.get("new") == Versioned(b"2", 1))
    await store.delete("/topics/new")
    await eventually(lambda: followed.data == {"old": b""})
    assert {name for name, _ in followed.told} == {"new"}


async def test_the_last_of_many_contents_is_told(store: Coordination) -> None:
    await store.create("/topics")
    await store.create("/topics/a")
    followed = await Followed().start(store, "/topics")
    for n in range(100):
        await store.set("/topics/a", b"%d" % n)
    await eventually(lambda: followed.contents["a"] == Versioned(b"99", 100))
    versions = [content.version for _, content in followed.told if content is not None]
    assert versions == sorted(versions)


async def test_a_node_that_is_made_again_is_told_as_it_is_now(store: Coordination) -> None:
    await store.create("/topics")
    followed = await Followed().start(store, "/topics")
    await store.create("/topics/a", b"one")
    await eventually(lambda: followed.data == {"a": b"one"})
    for _ in range(20):
        await store.delete("/topics/a")
        await store.create("/topics/a", b"one")
    await store.multi([Delete("/topics/a"), Create("/topics/a", b"two"), Create("/topics/b", b"three")])
    await eventually(lambda: followed.data == {"a": b"two", "b": b"three"})


async def test_several_may_follow_several_folders(store: Coordination) -> None:
    await store.create("/a")
    await store.create("/b")
    first, second = await Followed().start(store, "/a"), await Followed().start(store, "/a")
    other = await Followed().start(store, "/b")
    await store.multi([Create("/a/x", b"1"), Create("/b/y", b"2"), Create("/b/y/z", b"3")])
    await eventually(lambda: first.data == second.data == {"x": b"1"} and other.data == {"y": b"2"})


async def test_only_what_exists_can_be_followed(store: Coordination) -> None:
    with pytest.raises(NoNode):
        await store.follow("/nowhere", lambda name, content: None)


async def test_a_write_that_failed_is_not_told(store: Coordination) -> None:
    await store.create("/topics")
    followed = await Followed().start(store, "/topics")
    with pytest.raises(NoNode):
        await store.multi([Create("/topics/a"), Delete("/topics/b")])
    await store.create("/topics/c")
    await eventually(lambda: "c" in followed.contents)
    assert followed.told == [("c", Versioned(b"", 0))]


async def test_after_close_nothing_is_told(service: Service) -> None:
    store = await service.connect()
    await store.create("/topics")
    followed = await Followed().start(store, "/topics")
    await store.close()
    again = await service.connect()
    await again.create("/topics/a")
    await asyncio.sleep(0.05)
    assert followed.told == []


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
    assert not store.connected
