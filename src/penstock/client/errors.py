"""What goes wrong for a program that sends and reads messages: one tree of exceptions, each with what to do about it.

Nothing of confluent-kafka's own exceptions leaves this package: `from_kafka` turns each of them into one of these.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

if TYPE_CHECKING:
    from penstock.client.message import Message


class PenstockError(Exception):
    """The root of the tree. `hint` says what to do; `retriable` whether the same call may succeed later."""

    retriable = False

    def __init__(
        self, message: str, hint: str = "", *, retriable: bool | None = None, kafka_error: str | None = None
    ) -> None:
        super().__init__(message)
        self.text = message
        self.hint = hint
        self.kafka_error = kafka_error  # Kafka's name of the error, such as "MSG_SIZE_TOO_LARGE"
        if retriable is not None:
            self.retriable = retriable

    def __str__(self) -> str:
        return f"{self.text} {self.hint}" if self.hint else self.text


class SettingsError(PenstockError, ValueError):
    """A setting that does not exist or can't have this value, or two settings that contradict each other.

    Mend the program: the text names the settings, and what was probably meant.
    """


class UsageError(PenstockError, RuntimeError):
    """A call that can't be made now: on a client that is closed, or outside of a transaction.

    Mend the program: the hint says how it is done.
    """


class BadName(PenstockError, ValueError):
    """A topic or a group can't have this name.

    Choose another name.
    """


class BrokerUnreachable(PenstockError, ConnectionError):
    """No broker answered in time.

    See whether a broker runs at that address, and try again.
    """

    retriable = True


class TopicNotFound(PenstockError):
    """The topic, or the partition, does not exist.

    Create the topic, or correct the name.
    """


class MessageTooLarge(PenstockError):
    """The message is larger than the producer or the topic allows.

    Send less at once, or allow more: `message.max.bytes` of the producer and `max.message.bytes` of the topic.
    """


class SerializationError(PenstockError, TypeError):
    """A key, a value or a header could not be turned into bytes. Nothing was sent.

    Give the producer a serializer for such objects, or send others.
    """


class DeserializationError(PenstockError):
    """A key or a value could not be read. `message` is the one: its `raw_key` and `raw_value` have the bytes.

    Iterate again to go on behind it. With a handler and `dead_letter=True` such messages are put aside instead.
    """

    def __init__(self, text: str, hint: str, message: Message[Any, Any]) -> None:
        super().__init__(text, hint)
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        """The message has this error too, so that the one can't be made of the other: what it has comes after it."""
        return _bare, (type(self), self.text), self.__dict__

    def let_go(self) -> None:
        """Nobody will be given this error: else it and its message keep each other until Python looks for garbage."""
        del self.message


def _bare(kind: type[PenstockError], text: str) -> PenstockError:
    return kind.__new__(kind, text)


class DeliveryFailed(PenstockError):
    """A message was not acknowledged.

    It may be in the topic all the same: send it again if a duplicate does no harm.
    """


class DeliveryTimedOut(PenstockError, TimeoutError):
    """A message was not acknowledged in the time that `result` was given. It is still on its way.

    Wait for it longer, or see whether the broker runs.
    """

    retriable = True


class CommitFailed(PenstockError):
    """The group's offsets were not stored.

    Go on: what was read will be read again, here or by the member that has the partitions now.
    """


class NotAuthorized(PenstockError):
    """The broker knows who asks, or does not, and refuses.

    Check the credentials (`sasl.*` and `ssl.*` in `settings`), and what they are allowed to do.
    """


class TransactionAborted(PenstockError):
    """Nothing of the transaction is visible, and its consumer was put back to where it began.

    Run the block again.
    """

    retriable = True


class ProducerFenced(PenstockError):
    """Another producer with the same transactional id took over, or this one can't go on: its transaction was open for
    longer than `transaction.timeout.ms`, for instance. Nothing of the transaction is visible.

    Close it, and its consumer; make others if the work is still this process's.
    """


class QueueEmpty(PenstockError):
    """No job came within the time-out.

    Ask again, or wait longer.
    """

    retriable = True


class QueueStopped(SystemExit):
    """SIGTERM, SIGINT or `stop()` ended the work on a queue: there is no next job.

    Let it pass: it ends at the end of `with Queue(…)`, which leaves the group. It is no `PenstockError`, nor an
    `Exception`, so that a loop which goes on after every job that failed ends all the same.
    """


UNREACHABLE_HINT = (
    "Is a broker running there ('penstock start' starts one)? The address is the client's first argument, "
    "or $PENSTOCK_BOOTSTRAP."
)

FENCED_HINT = (
    "Another producer uses the same transactional_id, or the brokers gave the transaction up because it took too long. "
    "Close this one; each needs its own id."
)

_UNREACHABLE = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
    }
)
_MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE})
_REFUSED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)
_FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
    }
)
_TIMED_OUT = frozenset({KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT_QUEUE})
_NAMES = frozenset({KafkaError.TOPIC_EXCEPTION, KafkaError.INVALID_GROUP_ID})
_COMMITS = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.OFFSET_METADATA_TOO_LARGE,
        KafkaError._ASSIGNMENT_LOST,
    }
)

