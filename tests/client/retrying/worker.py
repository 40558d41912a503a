"""A process with a handler that fails in ways only a process can: it is killed, or kills itself.

Every call and every success is a line in a file before anything else happens.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from penstock.client.consumer import Consumer
from penstock.client.retrying import parking
from penstock.client.retrying.policy import Retry, fixed


def die_in_the_first_transaction() -> None:
    send_offsets = parking.Transactional._send_offsets

    def send_and_die(*arguments: Any) -> None:
        send_offsets(*arguments)
        os._exit(9)

    parking.Transactional._send_offsets = send_and_die


def main() -> None:
    options = json.loads(sys.argv[1])
    parking.OPEN_MS_MAX = options.get("open_ms_max", parking.OPEN_MS_MAX)
    if options.get("dies_in_transaction"):
        die_in_the_first_transaction()
    journal = os.open(options["journal"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    consumer: Consumer[Any, Any] = Consumer(
        options["bootstrap"], options["group"], options["topic"], value="json", key="text",
        delivery=options["delivery"], commit_every=options.get("commit_every", 1000),
        commit_interval_s=options.get("commit_interval_s", 1.0),
        settings={
            "session.timeout.ms": 1500, "heartbeat.interval.ms": 200, "log_level": 0,
            # A member with a name of its own takes its partitions back at once, and need not wait for its own funeral.
            **({"group.instance.id": options["instance"]} if options.get("instance") else {}),
        },
    )  # fmt: skip

    def write(what: str, value: object) -> None:
        os.write(journal, f"{what} {value}\n".encode())

    @consumer.handler(
        retry=Retry(options.get("attempts", 3), fixed("50ms")), dead_letter=True, ordered=options.get("ordered", False)
    )
    def handle(message: Any) -> None:
        value = message.value
        write("call", value)
        time.sleep(options.get("sleep_s", 0))
        if value in options.get("deadly", ()):
            os._exit(9)
        if value in options.get("failing", ()):
            raise ValueError(f"{value} fails")
        write("done", value)

    consumer.run()
    consumer.close()
    write("ended", "in-order")


main()
