"""Fixtures of pytest: `penstock`, a broker, and `penstock_cluster`, three of them; new and empty for each test.

pytest loads this in every run where Penstock is installed, so a broker's code is imported when a test first asks for
one. A broker starts in a few milliseconds: none is kept between tests, and no client of one test can meet the next.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.testing.broker import PenstockBroker
    from penstock.testing.cluster import PenstockCluster

MARKER = "penstock"


class AsItIs(MetaPathFinder):
    """pytest rewrites the assertions of every package that has a plugin, to show more when one fails: of a whole broker
    that would take half a second in each run, and every request of a test would pay for it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:  # fmt: skip
        return PathFinder.find_spec(name, path, target) if name.startswith("penstock.") else None


sys.meta_path.insert(0, AsItIs())  # now: a conftest may import what it likes before any hook is called


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(**settings): settings of the test's brokers, with underscores for dots; of a cluster also brokers=N",
    )


@pytest.fixture
def penstock(request: pytest.FixtureRequest) -> Iterator[PenstockBroker]:
    """A real broker in this process, empty, on a free port: `penstock.bootstrap` is its address."""
    from penstock.testing.broker import PenstockBroker

    settings = _settings(request)
    settings.pop("brokers", None)
    with PenstockBroker(**settings) as broker:
        yield broker


@pytest.fixture
def penstock_cluster(request: pytest.FixtureRequest) -> Iterator[PenstockCluster]:
    """Three real brokers in this process that replicate: `kill(1)` and `start(1)` one of them."""
    from penstock.testing.cluster import PenstockCluster

    with PenstockCluster(**_settings(request)) as cluster:
        yield cluster


def _settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Of all markers; the one nearest to the test counts."""
    settings: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(MARKER))):
        settings.update(marker.kwargs)
    return settings
