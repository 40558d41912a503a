"""`python -m interop.spark_job ADDRESS FOLDER`: the pipeline, part by part, in one session of Spark's, and what it saw.

The topics have what a pipeline must get right: codecs, headers, a transaction that was aborted and its markers.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from interop.pipeline import CODECS, EACH
from penstock.cli import main as penstock
from penstock.pipeline.session import open_session

PARTITIONS = 2
WAIT_S = 120


class Job:
    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self.folder = folder
        self._run = uuid.uuid4().hex[:8]
        self._options = {"kafka.bootstrap.servers": address}
        self._spark: SparkSession = open_session(
            "interop",
            "local[2]",
            {"spark.sql.shuffle.partitions": "1", "spark.sql.streaming.numRecentProgressUpdates": "1"},
        )
        self._spark.sparkContext.setLogLevel("OFF")

    def topic(self, name: str) -> str:
        full = f"spark-{name}-{self._run}"
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        admin.create_topics([NewTopic(full, PARTITIONS, 1)])[full].result(30)
        return full

    def fill(self, topic: str) -> None:
        settings = {"bootstrap.servers": self.address, "log_level": 0}
        for codec in CODECS:
            producer = Producer({**settings, "compression.type": codec})
            for number in range(EACH):
                producer.produce(topic, f"{codec} {number}", key=f"{number}", headers={"codec": codec.encode()})
            producer.flush(30)
        transactional = Producer({**settings, "transactional.id": f"of-{topic}"})
        transactional.init_transactions(30)
        for commit in (True, False):
            transactional.begin_transaction()
            for number in range(EACH):
                transactional.produce(topic, f"{'kept' if commit else 'aborted'} {number}", key=f"{number}")
            transactional.flush(30)
            if commit:
                transactional.commit_transaction(30)
            else:
                transactional.abort_transaction(30)

    def rows(self, topic: str) -> DataFrame:
        given = {**self._options, "subscribe": topic, "includeHeaders": "true"}
        return self._spark.read.format("penstock").options(**given).load()

    def stream(self, source: str, into: str, delivery: str) -> None:
        given = {**self._options, "subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "900"}
        rows = self._spark.readStream.format("penstock").options(**given).load().select("key", "value")
        writer = rows.writeStream.format("penstock").options(**self._options, topic=into, delivery=delivery)
        writer = writer.option("checkpointLocation", str(self.folder / f"checkpoint-{into}"))
        if not writer.trigger(availableNow=True).start().awaitTermination(WAIT_S):
            raise TimeoutError("the query does not come to an end")

    def write(self, rows: DataFrame, into: str, delivery: str) -> None:
        rows.write.format("penstock").options(**self._options, topic=into, delivery=delivery).mode("append").save()


def main(address: str, folder: Path) -> None:
    job = Job(address, folder)
    source = job.topic("source")
    job.fill(source)
    seen = job.rows(source)
    aborted = seen.where("CAST(value AS STRING) LIKE 'aborted%'").count()
    with_headers = seen.where("headers IS NOT NULL").count()
    say("batch read", f"{seen.count()} rows, {with_headers} with headers, {aborted} aborted")
    say("filtered read", f"{seen.where('partition = 0 AND offset < 10').count()} rows")

    for kind, write in {
        "stream": lambda into, delivery: job.stream(source, into, delivery),
        "batch write": lambda into, delivery: job.write(seen.select("key", "value"), into, delivery),
    }.items():
        for delivery in ("at-least-once", "exactly-once"):
            say(f"{kind} {delivery}", written(job, write, f"{kind.split()[0]}-{delivery}", delivery))

    where = ["--topic", source, "--bootstrap", address]
    code = penstock(["archive", "run", "--to", str(folder / "archive"), "--once", *where])
    say("archive", f"ended with {code}")
    say("verify", f"ended with {penstock(['archive', 'verify', *where])}")


def written(job: Job, write: Callable[[str, str], None], name: str, delivery: str) -> str:
    into = job.topic(name)
    try:
        write(into, delivery)
    except PySparkException as error:
        return f"refused: {' '.join(str(error).split())}"
    found = job.rows(into)
    return f"{found.count()} rows, {found.select('key', 'value').distinct().count()} different"


def say(part: str, saw: str) -> None:
    print(f"{part}: {saw}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
