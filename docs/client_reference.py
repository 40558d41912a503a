"""Writes docs/client/reference.md, the reference of the Python client, from its docstrings and its tables:
`python docs/client_reference.py`.

A paragraph of a docstring whose lines begin with a name in backticks and two spaces is a table of arguments.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import penstock
from penstock import (
    AsyncConsumer,
    AsyncProducer,
    AsyncQueue,
    AsyncTopic,
    Consumer,
    Delivery,
    Message,
    PenstockError,
    Producer,
    Queue,
    QueueStopped,
    Receipt,
    Retry,
    Topic,
    Transaction,
    exponential,
    fixed,
    steps,
)
from penstock.client.delivery import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, CommitOrder
from penstock.client.profiles import BALANCED, LATENCY, THROUGHPUT
from penstock.client.retrying import handling, headers

PAGE = Path(__file__).with_name("client") / "reference.md"

HEAD = """\
# Reference of the Python client

Everything here is `from penstock import …`. The page is written by [client_reference.py](../client_reference.py),
from the docstrings and the tables of the code. [The tutorial](tutorial.md) shows how it is used. Times are in
seconds. A `Place` is a topic and a partition, as a tuple; a `Header` a name and bytes, or None.

- [Producer](#producer), [Delivery](#delivery), [Receipt](#receipt)
- [Consumer](#consumer), [Message](#message), [Transaction](#transaction)
- [Queue](#queue), [Topic](#topic)
- [Handlers, retries and dead letters](#handlers-retries-and-dead-letters)
- [asyncio](#asyncio)
- [What the names set](#what-the-names-set)
- [Exceptions](#exceptions)
"""

# What a program is meant to use of each class, in the order of a first reading.
MEMBERS: dict[type, Sequence[str]] = {
    Producer: ("send", "flush", "transaction", "settings", "close"),
    Delivery: ("result", "done", "exception", "add_done_callback"),
    Receipt: (),
    Consumer: (
        "messages",
        "poll",
        "stop",
        "stopping",
        "commit",
        "lag",
        "lags",
        "assignment",
        "seek",
        "seek_to_time",
        "pause",
        "resume",
        "also_read",
        "on_assign",
        "on_revoke",
        "on_lost",
        "transaction",
        "handler",
        "run",
        "settings",
        "close",
    ),
    Message: (
        "topic",
        "partition",
        "offset",
        "key",
        "value",
        "headers",
        "attempt",
        "header",
        "timestamp",
        "timestamp_ms",
        "size",
        "raw_key",
        "raw_value",
        "poison",
    ),
    Transaction: ("messages", "send"),
    Queue: ("put", "get", "stop", "close"),
    Topic: ("publish", "subscribe", "flush", "close"),
}
ASYNC: dict[type, tuple[type, Sequence[str]]] = {
    AsyncProducer: (Producer, ("send", "send_and_wait", "flush", "transaction", "settings", "close")),
    AsyncConsumer: (Consumer, MEMBERS[Consumer]),
    AsyncQueue: (Queue, MEMBERS[Queue]),
    AsyncTopic: (Topic, MEMBERS[Topic]),
}

HANDLERS = """
## Handlers, retries and dead letters

`@consumer.handler(…)` registers a function, and `consumer.run()` calls it with each message, until `stop()` or a
signal. A message is handled when the function returns. A `Retry` has a `Backoff`, which one of the functions below
makes.
"""

HANDLING = """
What fails waits in the topic `TOPIC.GROUP.retry.DELAY`, one for each delay of the policy, and is read from there when
it is due. What is not tried again goes to `TOPIC.GROUP.dlq`. These topics are made with as many partitions as the
origin; dead letters are kept for ever. Without `dead_letter`, what is not tried again ends `run()` with the
exception, and is read again next time. With `delivery="exactly-once"` the copy and the origin's offset are one
transaction, so nothing is parked twice or lost on the way; the handler itself may be called again with a message
after a crash, and what it sends is not part of that transaction: for that, read with
`consumer.transaction(producer)`. With `"at-most-once"` there are no retries.

A call that has not returned within `timeout` counts as failed, but Python can't end a function that hangs: it goes on
in its thread, beside its own retry, and may succeed after all. When eight hang at once, `run()` ends with
`UsageError`. A coroutine is cancelled. A retry topic lets go of what its group is done with, by a setting that
Penstock has (`retention.hold.group`). Apache Kafka does not: there it keeps everything, until somebody sets its
`retention.ms`.

Behind the headers that it was sent with, a message that waits or is a dead letter has these:
"""

HEADERS = {
    headers.ERROR: "what the exception says",
    headers.ERROR_TYPE: "its type",
    headers.STACK: f"its stack; of a long one, the last {headers.STACK_BYTES_MAX // 1024} KiB",
    headers.TOPIC: "where the message was: the topic",
    headers.PARTITION: "the partition",
    headers.OFFSET: "the offset",
    headers.TIMESTAMP: "its time, in milliseconds since 1970",
    headers.GROUP: "the group whose handler failed",
    headers.ATTEMPTS: "how often it was tried; 0 if it could not be read",
    headers.FIRST_FAILED_AT: "when it failed first, in UTC",
    headers.FAILED_AT: "when it failed last",
    headers.DUE_AT: "when it is tried again, in milliseconds since 1970; not in dead letters",
    headers.SOURCE: "topic/partition/offset that this copy was made of",
}

ASYNCIO = """
## asyncio

The same classes for a loop, with the same arguments. Messages and receipts are the same, too.
"""

NAMES = """
## What the names set

`delivery` and `profile` are sets of librdkafka's settings. What a delivery sets is its meaning: a setting that
contradicts it is refused. What a profile sets may be overridden, by `settings`. Besides, every producer has
`partitioner=murmur2_random`, which is how Java's clients choose partitions. The names have types, for annotations:
`DeliveryName` and `ProfileName`.
"""

COMMITS = {
    CommitOrder.BEFORE: "before messages are handed out, and waits for it",
    CommitOrder.AFTER: "behind what was processed, in the background",
    CommitOrder.IN_TRANSACTION: "in the transaction",
}

EXCEPTIONS = """
## Exceptions

All are `PenstockError`, but `QueueStopped`, which is no error. `str(error)` says what is wrong and what to do about
it; `error.hint` is the second part alone, `error.retriable` whether the same call may succeed later, and
`error.kafka_error` Kafka's name of the error, if it came from there. Nothing of confluent-kafka's own exceptions comes
through.

| exception | is also | retriable | when | what to do |
| --- | --- | --- | --- | --- |
"""


def render() -> str:
    return "".join(
        [
            HEAD,
            *(class_section(each) for each in MEMBERS),
            handlers_section(),
            asyncio_section(),
            names_section(),
            EXCEPTIONS,
            *(exception_row(each) for each in exceptions()),
        ]
    )


# ---- classes


def class_section(described: type) -> str:
    members = [(name, inspect.getattr_static(described, name)) for name in MEMBERS[described]]
    properties = [property_row(name, found) for name, found in members if isinstance(found, property)]
    table = f"\n| property | type | |\n| --- | --- | --- |\n{''.join(properties)}" if properties else ""
    methods = "".join(method(name, found) for name, found in members if not isinstance(found, property))
    return f"\n## {described.__name__}\n{opening(described)}\n{prose(described).rstrip()}\n{table}{methods}"


def opening(described: type) -> str:
    """How one is made, if that is for programs to do."""
    if described in (Delivery, Message, Transaction):
        return ""
    return f"\n`{described.__name__}{signature(described)}`\n"


def property_row(name: str, found: property) -> str:
    meaning = (inspect.getdoc(found) or "").replace("\n", " ")
    return line(f"`{name}`", escaped(returns(found.fget)), escaped(meaning))


def method(name: str, found: Any) -> str:
    result = returns(found)
    if hasattr(found, "__wrapped__"):  # a context manager
        result = f"a context manager of `{result.strip('`').partition('[')[2].rstrip(']')}`"
    arrow = f" → {result}" if result not in ("", "`None`") else ""
    return f"\n**`{name}{signature(found)}`**{arrow}\n\n{prose(found).rstrip()}\n"


def signature(function: Callable[..., Any]) -> str:
    """With defaults and without types: those are in the code, and an editor shows them."""
    found = inspect.signature(handling._options if function is Consumer.handler else function)
    kept = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in found.parameters.values()
        if each.name not in ("self", "consumer")
    ]
    text = str(found.replace(parameters=kept, return_annotation=inspect.Signature.empty))
    return text.replace("'", '"').replace("<factory>", "exponential()").replace('<class "Exception">', "Exception")


def returns(function: Any) -> str:
    text = str(inspect.signature(function).return_annotation)
    if text == str(inspect.Signature.empty):
        return ""
    text = re.sub(r"\[K, V\]|\[Any, Any\]", "", text)
    return f"`{text}`"


def prose(described: Any, source: Any = None) -> str:
    """A docstring as paragraphs, and lists of arguments as tables."""
    text = inspect.getdoc(described)
    assert text, f"{described} has no docstring"
    return "".join(f"{paragraph(each, source or described)}\n" for each in text.split("\n\n"))


def paragraph(text: str, described: Any) -> str:
    rows = re.findall(r"^`(\w+)`  +(\S.*)$", text, re.M)
    if not rows:
        return f"{text}\n"
    parameters: Mapping[str, inspect.Parameter] = inspect.signature(described).parameters
    lead = text.partition("\n`")[0] if not text.startswith("`") else ""
    lines = [line(f"`{name}`", default(parameters[name]), escaped(meaning)) for name, meaning in rows]
    return f"{lead}\n| argument | default | |\n| --- | --- | --- |\n{''.join(lines)}".lstrip("\n")


def default(parameter: inspect.Parameter) -> str:
    if parameter.default in (inspect.Parameter.empty, "", ()):
        return ""
    return f"`{parameter.default!r}`".replace("'", '"')


# ---- handlers


def handlers_section() -> str:
    text = inspect.getdoc(handling.register)
    assert text
    options = paragraph(text.split("\n\n")[1], handling._options)
    policies = "".join(
        f"\n**`{each.__name__}{signature(each)}`**\n\n{prose(each).rstrip()}\n"
        for each in (Retry, exponential, fixed, steps)
    )
    table = "".join(line(f"`{name}`", meaning) for name, meaning in HEADERS.items())
    return f"{HANDLERS}\n{options}{policies}{HANDLING}\n| header | |\n| --- | --- |\n{table}"


# ---- asyncio


def asyncio_section() -> str:
    return ASYNCIO + "".join(async_class(each, like, names) for each, (like, names) in ASYNC.items())


def async_class(described: type, like: type, names: Iterable[str]) -> str:
    awaited, plain = [], []
    for name in names:
        if not hasattr(described, name):
            continue
        found = inspect.getattr_static(described, name)
        if isinstance(found, property):
            plain.append(f"`{name}`")
        elif inspect.iscoroutinefunction(found):
            awaited.append(f"`{name}{signature(found)}`")
        else:
            plain.append(f"`{name}{signature(found)}`")
    return (
        f"\n### {described.__name__}\n\n{prose(described)}"
        f"Awaited: {', '.join(awaited)}.\n\nNot awaited: {', '.join(plain)}.\n"
    )


# ---- tables


def names_section() -> str:
    modes = (AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE)
    profiles = (LATENCY, BALANCED, THROUGHPUT)
    deliveries = table("producer", [(each.name, {**each.producer, **each.producer_usual}) for each in modes])
    deliveries += table("consumer", [(each.name, each.consumer) for each in modes])
    commits = line("the consumer commits", *(COMMITS[each.commit_order] for each in modes))
    costs = table("producer", [(each.name, each.producer) for each in profiles])
    costs += table("consumer", [(each.name, each.consumer) for each in profiles])
    taken = line("messages taken at once, at most", *(f"{each.batch_messages_max:,}" for each in profiles))
    return (
        f"{NAMES}\n### Deliveries\n\n{heads('delivery', modes)}{deliveries}{commits}"
        "\nAn exactly-once producer has a `transactional.id` besides: `transactional_id`, or a unique one. Its "
        "`transaction.timeout.ms` may be overridden: what a killed process left open hides what is behind it as long.\n"
        f"\n### Profiles\n\n{heads('profile', profiles)}{costs}{taken}"
        "\nEmpty: librdkafka's own default.\n"
    )


def heads(what: str, columns: Sequence[Any]) -> str:
    return line(f"setting by {what}", *(f"`{each.name}`" for each in columns)) + line(*["---"] * (len(columns) + 1))


def table(client: str, columns: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    names = list(dict.fromkeys(name for _, settings in columns for name in settings))
    return "".join(
        line(f"{client}: `{name}`", *(shown(settings[name]) if name in settings else "" for _, settings in columns))
        for name in names
    )


def shown(value: Any) -> str:
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


# ---- exceptions


def exceptions() -> list[type[BaseException]]:
    found = [getattr(penstock, name) for name in penstock.__all__]
    return [
        each
        for each in found
        if isinstance(each, type) and issubclass(each, (PenstockError, QueueStopped)) and each is not PenstockError
    ]


def exception_row(error: type[BaseException]) -> str:
    text = inspect.getdoc(error)
    assert text
    when, _, remedy = text.partition("\n\n")
    assert remedy, f"{error.__name__} does not say what to do"
    others = ", ".join(f"`{base.__name__}`" for base in error.__bases__ if base is not PenstockError)
    one_line = [escaped(each).replace("\n", " ") for each in (when, remedy)]
    return line(f"`{error.__name__}`", others, "yes" if getattr(error, "retriable", False) else "", *one_line)


def escaped(text: str) -> str:
    return text.replace("|", "\\|")


def line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(render())
