"""One thread reads, and others want something of its consumer meanwhile: it is done, or refused, and nobody hangs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.client import AsyncConsumer, Consumer, Producer, UsageError, turns
from penstock.client.turns import Turns
from penstock.testing import PenstockBroker

WAIT_S = 20.0
SOON_S = 3.0  # some slices of waiting for messages, on a machine that is busy
TOPIC = "orders"


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker() as broker:
        broker.topic(TOPIC, 2)
        broker.produce(TOPIC, "0", "1", partition=0)
        broker.produce(TOPIC, "2", "3", partition=1)
        yield broker


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def begun(consumer: Consumer[bytes, bytes], how: str, pool: ThreadPoolExecutor, seen: list[Any]) -> Any:
    """A thread that reads, when all that there is was read."""
    if how == "run":
        consumer.handler(lambda message: seen.append(message))

    def read() -> None:
        if how == "run":
            consumer.run()
            return
        while how == "polls" and not consumer.stopping:
            if (message := consumer.poll(0.5)) is not None:
                seen.append(message)
        if how == "loop":
            seen.extend(consumer)

    reading = pool.submit(read)
    until(lambda: len(seen) >= 4 or reading.done())
    return reading


REFUSED_BY_RUN = {"pause", "resume", "commit", "seek", "seek_to_time", "also_read", "poll", "messages", "run"}
REFUSED_BY_LOOPS = {"poll", "messages"}


@pytest.mark.parametrize("how", ["run", "loop", "polls"])
def test_nothing_that_another_thread_asks_hangs(
    broker: PenstockBroker, pool: ThreadPoolExecutor, group: str, how: str
) -> None:
    consumer = Consumer[bytes, bytes](broker.bootstrap, group, TOPIC, handle_signals=False)
    calls: dict[str, Callable[[], object]] = {
        "lag": lambda: consumer.lag,
        "assignment": lambda: consumer.assignment,
        "pause": consumer.pause,
        "resume": consumer.resume,
        "commit": consumer.commit,
        "seek": lambda: consumer.seek(TOPIC, 0, 2),
        "seek_to_time": lambda: consumer.seek_to_time(datetime.now(UTC)),
        "is_missing": lambda: consumer.is_missing(TOPIC),
        "also_read": lambda: consumer.also_read([TOPIC]),
        "poll": lambda: consumer.poll(0.1),
        "messages": lambda: next(consumer.messages()),
        "run": consumer.run,
        "close": consumer.close,
    }
    if how != "run":
        del calls["run"]  # there is no handler
    try:
        seen: list[Any] = []
        reading = begun(consumer, how, pool, seen)
        refused = set()
        for name, call in calls.items():
            if how == "polls" and name not in ("pause", "lag", "close"):
                continue  # as in a loop; or it may be their turn, between two polls
            asking = pool.submit(call)
            try:
                asking.result(SOON_S)
            except UsageError:
                refused.add(name)
            assert asking.done(), name
        assert refused == {"run": REFUSED_BY_RUN, "loop": REFUSED_BY_LOOPS}.get(how, set())
        assert reading.result(SOON_S) is None
        assert len(seen) == 4
    finally:
        consumer.close()  # or what hangs would keep the pool from ending


@pytest.mark.parametrize("how", ["run", "loop"])
def test_what_another_thread_has_paused_is_not_read_until_it_is_resumed(
    broker: PenstockBroker, pool: ThreadPoolExecutor, group: str, how: str
) -> None:
    broker.topic(f"paused-{how}", 2)
    broker.produce(f"paused-{how}", *"0123")
    seen: list[Any] = []
    options: Any = {"handle_signals": False, "delivery": "at-most-once" if how == "run" else "at-least-once"}
    with Consumer[bytes, bytes](broker.bootstrap, group, f"paused-{how}", **options) as consumer:
        reading = begun(consumer, how, pool, seen)
        consumer.pause((f"paused-{how}", 0))
        broker.produce(f"paused-{how}", "held", partition=0)
        broker.produce(f"paused-{how}", "read", partition=1)
        until(lambda: len(seen) == 5)
        assert [seen[-1].value, consumer.lags[f"paused-{how}", 0]] == [b"read", 1]
        consumer.resume()
        until(lambda: len(seen) == 6)
        assert seen[-1].value == b"held"
    reading.result(WAIT_S)


def test_a_commit_of_another_thread_does_not_count_the_message_in_hand(
    broker: PenstockBroker, pool: ThreadPoolExecutor, group: str
) -> None:
    has_one, may_go_on = threading.Event(), threading.Event()
    consumer = Consumer[bytes, bytes](broker.bootstrap, group, TOPIC, handle_signals=False, commit_interval_s=60)

    def fail_with_the_second() -> None:
        for number, _ in enumerate(consumer):
            if number == 1:
                has_one.set()
                may_go_on.wait(WAIT_S)
                raise LookupError

    reading = pool.submit(fail_with_the_second)
    assert has_one.wait(WAIT_S)
    pool.submit(consumer.commit).result(SOON_S)
    may_go_on.set()
    assert isinstance(reading.exception(WAIT_S), LookupError)
    consumer.close()
    with Consumer[bytes, bytes](broker.bootstrap, group, TOPIC) as again:
        assert len(list(again.messages(3, timeout=WAIT_S))) == 3
        again.reader.count_in_hand()
        assert again.lag == 0


def test_closing_waits_for_the_handler_of_another_thread_and_is_refused_in_its_own(
    broker: PenstockBroker, pool: ThreadPoolExecutor, group: str
) -> None:
    consumer = Consumer[bytes, bytes](broker.bootstrap, group, TOPIC, handle_signals=False)
    has_one, may_go_on = threading.Event(), threading.Event()
    told: list[str] = []

    @consumer.handler
    def handle(message: object) -> None:
        try:
            consumer.close()
        except UsageError as error:
            told.append(error.hint)
        assert not consumer.stopping, "what is refused does nothing"
        has_one.set()
        may_go_on.wait(WAIT_S)

    running = pool.submit(consumer.run)
    assert has_one.wait(WAIT_S)
    closing = pool.submit(consumer.close)
    with pytest.raises(TimeoutError):
        closing.result(0.05)
    may_go_on.set()
    closing.result(WAIT_S)
    running.result(WAIT_S)
    assert told == ["Call stop(); it can be closed when run() is over."]


async def _read_all(consumer: AsyncConsumer[bytes, bytes]) -> bool:
    return not await consumer.lag() or await _read_all(consumer)


@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
async def test_a_coroutine_and_its_handler_may_ask_while_it_runs(
    broker: PenstockBroker, group: str, delivery: Any
) -> None:
    lags: asyncio.Queue[int] = asyncio.Queue()
    async with AsyncConsumer[bytes, bytes](broker.bootstrap, group, TOPIC, delivery=delivery) as consumer:

        @consumer.handler
        async def handle(message: object) -> None:
            if delivery == "at-most-once":
                await consumer.pause()
                await consumer.resume()
            await lags.put(await consumer.lag())

        running = asyncio.create_task(consumer.run())
        within = [await asyncio.wait_for(lags.get(), WAIT_S) for _ in range(4)]
        assert within[0] > 0
        assert await asyncio.wait_for(_read_all(consumer), WAIT_S)
        if delivery == "at-least-once":
            with pytest.raises(UsageError, match="commits what that has handled"):
                await consumer.commit()
            for call in (consumer.pause, consumer.resume):
                with pytest.raises(UsageError, match="runs its handler"):
                    await call()
        consumer.stop()
        await running


async def test_a_handler_can_not_close_its_consumer(broker: PenstockBroker, group: str) -> None:
    consumer = AsyncConsumer[bytes, bytes](broker.bootstrap, group, TOPIC, handle_signals=False)
    told: list[str] = []

    @consumer.handler
    async def handle(message: object) -> None:
        try:
            await consumer.close()
        except UsageError as error:
            told.append(error.hint)
        consumer.stop()

    await asyncio.wait_for(consumer.run(), WAIT_S)
    await consumer.close()
    assert told == ["Call stop(); it can be closed when run() is over."]


def test_who_asks_for_lag_while_another_thread_waits_to_join_takes_nothing_from_it(pool: ThreadPoolExecutor) -> None:
    with PenstockBroker(group_initial_rebalance_delay_ms=600) as slow:
        slow.topic(TOPIC, 1)
        slow.produce(TOPIC, *map(str, range(50)))
        consumer = Consumer[bytes, bytes](slow.bootstrap, "group", TOPIC, handle_signals=False)
        reading = pool.submit(lambda: [message.offset for message in consumer.messages(50, timeout=WAIT_S)])
        time.sleep(0.3)
        assert consumer.lag <= 50
        assert reading.result(WAIT_S) == list(range(50))
        consumer.close()


def test_an_iterator_may_go_from_thread_to_thread_and_others_commit(
    broker: PenstockBroker, pool: ThreadPoolExecutor, group: str
) -> None:
    with Consumer[bytes, bytes](broker.bootstrap, group, TOPIC, handle_signals=False) as consumer:
        messages = consumer.messages(timeout=WAIT_S)
        for _ in range(4):
            pool.submit(next, messages).result(WAIT_S)
            pool.submit(consumer.commit).result(SOON_S)
        other = consumer.messages(timeout=0.1)
        assert list(other) == []
        messages.close()
        assert pool.submit(consumer.commit).result(SOON_S) is None


def test_what_other_threads_change_while_messages_are_read_loses_and_repeats_nothing(pool: ThreadPoolExecutor) -> None:
    count = 30_000
    with PenstockBroker() as busy:
        busy.topic("many", 2)
        with Producer(busy.bootstrap) as producer:
            for number in range(count):
                producer.send("many", str(number), partition=number % 2)
        consumer = Consumer[bytes, bytes](busy.bootstrap, "group", "many", handle_signals=False)
        reading = pool.submit(lambda: [(m.partition, m.offset) for m in consumer.messages(count, timeout=WAIT_S)])

        for _ in range(6):
            consumer.pause(*consumer.assignment[:1])
            consumer.commit()
            consumer.resume()
            time.sleep(0.005)
        seen = reading.result(WAIT_S)
        consumer.close()
    assert sorted(seen) == [(partition, offset) for partition in range(2) for offset in range(count // 2)]


# ---- the turns alone


def test_who_has_waited_too_long_is_told(pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE_S", 0.01)
    ours = Turns()
    with ours:
        for call in (lambda: ours.beside().__enter__(), ours.__enter__):
            with pytest.raises(UsageError) as caught:
                pool.submit(call).result(WAIT_S)
            assert "thread" in str(caught.value)
    with ours.running(), pytest.raises(UsageError, match="busy"):
        pool.submit(ours.wait_for_run).result(WAIT_S)
    assert pool.submit(lambda: ours.beside().__enter__()).result(WAIT_S) is None, "nobody is there any more"


def test_who_reads_comes_in_between_those_who_ask_on_and_on(pool: ThreadPoolExecutor) -> None:
    ours, is_over, polls = Turns(), threading.Event(), []

    def ask() -> int:
        times = 0
        while not is_over.is_set():
            with ours.beside():
                times += 1
                time.sleep(0.001)
        return times

    asking = [pool.submit(ask) for _ in range(3)]
    for _ in range(20):
        with ours:
            polls.append(time.monotonic())
    is_over.set()
    assert all(each.result(WAIT_S) > 0 for each in asking)
    assert polls[-1] - polls[0] < 1
