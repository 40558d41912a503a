"""Kafka's own transactional producer and its tools for transactions.

The Java client uses transactions of version 2 (KIP-890) with a broker that announces them. That shows from outside: the
producer's epoch rises with every transaction, where a client of version 1 keeps its epoch.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from interop.checks import check
from interop.groups import until
from interop.languages import go_program
from interop.site import Failed, Output, Site

CALL_TIMEOUT_S = 20.0
COPIED = 3_000
TRANSACTION_SIZE = 50
FRANZ_BATCH_MAX = 200
DONE = '"stage":"ShutdownComplete".*"remaining":0'


def transactions(site: Site, *arguments: str) -> Output:
    return site.kafka("kafka-transactions", *arguments)


def described(site: Site, identity: str) -> dict[str, str]:
    """The columns of `describe`: the heading's words, and what stands under them."""
    output = transactions(site, "describe", "--transactional-id", identity).expect("CoordinatorId")
    heading, values = (line.split("\t") for line in output.lines()[:2])
    return {name.strip(): value.strip() for name, value in itertools.zip_longest(heading, values, fillvalue="")}


def perf_test(site: Site, topic: str, identity: str, records: int) -> Output:
    load = ("--topic", topic, "--num-records", str(records), "--record-size", "100", "--throughput", "2000")
    transaction = ("--transactional-id", identity, "--transaction-duration-ms", "100")
    properties = ("--command-property", f"bootstrap.servers={site.address}")
    return site.kafka("kafka-producer-perf-test", *load, *transaction, *properties)


@contextmanager
def open_transaction(site: Site, topic: str, identity: str) -> Iterator[Producer]:
    """A message of it is in the topic, and nobody has decided."""
    producer = Producer({"bootstrap.servers": site.address, "transactional.id": identity, "log_level": 0})
    producer.init_transactions(CALL_TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"undecided", partition=0)
    producer.flush(CALL_TIMEOUT_S)
    yield producer


def committed(site: Site, topic: str, messages: int) -> Output:
    return site.consume(topic, "--from-beginning", "--isolation-level", "read_committed", messages=messages)


# ---- the Java producer


@check("kafka-producer-perf-test")
def sends_in_transactions_of_version_2(site: Site) -> None:
    topic, identity, records = site.topic(partitions=3), site.fresh("perf"), 2_000
    perf_test(site, topic, identity, records).expect(rf"{records} records sent")
    state = described(site, identity)
    if state["TransactionState"] not in ("CompleteCommit", "PrepareCommit"):
        raise Failed(f"all its transactions were committed, yet it is {state}")
    if int(state["ProducerEpoch"]) < 5:
        raise Failed(f"the epoch of version 2 rises with each of about ten transactions, but it is {state}")
    committed(site, topic, records).expect(f"Processed a total of {records} messages")
    site.kafka("kafka-get-offsets", "--topic", topic).expect(rf"^{topic}:0:\d+$")


@check("kafka-console-consumer")
def reads_what_was_committed_and_no_more(site: Site) -> None:
    topic = site.filled_topic(3)
    with open_transaction(site, topic, site.fresh("undecided")) as producer:
        site.consume(topic, "--from-beginning", messages=4).expect().equals(["m1", "m2", "m3", "undecided"])
        committed(site, topic, 3).expect().equals(["m1", "m2", "m3"])
        producer.abort_transaction(CALL_TIMEOUT_S)
    site.kafka("kafka-console-producer", "--topic", topic, typed="m4\n").expect()
    committed(site, topic, 4).expect().equals(["m1", "m2", "m3", "m4"])


# ---- read, process, write


def copier(site: Site, source: str, target: str, group: str, identity: str) -> tuple[str, ...]:
    places = ("--input-topic", source, "--input-partition", "0", "--output-topic", target)
    who = ("--consumer-group", group, "--transactional-id", identity, "--transaction-size", str(TRANSACTION_SIZE))
    return ("kafka-transactional-copier", "--broker-list", site.address, *places, *who, "--use-group-metadata")


def check_copy(site: Site, source: str, target: str, group: str) -> None:
    read = committed(site, target, COPIED + 1)  # one more than there may be: it ends when none comes
    if sorted(map(int, read.lines())) != list(range(COPIED)):
        raise read.failure(f"each of {COPIED} messages once, not {len(read.lines())}")
    place = site.kafka("kafka-consumer-groups", "--describe", "--group", group)
    place.expect(rf"{group}\s+{source}\s+0\s+{COPIED}\s+{COPIED}\s+0\s")


@check("kafka-transactional-copier")
def copies_exactly_once_although_transactions_are_aborted_at_random(site: Site) -> None:
    source, target, group, identity = site.topic(), site.topic(), site.fresh("group"), site.fresh("copier")
    site.kafka("kafka-verifiable-producer", "--topic", source, "--max-messages", str(COPIED)).expect()
    command = (*copier(site, source, target, group, identity), "--enable-random-aborts")
    copied = site.kafka(*command).expect(DONE)
    if len(copied.lines()) <= COPIED // TRANSACTION_SIZE + 1:
        raise copied.failure("some of its transactions should have been aborted")
    check_copy(site, source, target, group)
    if int(described(site, identity)["ProducerEpoch"]) < COPIED // TRANSACTION_SIZE:
        raise Failed(f"{COPIED // TRANSACTION_SIZE} transactions were committed, each with an epoch of its own")


