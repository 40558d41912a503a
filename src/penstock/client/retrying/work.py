"""Messages one after another, from the origin and from the tiers, and what becomes of each.

    next()  →  handled            succeeded()
               failed             failed(error): a copy goes to a tier, or to the dead letters
               neither            give_back(): it is the next one again, for whoever comes

One message is in hand at a time. A partition's position moves past a message when it was handled or its copy is safe.
Partitions come and go only while librdkafka is asked for messages, and so never while one is in hand.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as RawMessage

from penstock.client.errors import DeserializationError, PenstockError, ProcessDied, from_kafka
from penstock.client.filtering import headers_of, unreadable
from penstock.client.message import Header, Message, has_errors
from penstock.client.pace import Pace
from penstock.client.retrying.assigned import Assigned
from penstock.client.retrying.copies import FOLLOWS, InHand, copy_of
from penstock.client.retrying.creating import Topics
from penstock.client.retrying.headers import Failure, Parked, failure_of, split
from penstock.client.retrying.holdings import Holdings, now_ms
from penstock.client.retrying.membership import Membership
from penstock.client.retrying.parking import SEND_WITHIN_S
from penstock.client.retrying.policy import ONCE
from penstock.client.retrying.returned import Returned
from penstock.client.retrying.source import Options, Source
from penstock.client.retrying.topics import Places, places
from penstock.client.retrying.waiting import Key, Waiting
from penstock.client.spans import begins_of, ends_of

BATCH_MAX = 500  # fewer than what makes Python look for garbage (700), which it does not find among messages
POLL_EVERY_S = 1.0  # also while there is work: a rebalance must not wait for a whole batch
STOP_WITHIN_S = 0.2
PARKED_KEYS_MAX = 100_000  # in a partition, where order is kept; beyond that its origin waits
LOOK_AGAIN_MS = 500
DIED = f"{ProcessDied.__module__}.{ProcessDied.__qualname__}"
SILENT = frozenset(
    {KafkaError._PARTITION_EOF, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._MAX_POLL_EXCEEDED}
)


TOO_SLOW = (
    "the handler took longer than max.poll.interval.ms, so the group has given its partitions away. It joins again, "
    "and what was not committed is handled again. Raise max.poll.interval.ms in settings, or give the handler a timeout"
)

log = logging.getLogger("penstock.client")


class Work:
    def __init__(self, source: Source, options: Options) -> None:
        self._source = source
        self._client = source.client
        self._policy = options.retry or ONCE
        self._options = options
        self._parts: Mapping[Key, Assigned] = {}  # what others may look at, before there is anything, too
        self._backlog: deque[RawMessage] = deque()
        self._waiting: Waiting[RawMessage] = Waiting(lambda raw: raw.offset() or 0)
        self._to_begin: dict[Key, int] = {}  # first offsets of what was read, until their partitions are begun
        self._gone: set[Key] = set()  # partitions that were taken away since the read began
        self._in_hand: InHand | None = None
        self._poll_at = 0.0
        self._batch_max = min(BATCH_MAX, source.commit_every)
        self._until_tiers = 0  # messages until what is due in the tiers gets its turn
        self._is_calm = False  # what was read into the row needs no look before it is handled
        self._in_front = 0  # messages that came to its front otherwise, and do
        self._pace = Pace()
        self._topic: str | None = None  # of all that was read into the row, if it is one

    # ---- from beginning to end

    def start(self) -> None:
        source = self._source
        self._topics = Topics(source.connection, source.group)
        by_topic: dict[str, Places] = {}
        for origin in source.topics:
            wanted = places(origin, source.group, self._policy.tiers_ms, self._options.dead_letter)
            if self._options.retry is not None or self._options.dead_letter:
                wanted = self._topics.with_earlier_tiers(wanted)
                self._topics.ensure(wanted)
            by_topic[origin] = wanted
            by_topic.update((tier.topic, wanted) for tier in wanted.tiers)
        self._holdings = Holdings(source)
        self._parts = self._holdings.parts
        self._membership = Membership(source, self._holdings, by_topic, self._topics.partitions, self._options.ordered)
        self._membership.join(self._forget, self._put_back)

    def close(self) -> None:
        """Everything that was done is committed, as far as copies are acknowledged."""
        self._in_hand = None
        try:
            self._membership.leave()
        finally:
            self._holdings.close()

    def run(self, call: Callable[[Message[Any, Any]], object], finish: Callable[[object], None]) -> None:
        """Until the consumer is told to stop. What `call` raises beyond Exception leaves its message unhandled, and
        `finish` is called with what it returned, if that is something."""
        reader = self._source.reader
        while not reader.stopping:
            is_calm = self._is_calm and bool(self._backlog) and not self._in_front
            if is_calm and time.monotonic() < (until_s := self._until_s()):
                self._run_calm(call, finish, until_s)
            elif (message := self.next(STOP_WITHIN_S)) is not None:
                try:
                    if (result := call(message)) is not None:
                        finish(result)
                except Exception as error:
                    self.failed(error)
                except BaseException:
                    self.give_back()
                    raise
                else:
                    self.succeeded()

    # ---- one by one

    def next(self, timeout_s: float | None = None) -> Message[Any, Any] | None:
        """The next message to handle; None after the time-out, or when the consumer was told to stop."""
        assert self._in_hand is None
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._source.reader.stopping:
            now_s = time.monotonic()
            if self._waiting and self._until_tiers <= 0:
                self._take_due()
            if now_s >= min(self._poll_at, self._holdings.commit_at) or not self._backlog or self._to_begin:
                self._fill(now_s, deadline)
                if not self._backlog:
                    if deadline is not None and now_s >= deadline:
                        return None
                    continue
            self._until_tiers -= 1
            self._in_front = max(0, self._in_front - 1)
            raw = self._backlog.popleft()
            try:
                message = self._admit(raw)
            except BaseException:
                self._return(raw)
                raise
            if message is not None:
                return message
            self._holdings.dispatch()
        return None

    def succeeded(self) -> None:
        hand = self._take_hand()
        self._pass(hand)
        if hand.part.parked_keys is not None:
            hand.part.parked_keys.done(hand.raw.key(), hand.origin_offset)

    def failed(self, error: BaseException) -> None:
        """Raises the error itself where nothing was said about what to do with it."""
        hand = self._take_hand()
        hand.attempts += 1
        try:
            self._dispose(hand, error)
        except BaseException:
            self._return(hand.raw)
            raise
        self._holdings.dispatch()

    def unprocessed(self) -> dict[Key, int]:
        """From where on each partition is not done, as far as that is known. May be asked from any thread."""
        parts = list(self._parts.values())
        return {part.key: part.ledger.position for part in parts if part.is_placed}

    def paused(self) -> list[Key]:
        """Partitions of which nothing is read now. May be asked from any thread."""
        return self._waiting.keys()

    def give_back(self) -> None:
        self._return(self._take_hand().raw)

    def _return(self, raw: RawMessage) -> None:
        """It is the next one again: were it skipped, the next success would commit past it."""
        self._backlog.appendleft(raw)
        self._in_front += 1

    def _take_hand(self) -> InHand:
        hand, self._in_hand = self._in_hand, None
        assert hand is not None
        return hand

    # ---- reading

    def _fill(self, now_s: float, deadline: float | None) -> None:
        """What was read is in the row before anything can fail: librdkafka does not read it again."""
        self._poll_at = now_s + POLL_EVERY_S
        self._holdings.look_for_acknowledgements()
        waits = not self._backlog
        if self._holdings.is_commit_due(now_s) or (waits and (self._holdings.has_kept() or self._holdings.is_trying)):
            self._commit()
        was_empty, was_calm = not self._backlog, self._is_calm
        with self._source.reader.turns:
            batch, trouble = self._read(self._patience_s(now_s, deadline), was_empty)
        if batch:
            begins = begins_of(batch)
            topic = _only_topic(begins)
            self._to_begin = begins | self._to_begin
            self._in_front = 0 if was_empty else self._in_front
            self._topic = topic if was_empty or topic == self._topic else None
            self._is_calm = False
            self._backlog.extend(batch)
        if trouble is not None:
            raise trouble
        if self._to_begin:
            self._holdings.begin(self._to_begin)
            self._to_begin = {}
        if batch:
            self._is_calm = (was_empty or was_calm) and self._needs_no_look(begins)

    def _read(self, timeout_s: float, many: bool) -> tuple[list[RawMessage], PenstockError | None]:
        """Waits for one, and takes what came with it; and what is to be raised behind that."""
        try:
            first = self._client.poll(0)
            if first is None:
                self._holdings.dispatch()  # no others come for them to wait for
                first = self._client.poll(timeout_s) if timeout_s > 0 else None
            if first is None:
                return [], None
            self._gone.clear()
            batch = [first]
            most = min(self._batch_max, self._source.commit_every - self._holdings.uncommitted)
            if many and most > 1:
                batch += self._client.consume(most - 1, 0)
            has_trouble = has_errors(batch)
            if has_trouble and any(map(_is_too_slow, batch)):
                log.warning(TOO_SLOW)
                batch += self._client.consume(1, 0)  # behind the error it says which partitions went
        except KafkaException as failure:
            raise from_kafka(failure.args[0], "reading") from failure
        if self._gone:  # what was read of these comes again, for whoever has them now
            batch = [raw for raw in batch if (raw.topic(), raw.partition()) not in self._gone]
        if not has_trouble:
            return batch, None
        return [raw for raw in batch if raw.error() is None], _trouble_in(batch)

    def _patience_s(self, now_s: float, deadline: float | None) -> float:
        if self._backlog:
            return 0.0
        wait_s = STOP_WITHIN_S
        if self._holdings.uncommitted:
            wait_s = min(wait_s, self._holdings.commit_at - now_s)
        if deadline is not None:
            wait_s = min(wait_s, deadline - now_s)
        if (due_at_ms := self._waiting.next_due_at_ms()) is not None:
            wait_s = min(wait_s, (due_at_ms - now_ms()) / 1000)
        return max(0.0, wait_s)

    def _take_due(self) -> None:
        """Heads that have waited long enough, back into the row, and as many others after them before the next."""
        due = self._waiting.take_due(now_ms())
        if not due:
            return
        for key, raw, was_last in due:
            self._backlog.appendleft(raw)
            self._in_front += 1
            if was_last:  # nothing of it is held any more: it is read again
                self._client.resume([TopicPartition(*key)])
        self._until_tiers = 2 * len(due) if len(self._backlog) > len(due) else len(due)

    def _forget(self, keys: set[Key]) -> None:
        """What was read of these partitions is not ours to handle. Nor is a pause kept for what is held no more, which
        librdkafka would do also until a partition comes back."""
        self._gone |= keys
        if held := [TopicPartition(*key) for key in keys if key in self._waiting]:
            self._client.resume(held)
        for key in keys:
            self._waiting.drop(key)
            self._to_begin.pop(key, None)
        kept = [raw for raw in self._backlog if (raw.topic(), raw.partition()) not in keys]
        self._backlog.clear()
        self._backlog.extend(kept)
        self._is_calm = False

    # ---- many at once, while nothing needs a look

    def _needs_no_look(self, begins: Mapping[Key, int]) -> bool:
        if self._source.filter is not None or self._options.ordered:
            return False
        for key, first in begins.items():
            part = self._holdings.parts.get(key)
            if part is None or part.is_tier or part.has_copies_from(first) or first < part.ledger.next_offset:
                return False
            if key in self._waiting or part.watch.is_careful(first) or part.watch.attempts_at(first):
                return False
        return True

    def _until_s(self) -> float:
        """When something else is due than the next message of the row."""
        until_s = min(self._poll_at, self._holdings.commit_at)
        due_at_ms = self._waiting.next_due_at_ms() if self._waiting else None
        if due_at_ms is None:
            return until_s
        return min(until_s, time.monotonic() + (due_at_ms - now_ms()) / 1000)

    def _run_calm(
        self, call: Callable[[Message[Any, Any]], object], finish: Callable[[object], None], until_s: float
    ) -> None:
        """The same as one by one, but what is common to all messages of a batch is done once."""
        batch = list(self._backlog)
        self._backlog.clear()
        decoder = self._source.decoder
        reader, clock = self._source.reader, time.monotonic
        done, unseen = 0, self._pace.begin(clock())
        try:
            for raw in batch:
                message = decoder.decode(raw)
                if message.poison is None:
                    try:
                        if (result := call(message)) is not None:
                            finish(result)
                    except Exception as error:
                        self._fail_calm(raw, message, error)
                        until_s = min(until_s, clock() + SEND_WITHIN_S)
                else:
                    self._fail_calm(raw, message, message.poison)
                    until_s = min(until_s, clock() + SEND_WITHIN_S)
                done += 1
                if reader.stopping:
                    break
                unseen -= 1
                if unseen <= 0:
                    now_s = clock()
                    if now_s >= until_s:
                        break
                    unseen = self._pace.next(now_s)
        finally:
            self._settle(batch[:done])
            self._backlog.extendleft(reversed(batch[done:]))
            self._holdings.dispatch_due()

    def _settle(self, done: list[RawMessage]) -> None:
        """These were handled, or handed over."""
        self._holdings.uncommitted += len(done)
        for key, end in ends_of(done, self._topic).items():
            self._holdings.parts[key].ledger.handled_to(end)

    def _fail_calm(self, raw: RawMessage, message: Message[Any, Any], error: Exception) -> None:
        hand = InHand(self._holdings.parts[message.place], raw, message.offset)
        if (poison := message.poison) is not None:
            self._lay_down_poison(hand, poison)
        else:
            hand.attempts = 1
            self._dispose(hand, error)

    # ---- one message

    def _admit(self, raw: RawMessage) -> Message[Any, Any] | None:
        """A message for the handler, or None if this one needs none, or can't have it now."""
        offset: int = raw.offset()  # type: ignore[assignment]
        part = self._holdings.parts.get((raw.topic(), raw.partition()))  # type: ignore[arg-type]
        if part is None or offset < part.ledger.next_offset:
            return None
        if self._waiting and self._waiting.is_behind(part.key, offset):
            self._waiting.hold(part.key, 0, raw)
            return None
        hand = InHand(part, raw, offset)
        try:
            is_wanted = self._is_wanted(hand)
        except DeserializationError as poison:
            self._lay_down(hand, poison, failure_of(poison, with_stack=False))
            return None
        if not is_wanted:
            self._pass(hand)
            return None
        if hand.parked is not None and (hand.parked.due_at_ms or 0) > now_ms():
            self._hold(hand, hand.parked.due_at_ms or 0)
            return None
        if part.parked_keys is not None and not self._may_pass(hand):
            return None
        if died := part.watch.attempts_at(offset):
            hand.attempts += died
            self._dispose(hand, ProcessDied("the process died while it handled this message.", "Look at its log."))
            return None
        return self._present(hand)

    def _is_wanted(self, hand: InHand) -> bool:
        """Not what the filter leaves out, nor what is another group's, nor what has a copy elsewhere already."""
        part, raw = hand.part, hand.raw
        if part.handed_over and hand.offset in part.handed_over:
            return False
        if not part.is_tier:
            return self._source.filter is None or self._source.filter.accepts(_headers(raw))
        hand.headers, hand.parked = split(_headers(raw))
        if hand.parked is None:
            return True
        hand.attempts = hand.parked.attempts
        return hand.parked.group == self._source.group and hand.parked.origin.topic == part.places.origin

    def _hold(self, hand: InHand, due_at_ms: int) -> None:
        """The head of its partition, which is read no further meanwhile."""
        if self._waiting.hold(hand.part.key, due_at_ms, hand.raw, in_front=True):
            self._client.pause([TopicPartition(*hand.part.key)])

    def _may_pass(self, hand: InHand) -> bool:
        """Where order is kept: whether no earlier message of the key is parked. If one is, this one follows it."""
        keys = hand.part.parked_keys
        assert keys is not None
        if not hand.part.is_tier and len(keys) >= PARKED_KEYS_MAX:
            self._hold(hand, now_ms() + LOOK_AGAIN_MS)
            return False
        tier = keys.follows(hand.raw.key(), hand.origin_offset)
        if tier is None:
            return True
        self._hand_over(hand, tier, FOLLOWS if hand.parked is None else hand.parked.failure, now_ms())
        return False

    def _present(self, hand: InHand) -> Message[Any, Any] | None:
        raw = hand.raw if hand.parked is None else self._returned(hand, hand.parked)
        message = self._source.decoder.decode(raw)
        if message.poison is not None:
            self._lay_down_poison(hand, message.poison)
            return None
        is_known_to_kill = hand.parked is not None and hand.parked.failure.type == DIED
        if is_known_to_kill or hand.part.watch.is_careful(hand.offset):
            is_suspect = not is_known_to_kill and hand.raw.timestamp()[1] <= hand.part.assigned_at_ms
            if not self._take_care(hand, is_suspect):
                return None
        self._in_hand = hand
        return message

    def _returned(self, hand: InHand, parked: Parked) -> Returned:
        return Returned(hand.raw, hand.headers or [], parked, hand.attempts + 1)

    def _take_care(self, hand: InHand, is_suspect: bool) -> bool:
        """Before a message is handled that may be a deadly one: everything before it is safe, and it is on record."""
        part, ledger = hand.part, hand.part.ledger
        if self._holdings.has_kept():
            self._commit()
            if part.ledger is not ledger:
                return False
        self._holdings.wait_for_acknowledgements()
        if ledger.on_their_way:
            self._hold(hand, now_ms() + LOOK_AGAIN_MS)
            return False
        if self._holdings.commit_attempt(part, hand.offset, is_suspect):
            return True
        self._put_back(part)
        return False

    def _pass(self, hand: InHand) -> None:
        hand.part.ledger.handled(hand.offset)
        self._holdings.uncommitted += 1

    # ---- what failed

    def _dispose(self, hand: InHand, error: BaseException) -> None:
        tries_again = self._policy.tries_again(error, hand.attempts)
        if isinstance(error, ProcessDied):  # nobody could raise it, so it is in no list of what is tried again
            tries_again = hand.attempts < self._policy.attempts
        if tries_again:
            delay_ms = self._policy.delay_ms(hand.attempts)
            tier = hand.part.places.tier(delay_ms)
            self._hand_over(hand, tier.topic, failure_of(error), now_ms() + delay_ms)
        else:
            self._lay_down(hand, error, failure_of(error))

    def _lay_down(self, hand: InHand, error: BaseException, failure: Failure) -> None:
        if hand.part.places.dead_letters is None:
            raise error
        self._hand_over(hand, hand.part.places.dead_letters, failure, None)

    def _lay_down_poison(self, hand: InHand, poison: DeserializationError) -> None:
        self._lay_down(hand, poison, failure_of(poison, with_stack=False))
        poison.let_go()

    def _hand_over(self, hand: InHand, topic: str, failure: Failure, due_at_ms: int | None) -> None:
        if hand.headers is None:
            hand.headers = headers_of(hand.raw)
        if hand.headers is None and due_at_ms is not None:  # nobody must take what has lost its headers for the message
            self._lay_down(hand, unreadable(hand.raw), failure)
            return
        partitions = self._topics.partitions[topic]
        copy = copy_of(hand, self._source.group, topic, partitions, failure, due_at_ms, now_ms())
        self._holdings.hand_over(hand.part, hand.offset, copy)
        if (keys := hand.part.parked_keys) is not None:
            if due_at_ms is None:
                keys.done(copy.key, hand.origin_offset)
            else:
                keys.parked(copy.key, hand.origin_offset, topic)

    # ---- committing

    def _commit(self) -> None:
        lost = self._holdings.commit()
        for part in lost:
            self._put_back(part)
        if lost and self._options.ordered:
            self._membership.recall_keys(self._holdings.parts.values())

    def _put_back(self, part: Assigned) -> None:
        """To where it was committed, as if nothing had been read since."""
        position = part.ledger.committed
        part.starts_at(position, None, 0)
        self._forget({part.key})
        try:
            self._client.resume([TopicPartition(*part.key)])
            self._client.seek(TopicPartition(*part.key, position))
        except KafkaException:  # it is not ours any more, and the next poll says so
            pass


def _only_topic(places: Iterable[Key]) -> str | None:
    """Of which all are, if so."""
    topics = {topic for topic, _ in places}
    return topics.pop() if len(topics) == 1 else None


def _headers(raw: RawMessage) -> list[Header]:
    headers = headers_of(raw)
    if headers is None:
        raise unreadable(raw)
    return headers


def _is_too_slow(raw: RawMessage) -> bool:
    error = raw.error()
    return error is not None and error.code() == KafkaError._MAX_POLL_EXCEEDED


def _trouble_in(batch: list[RawMessage]) -> PenstockError | None:
    """The first error of these that does not pass by itself."""
    for raw in batch:
        error = raw.error()
        if error is not None and error.code() not in SILENT and not error.retriable():
            return from_kafka(error, f"reading {raw.topic()!r}")
    return None
