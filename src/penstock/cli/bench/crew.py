"""The parent of the load: starts the workers together, watches them, and ends them."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.cli.bench.histogram import add
from penstock.cli.bench.load import (
    COUNT,
    DONE,
    FAILED,
    FIRST_NS,
    HISTOGRAM,
    LAST_NS,
    MAX_NS,
    READY,
    SLOTS,
    Plan,
    consume,
    produce,
)
from penstock.cli.problem import Problem

READY_TIMEOUT_S = 30.0
DRAIN_TIMEOUT_S = 10.0  # how long the consumers may see nothing new before they are given up
TICK_S = 0.1
QUEUED_MAX = 20_000  # enough to fill batches; more would only measure how long the queue is


@dataclass(frozen=True, slots=True)
class Outcome:
    """What producers, or consumers, did together."""

    count: int
    failed: int
    seconds: float
    histogram: list[int]
    max_ns: int


class Crew:
    def __init__(self, producers: Sequence[Plan], consumers: Sequence[Plan]) -> None:
        # A fork would copy librdkafka's locks, but not the threads that hold them.
        context = multiprocessing.get_context("spawn")
        self._start, self._stop, self._producers_stop = context.Event(), context.Event(), context.Event()
        self.produced = [context.RawArray("q", SLOTS) for _ in producers]
        self.consumed = [context.RawArray("q", SLOTS) for _ in consumers]
        self._workers = [
            context.Process(target=consume, args=(plan, memory, self._start, self._stop), daemon=True)
            for plan, memory in zip(consumers, self.consumed)
        ] + [
            context.Process(target=produce, args=(plan, memory, self._start, self._producers_stop), daemon=True)
            for plan, memory in zip(producers, self.produced)
        ]

    def run(self, watch: Callable[[int, int], None]) -> None:
        """`watch` is told every tick how many messages were acknowledged and how many were read."""
        try:
            for worker in self._workers:
                worker.start()
            self._wait_until_ready()
            self._start.set()
            self._watch_until_done(watch)
        except KeyboardInterrupt:
            print("penstock: stopped early.", file=sys.stderr)
        finally:
            self._producers_stop.set()
            self._stop.set()
            self._start.set()
            for worker in self._workers:
                worker.join(DRAIN_TIMEOUT_S)
                if worker.is_alive():
                    worker.terminate()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not all(memory[READY] for memory in self.produced + self.consumed):
            self._check_alive()
            if time.monotonic() > deadline:
                raise Problem(f"the load did not get ready within {READY_TIMEOUT_S:.0f} s.", "Try fewer clients.")
            time.sleep(TICK_S / 10)

    def _watch_until_done(self, watch: Callable[[int, int], None]) -> None:
        seen, seen_at = -1, time.monotonic()
        while True:
            self._check_alive()
            produced, consumed = _total(self.produced, COUNT), _total(self.consumed, COUNT)
            watch(produced, consumed)
            if consumed != seen:
                seen, seen_at = consumed, time.monotonic()
            if all(memory[DONE] for memory in self.produced) and (
                not self.consumed or consumed >= produced or time.monotonic() - seen_at > DRAIN_TIMEOUT_S
            ):
                return
            time.sleep(TICK_S)

    def _check_alive(self) -> None:
        if any(worker.exitcode not in (None, 0) for worker in self._workers):
            raise Problem("a part of the load died.", "What it said is above.")


def outcome(memories: Sequence[Any], since_ns: int | None = None) -> Outcome:
    """`since_ns`: when the clock started, if not with the first of these."""
    firsts = [memory[FIRST_NS] for memory in memories if memory[FIRST_NS]]
    first_ns = since_ns or min(firsts, default=0)
    last_ns = max((memory[LAST_NS] for memory in memories), default=0)
    return Outcome(
        count=_total(memories, COUNT),
        failed=_total(memories, FAILED),
        seconds=max(0.0, (last_ns - first_ns) / 1e9),
        histogram=add(memory[HISTOGRAM:] for memory in memories),
        max_ns=max((memory[MAX_NS] for memory in memories), default=0),
    )


def _total(memories: Sequence[Any], slot: int) -> int:
    return sum(memory[slot] for memory in memories)


def plans(args: argparse.Namespace, settings: dict[str, Any], topic: str) -> tuple[list[Plan], list[Plan]]:
    """The work divided: so many messages, or such a rate, for each producer; so many partitions for each consumer."""
    producing = {
        **settings,
        "acks": args.acks,
        "compression.type": args.compression,
        "linger.ms": args.linger,
        "enable.idempotence": args.acks == "all",
        "queue.buffering.max.messages": QUEUED_MAX,
    }
    count = args.producers
    shares = [None] * count if args.messages is None else _shares(args.messages, count)
    rate = args.rate / count if args.rate else None
    producers = [Plan(producing, topic, args.size, share, args.duration, rate) for share in shares]
    consumers = [
        Plan(settings, topic, partitions=tuple(range(number, args.partitions, args.consumers)))
        for number in range(args.consumers)
    ]
    return producers, consumers


def _shares(total: int, count: int) -> list[int | None]:
    return [total // count + (1 if number < total % count else 0) for number in range(count)]
