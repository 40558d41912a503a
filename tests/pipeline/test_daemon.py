"""Workers find what they need imported: Spark forks one for each step of a batch."""

from __future__ import annotations

from pyspark.sql import SparkSession

from penstock.pipeline.daemon import NEEDED


def test_a_worker_is_forked_with_everything_imported(spark: SparkSession) -> None:
    def imported(_: int) -> list[str]:
        import sys

        return [each for each in ("pyarrow", "penstock.pipeline.datasource") if each in sys.modules]

    assert set(spark.sparkContext.parallelize([0], 1).map(imported).first()) == set(NEEDED)
