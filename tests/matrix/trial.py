"""One trial: a load, a fault under it, recovery, and the verdict on everything that was written down."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from tests.history.judge import Verdict
from tests.matrix.cluster import Cluster
from tests.matrix.crowd import PARTITIONS, Crowd
from tests.matrix.faults import Fault, Scene
from tests.matrix.member import until
from tests.matrix.table import Row

STEADY_S_MAX = 30.0
AFTERWARDS_S = 0.5
RATE_MIN = 1000.0  # messages a second that the writers offer, all together


def trial(cluster: Cluster, fault: Fault, name: str, seed: int, folder: Path) -> Row:
    cluster.wait_whole()
    cluster.create_topic(name, PARTITIONS, **fault.topic_settings)
    crowd = Crowd(folder, cluster.bootstrap, name, seed)
    try:
        crowd.wait_steady(STEADY_S_MAX)
        scene = Scene(cluster, crowd, random.Random(seed))
        fault.prepare(scene)
        strike(fault, scene)
        whole_s = cluster.wait_whole()
        crowd.wait_steady(STEADY_S_MAX)
        time.sleep(AFTERWARDS_S)
        verdict = crowd.finish()
        sent_s = crowd.lasted_s
    except AssertionError as failure:
        raise AssertionError(f"{fault}: {failure}\n{cluster.last_words()}") from None
    finally:
        crowd.close()
    assert verdict.is_clean, f"{fault}: {verdict}\n{cluster.last_words()}"
    wait_same(cluster, name)
    row = row_of(fault, verdict, whole_s, sent_s)
    assert row.pause_s <= fault.pause_s_max, f"{fault}: a pause of {row.pause_s:.1f} s\n{verdict}"
    assert row.rate >= RATE_MIN, f"{fault}: only {row.rate:.0f} messages a second"
    return row


def strike(fault: Fault, scene: Scene, say: Callable[[str], None] = lambda _: None) -> None:
    """Whatever happens meanwhile, the fault has an end."""
    fault.begin(scene)
    say(f"{fault}: {scene.victims or 'all'}")
    try:
        fault.hold(scene)
    finally:
        fault.end(scene)


def wait_same(cluster: Cluster, topic: str) -> None:
    """Until all brokers hold the same bytes of a topic that nobody writes to any more."""

    def is_same() -> bool:
        comparison = cluster.compare(topic)
        return comparison.is_identical and not comparison.behind

    try:
        until(is_same, STEADY_S_MAX, "the same bytes on all brokers")
    except AssertionError as late:
        raise AssertionError(f"{late}: {cluster.compare(topic)}\n{cluster.last_words()}") from None


def row_of(fault: Fault, verdict: Verdict, whole_s: float, lasted_s: float) -> Row:
    pauses = verdict.pauses
    return Row(
        str(fault), verdict.facts["acknowledged"], verdict.facts["sent"] / lasted_s, pauses[0].seconds,
        max(pause.seconds for pause in pauses[1:]), whole_s,
    )  # fmt: skip
