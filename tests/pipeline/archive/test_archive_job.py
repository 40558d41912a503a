"""Topics to Parquet with a real Spark and a real broker: kept whole, once, whatever happens to the job."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from penstock.cli import main
from penstock.pipeline.archive.job import ArchiveJob, explain, start
from penstock.pipeline.archive.layout import Archive
from penstock.pipeline.archive.settings import ArchiveOptions
from penstock.pipeline.brokers import Brokers, TopicPartition
from penstock.pipeline.connection import ClientSettings
from penstock.pipeline.group_offsets import committed
from penstock.pipeline.problem import PipelineError
from tests.brokers import BrokerProcess
from tests.pipeline.archive.producing import as_consumed, consume_committed, produce_everything, produce_plain
from tests.pipeline.conftest import create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 240.0  # Spark starts several processes, each of which takes long where others work too


def archive_once(
    spark: SparkSession, broker: BrokerProcess, topic: str, folder: Path, records_per_file: int = 1_000_000, **more: Any
) -> None:
    options = ArchiveOptions(str(folder), None, records_per_file, "zstd", None, None)
    client = {"kafka.bootstrap.servers": broker.bootstrap}
    query = start(spark, ArchiveJob(options, {"subscribe": topic}, client, None, **more))
    try:
        if not query.awaitTermination(int(PATIENCE_S)):
            query.stop()
            raise AssertionError("the job does not end")
    except AssertionError:
        raise
    except Exception as failure:
        raise explain(failure) from failure


def everything(folder: Path) -> list[dict[str, Any]]:
    """As anybody reads it who knows nothing of ours."""
    return pyarrow.dataset.dataset(str(folder), format="parquet", partitioning="hive").to_table().to_pylist()  # type: ignore[no-any-return]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.mark.timeout(900)
def test_all_that_a_consumer_sees_is_archived_once_and_stays_so(
    spark: SparkSession, broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path, capsys: Any
) -> None:
    topic = new_topic(partitions=3, prefix="archived")
    produce_everything(broker.bootstrap, topic, 3)
    expected = consume_committed(broker.bootstrap, topic, 3)
    archive_once(spark, broker, topic, tmp_path, records_per_file=50)
    rows = everything(tmp_path)
    assert as_consumed(rows) == expected
    assert {each["leaderEpoch"] for each in rows} == {0}
    assert {each["topic"] for each in rows} == {topic}
    assert all(str(each["day"]) == each["timestamp"].strftime("%Y-%m-%d") for each in rows)

    # Aborted records at the end are covered, though no file could hold them; the group knows how far.
    archive = Archive(str(tmp_path))
    places = [TopicPartition(topic, each) for each in range(3)]
    with Brokers(ClientSettings((("127.0.0.1", broker.port),))) as brokers:
        ends = brokers.offsets(dict.fromkeys(places, -1))
        reached = committed(brokers, f"penstock-archive-{topic}", places)
    assert archive.coverage(topic) == {each.partition: [(0, ends[each])] for each in places}
    assert {place: each.offset for place, each in reached.items()} == ends
    assert {each.metadata for each in reached.values()} == {json.dumps({"archive": str(tmp_path)})}

    # Run again, and again without its checkpoint: nothing is doubled, and what came meanwhile is there.
    before = {each.path for each in archive.files(topic)}
    archive_once(spark, broker, topic, tmp_path, records_per_file=50)
    assert {each.path for each in archive.files(topic)} == before
    produce_plain(broker.bootstrap, topic, 90, 3)
    shutil.rmtree(tmp_path / "_penstock" / "checkpoint")
    archive_once(spark, broker, topic, tmp_path)
    expected = consume_committed(broker.bootstrap, topic, 3)
    assert as_consumed(everything(tmp_path)) == expected
    assert before < {each.path for each in archive.files(topic)}

    # Compacted, it is read by DuckDB.
    bootstrap = ["--bootstrap", broker.bootstrap]
    assert main(["archive", "compact", "--topic", topic, *bootstrap]) == 0
    assert len(archive.files(topic)) < len(before)
    found = duckdb.sql(
        f"""select count(*), count(distinct (partition, "offset")), max("offset"), count(distinct day), min(timestamp)
        from read_parquet('{tmp_path}/**/*.parquet', hive_partitioning = true)"""
    ).fetchall()[0]
    assert found[:2] == (len(expected), len(expected))
    assert found[2] == max(each["offset"] for each in expected)

    capsys.readouterr()
    assert main(["archive", "status", "--topic", topic, "--json", *bootstrap]) == 0
    (told,) = json.loads(capsys.readouterr().out)["topics"]
    assert [each["lag"] for each in told["partitions"]] == [0, 0, 0]
    assert [each["gaps"] for each in told["partitions"]] == [[], [], []]
    assert sum(each["rows"] for each in told["partitions"]) == len(expected)

    assert main(["archive", "verify", "--topic", topic, *bootstrap]) == 0
    assert f"Compared {len(expected)} records: no difference." in capsys.readouterr().out
    _tampered(archive, topic, bootstrap, capsys)


def _tampered(archive: Archive, topic: str, bootstrap: list[str], capsys: Any) -> None:
    """One value changed, one record taken out, and a file that was cut off: each is named by its offset."""
    files = [each for each in archive.files(topic) if each.day == "2024-10-04"]
    table = pq.read_table(files[0].path, partitioning=None)
    values = table.column("value").to_pylist()
    values[3] = b"forged"
    offsets = table.column("offset").to_pylist()
    forged = table.set_column(1, table.schema.field("value"), pa.array(values, pa.binary()))
    pq.write_table(pa.concat_tables([forged.slice(0, 5), forged.slice(6)]), files[0].path)
    broken = Path(files[-1].path)
    broken.write_bytes(broken.read_bytes()[:-100])
    assert main(["archive", "verify", "--topic", topic, "--json", *bootstrap]) == 1
    found = json.loads(capsys.readouterr().out)["differences"]
    told = {(each["partition"], each["offset"]): each["problem"] for each in found}
    assert "forged" in told[0, offsets[3]]
    assert told[0, offsets[5]] == "the log has it, the archive does not"
    assert "can't be read" in told[files[-1].partition, files[-1].start]
    assert len(found) == 3
    assert {each["topic"] for each in found} == {topic}


@pytest.mark.timeout(900)
def test_a_job_that_is_killed_goes_on_though_its_broker_is_killed_too_and_ends_when_it_is_told(
    spark: SparkSession, new_broker: Callable[..., BrokerProcess], tmp_path: Path, capsys: Any
) -> None:
    broker, topic = new_broker(), "killed"
    create_topic(broker.bootstrap, topic, 2)
    produce_plain(broker.bootstrap, topic, 8_000, 2)
    archive = Archive(str(tmp_path / "archive"))
    command = ["archive", "run", "--topic", topic, "--to", str(tmp_path / "archive"), "--bootstrap", broker.bootstrap]
    command += ["--records-per-file", "200", "--records-per-batch", "1600", "--trigger", "1s"]
    with (tmp_path / "log").open("wb") as log:
        process = [sys.executable, "-m", "penstock", *command, "--master", "local[1]"]
        job = subprocess.Popen(process, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_until(lambda: len(archive.files(topic)) >= 3, "nothing is archived")
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait(20)
    seen = everything(tmp_path / "archive")
    assert 0 < len(seen) < 8_000, "it was killed in the middle"
    assert len({(each["partition"], each["offset"]) for each in seen}) == len(seen)
    left = {each.path for each in archive.files(topic)}

    def meanwhile() -> None:
        wait_until(lambda: len(archive.files(topic)) > len(left), "it does not go on")
        broker.kill()
        broker.start()
        assert archive.coverage(topic) != {0: [(0, 4_000)], 1: [(0, 4_000)]}, "it was killed in the middle"
        wait_until(lambda: archive.coverage(topic) == {0: [(0, 4_000)], 1: [(0, 4_000)]}, "it does not go on")
        produce_plain(broker.bootstrap, topic, 1_000, 2)
        wait_until(lambda: archive.coverage(topic)[1] == [(0, 4_500)], "it does not follow")

    with told_to_stop_after(meanwhile):
        assert main(command) == 0
    assert left <= {each.path for each in archive.files(topic)}
    rows = everything(tmp_path / "archive")
    assert sorted((each["partition"], each["offset"]) for each in rows) == [
        (partition, offset) for partition in (0, 1) for offset in range(4_500)
    ]
    assert {int(each["key"]) for each in rows} == set(range(8_000))
    capsys.readouterr()
    assert main(["archive", "verify", "--topic", topic, "--bootstrap", broker.bootstrap]) == 0
    assert "Compared 9,000 records: no difference." in capsys.readouterr().out


@contextmanager
def told_to_stop_after(meanwhile: Callable[[], None]) -> Iterator[None]:
    """A command in this process gets SIGTERM when that is done, or has failed; then so does the test."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(meanwhile)
        before = signal.getsignal(signal.SIGTERM)

        def tell(_: Future[None]) -> None:
            if signal.getsignal(signal.SIGTERM) is not before:  # else the command has ended by itself
                os.kill(os.getpid(), signal.SIGTERM)

        done.add_done_callback(tell)
        yield
        done.result()


