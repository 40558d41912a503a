"""What a test can do with brokers, one or several: topics, messages, time, and what should go wrong.

Everything here may be called from any thread of the host, also from a coroutine of its own event loop: it takes
milliseconds. What returns has happened. What waits for somebody else, `messages(at_least=…)`, has a twin to be awaited.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from penstock import wall_clock
from penstock.broker.app import Broker
from penstock.cluster.setting_types import SettingError
from penstock.cluster.settings import BROKER_SETTINGS
from penstock.cluster.topic_names import INTERNAL_TOPICS
from penstock.protocol.errors import ApiError
from penstock.protocol.record_batch import Record
from penstock.testing import messages as stored
from penstock.testing.arguments import (
    BadArgument,
    Headers,
    as_bytes,
    as_headers,
    check_int,
    check_number,
    check_text,
    check_timestamp,
)
from penstock.testing.clock import Clock, advance, duration_s
from penstock.testing.coordination import CoordinationService
from penstock.testing.faults import Fault, Faults, Kind
from penstock.testing.messages import StoredMessage
from penstock.testing.names import api_key, error_code, unknown
from penstock.testing.partitioning import Partitioner
from penstock.testing.running import End, RunningBroker

LOOK_S = 0.002
WAIT_S_MAX = 10.0
REPLICAS = 3

# What tests are better off with than a broker that people run: nothing waits for a device, what is made for groups and
# transactions is small, and no connection is taken for idle because a test has put the clock forward.
SETTINGS = {
    "flush": "os",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "connections.max.idle.ms": "-1",
    "auto.leader.rebalance.enable": "false",
}  # fmt: skip


class Kit:
    def __init__(self, numbers: range, settings: Mapping[str, object]) -> None:
        """`settings` are those of a broker, with dots or with underscores."""
        self._given = {**SETTINGS, **_checked(settings)}
        self._numbers = numbers
        self._clock = Clock()
        self._faults = Faults()
        self._service = CoordinationService()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._running: dict[int, RunningBroker] = {}
        self._partitioner = Partitioner()
        self._client_ahead_ms = 0  # by what this has put it forward

    # ---- the beginning and the end

    def open(self) -> Self:
        """Returns when the brokers answer. `with` does this and `close`."""
        assert self._folder is None, "it is open already"
        self._service = CoordinationService()
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-", ignore_cleanup_errors=True)
        try:
            for number in self._numbers:
                settings = {**self._given, **self._own_settings(number, Path(self._folder.name))}
                self._running[number] = RunningBroker(number, settings, self._clock, self._faults, self._service)
                self._running[number].start()
        except BaseException:
            self.close()
            raise
        return self

    def _own_settings(self, number: int, folder: Path) -> dict[str, str]:
        raise NotImplementedError

    def close(self) -> None:
        """Ends the brokers and removes their data. Closing twice is closing once."""
        for broker in self._running.values():
            broker.end(End.KILL)
        self._running.clear()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        self._faults.clear()
        self._put_client_forward(-self._client_ahead_ms)

    def __enter__(self) -> Self:
        return self.open() if self._folder is None else self

    def __exit__(self, *problem: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`: HOST:PORT, of several brokers with commas between."""
        return ",".join(broker.address for broker in self._running.values())

    def _up(self) -> list[RunningBroker]:
        up = [broker for broker in self._running.values() if broker.is_up]
        if not up:
            raise RuntimeError("no broker is running: start one first")
        return up

    def _until(self, what: str, is_so: Callable[[], bool], timeout_s: float = WAIT_S_MAX) -> None:
        deadline = time.monotonic() + timeout_s
        while not is_so():
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {timeout_s:g} s it is not so that {what}")
            time.sleep(LOOK_S)

    # ---- topics and messages

    def topic(
        self, name: str, partitions: int = 1, *, replication_factor: int | None = None, **config: object
    ) -> str:  # fmt: skip
        """Makes a topic and returns its name. `config` are settings of topics, with underscores for dots. It has three
        replicas, or as many as there are brokers, unless said otherwise."""
        check_text(name, "the name of a topic")
        check_int(partitions, "partitions", least=1)
        if replication_factor is not None:
            check_int(replication_factor, "replication_factor", least=1)
        factor = min(REPLICAS, len(self._numbers)) if replication_factor is None else replication_factor
        settings: dict[str, str | None] = {key.replace("_", "."): _text(value) for key, value in config.items()}

        async def create(broker: Broker) -> None:
            try:
                await broker.administration.create_topic(name, partitions, factor, config=settings)
            except ApiError as error:
                raise BadArgument(f"topic {name!r} can't be made: {error.message or error.code.name}") from None

        self._up()[0].call(create)
        self._until(f"all know {name}", lambda: all(self._leads_known(name, broker) for broker in self._up()))
        return name

    def _leads_known(self, name: str, broker: RunningBroker) -> bool:
        topic = broker.broker.image.topics.get(name)
        return topic is not None and all(partition.leader >= 0 for partition in topic.partitions)

    def topics(self) -> list[str]:
        """The names of those that are there, without the broker's own."""
        return sorted(set(self._up()[0].broker.image.topics) - set(INTERNAL_TOPICS))

    def produce(
        self,
        topic: str,
        *values: Any,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> list[StoredMessage]:
        """Writes one message for each value, and returns them as they are stored.

        Keys, values and headers may be bytes, text or None; anything else becomes JSON. A key picks the partition as
        Kafka's clients do; without one, partitions take turns. The topic is made if it is not there.
        """
        key_bytes, header_bytes = as_bytes(key), as_headers(headers)
        value_bytes = [as_bytes(value) for value in values]
        stamp_ms = self.now_ms if timestamp_ms is None else check_timestamp(timestamp_ms)
        if check_text(topic, "the name of a topic") not in self._up()[0].broker.image.topics:
            self.topic(topic)
        count = self._partitions(topic)
        if partition is not None:
            self._check_partition(topic, partition)
        written = []
        for value in value_bytes:
            index = self._partitioner.choose(topic, key_bytes, count) if partition is None else partition
            record = Record(0, stamp_ms, key_bytes, value, header_bytes)
            offset = self._write(topic, index, record)
            written.append(StoredMessage(topic, index, offset, *record[1:]))
        return written

    def _write(self, topic: str, index: int, record: Record) -> int:
        try:
            return self._leader(topic, index).call(lambda broker: stored.write(broker, topic, index, [record]))
        except ApiError as error:
            raise RuntimeError(f"{topic}-{index} does not take it: {error.message or error.code.name}") from None

    def messages(
        self,
        topic: str,
        *,
        at_least: int = 0,
        timeout_s: float = WAIT_S_MAX,
        isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
    ) -> list[StoredMessage]:
        """All messages of a topic, by partition and offset, that a consumer of this isolation would get.

        With `at_least`, it waits until there are so many, or raises TimeoutError with what there was. In a coroutine,
        where that would keep the tasks from running that are to write them, await `messages_async` instead.
        """
        check_int(at_least, "at_least", least=0)
        deadline = time.monotonic() + check_number(timeout_s, "timeout_s")
        while len(found := self._messages(topic, isolation, must_exist=not at_least)) < at_least:
            if time.monotonic() > deadline:
                raise _too_few(topic, at_least, timeout_s, found)
            time.sleep(LOOK_S)
        return found

    async def messages_async(
        self,
        topic: str,
        *,
        at_least: int = 0,
        timeout_s: float = WAIT_S_MAX,
        isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
    ) -> list[StoredMessage]:
        """As `messages`; while it waits, the other tasks of the loop run."""
        check_int(at_least, "at_least", least=0)
        deadline = time.monotonic() + check_number(timeout_s, "timeout_s")
        while len(found := self._messages(topic, isolation, must_exist=not at_least)) < at_least:
            if time.monotonic() > deadline:
                raise _too_few(topic, at_least, timeout_s, found)
            await asyncio.sleep(LOOK_S)
        return found

    def _messages(self, topic: str, isolation: str, must_exist: bool) -> list[StoredMessage]:
        if isolation not in ("read_committed", "read_uncommitted"):
            raise unknown(f"no isolation is called {isolation!r}", isolation, ("read_committed", "read_uncommitted"))
        known = self._up()[0].broker.image.topics
        if check_text(topic, "the name of a topic") not in known and not must_exist:
            return []
        found: list[StoredMessage] = []
        for index in range(self._partitions(topic)):
            read = partial(stored.read, topic=topic, index=index, committed=isolation == "read_committed")
            found += self._leader(topic, index).call(read)
        return found

    def _partitions(self, topic: str) -> int:
        state = self._up()[0].broker.image.topics.get(check_text(topic, "the name of a topic"))
        if state is None:
            raise unknown(f"there is no topic {topic!r}", topic, self.topics())
        return len(state.partitions)

    def _check_partition(self, topic: str, index: int) -> None:
        count = self._partitions(topic)
        if check_int(index, "partition", least=0) >= count:
            raise BadArgument(f"{topic} has partitions 0 to {count - 1}, and no {index}")

    def _leader(self, topic: str, index: int) -> RunningBroker:
        """Waited for: while leaders change there may be none."""
        found: list[RunningBroker] = []

        def is_led() -> bool:
            found[:] = [broker for broker in self._up() if _leads(broker.broker, topic, index)]
            return bool(found)

        self._until(f"{topic}-{index} has a leader", is_led)
        return found[0]

    # ---- time

    def advance(
        self, by: timedelta | float | None = None, *, seconds: float = 0, minutes: float = 0, hours: float = 0,
        days: float = 0, heartbeats: bool = False,
    ) -> None:  # fmt: skip
        """Puts the brokers' clocks forward, and lets happen what has become due: sessions, rebalances and transactions
        time out, retention deletes, offsets expire. What handlers of Penstock's own client in this process have put off
        is due, too. Otherwise clients live in their own time, and notice as if they had slept; with `heartbeats`,
        members of groups are heard of on the way, and so stay members."""
        passing_s = duration_s(by, seconds=seconds, minutes=minutes, hours=hours, days=days)
        up = self._up()

        def hear(step_s: float) -> None:
            from penstock.testing.heartbeats import hear_of_members  # and with it what groups are made of

            for running in up:
                running.call(partial(hear_of_members, seconds=step_s))

        advance(self._clock, [broker.loop for broker in up], passing_s, hear if heartbeats else None)
        self._put_client_forward(round(passing_s * 1000))

    def _put_client_forward(self, by_ms: int) -> None:
        wall_clock.put_forward(by_ms)
        self._client_ahead_ms += by_ms

    @property
    def now_ms(self) -> int:
        """The brokers' time of day."""
        return self._clock.wall_ns() // 1_000_000

    # ---- faults

    def fail_next(self, api: str, error: str, times: int = 1, *, topic: str | None = None) -> None:
        """The next requests of an API (of the topic, if one is named) are answered with an error and not carried out:
        `fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")`. The names are Kafka's."""
        self._add(Fault(Kind.FAIL, api_key(api), topic, _count(times), code=error_code(error)))

    def lose_answer(self, api: str, times: int = 1, *, topic: str | None = None) -> None:
        """The next requests of an API are carried out, and their connection is closed instead of an answer."""
        self._add(Fault(Kind.LOSE, api_key(api), topic, _count(times)))

    def delay(self, api: str, seconds: float, times: int | None = None, *, topic: str | None = None) -> None:
        """Requests of an API are carried out so much later, by the brokers' clock: all from now on, or so many."""
        check_number(seconds, "a delay", more_than=0)
        left = None if times is None else _count(times)
        self._add(Fault(Kind.DELAY, api_key(api), topic, left, seconds=seconds))

    def _add(self, fault: Fault) -> None:
        if fault.topic is not None:
            check_text(fault.topic, "the name of a topic")
        self._faults.add(fault)
        for broker in self._up():
            broker.meet_faults()

    def clear_faults(self) -> None:
        """Those that have not come to pass are taken back."""
        self._faults.clear()

    def disconnect_clients(self) -> None:
        """Closes the connections of all clients. They may connect again at once."""
        for broker in self._up():
            broker.disconnect_clients()


def _too_few(topic: str, at_least: int, timeout_s: float, found: list[StoredMessage]) -> TimeoutError:
    text = f"after {timeout_s:g} s {topic} has {len(found)} messages, and not {at_least}: {found[:10]}"
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return TimeoutError(text)
    return TimeoutError(f"{text}. Do tasks of this loop write them? They run while messages_async(…) is awaited")


def _leads(broker: Broker, topic: str, index: int) -> bool:
    state = broker.image.topics.get(topic)
    return state is not None and index < len(state.partitions) and state.partitions[index].leader == _number(broker)


def _number(broker: Broker) -> int:
    return int(broker.settings.get("node.id"))


def _count(times: int) -> int:
    return check_int(times, "how often a fault happens, times,", least=1)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _checked(settings: Mapping[str, object]) -> dict[str, str]:
    given = {name.replace("_", "."): _text(value) for name, value in settings.items()}
    for name in given:
        if name not in BROKER_SETTINGS:
            raise unknown(f"no setting is called {name!r}", name, BROKER_SETTINGS)
        try:
            BROKER_SETTINGS[name].parse(given[name])
        except SettingError as error:
            raise BadArgument(str(error)) from None
    return given
