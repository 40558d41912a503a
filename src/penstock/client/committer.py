"""Offsets on their way to the group's coordinator, those that somebody waits for and those that nobody does.

Without a coordinator, librdkafka waits as long as a session lasts, and can't be interrupted: so a commit that is waited
for is made in a thread of its own, and who waits gives up when it likes. What was given up is still under way, and
nobody is let in until it has ended. Within a listener, librdkafka lets no other thread in: there the coordinator is
asked for an offset first, which has a time-out, and only one that answers is sent the commit. All that one listener
commits has to be done in the time of one.

librdkafka sends a commit again that got no answer, perhaps behind a newer one, and what is stored then is older than
what was stored last. So `heard` is told of each answer, and the last commit of all comes behind them: see `settle`.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError, KafkaException, TopicPartition

log = logging.getLogger("penstock.client")

COMMIT_TIMEOUT_S = 15.0  # in all; a broker may start anew meanwhile
CLOSE_TIMEOUT_S = 1.0  # for who has waited for its last commit before
RETRY_S = 0.1
SETTLE_SLICE_S = 0.05
# The coordinator is not there yet, or moves: the same commit may be taken in a moment.
PASSING = frozenset(
    {
        KafkaError._WAIT_COORD,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
    }
)

Heard = Callable[[KafkaError | None, list[TopicPartition]], object]


class _Commit:
    """One that is waited for."""

    __slots__ = ("_kafka", "_offsets", "done", "error")

    def __init__(self, kafka: KafkaConsumer, offsets: list[TopicPartition]) -> None:
        self._kafka = kafka
        self._offsets = offsets
        self.error: KafkaError | None = None
        self.done = threading.Event()

    def carry_out(self) -> None:
        try:
            answer = self._kafka.commit(offsets=self._offsets, asynchronous=False) or ()
            self.error = next((each.error for each in answer if each.error is not None), None)
        except KafkaException as failure:
            self.error = failure.args[0]
        except RuntimeError as failure:  # the consumer is closed
            self.error = KafkaError(KafkaError._STATE, str(failure))
        finally:
            self.done.set()

    def carry_out_within(self, deadline_s: float) -> None:
        """The same, if the coordinator is there by then."""
        place = TopicPartition(self._offsets[0].topic, self._offsets[0].partition)
        try:
            self._kafka.committed([place], timeout=max(0.0, deadline_s - time.monotonic()))
        except KafkaException as failure:
            if failure.args[0].code() in PASSING:
                self.error = KafkaError(failure.args[0].code(), "The group's coordinator does not answer")
                self.done.set()
                return
        self.carry_out()


Jobs = queue.SimpleQueue[_Commit | None]


class Committer:
    def __init__(self) -> None:
        self.kafka: KafkaConsumer | None = None  # once there is one: its settings have `answered`
        self.heard: Heard = lambda error, offsets: None
        self.timeout_s = COMMIT_TIMEOUT_S  # for who says nothing else
        self.unanswered = 0  # commits that nobody waits for
        self._waited_for: _Commit | None = None
        self._within_until_s: float | None = None  # while a listener of librdkafka is called
        self._jobs: Jobs | None = None
        self._end: Callable[[], object] = lambda: None  # of the thread

    # ---- without waiting

    def later(self, offsets: list[TopicPartition]) -> bool:
        """Whether it is under way; `heard` is told what became of it, when librdkafka is asked for messages."""
        assert self.kafka is not None
        if self.is_stuck:
            return False
        try:
            self.kafka.commit(offsets=offsets, asynchronous=True)
        except KafkaException as failure:
            log.debug("commit put off: %s", failure.args[0].str())
            return False
        self.unanswered += 1
        return True

    def answered(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        self.unanswered = max(0, self.unanswered - 1)
        if error is not None and error.code() != KafkaError._NO_OFFSET:
            log.debug("commit failed, and will be tried again: %s", error.str())
        self.heard(error, offsets)

    def settle(self) -> bool:
        """Whether all are answered. For the end only: messages that come meanwhile are lost to this consumer."""
        assert self.kafka is not None
        deadline_s = time.monotonic() + self.timeout_s
        while self.unanswered and not self.is_stuck and time.monotonic() < deadline_s:
            self.kafka.poll(SETTLE_SLICE_S)
        return self.is_idle

    @property
    def is_idle(self) -> bool:
        return not self.unanswered and not self.is_stuck

    # ---- with waiting

    @property
    def is_stuck(self) -> bool:
        """A commit that was waited for, and given up, has not ended."""
        return self._waited_for is not None and not self._waited_for.done.is_set()

    @contextmanager
    def within(self) -> Iterator[None]:
        """While a listener of librdkafka is called."""
        before = self._within_until_s
        if before is None:
            self._within_until_s = time.monotonic() + self.timeout_s
        try:
            yield
        finally:
            self._within_until_s = before

    @property
    def is_within(self) -> bool:
        return self._within_until_s is not None

    def now(self, offsets: list[TopicPartition], timeout_s: float | None = None) -> KafkaError | None:
        """What may pass is tried again, as long as there is time."""
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        deadline_s = time.monotonic() + timeout_s
        if self._within_until_s is not None:
            deadline_s = min(deadline_s, self._within_until_s)
        while True:
            if self.is_stuck and not self._wait(deadline_s):
                return no_answer(timeout_s)
            assert self.kafka is not None
            commit = self._waited_for = _Commit(self.kafka, offsets)
            self._begin(commit, deadline_s)
            if not self._wait(deadline_s):
                return no_answer(timeout_s)
            if commit.error is None or commit.error.code() not in PASSING or time.monotonic() > deadline_s:
                return commit.error
            time.sleep(RETRY_S)

    def _begin(self, commit: _Commit, deadline_s: float) -> None:
        if self.is_within:
            commit.carry_out_within(deadline_s)
            return
        if self._jobs is None:
            self._jobs = queue.SimpleQueue()
            self._end = weakref.finalize(self, self._jobs.put, None)
            threading.Thread(target=_work, args=(self._jobs,), name="penstock-commits", daemon=True).start()
        self._jobs.put(commit)

    def _wait(self, deadline_s: float) -> bool:
        assert self._waited_for is not None
        return self._waited_for.done.wait(max(0.0, deadline_s - time.monotonic()))

    # ---- the end

    def close(self) -> None:
        """Closes the consumer too. It waits for what is under way; for very long, it does so alone."""
        assert self.kafka is not None
        closing = threading.Thread(
            target=_close, args=(self.kafka, self._waited_for), name="penstock-closing", daemon=True
        )
        if not self.is_idle:
            closing.start()
            closing.join(CLOSE_TIMEOUT_S)
            if closing.is_alive():
                log.warning("no coordinator answers: the group is left without a word, and will notice by itself")
        else:
            self.kafka.close()
        self._end()


def _work(jobs: Jobs) -> None:
    while (commit := jobs.get()) is not None:
        commit.carry_out()
        del commit  # a thread that waits does not keep a consumer that nobody uses any more


def _close(kafka: KafkaConsumer, commit: _Commit | None) -> None:
    if commit is not None:
        commit.done.wait()
    kafka.close()


def no_answer(timeout_s: float) -> KafkaError:
    return KafkaError(KafkaError._TIMED_OUT, f"No answer within {timeout_s:.0f} s")
