"""Reading messages as a member of a group: the synchronous consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, overload

from confluent_kafka import KafkaException

from penstock.client.admin import is_missing
from penstock.client.arguments import check_count, check_flag, check_offset, check_places, check_positive, check_seconds
from penstock.client.commits import Commits
from penstock.client.delivery import DeliveryName, find_delivery
from penstock.client.errors import BadName, PenstockError, SettingsError, UsageError, after, no_broker
from penstock.client.filtering import HeaderFilter, Where, make_filter
from penstock.client.kinds import K, V
from penstock.client.lagging import Ends, lags, offsets_at
from penstock.client.listeners import Listener
from penstock.client.loops import until_signals, until_stopped
from penstock.client.message import Message, Place
from penstock.client.names import check_group, check_timeout, check_topics, find_bootstrap
from penstock.client.options import HandlerOptions
from penstock.client.producer import Producer
from penstock.client.profiles import ProfileName, find_profile
from penstock.client.reader import Reader
from penstock.client.serializers import Decoder, Deserializer, deserializer
from penstock.client.settings import Settings, consumer_settings
from penstock.client.transactions import Transaction

Start = Literal["earliest", "latest", "fail"]
Function = TypeVar("Function", bound=Callable[..., Any])

RESETS = {"earliest": "earliest", "latest": "latest", "fail": "error"}
LOOP_ENDS_S = 1.0  # which another thread has told to stop


class Consumer(Generic[K, V]):
    """Reads topics as a member of a group: each partition is read by one member, and the group remembers how far.

    `for message in consumer` goes on until `stop()`, `close()` or a signal. A message counts as processed when the next
    one is asked for; if an exception leaves the loop it does not, and the next consumer reads it again. This one, where
    it is iterated again, goes on behind it: `seek` to it if it is to be tried again here.

    A topic that does not exist is waited for.

    `bootstrap`          brokers to ask first, HOST:PORT with commas between; else $PENSTOCK_BOOTSTRAP or 127.0.0.1:9092
    `group`              members of a group share the partitions
    `topics`             one name or several; one that begins with ^ is a regular expression over all names
    `delivery`           what is promised about each message
    `profile`            what it may cost
    `key`                how bytes become keys: a callable, or "json", "text", "bytes"
    `value`              the same for values; without one, they are bytes
    `where`              which messages, by their headers: {"region": "eu"}, {"region": {"eu", "us"}}, or a callable
    `start`              where a new group begins: "earliest", "latest", or "fail"
    `commit_interval_s`  offsets of processed messages are committed at least as often
    `commit_every`       and at least behind as many messages; a handler does so behind 2,000 at the latest
    `connect_timeout_s`  how long the first call waits for a broker
    `handle_signals`     whether SIGTERM and SIGINT end the reading; in the main thread only
    `settings`           settings of librdkafka, which count more than the profile's

    One thread at a time may read. Others may ask anything else of it meanwhile, and wait at most until that one has
    asked for messages.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        group: str = "",
        topics: str | Iterable[str] = (),
        *,
        delivery: DeliveryName = "at-least-once",
        profile: ProfileName = "balanced",
        key: str | Deserializer | None = None,
        value: str | Deserializer | None = None,
        where: Where | HeaderFilter | None = None,
        start: Start = "earliest",
        commit_interval_s: float = 1.0,
        commit_every: int = 100_000,
        connect_timeout_s: float = 10.0,
        handle_signals: bool = True,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.bootstrap = find_bootstrap(bootstrap)
        self.group = check_group(group)
        self.topics = check_topics(topics)
        self.mode = find_delivery(delivery)
        chosen = find_profile(profile)
        arguments = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "auto.offset.reset": _reset(start),
        }
        self._settings = consumer_settings(self.mode, chosen, arguments, settings)
        self._connect_timeout_s = check_seconds(connect_timeout_s, "connect_timeout_s")
        self._started = False
        self._closed = False
        self._ends = Ends()
        decoder = Decoder(deserializer(key, "key"), deserializer(value, "value"))
        every = int(check_positive(commit_every, "commit_every"))
        commits = Commits(check_positive(commit_interval_s, "commit_interval_s"), every)
        self.reader = Reader(self.settings, self.mode, min(chosen.batch_messages_max, every), decoder, commits)
        self.reader.filter = make_filter(where)
        self.reader.handles_signals = check_flag(handle_signals, "handle_signals")
        self.handlers: Any = None  # what `handler` registered, and `run` will use
        self.running: Any = None  # what reads instead of the reader, while `run` does

    # ---- reading

    def __iter__(self) -> Iterator[Message[K, V]]:
        return self.messages()

    def messages(self, count: int | None = None, timeout: float | None = None) -> Iterator[Message[K, V]]:
        """The same as iterating, until `count` messages were handed out, or none came for `timeout` seconds."""
        check_timeout(timeout)
        check_count(count)
        self.check_plain()
        self.begin()
        return until_stopped(self.reader, count, timeout)

    def poll(self, timeout: float = 0.0) -> Message[K, V] | None:
        """The next message, or None if there is none within `timeout` seconds.

        A signal ends the waiting with None, and `stopping` says so: `while not consumer.stopping`. Who asks on gets
        None, five times a second at most, until a second signal does what it did before: it ends the program.
        """
        check_timeout(timeout)
        self.check_plain()
        self.begin()
        return next(until_signals(self.reader, 1, timeout), None)

    def check_plain(self) -> None:
        self._check_open()
        if self.mode.is_transactional:
            raise UsageError(
                "a consumer with delivery='exactly-once' reads in transactions.",
                "with consumer.transaction(producer) as txn: for message in txn.messages(): …",
            )

    def begin(self) -> None:
        """Joins the group, the first time. Raises if no broker answers."""
        self._check_open()
        self._check_not_running()
        if self._started:
            return
        try:
            self.reader.kafka.list_topics(self._sample_topic(), self._connect_timeout_s)
        except KafkaException as failure:
            raise no_broker(self.bootstrap, failure.args[0]) from failure
        self._subscribe()
        self._started = True

    def is_missing(self, topic: str) -> bool:
        """Whether there is no such topic; to ask does not create it."""
        self._check_open()
        try:
            with self.reader.turns.beside():
                return is_missing(self.reader.kafka, topic, self._connect_timeout_s)
        except KafkaException as failure:
            raise no_broker(self.bootstrap, failure.args[0]) from failure

    def _sample_topic(self) -> str | None:
        """Enough to learn whether a broker answers; of all topics, there may be very many."""
        return next((topic for topic in self.topics if not topic.startswith("^")), None)

    def also_read(self, topics: Iterable[str]) -> None:
        """Adds topics to the subscription; the group is balanced anew."""
        self._check_open()
        self._check_not_running()
        self.topics = list(dict.fromkeys([*self.topics, *check_topics(topics)]))
        if self._started:
            with self.reader.turns.beside():
                self._subscribe()

    def _subscribe(self) -> None:
        try:
            self.reader.subscribe(self.topics)
        except PenstockError as failure:
            if failure.kafka_error != "_INVALID_ARG":
                raise
            patterns = ", ".join(repr(topic) for topic in self.topics if topic.startswith("^"))
            raise BadName(
                f"librdkafka can't read {patterns} as a regular expression.",
                "What begins with ^ is one of POSIX (extended), such as '^orders-.*'.",
                kafka_error=failure.kafka_error,
            ) from failure

    def stop(self) -> None:
        """Ends the iteration after the message in hand. May be called from any thread, and from a signal's handler.

        It is for one loop, or one `run()`: the one that is under way, or else the next one, which ends at once. What is
        begun after that reads on; `poll` gives nothing until then.
        """
        self.reader.stopping = True

    @property
    def stopping(self) -> bool:
        """Whether `stop()` was called, or a signal came."""
        return self.reader.stopping

    # ---- transactions

    def transaction(self, producer: Producer) -> Transaction[K, V]:
        """Reads, writes and commits offsets in one: `with consumer.transaction(producer) as txn`.

        An exception of the block aborts it, and goes on; the consumer then stands where the block began. If the
        transaction can't be committed, for instance because the group gave partitions to another member, the same is
        done and `TransactionAborted` says that the block may be run again.
        """
        self._check_open()
        if not self.mode.is_transactional:
            raise UsageError(
                f"a consumer with delivery={self.mode.name!r} has no transactions.", "Make it delivery='exactly-once'."
            )
        if not isinstance(producer, Producer):
            raise UsageError(
                f"a transaction of a Consumer has a Producer, not {type(producer).__name__}.",
                "With an AsyncProducer, read with an AsyncConsumer.",
            )
        producer.check_transactional()
        self.begin()
        return Transaction(producer, self.reader)

    @property
    def settings(self) -> Settings:
        """What librdkafka was given: of the names, of the arguments, and of `settings`."""
        return self._settings

    # ---- how far

    def commit(self) -> None:
        """Stores now, and waits for it, that everything up to the message in hand is processed.

        In another thread than the one that reads, the message in hand counts when that one asks for the next.
        """
        if self.reader.commits.committer.is_within and self._closed:
            return  # all is stored: what closing takes away is told of behind that
        self.check_plain()
        if self.running is not None:
            raise UsageError(
                "the consumer runs its handler, and commits what that has handled.",
                "commit_interval_s and commit_every say how often.",
            )
        if self.reader.has_message_in_hand:
            self.reader.count_in_hand()
        self.reader.from_any_thread(self.reader.commit)

    @property
    def assignment(self) -> list[Place]:
        """The partitions that this member reads now. May be asked from any thread."""
        return sorted(self.reader.places or ())

    @property
    def lags(self) -> dict[Place, int]:
        """For each partition of this member, how many messages there are that it has not processed. May be asked from
        any thread."""
        self._check_open()
        with self.reader.turns.beside():
            return self._lags()

    def _lags(self) -> dict[Place, int]:
        self._wait_to_join()  # the first time: else it would not know which they are
        unprocessed = (self.running or self.reader).unprocessed()
        starts_early = self.settings["auto.offset.reset"] == "earliest"
        paused = self.reader.paused.union(() if self.running is None else self.running.paused())
        return lags(self.reader.kafka, unprocessed, starts_early, paused, self._ends)

    @property
    def lag(self) -> int:
        """How many messages of its partitions this member has not processed. May be asked from any thread."""
        return sum(self.lags.values())

    # ---- where to

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """The next message of this partition will be the one at `offset`."""
        self._check_not_running()
        check_offset(offset)
        self.reader.from_any_thread(lambda: self._seek({(topic, partition): offset}))

    def _seek(self, offsets: Mapping[Place, int]) -> None:
        check_places(tuple(offsets), self._joined())
        self.reader.seek(offsets)

    def seek_to_time(self, moment: datetime, *places: Place) -> None:
        """The next messages will be the first that are as late as `moment`; in these partitions, or in all.

        Where no message is that late, it goes on with what will be written from now on.
        """
        self._check_not_running()
        timestamp_ms = _timestamp_ms(moment)
        self.reader.from_any_thread(lambda: self._seek_to_time(timestamp_ms, places))

    def _seek_to_time(self, timestamp_ms: int, places: tuple[Place, ...]) -> None:
        chosen = check_places(places, self._joined())
        self.reader.seek(offsets_at(self.reader.kafka, chosen, timestamp_ms))

    def _wait_to_join(self) -> list[Place]:
        """The partitions of this member, once the group has said which. They may be none."""
        self._check_open()
        if self.running is not None:
            return self.assignment
        self.begin()
        return self.reader.wait_for_assignment(self._connect_timeout_s)

    def _joined(self) -> list[Place]:
        """The same, where there must be some."""
        places = self._wait_to_join()
        if not places:
            raise UsageError("the group has given this member no partition.", "Are there more members than partitions?")
        return places

    def pause(self, *places: Place) -> None:
        """Reads nothing more of these partitions, or of all, until they are resumed. The membership stays.

        While `run()` calls a handler it is refused, as `seek` is: what was read before, and what is due to be tried
        again, would be handled all the same. With delivery="at-most-once" there is neither, and it may be asked.

        When the group is balanced anew, what is taken away is not paused any more, also if it is given back at once;
        to keep it so, pause it again behind that.
        """
        self._check_not_running()
        self.reader.from_any_thread(lambda: self.reader.pause(check_places(places, self._joined())))

    def resume(self, *places: Place) -> None:
        """Reads these partitions, or all, again."""
        self._check_not_running()
        self.reader.from_any_thread(lambda: self.reader.resume(check_places(places, self._joined())))

    # ---- rebalances

    def on_assign(self, listener: Listener) -> Listener:
        """Calls it with the partitions that came, before their first message is read. A decorator."""
        self.reader.on_assign.append(listener)
        return listener

    def on_revoke(self, listener: Listener) -> Listener:
        """Calls it with the partitions that go to another member, before what was processed of them is committed.

        It may call `commit()` itself, which raises `CommitFailed` where the group's coordinator does not answer.
        """
        self.reader.on_revoke.append(listener)
        return listener

    def on_lost(self, listener: Listener) -> Listener:
        """Calls it with partitions that another member may have already: it is too late to commit."""
        self.reader.on_lost.append(listener)
        return listener

    # ---- handlers

    @overload
    def handler(self, function: Function, /) -> Function: ...
    @overload
    def handler(
        self, function: None = None, /, **options: Unpack[HandlerOptions]
    ) -> Callable[[Function], Function]: ...
    def handler(
        self, function: Function | None = None, /, **options: Unpack[HandlerOptions]
    ) -> Function | Callable[[Function], Function]:
        """Registers a function for `run` to call with each message. The options say what is done when it fails."""

        def register(function: Function) -> Function:
            handling().register(self, function, **options)
            return function

        return register if function is None else register(function)

    def run(self) -> None:
        """Calls the handlers with messages, until `stop()` or a signal."""
        self._check_open()
        with self.reader.turns.running():
            handling().run(self)

    @contextmanager
    def handing_over(self, work: Any) -> Iterator[None]:
        """While `work` reads as this member of the group; afterwards it is to be joined again."""
        with self.reader.turns.beside():
            if self._started:
                self.reader.clear()
            self._started = False
            self.running = work
        try:
            yield
        finally:
            self.running = None
            self.reader.places = None

    # ---- the end

    def close(self) -> None:
        """Commits what was processed, leaves the group. The message in hand does not count as processed."""
        if self._closed:
            return
        self.reader.turns.check_not_in_run()  # before anything is stopped
        self.stop()
        self.reader.turns.wait_for_run()
        self._closed = True
        self.reader.turns.wait_for_loops(LOOP_ENDS_S)
        with self.reader.turns.beside():
            self.reader.close()

    def _check_not_running(self) -> None:
        if self.running is not None:
            raise UsageError("the consumer runs its handler.", "Call stop() first, or use a consumer for each.")

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the consumer is closed.", "Make another one.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaving without an exception means that the message in hand is processed."""
        if error is None:
            self.reader.count_in_hand()
        after(error, self.close, "the consumer could not be closed well")


def handling() -> Any:
    """Retries are loaded by those who have handlers; they are built on this module."""
    return import_module("penstock.client.retrying.handling")


def _timestamp_ms(moment: datetime) -> int:
    if not isinstance(moment, datetime):
        raise UsageError(f"{moment!r} is no datetime.", "For example: datetime.now(UTC) - timedelta(hours=1)")
    return int(moment.timestamp() * 1000)


def _reset(start: str) -> str:
    if not isinstance(start, str) or start not in RESETS:
        raise SettingsError(f"start={start!r} is unknown.", f"There are {', '.join(map(repr, RESETS))}.")
    return RESETS[start]
