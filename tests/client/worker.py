"""A program that reads a topic and notes what it does, so that a test can kill it: `python -m tests.client.worker`.

What it processed is a line in a file, written before it goes on; in transactions, a message of another topic. The file
is there once the group has given it something to read. It ends
on SIGTERM, and kills itself after `die_after` messages.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from penstock.client import Consumer, Producer, TransactionAborted

MEMBER = {"session.timeout.ms": 1000, "heartbeat.interval.ms": 200}
TRANSACTION = {"transaction.timeout.ms": 3000}  # how long what a dead one left open hides what comes behind it


def note(path: str, value: str) -> None:
    with open(path, "a") as file:
        file.write(f"{value}\n")


def work(job: dict[str, Any], handled: int) -> None:
    time.sleep(job.get("pause_s", 0))
    if handled == job.get("die_after"):
        os.kill(os.getpid(), signal.SIGKILL)


def read_plainly(job: dict[str, Any], consumer: Consumer[bytes, str]) -> None:
    for handled, message in enumerate(consumer, start=1):
        note(job["file"], message.value)
        work(job, handled)


def read_in_transactions(job: dict[str, Any], consumer: Consumer[bytes, str]) -> None:
    handled = 0
    with Producer(job["bootstrap"], delivery="exactly-once", settings=TRANSACTION) as producer:
        while not consumer.stopping:
            try:
                with consumer.transaction(producer) as txn:
                    for message in txn.messages(count=20, timeout=0.2):
                        txn.send(job["output"], message.value).result()
                        note(job["file"], message.value)
                        handled += 1
                        work(job, handled)
            except TransactionAborted:
                continue


def main(job: dict[str, Any]) -> None:
    consumer = Consumer[bytes, str](
        job["bootstrap"],
        job["group"],
        job["topic"],
        delivery=job["delivery"],
        value="text",
        commit_interval_s=0.1,
        settings=MEMBER,
    )
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())  # also between two transactions
    consumer.on_assign(lambda places: Path(job["file"]).touch())
    with consumer:
        (read_in_transactions if job["delivery"] == "exactly-once" else read_plainly)(job, consumer)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
