"""`@consumer.handler(…)` and `consumer.run()`: a function for each message, and what is done when it fails."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from penstock.client.admin import connection_of, is_missing
from penstock.client.delivery import CommitOrder
from penstock.client.errors import SettingsError, UsageError, from_kafka, near_miss
from penstock.client.names import check_topic
from penstock.client.retrying.calling import (
    Call,
    Cancelled,
    Direct,
    End,
    InThread,
    OnLoop,
    check_run,
    is_async,
    is_generating,
)
from penstock.client.retrying.policy import Duration, Retry, milliseconds, spoken
from penstock.client.retrying.source import Options, Source
from penstock.client.retrying.topics import DEAD_LETTER_SUFFIX, is_tier, places
from penstock.client.retrying.work import Work
from penstock.client.signals import ending_on_signals

if TYPE_CHECKING:
    from penstock.client.consumer import Consumer

log = logging.getLogger("penstock.client")

OPTIONS = ("retry", "dead_letter", "ordered", "timeout")
MAX_POLL_INTERVAL_MS = 300_000  # librdkafka's default
REQUEST_TIMEOUT_S = 10.0
# Behind a death, each of as many messages may be the deadly one, and is put on record before it is handled.
COMMIT_EVERY_MAX = 2_000
LOOK_S = 0.2  # for a topic that does not exist yet


@dataclass(frozen=True, slots=True)
class Registered:
    function: Callable[..., Any]
    options: Options

    @property
    def is_async(self) -> bool:
        return is_async(self.function)


def register(consumer: Consumer[Any, Any], function: Callable[..., Any], **options: Any) -> None:
    """Makes `function` the handler of this consumer. Options:

    `retry`        a `Retry`: what fails is tried again, after a while, from a retry topic; the rest goes on meanwhile
    `dead_letter`  True, or a topic's name: where messages go that are not tried again, and those that can't be read
    `ordered`      messages of one key are handled in order, also when one of them has to wait: the others wait with it
    `timeout`      a call that takes longer, such as "30s", counts as failed
    """
    if not callable(function):
        raise SettingsError(f"the handler is {function!r}, which can't be called.", "Decorate a function.")
    if is_generating(function):
        raise SettingsError(
            "the handler is a generator function, of which a call runs nothing.", "Leave out its yield."
        )
    for name in options:
        if name not in OPTIONS:
            raise SettingsError(
                f"a handler has no option {name!r}.", near_miss(name, OPTIONS) or f"There are {', '.join(OPTIONS)}."
            )
    if consumer.handlers is not None:
        raise UsageError(
            "the consumer has a handler already.",
            "Use a consumer for each, of different groups, or one function that chooses.",
        )
    consumer.handlers = Registered(function, _options(consumer, **options))


def _options(
    consumer: Consumer[Any, Any],
    retry: Retry | None = None,
    dead_letter: bool | str = False,
    ordered: bool = False,
    timeout: Duration | None = None,
) -> Options:
    if retry is not None and not isinstance(retry, Retry):
        raise SettingsError(f"retry is {retry!r}, which is no policy.", "Say retry=Retry(attempts=5).")
    if not isinstance(dead_letter, bool | str):
        raise SettingsError(f"dead_letter is {dead_letter!r}.", "It is True, False, or the name of a topic.")
    if not isinstance(ordered, bool):
        raise SettingsError(f"ordered is {ordered!r}.", "It is True or False.")
    if isinstance(dead_letter, str):
        check_topic(dead_letter, f"dead_letter={dead_letter!r}: ")
    timeout_ms = None if timeout is None else milliseconds(timeout, "timeout")
    found = Options(retry, dead_letter, ordered, timeout_ms)
    _check_fit(consumer, found)
    _check_apart(consumer, found)
    return found


def _check_apart(consumer: Consumer[Any, Any], options: Options) -> None:
    """What is put aside must not come back at once as if it were new: that would have no end."""
    tiers_ms = options.retry.tiers_ms if options.retry is not None else ()
    letters = options.dead_letter
    for topic in consumer.topics:
        found = places(topic, consumer.group, tiers_ms, letters)
        if isinstance(letters, str) and (letters in consumer.topics or is_tier(letters, topic, consumer.group)):
            raise SettingsError(
                f"dead_letter={letters!r} is a topic that this group reads: what fails there would go there again.",
                f"Name another one, or say dead_letter=True, for {topic}.{consumer.group}{DEAD_LETTER_SUFFIX}.",
            )
        if shared := next((tier.topic for tier in found.tiers if tier.topic in consumer.topics), None):
            raise SettingsError(
                f"{shared!r} is read as a topic, and is where messages of {topic!r} wait to be tried again.",
                f"Leave it out of the topics: it is read with {topic!r}.",
            )


def _check_fit(consumer: Consumer[Any, Any], options: Options) -> None:
    """Options that contradict each other, or the consumer's."""
    puts_aside = options.retry is not None or bool(options.dead_letter)
    if puts_aside and consumer.mode.commit_order is CommitOrder.BEFORE:
        name = "retry" if options.retry is not None else "dead_letter"
        raise SettingsError(
            f"{name} and delivery='at-most-once' contradict each other: that delivery never tries a message again.",
            "Use delivery='at-least-once', or leave it out.",
        )
    if options.ordered and options.retry is None:
        raise SettingsError("ordered=True is about retries, and there is no retry.", "Without it, order is kept.")
    if puts_aside and (pattern := next((topic for topic in consumer.topics if topic.startswith("^")), None)):
        raise SettingsError(
            f"the topics of {pattern!r} are not known beforehand, as retry topics must be.", "Name them."
        )
    limit_ms = int(consumer.settings.get("max.poll.interval.ms", MAX_POLL_INTERVAL_MS))
    if options.timeout_ms is not None and options.timeout_ms >= limit_ms:
        raise SettingsError(
            f"timeout={spoken(options.timeout_ms)} and max.poll.interval.ms={limit_ms} contradict each other: "
            "the group takes the partitions away first.",
            "Raise max.poll.interval.ms in settings, or lower the timeout.",
        )
    if options.ordered:
        _check_assignor(consumer)


