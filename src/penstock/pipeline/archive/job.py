"""The streaming query that archives topics, from its start to its end."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.pipeline.archive import compaction
from penstock.pipeline.archive.layout import OURS, Archive
from penstock.pipeline.archive.settings import ArchiveOptions
from penstock.pipeline.folders import state_folder
from penstock.pipeline.problem import ALLOW_LOSS, PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TRIGGER_S = 60.0
# Of Python workers. Without it the C library gives buffers back after each row group, and a quarter of the time goes to
# page faults.
WORKERS = {"MALLOC_MMAP_THRESHOLD_": str(256 << 20), "MALLOC_TRIM_THRESHOLD_": str(512 << 20)}
CHECKPOINT_NAME_MAX = 100
CAUSE = re.compile(r"^(?:\S*: )?penstock\.(?:\w+\.)+(?:\w+): (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ArchiveJob:
    archive: ArchiveOptions
    subscription: dict[str, str]  # subscribe or subscribePattern
    client: dict[str, str]  # kafka.bootstrap.servers, and others of its kind
    trigger_s: float | None = TRIGGER_S  # None takes what is there now, and ends
    checkpoint: str | None = None
    allow_gaps: bool = False
    records_per_batch: int | None = None

    @property
    def name(self) -> str:
        """Of what it archives, fit for a folder."""
        (wanted,) = self.subscription.values()
        plain = wanted.replace(",", "+")
        if re.fullmatch(r"[\w.+-]+", plain, re.ASCII) and len(plain) <= CHECKPOINT_NAME_MAX and plain[0] not in "._":
            return plain
        return "topics-" + hashlib.sha256(wanted.encode()).hexdigest()[:16]

    def checkpoint_path(self) -> str:
        """Beside the files, where Spark can write there; else on this machine, from which it may well be lost."""
        if self.checkpoint:
            return self.checkpoint
        location = self.archive.open().location
        if location.scheme != "s3":
            return location.spark_path("/".join((location.root, OURS, "checkpoint", self.name)))
        place = hashlib.sha256(location.name.encode()).hexdigest()[:16]
        return f"file://{state_folder()}/archive/{place}/{self.name}"


def start(spark: SparkSession, job: ArchiveJob) -> StreamingQuery:
    from penstock.pipeline.archive.ranges import RangesDataSource
    from penstock.pipeline.archive.sink import ArchiveDataSource

    spark.dataSource.register(RangesDataSource)
    spark.dataSource.register(ArchiveDataSource)
    ours = job.archive.as_options()
    reading = {**job.client, **job.subscription, **ours, "failOnDataLoss": str(not job.allow_gaps).lower()}
    if job.records_per_batch is not None:
        reading["maxOffsetsPerTrigger"] = str(job.records_per_batch)
    rows = spark.readStream.format("penstock_ranges").options(**reading).load()
    writer = rows.writeStream.format("penstock_archive").options(**job.client, **ours)
    writer = writer.option("checkpointLocation", job.checkpoint_path()).queryName(f"archive {job.name}")
    trigger = {"availableNow": True} if job.trigger_s is None else {"processingTime": f"{job.trigger_s} seconds"}
    return writer.trigger(**trigger).start()


def tidy(archive: Archive, topics: list[str]) -> None:
    """Before a job starts: what killed ones left, and files that a compaction has merged. Another one may be at it."""
    try:
        with compaction.alone(archive):
            for topic in topics:
                compaction.clear(archive, topic)
    except compaction.Busy:
        pass


def explain(failure: BaseException) -> PipelineError:
    """What went wrong in a query, without the layers of Spark around it."""
    text = str(failure).replace(ALLOW_LOSS, "--allow-gaps")
    causes = CAUSE.findall(text)
    return PipelineError(causes[-1].strip() if causes else text.strip().split("\n", 1)[0])