_KINDS: tuple[tuple[frozenset[int], type[PenstockError], str], ...] = (
    (_UNREACHABLE, BrokerUnreachable, UNREACHABLE_HINT),
    (_MISSING, TopicNotFound, "Create it with 'penstock topic create', or check the name and the partition."),
    (
        _TOO_LARGE,
        MessageTooLarge,
        "Send less at once, or allow more: settings={'message.max.bytes': …} here and max.message.bytes of the topic.",
    ),
    (_REFUSED, NotAuthorized, "Check the credentials (sasl.*, ssl.* in settings) and what they are allowed to do."),
    (_FENCED, ProducerFenced, FENCED_HINT),
    (
        _NAMES,
        BadName,
        "Topics: at most 249 letters, digits, '.', '_' and '-'. Groups: any text that is not empty.",
    ),
    (
        _COMMITS,
        CommitFailed,
        "The group gave the partitions to another member; what was read will be read there again.",
    ),
    (
        frozenset({KafkaError._MAX_POLL_EXCEEDED}),
        PenstockError,
        "What was done with the last message took longer than max.poll.interval.ms, so another member does it again. "
        "Do less for each, or say that it takes longer: settings={'max.poll.interval.ms': …}, of a Queue "
        "consumer_settings.",
    ),
    (
        frozenset({KafkaError._AUTO_OFFSET_RESET}),
        PenstockError,
        "The group has no offset there that still exists, and start='fail' asks to be told. Say where to begin: "
        "start='earliest' or 'latest', or 'penstock group reset'.",
    ),
)


def from_kafka(error: KafkaError, doing: str) -> PenstockError:
    """The exception of ours for what librdkafka or a broker says. `doing` begins its text: "sending to 'orders'"."""
    code = error.code()
    text = f"{doing}: {error.str().rstrip('.')} ({error.name()})."
    for codes, kind, hint in _KINDS:
        if code in codes:
            return kind(text, hint, kafka_error=error.name())
    if error.fatal() or code == KafkaError._FATAL:
        return ProducerFenced(text, "This client can't go on: close it and make another.", kafka_error=error.name())
    if code in _TIMED_OUT:
        return BrokerUnreachable(text, UNREACHABLE_HINT, kafka_error=error.name())
    return PenstockError(text, retriable=error.retriable(), kafka_error=error.name())


def delivery_error(error: KafkaError, topic: str) -> PenstockError:
    """Why a message was not acknowledged: one of the kinds above where it is one, else a `DeliveryFailed`."""
    found = from_kafka(error, f"a message to {topic!r} was not delivered")
    hint = "It may be in the topic all the same; send it again if a duplicate does no harm."
    if type(found) is not PenstockError:
        if isinstance(found, BrokerUnreachable):
            found.hint = f"{hint} {found.hint}"
        return found
    return DeliveryFailed(found.text, hint, retriable=error.retriable(), kafka_error=error.name())


def no_broker(bootstrap: str, error: KafkaError) -> BrokerUnreachable:
    return BrokerUnreachable(
        f"no broker answers at {bootstrap} ({error.str().rstrip('.')}).", UNREACHABLE_HINT, kafka_error=error.name()
    )


def no_room(topic: str, timeout_s: float) -> DeliveryFailed:
    return DeliveryFailed(
        f"there was no room for a message to {topic!r} within {timeout_s} s.",
        "The broker takes less than is sent, or can't be reached. Nothing of this message was sent.",
        retriable=True,
    )


def given_up(count: int, timeout_s: float | None) -> DeliveryFailed:
    what = "1 message was" if count == 1 else f"{count} messages were"
    return DeliveryFailed(
        f"{what} given up: not acknowledged within {timeout_s} s, and a producer that is closed sends nothing more.",
        "Send again, with another producer, what must arrive; what was on its way may be in the topic all the same. "
        "close(timeout) says how long to wait, and the exception() of each Delivery which ones they are.",
    )


def after(error: BaseException | None, last: Callable[[], object], what: str) -> None:
    """The last thing of a block. The block's own exception, if there is one, goes on whatever comes of it."""
    try:
        last()
    except Exception as failure:
        if error is None:
            raise
        error.add_note(f"besides, {what}: {failure}")


def near_miss(word: str, known: Iterable[str]) -> str:
    """`Did you mean 'linger.ms'?`, or nothing."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"Did you mean {matches[0]!r}?" if matches else ""


class HandlerTimedOut(PenstockError, TimeoutError):
    """A handler had not returned when its time was over.

    It counts as a failed attempt. Make the handler quicker, or give it a longer `timeout`.
    """


class ProcessDied(PenstockError):
    """A process ended while it handled the message, without a word. Counted as an attempt.

    Nobody raises it: it is the error of dead letters. See what such a message does to the process.
    """
