"""The cluster that trials share, as long as it is well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.matrix.cluster import Cluster
from tests.zookeepers import skip_without_java


class Clusters:
    """One at a time. A trial that fails takes its cluster along."""

    def __init__(self, new_folder: Callable[[], Path]) -> None:
        self._new_folder = new_folder
        self._current: Cluster | None = None

    def take(self) -> Cluster:
        if self._current is None:
            self._current = Cluster(self._new_folder()).__enter__()
        return self._current

    def abandon(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None

    def finish(self) -> None:
        """Stops the brokers, and compares all that they hold."""
        cluster, self._current = self._current, None
        if cluster is None:
            return
        try:
            cluster.stop()
            comparison = cluster.compare()
            assert comparison.is_identical, str(comparison)
        finally:
            cluster.close()


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    skip_without_java()
    clusters = Clusters(lambda: tmp_path_factory.mktemp("matrix") / "cluster")
    try:
        yield clusters
        clusters.finish()
    finally:
        clusters.abandon()
