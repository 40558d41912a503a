"""An archive and a live dashboard: sums over every sale there ever was, while more of them come in.

The archive goes on for as long as it is let run:

    penstock archive run --topic sales --to ./archive

and the dashboard beside it, drawn again every few seconds: `python examples/pipelines/dashboard.py`, with HOST:PORT
behind it if that is not 127.0.0.1:9092. Both are one table: what retention has deleted from the log is read from the
archive, and what came a moment ago from the log.
"""

import sys
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.spark import table

SCHEMA = "shop STRING, amount DOUBLE"
PAUSE_S = 5.0


def dashboard(spark: SparkSession, bootstrap: str, archive: str | None = None) -> DataFrame:
    """The archive is found by what its group has committed, unless it is named."""
    sales = table(spark, "sales", bootstrap=bootstrap, archive=archive)
    rows = sales.select("day", F.from_json(F.col("value").cast("string"), SCHEMA).alias("sale")).select("day", "sale.*")
    found = rows.groupBy("shop").agg(
        F.count("*").alias("sales"), F.sum("amount").alias("amount"), F.max("day").alias("last")
    )
    return found.orderBy(F.desc("amount"))


def main(bootstrap: str) -> None:
    spark = SparkSession.builder.appName("dashboard").getOrCreate()
    while True:
        print("\033[2J\033[H", end="")  # a clean screen
        dashboard(spark, bootstrap).show()
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")