@check("kafka-transactional-copier")
def goes_on_where_it_was_killed(site: Site) -> None:
    """Twice in the middle, with a transaction open; the third time it comes to the end."""
    source, target, group, identity = site.topic(), site.topic(), site.fresh("group"), site.fresh("copier")
    site.kafka("kafka-verifiable-producer", "--topic", source, "--max-messages", str(COPIED)).expect()
    command = copier(site, source, target, group, identity)
    for _ in range(2):
        with site.background(*command) as process:
            assert process.stdout is not None
            seen = sum('"consumed"' in line for line in itertools.islice(process.stdout, 12))
            process.kill()
        if not seen:
            raise Failed("it was killed before it had copied anything")
    site.kafka(*command).expect(DONE)
    check_copy(site, source, target, group)


@check("kafka-transactional-copier")
def copies_as_a_member_of_a_group(site: Site) -> None:
    source, target, group = site.topic(), site.topic(), site.fresh("group")
    site.kafka("kafka-verifiable-producer", "--topic", source, "--max-messages", str(COPIED)).expect()
    site.kafka(*copier(site, source, target, group, site.fresh("copier")), "--group-mode").expect(DONE)
    check_copy(site, source, target, group)


@check("Go franz-go")
def copies_in_transactions_of_version_2(site: Site) -> None:
    source, target, group, identity = site.topic(), site.topic(), site.fresh("group"), site.fresh("copier")
    program = go_program(site, "copier")
    site.kafka("kafka-verifiable-producer", "--topic", source, "--max-messages", str(COPIED)).expect()
    site.run(program, site.address, source, target, group, identity, "range", str(COPIED), "10000").expect("^ok$")
    read = committed(site, target, COPIED + 1)
    read.equals([f"copy of {number}" for number in range(COPIED)])
    if int(described(site, identity)["ProducerEpoch"]) < COPIED // FRANZ_BATCH_MAX:
        raise Failed("every transaction has an epoch of its own")


# ---- the tool for transactions


@check("kafka-transactions")
def lists_and_describes_transactions(site: Site) -> None:
    topic, identity = site.topic(), site.fresh("described")
    with open_transaction(site, topic, identity) as producer:
        transactions(site, "list").expect(rf"^{identity}\s+\d+\s+\d+\s+Ongoing")
        transactions(site, "list", "--transactional-id-pattern", f"{identity}.*").expect(rf"^{identity}\s")
        transactions(site, "list", "--transactional-id-pattern", "nobody.*").expect().lacks(identity)
        transactions(site, "list", "--duration-filter", "600000").expect().lacks(identity)
        state = described(site, identity)
        if state["TransactionState"] != "Ongoing" or state["TopicPartitions"] != f"{topic}-0":
            raise Failed(f"an open transaction in {topic}-0, not {state}")
        producers = transactions(site, "describe-producers", "--topic", topic, "--partition", "0")
        producers.expect(r"CurrentTransactionStartOffset", rf"^{state['ProducerId']}\s.*\s0\s*$")
        producer.commit_transaction(CALL_TIMEOUT_S)
    until(lambda: transactions(site, "list"), rf"^{identity}\s+\d+\s+\d+\s+CompleteCommit")
    transactions(site, "describe", "--transactional-id", "nobody").shows("the ID could not be found")


@check("kafka-transactions")
def finds_no_hanging_transactions_where_there_are_none(site: Site) -> None:
    topic = site.topic()
    with open_transaction(site, topic, site.fresh("long")) as producer:
        found = transactions(site, "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")
        if re.search(rf"^{topic}\s", found.expect("Topic\\s+Partition").out, re.MULTILINE):
            raise found.failure("its coordinator knows of this one: it does not hang")
        producer.abort_transaction(CALL_TIMEOUT_S)


@check("kafka-transactions")
def aborts_a_transaction_by_its_place(site: Site) -> None:
    topic = site.filled_topic(2)
    with open_transaction(site, topic, site.fresh("aborted")):
        transactions(site, "abort", "--topic", topic, "--partition", "0", "--start-offset", "2").expect()
        site.kafka("kafka-console-producer", "--topic", topic, typed="m3\n").expect()
        committed(site, topic, 3).expect().equals(["m1", "m2", "m3"])
    transactions(site, "abort", "--topic", topic, "--partition", "0", "--start-offset", "1").shows(
        "Could not find any open transactions"
    )


@check("kafka-transactions")
def terminates_a_transaction_by_its_id(site: Site) -> None:
    topic, identity = site.filled_topic(2), site.fresh("terminated")
    with open_transaction(site, topic, identity):
        transactions(site, "forceTerminateTransaction", "--transactionalId", identity).expect()
        until(lambda: transactions(site, "list"), rf"^{identity}\s+\d+\s+\d+\s+(CompleteAbort|Empty)")
        site.kafka("kafka-console-producer", "--topic", topic, typed="m3\n").expect()
        committed(site, topic, 3).expect().equals(["m1", "m2", "m3"])
