"""What a consumer has read, handed out and processed.

Messages are taken from librdkafka in batches and handed out one by one. The invariant: librdkafka is asked for more,
and so may take partitions away, only when nothing of the last batch is left. Then everything that was handed out has
been processed, and `positions` says so; so a partition is always given up with the offset of its next message.

Handlers with retries read through this as well. They set `marks_itself` and `keeps_poison`, say with `mark` what is
processed, and commit with `commit(positions, metadata)`; `seek`, `pause` and `resume` take a partition out of the batch
in hand, so they may be called between any two messages; the listeners are called within `stream`, with nothing left in
the batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from threading import get_ident
from typing import Any, TypeVar

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition

from penstock.client.commits import Commits, as_places
from penstock.client.delivery import CommitOrder, DeliveryMode
from penstock.client.errors import CommitFailed, PenstockError
from penstock.client.filtering import HeaderFilter, headers_of, unreadable
from penstock.client.intake import Intake
from penstock.client.listeners import Listener, tell
from penstock.client.message import Hand, Header, Message, Place, Steps
from penstock.client.serializers import Decoder
from penstock.client.settings import Settings
from penstock.client.spans import Spans, begins_of, ends_of, extend, spans_of
from penstock.client.stream import Stream
from penstock.client.turns import Turns

log = logging.getLogger("penstock.client")

T = TypeVar("T")

POLL_SLICE_S = 0.2  # how soon a stop from another thread, or a signal, is noticed
DEFAULT_MAX_POLL_INTERVAL_MS = 300_000


class Reader:
    """One consumer of librdkafka, and how far its messages got."""

    def __init__(
        self, settings: Settings, mode: DeliveryMode, batch_max: int, decoder: Decoder, commits: Commits
    ) -> None:
        self.mode = mode
        self.commits = commits
        self.decoder = decoder
        self.turns = Turns()
        self.read_in: int | None = None  # the thread that reads, if it says so
        self.hand = Hand()
        self._stopping = False
        self._ended_by_stop = False  # an iteration has: who begins another one means it
        self._for_good = False
        self.is_closed = False
        self._is_left = False  # the group, without its knowledge: what it says is for nobody any more
        self.positions: dict[Place, int] = {}  # the next offset to process, of what was processed here
        self.filter: HeaderFilter | None = None
        self.handles_signals = False
        self.keeps_poison = False  # hands out what can't be deserialized, instead of raising
        self.marks_itself = False  # whoever reads says what is processed, with `mark`
        self.read_since: Spans | None = None  # what was processed since a transaction began, while there is one
        self.on_assign: list[Listener] = []
        self.on_revoke: list[Listener] = []
        self.on_lost: list[Listener] = []
        self.places: frozenset[Place] | None = None  # what the group gave us; None until it has said so
        self._batch: list[Any] = []
        self._left: list[Any] = self.hand.left  # of the batch, what is not handed out yet, the next one last
        self._only_joins = False  # nobody has asked for messages
        self._topic: str | None = None  # if all messages are of this one
        self._asked_s = time.monotonic()
        self._since_commit = 0  # messages that were taken, but for those that were committed
        interval_ms = int(settings.get("max.poll.interval.ms", DEFAULT_MAX_POLL_INTERVAL_MS))
        self._give_back_s = interval_ms / 1000 / 3
        self.paused: set[Place] = set()
        self._sought: dict[Place, int] = {}  # where to, of what may not have been read since
        self._intake = Intake(settings, batch_max, commits.committer.answered)
        self.kafka = self._intake.kafka
        commits.committer.kafka = self.kafka

    def subscribe(self, topics: list[str]) -> None:
        self._topic = topics[0] if len(topics) == 1 and not topics[0].startswith("^") else None
        self._intake.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    @property
    def stopping(self) -> bool:
        return self._stopping

    @stopping.setter
    def stopping(self, is_so: bool) -> None:
        self._stopping = self.hand.stopping = is_so

    @property
    def _in_hand(self) -> bool:
        """The last one that was handed out is not processed yet."""
        return self.hand.in_hand

    @_in_hand.setter
    def _in_hand(self, is_so: bool) -> None:
        self.hand.in_hand = is_so

    # ---- other threads than the one that reads

    def from_any_thread(self, call: Callable[[], T]) -> T:
        """What changes the batch, while nobody takes anything out of it: who iterates meanwhile, in another thread, is
        sent to `wait_for_others` with the next message."""
        with self.turns.beside():
            self.hand.stopping = True
            try:
                return call()
            finally:
                self.hand.stopping = self._stopping

    def wait_for_others(self) -> None:
        if self.hand.stopping and not self._stopping:
            with self.turns.beside():
                pass

    @property
    def has_message_in_hand(self) -> bool:
        """Whether it is this thread that was handed the last message; as far as that is known."""
        return self.read_in in (None, get_ident())

    def stop(self) -> None:
        self.stopping = True

    def stop_for_good(self) -> None:
        """On a signal, which is meant for the whole program and not for one of its loops."""
        self.stopping = self._for_good = True

    def begin_again(self) -> None:
        """A new iteration: the `stop` that ended an earlier one was for that one."""
        if self._ended_by_stop and not self._for_good:
            self.stopping = self._ended_by_stop = False

    def note_end(self) -> None:
        """An iteration is over."""
        self._ended_by_stop = self.stopping

    def rest(self, timeout_s: float | None) -> None:
        """Who asks on and on, though all was told to stop, must not keep a processor busy. A signal ends it."""
        time.sleep(POLL_SLICE_S if timeout_s is None else min(POLL_SLICE_S, timeout_s))

    # ---- handing out

    def stream(
        self,
        count: int | None = None,
        timeout: float | None = None,
        in_all: bool = False,
        scope: AbstractContextManager[Any] | None = None,
    ) -> Steps:
        return Stream(self, count, timeout, in_all, scope).steps()

    # ---- the same in steps, for who must not wait in between

    @property
    def has_left(self) -> bool:
        return bool(self._left)

    @property
    def is_commit_due(self) -> bool:
        return time.monotonic() >= self.commits.due_s

    def hand_out(self) -> Message[Any, Any] | None:
        """The next one of the batch, or None where the filter does not want it. It is in hand then."""
        self._in_hand = True  # before it is taken: another thread may ask how far we are, and must not count it
        raw = self._left.pop()
        if self.filter is not None and not self.filter.accepts(self._headers(raw)):
            self._in_hand = False
            return None
        return self._checked(self.decoder.decode(raw))

    def _headers(self, raw: Any) -> list[Header]:
        headers = headers_of(raw)
        if headers is None:
            self._in_hand = True
            raise unreadable(raw)
        return headers

    def _checked(self, message: Message[Any, Any]) -> Message[Any, Any]:
        if message.poison is not None and not self.keeps_poison:
            raise message.poison
        return message

    def refill(self, wait_until_s: float | None) -> bool:
        """Takes more, if nothing is left. Whether it is worth going on: there is something, or the time is not over."""
        with self.turns:
            return self._refill(wait_until_s)

    def _refill(self, wait_until_s: float | None) -> bool:
        if self._left and self.is_commit_due:
            self.between()  # for who asks for one message at a time
        if self._left:
            return True
        self.settle()
        now_s = time.monotonic()
        self._intake.adapt(now_s - self._asked_s)
        is_due = self.commits.is_due(now_s, self._since_commit)
        if is_due and not self.commits.is_unanswered:
            self.commit_later(now_s)
            is_due = False
        self._intake.look_for_missing(now_s)
        slice_s = POLL_SLICE_S if wait_until_s is None else max(0.0, min(POLL_SLICE_S, wait_until_s - now_s))
        batch = self._intake.take(slice_s, self.commits.every - (0 if is_due else self._since_commit))
        self._asked_s = time.monotonic()
        if is_due:  # librdkafka has told meanwhile what became of the last one
            self.commit_later(self._asked_s)
        if batch and self.mode.commit_order is CommitOrder.BEFORE and not self._commit_before(batch):
            self._intake.rewind(begins_of(batch, self._topic))
            batch = []
        self._batch = batch
        self._left[:] = batch[::-1]
        self._since_commit += len(batch)
        return bool(batch) or wait_until_s is None or self._asked_s < wait_until_s

    def between(self) -> None:
        """Between two messages of a batch, when a commit is due. Of one that nobody waits for, the answer is heard only
        when librdkafka is asked for more: the second one of a batch is waited for."""
        with self.turns:
            now_s = time.monotonic()
            if self.mode.commit_order is CommitOrder.AFTER and self.commits.is_unanswered:
                self._commit_within()
            else:
                self.commit_later(now_s)
            if now_s - self._asked_s > self._give_back_s and self._left:
                self.give_back()

    def give_back(self) -> None:
        """What was taken and not handed out will be read again, by us or by another."""
        self.settle()
        left = self._left[::-1]
        del self._batch[int(self._in_hand) :]
        self._left.clear()
        self._intake.take_few()
        self._rewind(begins_of(left))

    # ---- how far

    def settle(self) -> None:
        """`positions` now has what was handed out and processed of the batch."""
        handed = len(self._batch) - len(self._left) - self._in_hand
        if handed <= 0:
            return
        if handed == len(self._batch):
            done, self._batch = self._batch, []
        else:
            done, self._batch = self._batch[:handed], self._batch[handed:]
        if not self.marks_itself:
            self.positions.update(ends_of(done, self._topic))
            if self.read_since is not None:
                extend(self.read_since, spans_of(done, self._topic))

    def mark(self, message: Message[Any, Any]) -> None:
        """This message, and all before it in its partition, are processed."""
        self.positions[as_place(message.raw)] = message.raw.offset() + 1

    def count_in_hand(self) -> None:
        """The message in hand is processed, though the next one was not asked for."""
        self._in_hand = False

    def commit(self, positions: Mapping[Place, int] | None = None, metadata: Mapping[Place, str] | None = None) -> None:
        """Commits these positions, or all that were processed, and waits until they are stored."""
        self.settle()
        self._since_commit = len(self._batch)
        if positions is None and self.mode.commit_order is CommitOrder.BEFORE:
            return  # all that was taken is committed, which is further than what was processed
        self.commits.now(self.positions if positions is None else positions, metadata)

    def commit_later(self, now_s: float) -> None:
        self.settle()
        self._since_commit = len(self._batch)
        if self.mode.commit_order is CommitOrder.AFTER:
            self.commits.later(self.positions, now_s)
        else:
            self.commits.due_s = now_s + 1.0

    def _commit_within(self) -> None:
        try:
            self.commit()
        except PenstockError as failure:  # it comes again with the next one, or the messages do, which is allowed
            log.debug("commit put off: %s", failure)
        self.commits.put_off(time.monotonic())

    def _commit_before(self, batch: list[Any]) -> bool:
        """At most once: who can't say that these are read, or only joins, does not hand them out, and they come again
        if they are still ours."""
        if self._only_joins:
            return False
        try:
            self.commits.now(ends_of(batch, self._topic))
        except CommitFailed:
            return False
        return True

    # ---- where to

    def seek(self, offsets: Mapping[Place, int]) -> None:
        """What comes next in these partitions. What was taken of them and not processed is forgotten: the message in
        hand too, whose place is what the seek says and not behind it."""
        self.drop(offsets)
        if self._in_hand and self._batch and as_place(self._batch[0]) in offsets:
            del self._batch[0]
            self._in_hand = False
        self.commits.forget(offsets)
        for place, offset in offsets.items():
            self._intake.seek(place, offset)
            self._sought[place] = offset
            if offset >= 0:
                self.positions[place] = offset
            else:
                self.positions.pop(place, None)

    def put_back(self) -> None:
        """What was read since the transaction began comes again, if it is still ours to read."""
        self._in_hand = False
        self.settle()
        assert self.read_since is not None
        ours = set(self._intake.assignment())
        self.seek({place: begin for place, (begin, _) in self.read_since.items() if place in ours})

    def drop(self, places: Iterable[Place]) -> dict[Place, int]:
        """Takes partitions out of the batch. Returns from where on they were not handed out."""
        self.settle()
        chosen = set(places)
        hand = self._batch[:1] if self._in_hand else []
        left = self._left[::-1]
        dropped = [raw for raw in left if as_place(raw) in chosen]
        kept = [raw for raw in left if as_place(raw) not in chosen]
        self._batch = hand + kept
        self._left[:] = kept[::-1]
        return begins_of(dropped)

    def pause(self, places: Iterable[Place]) -> None:
        chosen = list(places)
        self.kafka.pause([TopicPartition(*place) for place in chosen])
        self.paused.update(chosen)
        self._rewind(self.drop(chosen))

    def resume(self, places: Iterable[Place]) -> None:
        chosen = list(places)
        self.kafka.resume([TopicPartition(*place) for place in chosen])
        self.paused.difference_update(chosen)

    def _rewind(self, begins: dict[Place, int]) -> None:
        self._intake.rewind(begins)
        self._sought.update(begins)

    def wait_for_assignment(self, timeout_s: float) -> list[Place]:
        """Reads until the group has said what this member reads, be it nothing."""
        deadline_s = time.monotonic() + timeout_s
        self._only_joins = True
        try:
            while self.places is None and time.monotonic() < deadline_s:
                self.refill(min(deadline_s, time.monotonic() + POLL_SLICE_S))
        finally:
            self._only_joins = False
        return self._intake.assignment()

    def unprocessed(self) -> dict[Place, int]:
        """From where on something was taken from librdkafka and is not processed, or will be, after a seek. May be
        asked from any thread, so what the one that reads has counted is only looked at."""
        batch = self._batch
        handed = max(0, len(batch) - len(self._left) - self._in_hand)
        done = {} if self.marks_itself else ends_of(batch[:handed], self._topic)
        positions = {**self.positions, **done}
        unread = {place: at for place, at in dict(self._sought).items() if positions.get(place, at) == at}
        return {**unread, **begins_of(batch[handed:])}

    # ---- rebalances, all of them within a call of `take` or `close`

    def _assigned(self, _: KafkaConsumer, partitions: list[TopicPartition]) -> None:
        places = as_places(partitions)
        self._intake.gone.difference_update(places)
        self.came(places)
        with self.commits.committer.within():
            tell(self.on_assign, places)

    def _revoked(self, _: KafkaConsumer, partitions: list[TopicPartition]) -> None:
        if self._is_left:
            return
        places = as_places(partitions)
        with self.commits.committer.within():
            try:
                tell(self.on_revoke, places)
            finally:
                self._give_up(places)

    def _give_up(self, places: list[Place]) -> None:
        try:
            if self.mode.commit_order is CommitOrder.AFTER:
                self.commits.now({place: self.positions[place] for place in places if place in self.positions})
        except CommitFailed as failure:
            # The next owner will process again what was not stored, which at-least-once allows.
            log.warning("offsets were not stored when partitions went to another member: %s", failure)
        finally:
            self._forget(places)

    def _lost(self, _: KafkaConsumer, partitions: list[TopicPartition]) -> None:
        if self._is_left:
            return
        places = as_places(partitions)
        with self.commits.committer.within():
            try:
                tell(self.on_lost, places)
            finally:
                self._forget(places)

    def came(self, places: Iterable[Place]) -> None:
        """Known before librdkafka is told, so that listeners and other threads find what they are told of."""
        self.places = (self.places or frozenset()).union(places)

    def went(self, places: Iterable[Place]) -> None:
        """librdkafka would keep a pause until a partition comes back, when nobody here knows of it any more."""
        gone = set(places)
        self.places = (self.places or frozenset()).difference(gone)
        if held := self.paused & gone:
            self.resume(held)

    def _forget(self, places: list[Place]) -> None:
        self._intake.gone.update(places)
        self.went(places)
        self.commits.forget(places)
        for place in places:
            self.positions.pop(place, None)
            self._sought.pop(place, None)
            if self.read_since is not None:
                self.read_since.pop(place, None)

    def clear(self) -> None:
        """Before handlers read instead: what was processed is stored, and what was not is read again, by them."""
        if self.mode.commit_order is CommitOrder.AFTER:
            self.commit()
        self._batch = []
        self._left.clear()
        self._in_hand = False
        self.positions.clear()
        self._sought.clear()
        self.resume(self.paused)
        self.places = None
        # Where partitions go one by one (KIP-429, KIP-848), who only subscribes anew keeps them, and is not told so.
        self.kafka.unsubscribe()

    # ---- the end

    def close(self) -> None:
        """Commits what was processed, and leaves the group."""
        self.is_closed = True
        self.settle()
        self._batch = []
        self._left.clear()
        try:
            if self.mode.commit_order is CommitOrder.AFTER:
                self.commits.now_for_good(self.positions)
        finally:
            self.positions.clear()  # what can't be stored now can't be when the partitions are given up
            if not self.commits.committer.is_idle:
                self._lost(self.kafka, [TopicPartition(*place) for place in sorted(self.places or ())])
                self._is_left = True
            self.commits.committer.close()


def as_place(raw: Any) -> Place:
    return raw.topic(), raw.partition()
