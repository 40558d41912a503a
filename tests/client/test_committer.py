"""A commit that is waited for: how long, by whom, and what becomes of one that was given up."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.client import committer as module
from penstock.client.committer import Committer

WAIT_S, SOON_S = 5.0, 0.02
OFFSETS = [TopicPartition("a", 0, 5)]


class SilentKafka:
    """A consumer of librdkafka whose coordinator says nothing until it is let; it is closed no sooner."""

    def __init__(self) -> None:
        self.speaks = threading.Event()
        self.closed = threading.Event()
        self.threads: list[threading.Thread] = []
        self.errors: list[int] = []

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition] | None:
        self.threads.append(threading.current_thread())
        if asynchronous:
            return None
        assert self.speaks.wait(WAIT_S)
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        return offsets

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        if not self.speaks.wait(timeout):
            raise KafkaException(KafkaError(KafkaError._WAIT_COORD))
        return places

    def poll(self, timeout_s: float) -> None:
        self.speaks.wait(timeout_s)

    def close(self) -> None:
        assert self.speaks.wait(WAIT_S)
        self.closed.set()


@pytest.fixture
def kafka() -> SilentKafka:
    return SilentKafka()


@pytest.fixture
def committer(kafka: SilentKafka) -> Committer:
    made: Any = Committer()
    made.kafka = kafka
    return made


def test_who_waits_gives_up_when_it_likes_and_the_next_one_waits_for_that_too(
    kafka: SilentKafka, committer: Committer
) -> None:
    for _ in range(2):
        error = committer.now(OFFSETS, SOON_S)
        assert error is not None
        assert error.code() == KafkaError._TIMED_OUT
    assert len(kafka.threads) == 1, "librdkafka lets nobody else in, so nobody else must come"
    assert not committer.later(OFFSETS)
    kafka.speaks.set()
    assert committer.now(OFFSETS, WAIT_S) is None
    assert not committer.is_stuck


def test_what_may_pass_is_tried_again_as_long_as_there_is_time(kafka: SilentKafka, committer: Committer) -> None:
    kafka.speaks.set()
    kafka.errors = [KafkaError.NOT_COORDINATOR]
    assert committer.now(OFFSETS, WAIT_S) is None
    assert len(kafka.threads) == 2


def test_within_a_listener_no_other_thread_is_used(kafka: SilentKafka, committer: Committer) -> None:
    kafka.speaks.set()
    with committer.within():
        assert committer.now(OFFSETS) is None
    assert kafka.threads == [threading.current_thread()]


def test_within_a_listener_a_coordinator_that_is_silent_is_sent_nothing_that_could_not_be_given_up(
    kafka: SilentKafka, committer: Committer
) -> None:
    committer.timeout_s = SOON_S
    with committer.within():
        begun_s = time.monotonic()
        for _ in range(3):
            error = committer.now(OFFSETS, WAIT_S)
            assert error is not None
            assert error.code() == KafkaError._WAIT_COORD
        assert time.monotonic() - begun_s < WAIT_S / 2, "all of them in the time of one"
    assert kafka.threads == []
    assert not committer.is_stuck


def test_a_consumer_whose_last_commit_was_given_up_closes_by_itself(
    kafka: SilentKafka, committer: Committer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLOSE_TIMEOUT_S", SOON_S)
    committer.now(OFFSETS, SOON_S)
    committer.close()
    assert not kafka.closed.is_set()
    kafka.speaks.set()
    assert kafka.closed.wait(WAIT_S)


def test_the_thread_ends_with_the_committer(kafka: SilentKafka, committer: Committer) -> None:
    kafka.speaks.set()
    committer.now(OFFSETS)
    committer.close()
    kafka.threads[0].join(WAIT_S)
    assert not kafka.threads[0].is_alive()


def test_the_end_waits_for_the_answers_to_all_commits(kafka: SilentKafka, committer: Committer) -> None:
    committer.timeout_s = SOON_S
    assert committer.later(OFFSETS)
    assert not committer.settle()
    committer.answered(None, OFFSETS)
    assert committer.settle()
