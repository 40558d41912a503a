"""Real ZooKeepers for tests: one that all share, each below a path of its own, and ones that may be killed."""

from __future__ import annotations

import atexit
import itertools
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from penstock.cli.cluster.zookeeper import LocalZooKeeper, find_jars, find_java
from penstock.cli.problem import Problem
from penstock.cluster.coordination import Coordination, Versioned
from tests import fakes
from tests.brokers import free_port

CONVERGED_S_MAX = 30.0

_paths = itertools.count()


@cache
def shared_zookeeper() -> LocalZooKeeper:
    """Started by the first test that asks, and stopped with the last: the fixture may be imported into many modules."""
    folder = tempfile.TemporaryDirectory(prefix="zookeeper-")
    server = LocalZooKeeper(Path(folder.name), free_port(), force_sync=False).start()
    atexit.register(lambda: (server.kill(), folder.cleanup()))
    return server


def skip_without_java() -> None:
    try:
        find_java(), find_jars()
    except Problem as problem:
        pytest.skip(f"no ZooKeeper can be started: {problem.message}")


@pytest.fixture(scope="session")
def zookeeper() -> LocalZooKeeper:
    """For all tests that only need one: each uses a path of its own."""
    skip_without_java()
    return shared_zookeeper()


@pytest.fixture
def zookeeper_path(zookeeper: LocalZooKeeper) -> str:
    """The address of the shared ZooKeeper, with a path below which there is nothing yet."""
    return f"{zookeeper.connect}/test-{next(_paths)}"


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[LocalZooKeeper]:
    """One that this test may stop, kill, pause and start again."""
    skip_without_java()
    server = LocalZooKeeper(tmp_path / "zookeeper", free_port(), force_sync=False).start()
    yield server
    server.kill()


class Followed:
    """A folder as someone who follows it knows it."""

    def __init__(self) -> None:
        self.contents: dict[str, Versioned] = {}
        self.told: list[tuple[str, Versioned | None]] = []

    async def start(self, store: Coordination, path: str) -> Followed:
        contents = await store.follow(path, self._told)
        assert not self.told, "something was told before the beginning"
        self.contents = contents
        return self

    def _told(self, name: str, content: Versioned | None) -> None:
        self.told.append((name, content))
        if content is None:
            self.contents.pop(name)
        else:
            self.contents[name] = content

    @property
    def data(self) -> dict[str, bytes]:
        return {name: content.data for name, content in self.contents.items()}


async def eventually(true: Callable[[], bool]) -> None:
    """A ZooKeeper on a busy machine takes its time."""
    await fakes.eventually(true, CONVERGED_S_MAX)
