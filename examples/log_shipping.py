"""Log shipping: many small messages in large batches, none lost, and readers that want only some of them.

Run it while a broker runs: `python examples/log_shipping.py`, with HOST:PORT in PENSTOCK_BOOTSTRAP if that is not
127.0.0.1:9092. Lines go out with the profile "throughput". The default delivery, at-least-once, means that every line
arrives and that the archive commits behind what it has written. The alarm asks for errors alone, by a header.
"""

import time
import uuid

from penstock import Consumer, Producer

RUN = uuid.uuid4().hex[:8]
LOGS = f"logs-{RUN}"
LINES = 50_000


def ship() -> float:
    """Sends all lines; returns how many a second went out and were acknowledged."""
    began = time.perf_counter()
    with Producer(profile="throughput") as shipper:
        for number in range(LINES):
            level = "ERROR" if number % 10_000 == 9_999 else "INFO"
            shipper.send(LOGS, f"{level} line {number}", key="web-1", headers={"level": level})
    return LINES / (time.perf_counter() - began)


def archive() -> int:
    lines = 0
    with Consumer(group="archive", topics=LOGS, value="text", profile="throughput") as reader:
        for message in reader.messages(count=LINES):
            lines += bool(message.value)
        assert reader.lag == 0
    return lines


def raise_alarm() -> list[str]:
    with Consumer(group="alarm", topics=LOGS, value="text", where={"level": {"ERROR", "FATAL"}}) as reader:
        return [message.value for message in reader.messages(count=LINES // 10_000)]


def main() -> None:
    rate = ship()
    print(f"shipped {LINES:,} lines, {rate:,.0f} a second")
    print(f"archived {archive():,} lines")
    for line in raise_alarm():
        print(f"alarm: {line}")


main()
