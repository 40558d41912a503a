"""The load against a real broker that is killed on the way: the verdict is clean, and there was something to judge."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.brokers import BrokerProcess
from tests.clients.steps import create_topic
from tests.history.events import load_all
from tests.history.judge import judge
from tests.history.load import LoadProcess

TOPIC, PARTITIONS = "history", 3


def test_a_broker_that_is_killed_keeps_its_promises(new_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    broker = new_broker(group_min_session_timeout_ms=100)
    create_topic(broker.bootstrap, TOPIC, PARTITIONS)

    def load(kind: str, name: str, **options: object) -> LoadProcess:
        return LoadProcess(
            tmp_path / f"{name}.jsonl", kind, bootstrap=broker.bootstrap, topic=TOPIC, partitions=PARTITIONS, **options
        )

    loads = [load(kind, kind, rate=200, abort_ratio=0.5) for kind in ("plain", "idempotent", "transactional")]
    loads += [load("reader", f"reader-{number}", session_timeout_ms=1000) for number in range(2)]
    try:
        time.sleep(3)
        broker.kill()
        broker.start()
        time.sleep(3)
        for each in loads:
            each.stop()
        for each in loads:
            each.finish()
        loads.append(load("final", "final"))
        loads[-1].finish()
    finally:
        for each in loads:
            each.kill()
    verdict = judge(load_all(each.events for each in loads))
    assert verdict.is_clean, str(verdict)
    assert verdict.facts["acknowledged"] > 600, str(verdict)
    assert verdict.facts["reads"] > 3 * 600, str(verdict)
    assert verdict.facts["of these aborted"] > 0, str(verdict)
    assert 0.05 < verdict.pauses[0].seconds < 20, str(verdict)
