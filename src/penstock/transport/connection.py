"""A plaintext connection: frames in, responses out, in the order of their requests.

Reading. Small frames are read into a buffer borrowed for the turn; what is incomplete at its end is copied aside, so
an idle connection owns no buffer. A frame that does not fit gets a buffer of its own, which grows with the bytes that
have really arrived and is charged to the broker's memory budget; without room there, the socket is not read.

Writing. Answers are gathered and sent once a turn; ranges of log files go from the page cache to the socket without
passing through here, and from the device in threads. When a peer does not read, answers pile up to a bound, and then
its requests are not read.

Order. Produce requests may overlap; any other request waits until those before it were answered, as in Kafka. A slot
holds the place of an answer that is not there yet.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from penstock.transport.cold_reads import ColdReads
from penstock.transport.memory import MemoryBudget
from penstock.transport.sockets import stream
from penstock.transport.turn import RECEIVE_BYTES, ReceiveBuffer, Turn

log = logging.getLogger("penstock.transport")

UNSENT_MAX: Final = 4 * 1024 * 1024  # answers that wait for a slow reader
SLOTS_MAX: Final = 1024  # requests that wait for an answer
LARGE_FIRST: Final = 256 * 1024
LARGE_KEPT_MAX: Final = 4 * 1024 * 1024
FRAME_MIN: Final = 8  # api key, version, correlation id
DISCARDED_MAX: Final = 4 << 20
FILES_AT_ONCE: Final = 512 * 1024  # at most, before the other connections have their turn

_size = struct.Struct(">i").unpack_from


class Range(Protocol):
    """A range of a file, to be sent from the page cache."""

    @property
    def file(self) -> Any: ...

    @property
    def position(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def at_once(self) -> int:
        """How much of it may be sent before the other connections have their turn."""

    def after(self, sent: int) -> Range: ...

    def is_at_hand(self, size: int) -> bool:
        """Whether so much of it can be sent without waiting for the device."""

    def bring(self, size: int) -> None: ...


class Slot:
    """The place of an answer in the order of answers. Requests behind a shared one need not wait for it."""

    __slots__ = ("cancel", "hurry", "parts", "shared")

    def __init__(self, shared: bool) -> None:
        self.shared = shared
        self.parts: list[Any] | None = None
        self.cancel: Callable[[], None] | None = None  # called if the connection goes first
        self.hurry: Callable[[], None] | None = None  # called if another request waits behind it


class Memo(Protocol):
    """What is remembered of a client's requests, to answer one more like them without decoding it."""

    def run(self, connection: Connection, data: bytearray, view: memoryview, start: int, stop: int) -> bool:
        """True if the request was taken care of, and in its order."""


Dispatch = Callable[["Connection", bytearray, memoryview, int, int], bool]
"""A frame, its length included: (connection, buffer, its view, start, stop). False: not now, ask again later; or the
connection was closed."""


