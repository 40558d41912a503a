"""One Spark, told what to do: a line of JSON in, a line of JSON out. It runs with whichever pyspark its Python has.

{"do": "batch", "topic": ...}              seconds of a batch read; with "stop", of partition 0 up to that offset
{"do": "stream", "topic": ...}             of a stream that reads what there is
{"do": "write", "topic": ..., "rows": ..., "bytes": ..., "options": {...}}
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from typing import Any

from pyspark.sql import SparkSession


class Driver:
    def __init__(self, source: str, bootstrap: str, jars: str) -> None:
        self._format = source
        self._bootstrap = bootstrap
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master("local[2]").appName("bench")
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        }
        if jars:
            settings["spark.jars"] = jars
        for name, value in settings.items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()
        self._spark.sparkContext.setLogLevel("OFF")

    def _source(self, reader: Any, topic: str, **more: str) -> Any:
        given = {"kafka.bootstrap.servers": self._bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        return reader.format(self._format).options(**given, **more).load()

    def batch(self, topic: str, stop: int | None = None) -> float:
        ending = {} if stop is None else {"endingOffsets": json.dumps({topic: {"0": stop}})}
        began = time.monotonic()
        self._source(self._spark.read, topic, **ending).write.format("noop").mode("overwrite").save()
        return time.monotonic() - began

    def stream(self, topic: str) -> float:
        """The time of the batches alone: what a query needs to start and to stop is the same for a long one."""
        folder = tempfile.mkdtemp(prefix="bench-spark-")
        try:
            rows = self._source(self._spark.readStream, topic)
            writer = rows.writeStream.format("noop").option("checkpointLocation", folder).trigger(availableNow=True)
            query = writer.start()
            query.awaitTermination()
            return sum(each["durationMs"]["triggerExecution"] for each in query.recentProgress) / 1000
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def write(self, topic: str, rows: int, size: int, options: dict[str, str]) -> float:
        value = f"CAST(rpad(CAST(id AS STRING), {size}, 'x') AS BINARY) AS value"
        frame = self._spark.range(0, rows, 1, 2).selectExpr(value)
        given = {"kafka.bootstrap.servers": self._bootstrap, "topic": topic, **options}
        began = time.monotonic()
        frame.write.format(self._format).options(**given).mode("append").save()
        return time.monotonic() - began


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else is printed is not an answer
    driver = Driver(*sys.argv[1:4])
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        asked = json.loads(line)
        do = asked.pop("do")
        try:
            answer = {"seconds": getattr(driver, do)(**asked)}
        except Exception as error:  # whatever it is, the other side has to know
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