def _check_assignor(consumer: Consumer[Any, Any]) -> None:
    """Partition 3 of the topic and of its retry topics must be one member's, which only 'range' sees to."""
    settings = consumer.settings
    if str(settings.get("group.protocol", "classic")).lower() != "classic":
        raise SettingsError(
            "ordered=True and group.protocol=consumer contradict each other: a topic and its retry topics may go to "
            "different members there.",
            "Leave out group.protocol.",
        )
    chosen = str(settings.get("partition.assignment.strategy", "range"))
    if not chosen.startswith("range"):
        raise SettingsError(
            f"ordered=True and partition.assignment.strategy={chosen} contradict each other: a topic and its retry "
            "topics may go to different members.",
            "Leave it out, or use 'range'.",
        )


def work_of(consumer: Consumer[Any, Any], options: Options) -> Work:
    """For `run`, and for a queue, which takes message after message itself."""
    _check_apart(consumer, options)  # it may read more topics by now
    reader, commits = consumer.reader, consumer.reader.commits
    return Work(
        Source(
            client=reader.kafka,
            connection=connection_of(consumer.settings),
            group=consumer.group,
            topics=tuple(consumer.topics),
            decoder=reader.decoder,
            filter=reader.filter,
            is_exactly_once=consumer.mode.is_transactional,
            instance=consumer.settings.get("group.instance.id"),
            commit_interval_s=commits.interval_s,
            commit_every=min(commits.every, COMMIT_EVERY_MAX),
            reader=reader,
            committer=commits.committer,
            on_assign=tuple(reader.on_assign),
            on_revoke=tuple(reader.on_revoke),
            on_lost=tuple(reader.on_lost),
        ),
        options,
    )


def run(consumer: Consumer[Any, Any], loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Calls the handler with each message, until `stop()` or a signal; on `loop`, if it is a coroutine function."""
    registered: Registered | None = consumer.handlers
    if registered is None:
        raise UsageError("the consumer has no handler.", "Decorate a function with @consumer.handler().")
    if registered.is_async and loop is None:
        raise UsageError("the handler is a coroutine function.", "Use an AsyncConsumer, and 'await consumer.run()'.")
    if consumer.mode.commit_order is CommitOrder.BEFORE:
        _run_plainly(consumer, _call(registered, loop))
        return
    consumer.reader.begin_again()
    call = _call(registered, loop)
    work = work_of(consumer, registered.options)
    try:
        with ending_on_signals(consumer.stop) if consumer.reader.handles_signals else nullcontext():
            if _wait_for_topics(consumer):
                with consumer.handing_over(work):
                    _run_with_retries(work, call)
    finally:
        consumer.reader.note_end()


def _run_with_retries(work: Work, call: Call) -> None:
    work.start()
    try:
        if isinstance(call, Direct):
            work.run(call.function, call.finish)
        else:
            work.run(call, check_run)
    except End as end:
        raise end.error from None
    except Cancelled:
        raise asyncio.CancelledError from None
    finally:
        try:
            work.close()
        finally:
            call.close()


def _wait_for_topics(consumer: Consumer[Any, Any]) -> bool:
    """Until all exist: retry topics are made after them. Asks so that a broker which does that creates them.

    False if the consumer was told to stop meanwhile.
    """
    admin = AdminClient(connection_of(consumer.settings))
    for topic in consumer.topics:
        while not topic.startswith("^") and _is_missing(admin, topic):
            if consumer.stopping:
                return False
            log.warning("there is no topic %r yet; waiting for it", topic)
            time.sleep(LOOK_S)
    return True


def _is_missing(admin: AdminClient, topic: str) -> bool:
    try:
        return is_missing(admin, topic, REQUEST_TIMEOUT_S)
    except KafkaException as failure:
        raise from_kafka(failure.args[0], f"looking for the topic {topic!r}") from failure


def _run_plainly(consumer: Consumer[Any, Any], call: Call) -> None:
    """At most once: what is handed out is committed already."""
    try:
        for message in consumer:
            call(message)
    except End as end:
        raise end.error from None
    except Cancelled:
        raise asyncio.CancelledError from None
    finally:
        call.close()


def _call(registered: Registered, loop: asyncio.AbstractEventLoop | None) -> Call:
    timeout_ms = registered.options.timeout_ms
    if registered.is_async:
        assert loop is not None
        return OnLoop(registered.function, loop, timeout_ms)
    if timeout_ms is None:
        return Direct(registered.function, loop)
    return InThread(registered.function, timeout_ms, loop)