class Connection:
    __slots__ = (
        "_brought", "_cold", "_cold_reads", "_large", "_large_have", "_large_need", "_large_turn", "_loop", "_memory",
        "_on_close", "_out", "_partial", "_ranges", "_reading", "_receive", "_send", "_sending", "_writing", "active",
        "candidate", "charged", "closed", "dispatch", "ending", "fd", "frame_max", "host", "listener", "memo",
        "promised", "served", "session", "slots", "sock", "turn", "unsent", "waiting_for",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        *,
        host: str,
        listener: str,
        turn: Turn,
        memory: MemoryBudget,
        dispatch: Dispatch,
        frame_max: int,
        on_close: Callable[[Connection], None],
        cold_reads: ColdReads | None = None,
    ) -> None:
        """Without `cold_reads`, nothing that is sent lies in files."""
        self._loop = loop
        self.sock = sock
        self.fd = sock.fileno()
        through = stream(sock)
        self._receive, self._send = through.receive, through.send
        self.host = host
        self.listener = listener
        self.turn = turn
        self._memory = memory
        self._cold_reads = cold_reads
        self.dispatch = dispatch
        self.frame_max = frame_max
        self._on_close = on_close
        self._partial: bytes = b""
        self._large: ReceiveBuffer | None = None
        self._large_have = 0
        self._large_need = 0
        self._large_turn = -1
        self.charged = 0
        self._out: list[Any] = []
        self.unsent = 0
        self._ranges = False  # whether some of what is to be sent lies in files
        self._cold: tuple[Range, int] | None = None  # what has to come from the device before anything is sent
        self._brought = False  # it has come: if it is gone again, it is waited for
        self._sending = False
        self._writing = False
        self.slots: deque[Slot] = deque()
        self.waiting_for: str = ""  # why the socket is not read; empty while it is
        self._reading = True
        self.active = True
        self.closed = False
        self.ending = False  # nothing more is read, and what came before is still to be answered
        self.memo: Memo | None = None
        self.candidate: object = None  # what may become a memo if the next request is like it
        self.session: Any = None
        self.promised = -1  # the turn at whose end an answer without a slot is sent
        self.served = -1  # the turn in which a request was dispatched last
        loop.add_reader(self.fd, self._readable)

    # ---- reading

    def _readable(self) -> None:
        self.active = True
        if self._large_need:
            self._receive_large()
            return
        buffer = self.turn.buffer()
        if self.closed or self.ending:  # by what others had staged: for a buffer it may be carried out
            return
        have = len(self._partial)
        if have:
            buffer.view[:have] = self._partial
        received = self._receive(buffer.bytes, have, RECEIVE_BYTES)
        if received <= 0:
            if received == 0:
                self.close()
            return
        self._partial = b""
        self._frames(buffer, have + received)
        if self._partial or self._large_need:
            self.close_if_broken()

    def close_if_broken(self) -> None:
        """An error is told of once by the loop, and is missed if that call finds bytes which came before it. Where they
        are answered, sending shows it; where they are the beginning of a request, nothing else would."""
        if not self.closed and self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.close()

    def _frames(self, buffer: ReceiveBuffer, end: int) -> None:
        data, view = buffer.bytes, buffer.view
        position = 0
        while end - position >= 4:
            (size,) = _size(data, position)
            if not FRAME_MIN <= size <= self.frame_max:
                what = _no_request(size, bytes(view[position : position + 4]), self.frame_max)
                log.warning("closed connection: %s", what, extra={"from": self.host})
                self.end()
                return
            stop = position + 4 + size
            if stop > end:
                if size + 4 > RECEIVE_BYTES:
                    self._begin_large(size + 4, view[position:end])
                    return
                break
            if not self._handle(data, view, position, stop):
                if not self.closed:
                    self._pause("order")
                break
            position = stop
            if self.closed or self.ending:
                return
        if position < end and not self.closed and not self.ending:
            self._partial = bytes(view[position:end])

    def _handle(self, data: bytearray, view: memoryview, start: int, stop: int) -> bool:
        """One frame. False: not now, or the connection was closed."""
        memo = self.memo
        if memo is not None:
            try:
                if memo.run(self, data, view, start, stop):
                    return True
            except Exception:
                log.exception("closed connection: the request failed", extra={"from": self.host})
                self.close()
                return False
        return self.dispatch(self, data, view, start, stop)

    def _begin_large(self, need: int, begun: memoryview) -> None:
        if self.slots and not self.slots[-1].shared:  # its turn comes after an answer that may take minutes
            self._partial = bytes(begun)
            self._pause("order")
            return
        if self._large_turn == self.turn.count and self.turn.scheduled:
            self.turn.settle()  # the last frame's batches are still views of its buffer
            if self.closed or self.ending:
                return
        if self._large is None:
            capacity = min(need, LARGE_FIRST)
            assert capacity >= len(begun)
            if not self._memory.take(capacity, self):
                self._partial = bytes(begun)
                self._pause("memory")
                return
            self.charged = capacity
            self._large = ReceiveBuffer(capacity)
        self._large.view[: len(begun)] = begun
        self._large_have = len(begun)
        self._large_need = need

    def memory_returned(self) -> None:
        self._loop.call_soon(self._try_again)

    def _try_again(self) -> None:
        if not self.closed and self.waiting_for == "memory":
            self._resume()

    def _receive_large(self) -> None:
        large = self._large
        assert large is not None
        have, need = self._large_have, self._large_need
        if have == len(large.bytes) and not self._grow_large():
            return
        large = self._large
        assert large is not None
        received = self._receive(large.bytes, have, min(need, len(large.bytes)))
        if received <= 0:
            if received == 0:
                self.close()
            return
        self._large_have = have + received
        if self._large_have == need:
            self._large_complete()
        else:
            self.close_if_broken()

    def _large_complete(self) -> None:
        large, need = self._large, self._large_need
        assert large is not None
        self.turn.schedule()
        if not self._handle(large.bytes, large.view, 0, need):
            if not self.closed:
                self._pause("order")
            return
        if self.closed:
            return
        self._large_need = 0
        self._memory.finished(self)
        self._large_turn = self.turn.count
        self.turn.schedule()  # again, if the handler settled the turn
        if self._memory.waiting or len(large.bytes) > LARGE_KEPT_MAX:
            self.turn.answers.append(self._drop_large_if_idle)

    def _grow_large(self) -> bool:
        large = self._large
        assert large is not None
        capacity = min(self._large_need, 4 * len(large.bytes))
        if not self._memory.take_more(capacity - len(large.bytes), self):
            self._pause("memory")
            return False
        self.charged = capacity
        grown = ReceiveBuffer(capacity)
        grown.view[: self._large_have] = large.view[: self._large_have]
        self._large = grown
        return True

    def _drop_large(self) -> None:
        self._large = None
        self._memory.finished(self)
        if self.charged:
            charged, self.charged = self.charged, 0
            self._memory.give_back(charged)

    def _drop_large_if_idle(self) -> None:
        if not self._large_need:
            self._drop_large()

    def release_idle_memory(self) -> None:
        """Called now and then: a buffer that was kept for the next large frame goes if none came."""
        if not self._large_need and self._large is not None:
            self.turn.flush()
            self._drop_large_if_idle()

    @property
    def held_up_at(self) -> int:
        """How much there is of a large frame that waits for the peer, to send or to read; below 0 if none does."""
        waits_for_peer = not self.waiting_for or (self.waiting_for == "order" and not self.slots)
        return self._large_have if self._large_need and waits_for_peer else -1

    def detach_large(self) -> Callable[[], None] | None:
        """Called while a frame is dispatched. If it has a buffer of its own, that is the caller's from now on, who
        calls what is returned when done with it. Any other frame's bytes are gone when the turn ends."""
        if not self._large_need or self._large_have < self._large_need:
            return None
        self._large = None
        charged, self.charged = self.charged, 0
        return lambda: self._memory.give_back(charged)

    def _pause(self, reason: str) -> None:
        self.waiting_for = reason if not self.ending else "end"
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self.fd)

    def _resume(self) -> None:
        """Goes on with what was read already, then with the socket."""
        self.waiting_for = ""
        if self._large_need:
            if self._large_have == self._large_need:
                self._large_complete()
            elif self._large is not None and self._large_have == len(self._large.bytes):
                self._grow_large()  # now: whoever waits behind it must not wait for its peer
        elif self._partial:
            buffer = self.turn.buffer()
            if self.closed:
                return
            size = len(self._partial)
            buffer.view[:size] = self._partial
            self._partial = b""
            self._frames(buffer, size)
        if not self.waiting_for and not self._reading and not self.closed:
            self._reading = True
            self._loop.add_reader(self.fd, self._readable)

    # ---- answering

    def send(self, part: bytes) -> None:
        """A whole answer, in a turn whose end is scheduled already."""
        self._out.append(part)
        self.unsent += len(part)
        if not self._sending:
            self._sending = True
            self.turn.sends.append(self)

    def send_part(self, part: bytes) -> None:
        """A whole answer, of any size."""
        self._out.append(part)
        self.unsent += len(part)
        if not self._sending:
            self._sending = True
            self.turn.sends.append(self)
            self.turn.schedule()

    def send_parts(self, parts: list[Any]) -> None:
        self._out += parts
        self.unsent += sum(map(len, parts))
        if len(parts) > 1 and any(hasattr(part, "file") for part in parts):
            self._ranges = True
        if not self._sending:
            self._sending = True
            self.turn.sends.append(self)
            self.turn.schedule()

    def slot(self, shared: bool = False) -> Slot:
        slot = Slot(shared)
        self.slots.append(slot)
        return slot

    def answer(self, slot: Slot, parts: list[Any]) -> None:
        """Fills the slot; an empty list means that the request has no answer."""
        slot.parts = parts
        slot.cancel = None
        if self.closed:
            return
        slots = self.slots
        while slots and slots[0].parts is not None:
            self.send_parts(slots.popleft().parts or [])
        if not slots and self.waiting_for == "order":
            self._loop.call_soon(self._order_restored)

    def _order_restored(self) -> None:
        if self.waiting_for == "order" and not self.slots and not self.closed:
            self._resume()

    @property
    def congested(self) -> bool:
        return self.unsent > UNSENT_MAX or len(self.slots) >= SLOTS_MAX

    def flush(self) -> None:
        """At the end of a turn, and whenever the socket takes more."""
        self._sending = False
        if self._writing or self.closed:
            return
        out, full = self._out, True
        try:
            if self._ranges:
                self._send_all(out)
                full = False
            else:
                answers = out[0] if len(out) == 1 else b"".join(out)
                sent = self._send(answers)
                if sent == len(answers):
                    out.clear()
                elif sent >= 0:
                    self._out = [memoryview(answers)[sent:]]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        if self._out:
            self.unsent = sum(map(len, self._out))
            self._go_on_later(full)
        else:
            self.unsent = 0
        if self.ending and not self._out and not self.slots and self.promised != self.turn.count:
            self._discard()
            self.close()
        elif self.waiting_for == "order" and not self.slots and self.unsent <= UNSENT_MAX // 2:
            self._loop.call_soon(self._order_restored)

    def _send_all(self, out: list[Any]) -> None:
        """As much as the socket takes, and of files not too much at once; the rest stays."""
        self._ranges = False
        self._out = out = _joined(out)
        done, room = 0, FILES_AT_ONCE
        self._cork(True)
        try:
            for number, part in enumerate(out):
                if type(part) is not memoryview:
                    room = min(room, part.at_once)
                while room and part is not None:
                    if type(part) is not memoryview and self._is_cold(part, min(part.size, room)):
                        return
                    before = len(part)
                    rest = self._send_part(part, number + 1 < len(out), room)
                    if type(part) is not memoryview:
                        room -= before - (len(rest) if rest is not None else 0)
                    part = rest
                    if rest is not None:
                        out[number] = rest
                if part is not None:
                    break
                done = number + 1
        finally:
            del out[:done]
            self._cork(False)
            self._ranges = any(type(part) is not memoryview for part in out)

    def _cork(self, on: bool) -> None:
        """The head of an answer, its file and its tail go out in full packets, so that the peer wakes up less often."""
        if self.sock.family is not socket.AF_UNIX:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, on)

    def _send_part(self, part: Any, more: bool, room: int) -> Any:
        """What is left of the part, None if it is all sent."""
        if type(part) is memoryview:
            sent = self.sock.send(part, socket.MSG_MORE if more else 0)
            return None if sent == len(part) else part[sent:]
        sent = os.sendfile(self.fd, part.file.fd, part.position, min(part.size, room))
        if sent == 0:
            raise OSError("the log was cut while it was sent")
        return None if sent == part.size else part.after(sent)

    def _is_cold(self, part: Range, size: int) -> bool:
        if self._brought:
            self._brought = False
        elif not part.is_at_hand(size):
            self._cold = part, size
        return self._cold is not None

    def _go_on_later(self, full: bool) -> None:
        """When the socket takes more, or the device has given more, or as soon as others had their turn."""
        self._writing = True
        if self._cold is not None:
            (part, size), self._cold = self._cold, None
            self._brought = True
            assert self._cold_reads is not None
            self._cold_reads.bring(part, size, self._was_brought)
        elif full:
            self._loop.add_writer(self.fd, self._writable)
        else:
            self._loop.call_soon(self._go_on)

    def _writable(self) -> None:
        self._loop.remove_writer(self.fd)
        self._go_on()

    def _was_brought(self) -> None:
        if not self.closed:
            self._go_on()

    def _go_on(self) -> None:
        self.active = True
        self._writing = False
        self.flush()

    # ---- the end

    def end(self) -> None:
        """Closes when what was written before is answered. Nothing more is read."""
        if self.closed or self.ending:
            return
        if self.slots and not self.slots[-1].shared:  # a wait that may take minutes
            self.close()
            return
        self.ending = True
        self._pause("end")
        self._partial = b""
        self._large_need = 0  # its memory is another's when the turn's writes are done
        self._memory.leave(self)
        self.turn.answers.append(self._drop_large)
        if not self._sending:
            self._sending = True
            self.turn.sends.append(self)
        self.turn.schedule()

    def _discard(self) -> None:
        """What has arrived and was not read: with it, the kernel would take back what is on its way to the peer."""
        rest = bytearray(RECEIVE_BYTES)
        for _ in range(DISCARDED_MAX // RECEIVE_BYTES):
            if self._receive(rest, 0, RECEIVE_BYTES) <= 0:
                return

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self.fd)
        if self._writing:
            self._loop.remove_writer(self.fd)
        self.sock.close()
        self._out = []
        self.unsent = 0
        self._memory.leave(self)
        self.turn.schedule()
        self.turn.answers.append(self._drop_large)
        for slot in self.slots:
            if slot.cancel is not None:
                slot.cancel()
        self.slots.clear()
        self._on_close(self)


def _no_request(size: int, begin: bytes, size_max: int) -> str:
    """What came instead, in the words of whoever has to find out who sent it."""
    if begin[:2] == b"\x16\x03":
        return "TLS came where requests are expected in plain text"
    if begin in (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"PRI "):
        return "HTTP came where requests of Kafka's protocol are expected"
    return f"a request can't have {size} bytes, only {FRAME_MIN} to {size_max}"


def _joined(parts: list[Any]) -> list[Any]:
    """Neighbouring bytes as one view, ranges of files as they are."""
    out: list[Any] = []
    run: list[Any] = []
    for part in parts:
        if hasattr(part, "file"):
            if run:
                out.append(memoryview(run[0] if len(run) == 1 else b"".join(run)))
                run = []
            if part.size:
                out.append(part)
        elif len(part):
            run.append(part)
    if run:
        out.append(memoryview(run[0] if len(run) == 1 else b"".join(run)))
    return out
