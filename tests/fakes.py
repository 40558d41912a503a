"""Stand-ins for rooms, each named for what it stands in for. Disks that misbehave are in `storage/disks.py`."""

from __future__ import annotations

import asyncio
import itertools
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from penstock.coordinator.machine import LogRecord, Outcome, ProducerStamp, Ticket
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.schema import Message
from penstock.replication.commit import Syncable
from penstock.transport.connection import UNSENT_MAX, Connection, Slot
from penstock.transport.peer import Answered
from penstock.transport.peers import ANSWER_S_MAX, Peers

TIMEOUT_S = 10.0

Done = Callable[[OSError | None], None]


async def rounds(pause_s: float) -> AsyncGenerator[None, None]:
    """Again and again, for what nothing signals: that is what is tested."""
    while True:
        yield
        await asyncio.sleep(pause_s)


async def until(condition: Callable[[], bool]) -> None:
    """The loop goes round until it is true."""
    await eventually(condition, pause_s=0)


async def eventually(condition: Callable[[], bool], timeout_s: float = TIMEOUT_S, pause_s: float = 0.005) -> None:
    """For what real timers bring: time must pass."""
    async with asyncio.timeout(timeout_s), aclosing(rounds(pause_s)) as each:
        async for _ in each:
            if condition():
                return


async def turns(count: int = 20) -> None:
    """Time enough for whatever should not happen."""
    for _ in range(count):
        await asyncio.sleep(0)
    await asyncio.sleep(0.002)


class FakeClock:
    """Stands still until it is moved."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now = now_ms

    def __call__(self) -> int:
        return self.now


class FakeLoop:
    """In place of an event loop, for a `Turn` that the test ends by itself."""

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> None:
        """Nothing happens by itself."""

    def time(self) -> float:
        return 0.0


class FakeCommitter:
    """In place of the threads that sync: a sync is under way until the test ends it."""

    def __init__(self) -> None:
        self.under_way: deque[tuple[list[Syncable], Done]] = deque()
        self.begun = 0

    @property
    def is_busy(self) -> bool:
        return bool(self.under_way)

    def sync(self, files: list[Syncable], done: Done) -> None:
        self.begun += 1
        self.under_way.append((files, done))

    def end_one(self, error: OSError | None = None) -> None:
        """The sync that has been under way for longest ends, with what the disk says or with the error given."""
        files, done = self.under_way.popleft()
        try:
            for file in files if error is None else ():
                file.sync()
        except OSError as failure:
            error = failure
        done(error)

    def end_all(self) -> None:
        while self.under_way:
            self.end_one()

    def close(self) -> None:
        """Nothing runs."""


class FakeSyncs:
    """In place of the threads that sync: what was written is on the device a turn of the loop later."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.under_way = 0

    @property
    def is_busy(self) -> bool:
        return self.under_way > 0

    def sync(self, files: list[Syncable], done: Done) -> None:
        self.under_way += 1
        self._loop.call_soon(self._end, files, done)

    def _end(self, files: list[Syncable], done: Done) -> None:
        self.under_way -= 1
        error = None
        try:
            for file in files:
                file.sync()
        except OSError as failure:
            error = failure
        done(error)


class FakeWorker:
    """In place of the worker process: does its jobs here and now."""

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(0)
        return function(*arguments)


class FakeRouter:
    """In place of the router, with its rules of order. What becomes of a frame is said by its first letter:

    n   answered at once, with the frame itself
    e   answered later, when the test says so; nothing overlaps it (any request but Produce)
    s   answered later, and others of its kind may overlap it (Produce)
    v   kept as a view until the turn's writes, which find out what has become of it by then
    x   closes the connection
    q   ends it: what came before is answered first
    """

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.open: dict[bytes, tuple[Connection, Slot]] = {}
        self.cancelled: list[bytes] = []
        self.written: list[bytes] = []
        self.refuses = False
        self.keeps: int | None = None  # how much of each frame is remembered; None: all

    def dispatch(self, connection: Connection, data: bytearray, view: memoryview, start: int, stop: int) -> bool:
        slots = connection.slots
        if self.refuses or (slots and (not slots[-1].shared or connection.congested)) or connection.unsent > UNSENT_MAX:
            return False
        frame = bytes(view[start + 4 : stop])
        kind = frame[:1]
        if slots and kind not in b"sv":
            return False
        self.frames.append(frame[: self.keeps])
        if kind == b"x":
            connection.close()
            return False
        if kind == b"q":
            connection.end()
            return False
        if kind == b"v":
            connection.turn.writes.append(lambda: self.written.append(bytes(view[start + 4 : stop])))
            connection.turn.schedule()
        elif kind in b"es":
            slot = connection.slot(shared=kind == b"s")
            slot.cancel = lambda: self.cancelled.append(frame)
            self.open[frame[:8]] = (connection, slot)
        else:
            connection.send_parts([framed(frame)])
        return True

    def answer(self, frame: bytes, parts: list[Any] | None = None) -> None:
        """To a request that waits; with the frame itself if nothing else is given."""
        connection, slot = self.open.pop(frame[:8])
        connection.answer(slot, [framed(frame)] if parts is None else parts)


