"""The long form: one cluster and one load for a few minutes, faults drawn at random, and then the verdict."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.history.events import Acknowledged, load_all
from tests.history.judge import Verdict
from tests.history.pauses import longest
from tests.matrix.cluster import Cluster
from tests.matrix.crowd import PARTITIONS, Crowd
from tests.matrix.faults import ALL, Fault, Scene
from tests.matrix.table import Row
from tests.matrix.trial import STEADY_S_MAX, strike, wait_same

TOPIC = "campaign"
REST_S = (0.5, 4.0)

Say = Callable[[str], None]


class Broken(Exception):
    """A promise was not kept, or something did not go on; the message says which."""


@dataclass(frozen=True, slots=True)
class Window:
    """When a fault was in force, and how long it took until all was well again."""

    fault: Fault
    began: float
    ended: float
    whole_s: float


def campaign(folder: Path, seconds: float, seed: int, say: Say = print) -> list[Row]:
    """What was seen of each fault. Raises Broken, or AssertionError for what never came true."""
    chance = random.Random(seed)
    with Cluster(folder) as cluster:
        faults = drawable(cluster)
        say(f"seed {seed}: {len(faults)} kinds of faults; files in {folder}")
        cluster.create_topic(TOPIC, PARTITIONS)
        crowd = Crowd(folder / "events", cluster.bootstrap, TOPIC, seed)
        try:
            windows = strike_again_and_again(cluster, crowd, faults, chance, seconds, say)
            say("no more faults; everything shall settle")
            verdict = crowd.finish()
        finally:
            crowd.close()
        say(str(verdict))
        if not verdict.is_clean:
            raise Broken(f"{verdict}")
        wait_same(cluster, TOPIC)
        cluster.stop()
        comparison = cluster.compare()
        say(str(comparison))
        if not comparison.is_identical:
            raise Broken(str(comparison))
        return rows_of(windows, crowd, verdict)


def drawable(cluster: Cluster) -> list[Fault]:
    """All that can be made here with the promises of a topic of which nothing is set."""
    usual = [fault for fault in ALL if fault.topic_settings in ({}, {"flush": "commit"})]
    return [fault for fault in usual if fault.why_not(cluster) is None]


def strike_again_and_again(
    cluster: Cluster, crowd: Crowd, faults: Sequence[Fault], chance: random.Random, seconds: float, say: Say
) -> list[Window]:
    """Between two faults all is well again: else nothing would be tested any more."""
    began = time.monotonic()
    windows: list[Window] = []
    while (passed := time.monotonic() - began) < seconds:
        crowd.wait_steady(STEADY_S_MAX)
        time.sleep(chance.uniform(*REST_S))
        fault = chance.choice(faults)
        scene = Scene(cluster, crowd, random.Random(chance.randrange(1 << 30)))
        fault.prepare(scene)
        begins = time.monotonic()
        strike(fault, scene, partial(_say_when, say, passed))
        whole_s = cluster.wait_whole()
        windows.append(Window(fault, begins, time.monotonic(), whole_s))
    crowd.wait_steady(STEADY_S_MAX)
    return windows


def _say_when(say: Say, passed: float, what: str) -> None:
    say(f"{passed:7.1f} s  {what}")


def rows_of(windows: Sequence[Window], crowd: Crowd, verdict: Verdict) -> list[Row]:
    """The worst of each kind of fault."""
    times: dict[int, list[float]] = defaultdict(list)
    for event in load_all(crowd.files()):
        if isinstance(event, Acknowledged):
            times[event.partition].append(event.at)
    rate = verdict.facts["sent"] / crowd.lasted_s
    worst: dict[str, Row] = {}
    for window in windows:
        everything = sorted(at for each in times.values() for at in each)
        silence_s = _longest_in(window, everything)
        pause_s = max(_longest_in(window, sorted(each)) for each in times.values())
        count = sum(window.began <= at <= window.ended for at in everything)
        name = str(window.fault)
        if name not in worst or worst[name].pause_s < pause_s:
            worst[name] = Row(name, count, rate, silence_s, pause_s, window.whole_s)
    return sorted(worst.values(), key=lambda row: -row.pause_s)


def _longest_in(window: Window, times: Sequence[float]) -> float:
    """A pause that began before its end and ended behind its beginning, in full."""
    before = max((at for at in times if at <= window.began), default=window.began)
    after = min((at for at in times if at >= window.ended), default=window.ended)
    return longest([at for at in times if before <= at <= after], before, after, "").seconds
