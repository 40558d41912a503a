"""Processes that die in a handler, are stopped, or lose their partitions: nothing is lost, and attempts are counted."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.client.conftest import MakeTopic
from tests.client.retrying.conftest import WAIT_S, committed, copies, produce, wait_until

WORKER = Path(__file__).parent / "worker.py"


class Worker:
    """The process, started again and again over one journal."""

    def __init__(self, journal: Path, **options: Any) -> None:
        self.journal = journal
        self.options = {"journal": str(journal), **options}
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, str(WORKER), json.dumps(self.options)])
        self.processes.append(process)
        return process

    def keep_alive(self, until: Callable[[], Any]) -> tuple[subprocess.Popen[bytes], int]:
        """Starts it again whenever it killed itself. The process that lives at the end, and how many died before."""
        deaths, deadline = 0, time.monotonic() + WAIT_S
        process = self.processes[-1] if self.processes else self.start()
        while not until():
            assert time.monotonic() < deadline
            if process.poll() is not None:
                assert process.returncode == 9
                deaths += 1
                process = self.start()
            time.sleep(0.02)
        return process, deaths

    def lines(self, what: str) -> list[str]:
        if not self.journal.exists():
            return []
        found = (line.split() for line in self.journal.read_text().splitlines())
        return [words[1] for words in found if len(words) == 2 and words[0] == what]

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait(10)


@pytest.fixture
def new_worker(bootstrap: str, group: str, tmp_path: Path) -> Iterator[Any]:
    made: list[Worker] = []

    def make(topic: str, **options: Any) -> Worker:
        options = {"delivery": "at-least-once", "bootstrap": bootstrap, "group": group, "topic": topic, **options}
        made.append(Worker(tmp_path / "journal", **options))
        return made[-1]

    yield make
    for worker in made:
        worker.close()


def no_key(value: object) -> None:
    return None


def test_a_message_that_kills_its_process_is_laid_down_after_as_many_deaths_as_attempts(
    bootstrap: str, make_topic: MakeTopic, group: str, new_worker: Any, delivery: str
) -> None:
    topic = make_topic()
    produce(bootstrap, topic, range(10), key=no_key)
    worker = new_worker(topic, delivery=delivery, deadly=[4], attempts=3, instance="one")
    letters = f"{topic}.{group}.dlq"
    process, deaths = worker.keep_alive(lambda: copies(bootstrap, letters))
    wait_until(lambda: set(worker.lines("done")) == {str(n) for n in range(10) if n != 4}, "the others handled")
    worker.stop(process)
    assert deaths == 3
    assert worker.lines("call").count("4") == 3, "every attempt is counted, and none too many"
    (letter,) = copies(bootstrap, letters)
    assert (letter.value, letter.parked.attempts) == (b"4", 3)
    assert letter.parked.failure.type.endswith("ProcessDied")
    done = Counter(worker.lines("done"))
    assert all(done[str(value)] == 1 for value in range(5, 10)), "what came behind it was handled once"
    assert committed(bootstrap, group, topic)[0][0] == 10


def test_processes_that_are_killed_at_any_time_lose_nothing_and_hand_over_once(
    bootstrap: str, make_topic: MakeTopic, group: str, new_worker: Any, delivery: str
) -> None:
    """Three deaths are fewer than the attempts: a message that is only near them is not laid down for it."""
    count, failing = 300, list(range(0, 300, 10))
    topic = make_topic()
    produce(bootstrap, topic, range(count), key=no_key)
    worker = new_worker(
        topic, delivery=delivery, failing=failing, attempts=5, sleep_s=0.001, commit_interval_s=0.1, instance="one"
    )
    chance = random.Random(7)
    for _ in range(3):
        seen = len(worker.lines("call"))
        process = worker.start()
        wait_until(lambda seen=seen: len(worker.lines("call")) > seen + 20, "at work")
        time.sleep(chance.uniform(0, 0.1))
        process.kill()
        process.wait(10)
    process = worker.start()
    letters = f"{topic}.{group}.dlq"
    wait_until(lambda: len(copies(bootstrap, letters)) >= len(failing), "all laid down")
    wait_until(lambda: len(set(worker.lines("done"))) >= count - len(failing), "all handled")
    worker.stop(process)
    laid_down = Counter(int(letter.value) for letter in copies(bootstrap, letters))
    assert laid_down == Counter(failing), "each once"
    parked = Counter(copy.parked.source for copy in copies(bootstrap, f"{topic}.{group}.retry.50ms"))
    assert set(parked.values()) == {1}
    assert set(worker.lines("done")) == {str(n) for n in range(count) if n not in failing}
    assert committed(bootstrap, group, topic)[0][0] == count


@pytest.mark.parametrize("instance", ["one", None])
def test_a_transaction_that_was_open_when_its_process_died_holds_up_the_next_one_for_a_while_at_most(
    bootstrap: str, make_topic: MakeTopic, group: str, new_worker: Any, instance: str | None
) -> None:
    """A member with a name ends its own at once; another waits until the brokers have given it up."""
    topic, open_ms_max = make_topic(), 60_000 if instance else 2_000
    produce(bootstrap, topic, range(10), key=no_key)
    options = {"delivery": "exactly-once", "failing": [3], "attempts": 1, "instance": instance}
    worker = new_worker(topic, dies_in_transaction=True, open_ms_max=open_ms_max, **options)
    assert worker.start().wait(WAIT_S) == 9
    worker.options["dies_in_transaction"] = False
    process = worker.start()
    letters = f"{topic}.{group}.dlq"
    wait_until(lambda: copies(bootstrap, letters), "laid down")
    wait_until(lambda: committed(bootstrap, group, topic)[0][0] == 10, "all handled by the second one too")
    worker.stop(process)
    assert [letter.value for letter in copies(bootstrap, letters)] == [b"3"]
    assert set(worker.lines("done")) == set("012456789")


def test_a_death_is_not_put_down_to_what_was_done_in_another_partition(
    bootstrap: str, make_topic: MakeTopic, group: str, new_worker: Any, delivery: str
) -> None:
    """After a first death all is handled with care; the second one comes long after 1 to 5 were done."""
    topic = make_topic(partitions=2)
    produce(bootstrap, topic, range(6), key=no_key)
    worker = new_worker(topic, delivery=delivery, deadly=[0, 6], attempts=1, instance="one", commit_interval_s=60)
    letters = f"{topic}.{group}.dlq"
    worker.keep_alive(lambda: len(worker.lines("done")) == 5)
    produce(bootstrap, topic, [6], key=no_key, partition=1)
    process, _ = worker.keep_alive(lambda: len(copies(bootstrap, letters)) == 2)
    worker.stop(process)
    assert sorted(letter.value for letter in copies(bootstrap, letters)) == [b"0", b"6"]
    assert Counter(worker.lines("done")) == Counter("12345")


def test_a_process_that_is_stopped_finishes_its_message_and_none_is_handled_twice(
    bootstrap: str, make_topic: MakeTopic, group: str, new_worker: Any, delivery: str
) -> None:
    count = 60
    topic = make_topic(partitions=2)
    produce(bootstrap, topic, range(count))
    worker = new_worker(topic, delivery=delivery, failing=[5, 25], attempts=2, sleep_s=0.02)
    letters = f"{topic}.{group}.dlq"
    for _ in range(2):
        seen = len(worker.lines("call"))
        process = worker.start()
        wait_until(lambda seen=seen: len(worker.lines("call")) > seen + 5, "at work")
        worker.stop(process)
    process = worker.start()
    wait_until(lambda: len(copies(bootstrap, letters)) == 2, "laid down")
    wait_until(lambda: len(set(worker.lines("done"))) == count - 2, "all handled")
    worker.stop(process)
    assert worker.lines("ended") == ["in-order"] * 3
    assert max(Counter(worker.lines("done")).values()) == 1
    assert Counter(worker.lines("call")) == Counter([*map(str, range(count)), "5", "25"])
    assert [letter.parked.attempts for letter in copies(bootstrap, letters)] == [2, 2]


def test_a_rebalance_neither_loses_nor_repeats_a_message(
    bootstrap: str, make_topic: MakeTopic, group: str, new_worker: Any, delivery: str
) -> None:
    count, failing = 200, [3, 50, 120, 199]
    topic = make_topic(partitions=4)
    produce(bootstrap, topic, range(count))
    worker = new_worker(topic, delivery=delivery, failing=failing, attempts=2, sleep_s=0.01)
    first = worker.start()
    wait_until(lambda: len(worker.lines("call")) > 10, "at work")
    second = worker.start()
    wait_until(lambda: len(worker.lines("call")) > 120, "both at work")
    worker.stop(first)
    letters = f"{topic}.{group}.dlq"
    wait_until(lambda: len(copies(bootstrap, letters)) == len(failing), "laid down")
    wait_until(lambda: len(set(worker.lines("done"))) == count - len(failing), "all handled")
    worker.stop(second)
    assert max(Counter(worker.lines("done")).values()) == 1
    assert Counter(worker.lines("call")) == Counter(map(str, [*range(count), *failing]))
    assert Counter(int(letter.value) for letter in copies(bootstrap, letters)) == Counter(failing)


@pytest.mark.parametrize("ends", ["in order", "by a kill"])
def test_order_is_kept_for_each_key_over_restarts(
    bootstrap: str, make_topic: MakeTopic, group: str, new_worker: Any, delivery: str, ends: str
) -> None:
    """Of keys 0 to 3, those that fail hold up the later ones of their key, and only those."""
    count, failing = 80, [0, 21, 42]
    topic = make_topic(partitions=2)
    produce(bootstrap, topic, range(count), key=lambda value: str(value % 4))
    options = {"delivery": delivery, "failing": failing, "attempts": 5 if ends == "by a kill" else 3}
    worker = new_worker(topic, sleep_s=0.005, ordered=True, instance="one", commit_interval_s=0.1, **options)
    first = worker.start()
    wait_until(lambda: len(worker.lines("call")) > 20, "at work")
    if ends == "in order":
        worker.stop(first)
    else:
        first.kill()
        first.wait(10)
    second = worker.start()
    letters = f"{topic}.{group}.dlq"
    wait_until(lambda: len(copies(bootstrap, letters)) == len(failing), "laid down")
    wait_until(lambda: len(set(worker.lines("done"))) == count - len(failing), "all handled")
    worker.stop(second)
    calls = [int(value) for value in worker.lines("call")]
    for key in range(4):
        assert_in_order([value for value in calls if value % 4 == key], ends == "by a kill")
    assert Counter(int(letter.value) for letter in copies(bootstrap, letters)) == Counter(failing)
    if ends == "in order":
        assert Counter(calls) == Counter([*range(count), *failing, *failing])


def assert_in_order(calls: list[int], may_repeat: bool) -> None:
    """Of one key. Each is called until it is done, and only then the next; a death may repeat some that were done."""
    first_calls = list(dict.fromkeys(calls))
    assert first_calls == sorted(first_calls), "no message was called before an earlier one"
    back = [(before, after) for before, after in pairwise(calls) if after < before]
    assert len(back) <= may_repeat, "nor while an earlier one was to be tried again"
