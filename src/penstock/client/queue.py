"""Point to point: jobs, each of which one worker does, whoever of them is free."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from confluent_kafka.admin import AdminClient

from penstock.client.admin import connection_of, create_topic
from penstock.client.arguments import check_flag
from penstock.client.consumer import Consumer, handling
from penstock.client.deliveries import Delivery
from penstock.client.errors import QueueEmpty, QueueStopped, SettingsError, UsageError, after, from_kafka
from penstock.client.finishing import last_in, to_the_end
from penstock.client.message import Message
from penstock.client.names import check_timeout, check_topic
from penstock.client.options import QueueOptions
from penstock.client.producer import Headers, Producer
from penstock.client.profiles import ProfileName
from penstock.client.serializers import Deserializer, Serializer
from penstock.client.settings import check_settings
from penstock.client.signals import ending_on_signals

if TYPE_CHECKING:
    from penstock.client.retrying.policy import Retry

CREATE_TIMEOUT_S = 10.0
TAKE_ENDS_S = 30.0  # which another thread has told to stop; mostly at once, but it may be about to join the group
JobSerializer = str | tuple[Serializer, Deserializer]


class Queue:
    """A topic that one group of workers shares: `put` a job, `with queue.get() as job` do it.

    The end of the block acknowledges the job. An exception gives it back: with a retry policy it is tried again later
    and at last put aside, otherwise it is the next job again. What was not acknowledged when a worker dies, another
    gets. A job that can't be deserialized is put aside where there are dead letters; otherwise `get` raises
    `DeserializationError`, which has the bytes, once, and the next `get` goes on behind it.

    `name`               the topic
    `bootstrap`          brokers to ask first, HOST:PORT with commas between; else $PENSTOCK_BOOTSTRAP or 127.0.0.1:9092
    `group`              the group that all workers share; named as the topic if it is not given
    `partitions`         of the topic, if it does not exist and so is created: as many workers can share the jobs
    `value`              how jobs become bytes and back: "json", "text", "bytes", or a pair of callables
    `retry`              a `Retry`: what is done about a job that failed
    `dead_letter`        True, or a topic's name: where jobs go that are not tried again
    `profile`            what it may cost
    `handle_signals`     whether SIGTERM and SIGINT end the work, from the first `get` on; in the main thread only
    `producer_settings`  settings of librdkafka for putting
    `consumer_settings`  settings of librdkafka for getting

    It does one job at a time: make one per thread. After a signal, or `stop()`, the job in hand is finished; the next
    `get` raises `QueueStopped`, which ends where the `with` block of the queue does.
    """

    def __init__(
        self,
        name: str,
        bootstrap: str | None = None,
        *,
        group: str | None = None,
        partitions: int = 6,
        value: JobSerializer = "json",
        retry: Retry | None = None,
        dead_letter: bool | str = False,
        profile: ProfileName = "latency",
        handle_signals: bool = True,
        producer_settings: dict[str, Any] | None = None,
        consumer_settings: dict[str, Any] | None = None,
    ) -> None:
        self.name = check_topic(name)
        self._partitions = _count(partitions)
        write, read = _both(value)
        writing = check_settings(producer_settings, "producer_settings")
        reading = check_settings(consumer_settings, "consumer_settings")
        self._producer = Producer(bootstrap, profile=profile, value=write, settings=writing)
        self._consumer: Consumer[Any, Any] = Consumer(
            bootstrap,
            name if group is None else group,
            name,
            profile=profile,
            value=read,
            handle_signals=False,
            settings={"partition.assignment.strategy": "range,roundrobin", **reading},
        )
        self._retries = retry is not None or bool(dead_letter)
        if self._retries or dead_letter is not False:
            handling().register(self._consumer, lambda job: None, retry=retry, dead_letter=dead_letter)
        self._work: Any = None
        self._getting = threading.Lock()
        self._taking = threading.RLock()  # while a job is waited for; not while it is in hand
        self._meeting = threading.Lock()
        self._has_met = False  # the topic exists
        self._stopped = False
        self._is_closed = False
        self._handle_signals = check_flag(handle_signals, "handle_signals")
        self._signals = ExitStack()  # until the queue is closed

    def put(self, value: Any, *, key: Any = None, headers: Headers | None = None) -> Delivery:
        """Adds a job. `put(…).result()` waits until the brokers have it."""
        self._meet()
        return self._producer.send(self.name, value, key=key, headers=headers)

    @contextmanager
    def get(self, timeout: float | None = None) -> Iterator[Message[Any, Any]]:
        """The next job, for the length of the block. Raises `QueueEmpty` if none comes within `timeout` seconds."""
        if self._handle_signals:
            self._handle_signals = False
            self._signals.enter_context(ending_on_signals(self.stop))
        job = self.take(timeout)
        try:
            yield job
        except BaseException as error:
            self.fail(job, error)
            raise
        self.acknowledge()

    def stop(self) -> None:
        """Lets the job in hand be finished, and no other begin. May be called from any thread."""
        self._stopped = True
        self._consumer.stop()

    # ---- the same in steps

    def check_open(self) -> None:
        if self._is_closed:
            raise UsageError("the queue is closed.", "Make another one. A job in hand will be done again.")

    def take(self, timeout: float | None = None) -> Message[Any, Any]:
        check_timeout(timeout)
        self.check_open()
        if not self._getting.acquire(blocking=False):
            raise UsageError(
                "the last job of this queue is not done.", "A Queue does one at a time: make one per thread."
            )
        try:
            with self._taking:
                job = None if self._stopped else self._next(timeout)
        except BaseException:
            self._getting.release()
            raise
        if job is None or self._is_closed:  # what came when it was to be closed goes to another
            self._getting.release()
            if self._stopped:
                raise QueueStopped
            raise QueueEmpty(f"no job came to {self.name!r} within {timeout} s.", "Try again, or wait longer.")
        return job

    def acknowledge(self) -> None:
        """The job in hand is done."""
        try:
            self.check_open()
            if self._work is not None:
                self._work.succeeded()
            else:
                self._consumer.reader.count_in_hand()
                self._consumer.reader.commit_later(time.monotonic())
        finally:
            self._getting.release()

    def fail(self, job: Message[Any, Any], error: BaseException) -> None:
        """The job in hand is given back. Why it failed is what the caller is told, whatever comes of that."""
        try:
            if not self._is_closed:
                after(error, lambda: self._give_back(job, error), "the job could not be given back")
        finally:
            self._getting.release()

    def _give_back(self, job: Message[Any, Any], error: BaseException) -> None:
        if self._work is not None and isinstance(error, Exception):
            self._work.failed(error)
        elif self._work is not None:
            self._work.give_back()
        else:
            self._consumer.seek(job.topic, job.partition, job.offset)

    def interrupt(self) -> None:
        """Ends a `take` that waits, in another thread: nobody wants its job any more."""
        self._consumer.stop()

    def give_up(self, taking: Future[Message[Any, Any]]) -> None:
        """Behind an interrupted `take`, in its thread: a job that came all the same is the next one again."""
        self._consumer.reader.stopping = self._stopped
        if not taking.cancelled() and taking.exception() is None:
            self.fail(taking.result(), asyncio.CancelledError())

    def _meet(self) -> None:
        """Creates the topic, if it does not exist, and waits until it does."""
        if self._has_met:
            return
        with self._meeting:
            deadline_s = time.monotonic() + CREATE_TIMEOUT_S
            is_new = not self._has_met and self._consumer.is_missing(self.name)
            if is_new:
                admin = AdminClient(connection_of(self._producer.settings))
                error = create_topic(admin, self.name, self._partitions, {})
                if error is not None:
                    raise from_kafka(error, f"creating the topic {self.name!r}")
            while is_new and self._consumer.is_missing(self.name) and time.monotonic() < deadline_s:
                time.sleep(0.02)
            self._has_met = True

    def _next(self, timeout: float | None) -> Message[Any, Any] | None:
        self._meet()
        if not self._retries:
            self._consumer.begin()
            return next(self._consumer.reader.stream(1, timeout), None)
        if self._work is None:
            self._work = self._make_work()
        job: Message[Any, Any] | None = self._work.next(timeout)
        return job

    def _make_work(self) -> Any:
        self._consumer.begin()
        work = handling().work_of(self._consumer, self._consumer.handlers.options)
        work.start()
        return work

    # ---- the end

    def close(self) -> None:
        """Sends what was put, and leaves the group. A job in hand is given back; who waits for one in another thread
        gets `QueueStopped`."""
        if self._is_closed:
            return
        self._is_closed = True
        self._signals.close()
        self.stop()
        has_ended = self._taking.acquire(timeout=TAKE_ENDS_S)
        try:
            if self._work is not None:
                self._work.close()
            self._consumer.close()
        finally:
            if has_ended:
                self._taking.release()
            self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, QueueStopped):
            self.close()
            return True
        after(error, self.close, "the queue could not be closed well")
        return False


class AsyncQueue:
    """As `Queue`, with the same arguments: `await queue.put(…)`, `async with queue.get() as job`.

    Open it in the task that gets jobs: `QueueStopped`, which ends where that `async with` does, is a `SystemExit`, and
    ends the whole loop where it leaves a task.
    """

    def __init__(
        self,
        name: str,
        bootstrap: str | None = None,
        *,
        handle_signals: bool = True,
        **options: Unpack[QueueOptions],
    ) -> None:
        self.queue = Queue(name, bootstrap, handle_signals=False, **options)
        self._handle_signals = check_flag(handle_signals, "handle_signals")
        self._signals = ExitStack()  # until the queue is closed
        self.name = self.queue.name
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-queue")
        self._is_closed = False

    def _in_thread(self, call: Any, *arguments: Any) -> asyncio.Future[Any]:
        if self._is_closed:
            self.queue.check_open()
        return asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    async def put(self, value: Any, *, key: Any = None, headers: Headers | None = None) -> Delivery:
        """Adds a job. Await what it returns to know that the brokers have it."""
        delivery: Delivery = await asyncio.to_thread(self.queue.put, value, key=key, headers=headers)
        return delivery

    @asynccontextmanager
    async def get(self, timeout: float | None = None) -> AsyncIterator[Message[Any, Any]]:
        """The next job, for the length of the block. Raises `QueueEmpty` if none comes within `timeout` seconds."""
        if self._handle_signals:
            self._handle_signals = False
            self._signals.enter_context(ending_on_signals(self.stop))
        job = await self._take(timeout)
        try:
            yield job
        except BaseException as error:
            if not self._is_closed:
                await to_the_end(self._in_thread(self.queue.fail, job, error))
            raise
        await to_the_end(self._in_thread(self.queue.acknowledge))

    async def _take(self, timeout: float | None) -> Message[Any, Any]:
        if self._is_closed:
            self.queue.check_open()
        taking = self._thread.submit(self.queue.take, timeout)
        try:
            return await asyncio.wrap_future(taking)
        except asyncio.CancelledError:
            if not taking.cancel():  # it runs; what is asked of the queue from now on waits until it has ended
                self.queue.interrupt()
                self._thread.submit(self.queue.give_up, taking)
            raise

    def stop(self) -> None:
        """Lets the job in hand be finished, and no other begin."""
        self.queue.stop()

    async def close(self) -> None:
        """Sends what was put, and leaves the group."""
        await self._close(self.queue.close)

    async def _close(self, closing: Callable[..., Any], *arguments: Any) -> None:
        """Once."""
        self._signals.close()
        self.queue.stop()  # a task may wait for a job
        if not self._is_closed:
            self._is_closed = True
            await last_in(self._thread, closing, *arguments)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        await self._close(self.queue.__exit__, kind, error, trace)
        return isinstance(error, QueueStopped)


def _both(value: JobSerializer) -> tuple[str | Serializer, str | Deserializer]:
    if isinstance(value, str):
        return value, value
    if isinstance(value, tuple) and len(value) == 2:
        return value
    raise SettingsError(
        f"value={value!r} can't write and read jobs.", "Give 'json', 'text', 'bytes' or (serializer, deserializer)."
    )


def _count(partitions: int) -> int:
    if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
        raise SettingsError(f"partitions={partitions!r} is no number of partitions.", "As many as workers, or more.")
    return partitions
