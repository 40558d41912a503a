"""Kafka's clients with the rebalance protocol that the broker drives (KIP-848): `group.protocol=consumer`."""

from __future__ import annotations

import contextlib

from interop.checks import check
from interop.groups import groups, until
from interop.performance import events
from interop.site import Site

PROTOCOL = ("--command-property", "group.protocol=consumer")


@check("kafka-console-consumer")
def joins_a_group_of_the_new_protocol(site: Site) -> None:
    topic, group = site.filled_topic(10, partitions=2), site.fresh("group")
    read = site.consume(topic, "--group", group, "--from-beginning", *PROTOCOL, messages=10).expect()
    if sorted(read.lines()) != sorted(f"m{number}" for number in range(1, 11)):
        raise read.failure("each of ten messages once")
    groups(site, "--list", "--state", "--type").expect(rf"{group}\s+Consumer\s+Empty")
    site.consume(topic, "--group", group, *PROTOCOL, messages=1).shows("Processed a total of 0 messages")


@check("kafka-consumer-groups")
def describes_a_group_of_the_new_protocol(site: Site) -> None:
    topic, group = site.filled_topic(10, partitions=4), site.fresh("group")
    consume = ("--topic", topic, "--group", group, "--from-beginning", *PROTOCOL)
    with contextlib.ExitStack() as members:
        for _ in range(2):
            members.enter_context(site.background("kafka-console-consumer", *consume))
        until(lambda: groups(site, "--describe", "--group", group, "--state"), rf"{group}.*uniform\s+Stable\s+2")
        described = groups(site, "--describe", "--group", group, "--members", "--verbose")
        described.expect(rf"{group}\s.*{topic}:\d,\d", "consumer")
    until(lambda: groups(site, "--describe", "--group", group, "--state"), "Empty")


@check("kafka-verifiable-consumer")
def every_message_is_consumed_once_with_the_new_protocol(site: Site) -> None:
    for assignor in ("uniform", "range"):
        topic, group, count = site.topic(partitions=3), site.fresh("group"), 2_000
        site.kafka("kafka-verifiable-producer", "--topic", topic, "--max-messages", str(count)).expect()
        limits = ("--topic", topic, "--group-id", group, "--max-messages", str(count), "--verbose")
        protocol = ("--group-protocol", "CONSUMER", "--group-remote-assignor", assignor)
        read = site.kafka("kafka-verifiable-consumer", *limits, *protocol).expect("offsets_committed")
        values = [event["value"] for event in events(read) if event["name"] == "record_data"]
        if sorted(map(int, map(str, values))) != list(range(count)):
            raise read.failure(f"each of {count} messages once with the assignor {assignor}")


@check("kafka-consumer-perf-test", alone=True)
def reads_with_the_new_protocol(site: Site) -> None:
    topic, count = site.topic(partitions=6), 100_000
    load = ("--topic", topic, "--num-records", str(count), "--record-size", "100", "--throughput", "-1")
    site.kafka("kafka-producer-perf-test", *load, "--command-property", f"bootstrap.servers={site.address}").expect()
    consumer = site.file("consumer.properties", "group.protocol=consumer\n")
    arguments = ("--topic", topic, "--num-records", str(count), "--command-config", str(consumer))
    read = site.kafka("kafka-consumer-perf-test", *arguments).expect()
    if f" {count}, " not in read.out:
        raise read.failure(f"it should have read {count} records")
