"""An archive in an object store: a real S3 protocol, by moto's server."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import S3FileSystem

from penstock.cli import main
from penstock.pipeline import archived_rows
from penstock.pipeline.archive import compaction, parquet
from penstock.pipeline.archive.layout import Archive
from penstock.pipeline.brokers import TopicPartition
from penstock.pipeline.fetching import OffsetRange
from penstock.pipeline.history import History, RangeReader
from tests.brokers import BrokerProcess, free_port
from tests.pipeline.archive.producing import as_consumed, consume_committed, produce_everything, produce_plain
from tests.pipeline.archive.rows import archive_range, read_all
from tests.pipeline.archive.rows import rows as archived
from tests.pipeline.conftest import S3_KEYS
from tests.pipeline.histories import settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET = "lake"


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with (tmp_path_factory.mktemp("moto") / "log").open("wb") as log:
        server = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", str(port)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"{url}/moto-api/", timeout=5).close()
                break
            except OSError:
                assert time.monotonic() < deadline, "moto's server does not start"
                time.sleep(0.2)
        yield url
    finally:
        server.kill()
        server.wait(20)


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, unique: Callable[[str], str]) -> str:
    """A folder of its own in a bucket, and an environment in which it is found."""
    for name, value in S3_KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    files(endpoint, allow_bucket_creation=True).create_dir(BUCKET)
    return f"s3a://{BUCKET}/{unique('folder')}"


def files(endpoint: str, **more: Any) -> S3FileSystem:
    host = endpoint.removeprefix("http://")
    return S3FileSystem(endpoint_override=host, scheme="http", region="us-east-1", **more)


def test_ranges_are_written_merged_and_read_in_a_bucket(bucket: str) -> None:
    archive = Archive(bucket)
    assert archive.topics() == []
    for start in range(0, 50, 10):
        archive_range(archive, "orders", start, start + 10)
    archive_range(archive, "orders", 50, 60, [])
    assert archive.topics() == ["orders"]
    assert archive.coverage("orders") == {0: [(0, 60)]}
    before = read_all(archive, "orders")
    (merge,) = compaction.plan("orders", archive.pieces("orders"))
    with compaction.alone(archive):
        compaction.execute(archive, merge, "zstd")
    for folder in ("_penstock/merged/topic=orders", "topic=orders", "topic=orders"):
        assert [(each.start, each.stop) for each in archive.files("orders")] == [(0, 60)]
        assert read_all(archive, "orders") == before
        path = archive.spark_path(archive.files("orders")[0])
        assert path.startswith(f"{bucket}/{folder}/day=2024-10-04/orders-")
        compaction.clear(archive, "orders", grace_s=0)
    assert len(archive._list(archive.location.root)) == 2, "the merged file, and the note of the generation"


def test_an_object_that_goes_while_it_is_read_is_looked_for_again(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which S3 tells in words of its own, at the next row group."""
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 10_000)
    monkeypatch.setattr(archived_rows, "ROWS_PER_BATCH", 500)
    # Arrow would read 32 MB ahead, and the file is smaller.
    monkeypatch.setattr(archived_rows.pq, "ParquetFile", functools.partial(pq.ParquetFile, pre_buffer=False))
    archive = Archive(bucket)
    for start in (0, 20_000):
        files = parquet.RangeFiles(archive, "orders", 0)
        for at in range(start, start + 20_000, 500):
            files.add(archived(range(at, at + 500)))
        files.publish(start, start + 20_000)
    wanted = OffsetRange(TopicPartition("orders", 0), 0, 40_000)
    rows = RangeReader(History(settings_of("127.0.0.1:1"), "orders", archive), wanted, archive.pieces("orders")).rows()
    offsets = next(rows).column("offset").to_pylist()
    for merge in compaction.plan("orders", archive.pieces("orders")):
        compaction.execute(archive, merge, "zstd")
    for _ in range(2):
        compaction.clear(archive, "orders", grace_s=0)
    for each in rows:
        offsets += each.column("offset").to_pylist()
    assert offsets == list(range(40_000))


def test_what_fails_half_way_is_not_seen(bucket: str, endpoint: str) -> None:
    """Arrow completes an upload whose writer failed: the object must not have its final name then."""
    from penstock.pipeline.archive.parquet import RangeFiles
    from tests.pipeline.archive.rows import rows

    archive = Archive(bucket)
    for_ever = RangeFiles(archive, "orders", 0)
    for_ever.add(rows(range(100)))
    (day,) = for_ever._days.values()
    day.flush()
    del for_ever, day
    assert archive.files("orders") == []
    half = RangeFiles(archive, "orders", 0)
    half.add(rows(range(100)))
    half.abandon()
    assert archive.files("orders") == []


@pytest.mark.timeout(600)
def test_a_topic_is_archived_to_a_bucket_and_verified(
    spark: SparkSession,
    bucket: str,
    endpoint: str,
    broker: BrokerProcess,
    new_topic: Callable[..., str],
    tmp_path: Path,
    capsys: Any,
) -> None:
    topic = new_topic(partitions=2, prefix="bucket")
    produce_everything(broker.bootstrap, topic, 2)
    bootstrap = ["--bootstrap", broker.bootstrap]
    command = ["archive", "run", "--topic", topic, "--to", bucket, "--s3-endpoint", endpoint, "--once", *bootstrap]
    for _ in range(2):
        assert main(command) == 0, capsys.readouterr().err
        expected = consume_committed(broker.bootstrap, topic, 2)
        folder = bucket.removeprefix("s3a://")
        found = pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive", filesystem=files(endpoint))
        assert as_consumed(found.to_table().to_pylist()) == expected
        produce_plain(broker.bootstrap, topic, 50, 2)  # for the second run
    assert list((tmp_path / "state" / "penstock" / "archive").iterdir())
    assert "Archived 50 records in 2 files." in capsys.readouterr().out
    assert main(["archive", "compact", "--topic", topic, *bootstrap]) == 0
    assert main(["archive", "verify", "--topic", topic, *bootstrap]) == 0
    assert f"Compared {len(expected)} records: no difference." in capsys.readouterr().out
    assert main(["archive", "status", "--topic", topic, "--json", *bootstrap]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["archive"] == bucket
    assert sum(each["lag"] for each in told["topics"][0]["partitions"]) == 50