@pytest.mark.timeout(600)
def test_records_that_are_gone_are_told_and_left_out_only_when_asked(
    spark: SparkSession, broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path, capsys: Any
) -> None:
    topic = new_topic(prefix="gone")
    produce_plain(broker.bootstrap, topic, 100)
    archive_once(spark, broker, topic, tmp_path)
    produce_plain(broker.bootstrap, topic, 100)
    truncate = ["topic", "truncate", topic, "--before-offset", "150", "--yes", "--bootstrap", broker.bootstrap]
    assert main(truncate) == 0
    with pytest.raises(PipelineError, match=f"{topic}-0 begins at 150, and was to be read from 100"):
        archive_once(spark, broker, topic, tmp_path)
    shutil.rmtree(tmp_path / "_penstock" / "checkpoint")
    with pytest.raises(PipelineError, match=f"{topic}-0 is archived up to 100, and its log begins at 150"):
        archive_once(spark, broker, topic, tmp_path)
    archive_once(spark, broker, topic, tmp_path, allow_gaps=True)
    assert Archive(str(tmp_path)).coverage(topic) == {0: [(0, 100), (150, 200)]}
    capsys.readouterr()
    assert main(["archive", "status", "--topic", topic, "--bootstrap", broker.bootstrap]) == 0
    assert f"{topic}-0: offsets 100 to 149 are in no file, and gone from the log." in capsys.readouterr().out
