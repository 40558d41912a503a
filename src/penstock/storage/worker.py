"""A process beside the broker, for work that burns CPU: it exists only while there is some.

It is started by the first job, ended after a while without any, and ends by itself when the broker does, because its
input ends then. If it dies, the jobs it had fail, and the next one starts another.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from penstock.storage.worker_process import HEAD

IDLE_SECONDS = 30.0
JOBS_MAX = 256

P = ParamSpec("P")
R = TypeVar("R")


class WorkerFailed(Exception):
    """The worker could not be started, died during the job, or has more to do than it may."""


class Worker:
    def __init__(self, idle_seconds: float = IDLE_SECONDS, jobs_max: int = JOBS_MAX) -> None:
        self._idle_seconds = idle_seconds
        self._jobs_max = jobs_max
        self._crew: _Crew | None = None
        self._starting = asyncio.Lock()
        self._waiting = 0
        self._idle: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def is_running(self) -> bool:
        return self._crew is not None and self._crew.is_alive

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What the function returns or raises there; it, its arguments and its result must be picklable."""
        assert not kwargs, "arguments are given by position"
        if self._waiting >= self._jobs_max:
            raise WorkerFailed(f"{self._waiting} jobs are waiting already")
        job = pickle.dumps((function, args), pickle.HIGHEST_PROTOCOL)
        self._waiting += 1
        if self._idle is not None:
            self._idle.cancel()
        try:
            crew = await self._started()
            result: R = await crew.run(job)
            return result
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._idle = asyncio.get_running_loop().call_later(self._idle_seconds, self._dismiss)

    async def _started(self) -> _Crew:
        async with self._starting:
            if self._crew is None or not self._crew.is_alive:
                self._dismiss()
                self._crew = await _Crew.start()
            return self._crew

    def _dismiss(self) -> None:
        if self._crew is not None:
            task = asyncio.ensure_future(self._crew.end())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            self._crew = None

    async def close(self) -> None:
        """Jobs that are under way fail."""
        if self._idle is not None:
            self._idle.cancel()
        self._dismiss()
        await asyncio.gather(*self._ending, return_exceptions=True)


class _Crew:
    """One worker process, and the jobs it has."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._input, self._output = process.stdin, process.stdout
        self._jobs: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self.is_alive = True
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def start(cls) -> _Crew:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        arguments = ("-P", "-m", "penstock.storage.worker_process")
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *arguments, stdin=PIPE, stdout=PIPE, env=environment
            )
        except OSError as error:
            raise WorkerFailed(f"the worker process did not start: {error}") from error
        return cls(process)

    async def run(self, job: bytes) -> Any:
        self._number += 1
        number = self._number
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs[number] = answer
        try:
            self._input.write(HEAD.pack(number, len(job)) + job)
            await self._input.drain()
            return await answer
        except (BrokenPipeError, ConnectionResetError) as error:
            raise WorkerFailed("the worker process is gone") from error
        finally:
            self._jobs.pop(number, None)

    async def _read(self) -> None:
        try:
            while True:
                number, length = HEAD.unpack(await self._output.readexactly(HEAD.size))
                succeeded, result = pickle.loads(await self._output.readexactly(length))
                job = self._jobs.get(number)
                if job is not None and not job.done():
                    job.set_result(result) if succeeded else job.set_exception(result)
        except Exception:
            pass  # the process has ended, or answers with what nobody understands: then it must end
        finally:
            self.is_alive = False
            self._input.close()  # without input it ends
            code = await self._process.wait()
            for job in self._jobs.values():
                if not job.done():
                    job.set_exception(WorkerFailed(f"the worker process ended with code {code}"))

    async def end(self) -> None:
        self.is_alive = False
        self._input.close()
        try:
            await asyncio.wait_for(asyncio.shield(self._reading), timeout=5)
        except TimeoutError:
            self._process.kill()
            await self._reading