class FakePeers(Peers):
    """In place of connections to other brokers. What becomes of a request is for those to say that are made of it."""

    def __init__(self) -> None:
        """Nobody is connected to."""

    @abstractmethod
    def told(self, node_id: int, request: Message, version: int, answered: Answered) -> None: ...

    def tell(
        self,
        node_id: int,
        request: Message,
        version: int,
        response: type[Message],
        answered: Answered,
        timeout_s: float = ANSWER_S_MAX,
    ) -> None:
        self.told(node_id, request, version, answered)


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


_numbers = itertools.count(1)


def request(kind: str, size: int = 8) -> bytes:
    """For the fake router, without its length: the kind, a number that no other has, and something to fill it up."""
    head = b"%c%07d" % (ord(kind), next(_numbers))
    return (head * (size // len(head) + 1))[:size]


class CountingMachine:
    """A state machine as small as can be: it adds numbers up, and what it adds is in the log.

    A command is a pair of a ticket and what is asked:
    a number to add, "read", "anything" (for `on_decide` to say), "refuse", "fail" (decide raises what nobody foresaw),
    "hold" (answered by the next one).
    """

    def __init__(self, loaded: list[CountingMachine] | None = None) -> None:
        self.total = 0
        self.trace: list[str] = []
        self.is_loaded = False
        self.held: list[Ticket] = []
        self.pending: dict[int, list[LogRecord]] = {}
        self.deadline_ms: int | None = None
        self.on_tick: Callable[[int], Outcome] = lambda now_ms: Outcome()
        self.on_decide: Callable[[tuple[Ticket, Any], Outcome], Outcome] = lambda command, outcome: outcome
        if loaded is not None:
            loaded.append(self)

    def decide(self, command: tuple[Ticket, Any], now_ms: int) -> Outcome:
        assert self.is_loaded, "a command came before the log was read"
        return self.on_decide(command, self._decide(*command))

    def _decide(self, ticket: Ticket, asked: Any) -> Outcome:
        self.trace.append(f"decide {asked}")
        if asked == "refuse":
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "as asked")
        if asked == "fail":
            raise ZeroDivisionError("as asked")
        if asked == "hold":
            self.held.append(ticket)
            return Outcome()
        held, self.held = self.held, []
        if asked in ("read", "anything"):
            return Outcome([], [(each, self.total) for each in (*held, ticket)])
        total = self.total + asked
        return Outcome([number(asked)], [(each, total) for each in (*held, ticket)])

    def tick(self, now_ms: int) -> Outcome:
        self.trace.append("tick")
        self.deadline_ms = None
        return self.on_tick(now_ms)

    def apply(self, record: LogRecord, now_ms: int) -> None:
        assert record.value is not None
        added = int(record.value)
        self.trace.append(f"apply {added}")
        self.total += added

    def apply_in_transaction(self, record: LogRecord, producer: ProducerStamp, now_ms: int) -> None:
        self.pending.setdefault(producer.producer_id, []).append(record)

    def end_transaction(self, producer_id: int, committed: bool, now_ms: int) -> None:
        for record in self.pending.pop(producer_id, []):
            if committed:
                self.apply(record, now_ms)

    def loaded(self, now_ms: int) -> Outcome:
        self.is_loaded = True
        return Outcome()

    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms


def number(value: int) -> LogRecord:
    return LogRecord(b"number", b"%d" % value)
