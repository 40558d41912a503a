"""A run: feed, copy and audit while faults strike, then let everything settle and look at the whole."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.brokers import BrokerProcess
from tests.chaos.auditor import Auditor, Violation, read_again, reader
from tests.chaos.crew import Crew
from tests.chaos.faults import Faults
from tests.chaos.feeder import Feeder
from tests.clients.steps import create_topic

SOURCE, TARGET, GROUP = "input", "result", "copiers"
PARTITIONS = 4
COPIERS = 3
ASSIGNORS_OF_ALL = ("range", "roundrobin")
ASSIGNORS = (*ASSIGNORS_OF_ALL, "cooperative-sticky")
PROGRESS_TIMEOUT_S = 60.0
PAUSE_S = (0.1, 2.0)
CALL_TIMEOUT_S = 20.0

Say = Callable[[str], None]


@dataclass(slots=True)
class Verdict:
    """What happened, if all was well: otherwise there is a Violation instead."""

    messages: int
    aborted: int  # copies that were written and are not to be seen
    struck: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        faults = ", ".join(f"{what} ({count})" for what, count in sorted(self.struck.items()))
        ended = ", ".join(f"{why} ({count})" for why, count in sorted(self.ended.items())) or "none"
        return (
            f"{self.messages} messages were copied exactly once and in order; {self.aborted} copies were aborted; "
            f"copiers that ended by themselves: {ended}; {sum(self.struck.values())} faults: {faults}"
        )


def campaign(folder: Path, seconds: float, seed: int, say: Say = print, other: str | None = None) -> Verdict:
    """With another program as every second copier, transactions of both versions meet in one partition."""
    rng = random.Random(seed)
    assignor = rng.choice(ASSIGNORS if other is None else ASSIGNORS_OF_ALL)
    say(f"seed {seed}: {COPIERS} copiers share {PARTITIONS} partitions ({assignor}); files in {folder}")
    broker = BrokerProcess(folder, group_min_session_timeout_ms=100)
    with ExitStack() as stack:
        stack.callback(broker.close)
        broker.start()
        for topic in (SOURCE, TARGET):
            create_topic(broker.bootstrap, topic, PARTITIONS, segment_bytes=1 << 20, retention_ms=-1)
        feeder = Feeder(broker.bootstrap, SOURCE, PARTITIONS)
        crew = Crew(folder, COPIERS, [broker.bootstrap, SOURCE, TARGET, GROUP], assignor, other)
        stack.callback(crew.close)
        auditor = Auditor(broker.bootstrap, TARGET, PARTITIONS)
        stack.callback(auditor.close)
        struck = strike(Faults(rng, broker, crew), rng, crew, auditor, seconds, say)
        say("no more faults; everything shall settle")
        feeder.finish()
        crew.complete()
        settle(crew, auditor, feeder.sent)
        crew.finish()
        return look_at_the_whole(broker, feeder.sent, Verdict(sum(feeder.sent), 0, struck, crew.ended))


def strike(faults: Faults, rng: random.Random, crew: Crew, auditor: Auditor, seconds: float, say: Say) -> Counter[str]:
    """Between two faults there is always some progress: else nothing would be tested any more."""
    struck: Counter[str] = Counter()
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        before = auditor.seen
        watch(crew, auditor, lambda before=before: auditor.seen > before)
        time.sleep(rng.uniform(*PAUSE_S))
        what = faults.strike()
        struck[what] += 1
        say(f"{passed:7.1f} s  {auditor.seen:9} copied  {what}")
    return struck


def settle(crew: Crew, auditor: Auditor, sent: list[int]) -> None:
    while auditor.ledger.following != sent:
        before = auditor.seen
        watch(crew, auditor, lambda before=before: auditor.seen > before)
        if auditor.seen > sum(sent):
            raise Violation(f"{auditor.seen} copies of {sum(sent)} messages")


def watch(crew: Crew, auditor: Auditor, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PROGRESS_TIMEOUT_S
    while not is_so():
        crew.look_after()
        if auditor.violation is not None:
            raise auditor.violation
        if time.monotonic() > deadline:
            raise Violation(f"no progress for {PROGRESS_TIMEOUT_S:.0f} s: {auditor.ledger.following} are copied")
        time.sleep(0.05)
    if auditor.violation is not None:
        raise auditor.violation


# ---- the end


def look_at_the_whole(broker: BrokerProcess, sent: list[int], verdict: Verdict) -> Verdict:
    """As it is, and as it is after one more kill: what was read once is there for good."""
    check_nothing_is_open(broker.bootstrap)
    check_offsets(broker.bootstrap, sent)
    read_again(broker.bootstrap, TARGET, sent, PROGRESS_TIMEOUT_S)
    broker.kill()
    broker.start()
    check_nothing_is_open(broker.bootstrap)
    read_again(broker.bootstrap, TARGET, sent, PROGRESS_TIMEOUT_S)
    verdict.aborted = count_uncommitted(broker.bootstrap) - verdict.messages
    return verdict


def ends(bootstrap: str, isolation: IsolationLevel) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    asked = {TopicPartition(TARGET, partition): OffsetSpec.latest() for partition in range(PARTITIONS)}
    found = admin.list_offsets(asked, isolation_level=isolation, request_timeout=CALL_TIMEOUT_S)
    return {partition.partition: future.result().offset for partition, future in found.items()}


def check_nothing_is_open(bootstrap: str) -> None:
    """The copiers have ended well, so that no transaction may hold back the last stable offset."""
    stable, whole = ends(bootstrap, IsolationLevel.READ_COMMITTED), ends(bootstrap, IsolationLevel.READ_UNCOMMITTED)
    if stable != whole:
        raise Violation(f"a transaction hangs: stable up to {stable} of {whole}")


def check_offsets(bootstrap: str, sent: list[int]) -> None:
    with group_reader(bootstrap) as consumer:
        places = consumer.committed([TopicPartition(SOURCE, n) for n in range(PARTITIONS)], CALL_TIMEOUT_S)
    if [place.offset for place in places] != sent:
        raise Violation(f"the group stands at {[place.offset for place in places]} of {sent}")


@contextmanager
def group_reader(bootstrap: str) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 0})
    try:
        yield consumer
    finally:
        consumer.close()


def count_uncommitted(bootstrap: str) -> int:
    """Every copy that was ever written, whatever became of it. Markers have offsets too, but are no messages."""
    consumer = reader(bootstrap, TARGET, PARTITIONS, "read_uncommitted")
    count, quiet = 0, 0
    while quiet < 10:
        found = sum(message.error() is None for message in consumer.consume(1000, 0.1))
        count, quiet = count + found, 0 if found else quiet + 1
    consumer.close()
    return count
