"""Work in a thread that must not be left halfway by a task that is cancelled: the end of a transaction, or of a client.

A future of an executor that a task awaits is cancelled with the task; and what its thread has not begun by then, since
it is busy, it never does. What is waited for here is done first, and the task is cancelled behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")


def in_some_thread(call: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
    """As `asyncio.to_thread`, but no task, which a loop that ends would cancel as well."""
    return asyncio.get_running_loop().run_in_executor(None, copy_context().run, call, *arguments)


async def last_in(thread: ThreadPoolExecutor, call: Callable[..., Any], *arguments: Any) -> None:
    """Nothing that is asked of the thread behind this would ever be done."""
    try:
        await to_the_end(asyncio.get_running_loop().run_in_executor(thread, call, *arguments))
    finally:
        thread.shutdown(wait=False)


async def to_the_end(running: asyncio.Future[T]) -> T:
    """What comes of it. A task that is cancelled meanwhile, however often, is so when it has ended."""
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as again:
            cancelled = again
    if cancelled is not None:
        raise cancelled from running.exception()
    return running.result()
