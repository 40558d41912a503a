"""A worker holds a few answers of a broker and a few batches of rows, however much its range has."""

from __future__ import annotations

import subprocess
import sys

from confluent_kafka import Producer

from tests.brokers import BrokerProcess
from tests.pipeline.conftest import Topics

READ = """
import resource, sys
from penstock.pipeline.brokers import TopicPartition
from penstock.pipeline.fetching import OffsetRange
from penstock.pipeline.options import read_options
from penstock.pipeline.source import read_rows
options = read_options({"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2]}, streaming=False)
wanted = OffsetRange(TopicPartition(sys.argv[2], 0), 0, int(sys.argv[3]))
rows = sum(batch.num_rows for batch in read_rows(options, wanted))
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
ROWS = 150_000


def peak_mb(bootstrap: str, topic: str, rows: int) -> float:
    command = [sys.executable, "-c", READ, bootstrap, topic, str(rows)]
    found, kilobytes = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout.split()
    assert int(found) == rows
    return int(kilobytes) / 1024


def test_a_large_range_needs_no_more_memory_than_a_small_one(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 50, "batch.size": 500_000})
    for n in range(ROWS):
        producer.produce(topic, b"%01000d" % n, partition=0)
        if n % 10_000 == 0:
            producer.flush(30)
    assert producer.flush(60) == 0
    small, large = peak_mb(broker.bootstrap, topic, ROWS // 5), peak_mb(broker.bootstrap, topic, ROWS)
    assert large < small + 30, f"30 MB took {small:.0f} MB, 150 MB took {large:.0f} MB"
