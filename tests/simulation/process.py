"""What runs as if it were a process of its own: it can be paused, resumed and killed, with all that it has scheduled.

Every task, timer and callback carries the context that it was made in. A process marks its first task's context, and
so all that comes of it; the loop asks whose turn it is before it runs anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from enum import Enum
from typing import Any, TypeVar

T = TypeVar("T")

PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
NOBODY = Context()  # of what belongs to no process: the network, the disks, the coordination service


class State(Enum):
    RUNNING = "running"
    PAUSED = "paused"
    KILLED = "killed"


class Process:
    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self.name = name
        self.state = State.RUNNING
        self.held: list[asyncio.Handle] = []  # what would have run meanwhile
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._on_kill: list[Callable[[], None]] = []

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        assert self.state is not State.KILLED, "the dead start nothing"
        context = Context()
        context.run(PROCESS.set, self)
        return self._loop.create_task(coroutine, context=context)

    def pause(self) -> None:
        """As SIGSTOP does: what others send it waits."""
        if self.state is State.RUNNING:
            self.state = State.PAUSED

    def resume(self) -> None:
        if self.state is State.PAUSED:
            self.state = State.RUNNING
            held, self.held = self.held, []
            for handle in held:
                self._loop._ready.append(handle)

    def kill(self) -> None:
        """As SIGKILL does: nothing of it runs again, not even what would clean up. Its tasks are kept, for Python runs
        their `finally` when they are collected."""
        self.state = State.KILLED
        self.held.clear()
        for task in self.tasks:
            task._log_destroy_pending = False
            asyncio.tasks._unregister_task(task)  # whoever ends the loop would wait for it
        for callback in self._on_kill:
            callback()

    def on_kill(self, callback: Callable[[], None]) -> None:
        """For what the kernel would clean up."""
        self._on_kill.append(callback)
