"""Change data, upserted into a table: the newest value of each key, and no row for a key that was deleted.

Run it while a broker runs: `python examples/pipelines/upsert.py FOLDER`, with HOST:PORT behind it if that is not
127.0.0.1:9092. It reads the topic `customers`: the key is the row's, the value its columns as JSON, and a record
without a value deletes the row.

The table is Parquet, and needs nothing but Spark. Each batch writes a new version beside the old one, and then moves
the pointer: whoever reads sees a whole version. With Delta Lake or Iceberg, `MERGE INTO` in `upsert` does all of that.
"""

import os
import shutil
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SCHEMA = "name STRING, city STRING"
KEPT = 2  # versions: the newest, and the one that somebody may still be reading


class Table:
    """A folder with versions, and a file that names the newest."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.pointer = folder / "CURRENT"

    def version(self) -> int:
        return int(self.pointer.read_text()) if self.pointer.exists() else -1

    def read(self) -> DataFrame:
        version = self.version()
        if version < 0:
            return self.spark.createDataFrame([], f"key STRING, {SCHEMA}")
        return self.spark.read.parquet(str(self.folder / f"version-{version}"))

    def upsert(self, changes: DataFrame, batch: int) -> None:
        """What `foreachBatch` calls. A batch that comes again, after a crash, is in the table already or is not."""
        if batch <= self.version():
            return
        newest = changes.groupBy("key").agg(F.max_by(F.struct("there", "row"), "offset").alias("newest"))
        newest = newest.select("key", "newest.there", "newest.row.*").cache()
        kept = self.read().join(newest, "key", "left_anti")
        written = kept.unionByName(newest.where("there").drop("there"))
        written.coalesce(1).write.mode("overwrite").parquet(str(self.folder / f"version-{batch}"))
        newest.unpersist()
        self.move_to(batch)

    def move_to(self, version: int) -> None:
        beside = self.folder / "CURRENT.new"
        beside.write_text(str(version))
        os.replace(beside, self.pointer)
        versions = sorted(self.folder.glob("version-*"), key=lambda path: int(path.name.partition("-")[2]))
        for old in versions[:-KEPT]:
            shutil.rmtree(old)


def run(spark: SparkSession, bootstrap: str, folder: Path, *, once: bool = False) -> Table:
    folder.mkdir(parents=True, exist_ok=True)
    table = Table(spark, folder)
    records = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "customers")
        .option("startingOffsets", "earliest")
        .load()
    )
    changes = records.select(
        F.col("key").cast("string"),
        F.col("value").isNotNull().alias("there"),
        F.from_json(F.col("value").cast("string"), SCHEMA).alias("row"),
        "offset",  # a key is always in the same partition, so that offsets tell which change is newer
    )
    writer = changes.writeStream.foreachBatch(table.upsert).option("checkpointLocation", str(folder / "checkpoint"))
    trigger = writer.trigger(availableNow=True) if once else writer.trigger(processingTime="10 seconds")
    trigger.start().awaitTermination()
    return table


if __name__ == "__main__":
    bootstrap = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:9092"
    run(SparkSession.builder.getOrCreate(), bootstrap, Path(sys.argv[1]))
