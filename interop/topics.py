"""Kafka's tools for topics: their partitions, settings, offsets and files."""

from __future__ import annotations

import json

from interop.checks import check
from interop.site import Site

HOUR_MS, DAY_MS = "3600000", "86400000"


@check("kafka-topics")
def creates_describes_and_lists(site: Site) -> None:
    name = site.fresh("topic")
    site.kafka(
        "kafka-topics", "--create", "--topic", name, "--partitions", "3", "--config", f"retention.ms={HOUR_MS}"
    ).expect(f"Created topic {name}")
    described = site.kafka("kafka-topics", "--describe", "--topic", name)
    described.expect("PartitionCount: 3", f"retention.ms={HOUR_MS}", "TopicId: [A-Za-z0-9_-]{22}")
    if site.fleet is None:
        described.expect("ReplicationFactor: 1", "Partition: 2\tLeader: 1", "Replicas: 1\tIsr: 1")
    site.kafka("kafka-topics", "--list").expect(f"^{name}$")


@check("kafka-topics")
def refuses_what_kafka_refuses(site: Site) -> None:
    name = site.topic()
    create = ("--create", "--topic")
    site.kafka("kafka-topics", *create, name).shows(f"Topic '{name}' already exists")
    site.kafka("kafka-topics", *create, name, "--if-not-exists").expect()
    too_many = ("--replication-factor", str(site.brokers + 1))
    site.kafka("kafka-topics", *create, site.fresh("t"), *too_many).shows("InvalidReplicationFactor")
    site.kafka("kafka-topics", *create, site.fresh("t"), "--config", "segment.bytes=-5").shows(
        "InvalidConfig|Invalid value"
    )
    site.kafka("kafka-topics", *create, "no/slashes").shows("is illegal|invalid")
    site.kafka("kafka-topics", "--describe", "--topic", "nobody-made-this").shows("does not exist")


@check("kafka-topics")
def adds_partitions(site: Site) -> None:
    name = site.filled_topic()
    site.kafka("kafka-topics", "--alter", "--topic", name, "--partitions", "4").expect()
    site.kafka("kafka-topics", "--describe", "--topic", name).expect("PartitionCount: 4")
    site.kafka("kafka-topics", "--alter", "--topic", name, "--partitions", "2").shows("InvalidPartitions")
    site.kafka("kafka-get-offsets", "--topic", name).expect(f"^{name}:0:10$", f"^{name}:3:0$")


@check("kafka-topics")
def deletes_and_creates_again(site: Site) -> None:
    name = site.filled_topic()
    site.kafka("kafka-topics", "--delete", "--topic", name).expect()
    site.kafka("kafka-topics", "--list").expect().lacks(f"^{name}$")
    site.kafka("kafka-topics", "--create", "--topic", name).expect(f"Created topic {name}")
    site.kafka("kafka-get-offsets", "--topic", name).expect(f"^{name}:0:0$")
    site.kafka("kafka-topics", "--delete", "--topic", "nobody-made-this").shows("does not exist")


@check("kafka-configs")
def describes_and_alters_a_topic(site: Site) -> None:
    name = site.topic()
    entity = ("--entity-type", "topics", "--entity-name", name)
    add = ("--alter", "--add-config", f"retention.ms={DAY_MS},cleanup.policy=[compact,delete]")
    site.kafka("kafka-configs", *entity, *add).expect("Completed updating config")
    described = site.kafka("kafka-configs", *entity, "--describe")
    described.expect(f"retention.ms={DAY_MS} sensitive=false", f"DYNAMIC_TOPIC_CONFIG:retention.ms={DAY_MS}")
    described.expect("cleanup.policy=compact,delete")
    site.kafka("kafka-configs", *entity, "--alter", "--delete-config", "retention.ms").expect("Completed updating")
    site.kafka("kafka-configs", *entity, "--describe").expect().lacks("retention.ms=")
    site.kafka("kafka-configs", *entity, "--describe", "--all").expect("DEFAULT_CONFIG:log.segment.bytes=1073741824")
    site.kafka("kafka-configs", *entity, "--alter", "--add-config", "retention.ms=soon").shows(
        "InvalidConfig|Invalid value"
    )
    site.kafka("kafka-configs", *entity, "--alter", "--add-config", "no.such.setting=1").shows("Unknown topic config")


@check("kafka-configs")
def describes_and_alters_a_broker(site: Site) -> None:
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    everybody = ("--entity-type", "brokers", "--entity-default")
    site.kafka("kafka-configs", *broker, "--describe", "--all").expect("log.retention.hours=", "node.id=1")
    site.kafka("kafka-configs", *everybody, "--alter", "--add-config", "log.cleaner.backoff.ms=14000").expect(
        "Completed"
    )
    site.kafka("kafka-configs", *everybody, "--describe").expect("log.cleaner.backoff.ms=14000")
    site.kafka("kafka-configs", *broker, "--alter", "--add-config", "log.cleaner.backoff.ms=13000").expect("Completed")
    site.kafka("kafka-configs", *broker, "--describe").expect("DYNAMIC_BROKER_CONFIG:log.cleaner.backoff.ms=13000")
    for entity in (broker, everybody):
        site.kafka("kafka-configs", *entity, "--alter", "--delete-config", "log.cleaner.backoff.ms").expect("Completed")
    site.kafka("kafka-configs", *broker, "--alter", "--add-config", "node.id=7").shows("Cannot update these configs")


@check("kafka-get-offsets")
def finds_the_ends_and_the_newest(site: Site) -> None:
    name = site.filled_topic(7)
    site.kafka("kafka-get-offsets", "--topic", name).expect(f"^{name}:0:7$")
    site.kafka("kafka-get-offsets", "--topic", name, "--time", "earliest").expect(f"^{name}:0:0$")
    site.kafka("kafka-get-offsets", "--topic", name, "--time", "max-timestamp").expect(f"^{name}:0:[0-6]$")
    site.kafka("kafka-get-offsets", "--topic", name, "--time", "1000").expect(f"^{name}:0:0$")
    site.kafka("kafka-get-offsets", "--topic-partitions", f"{name}:0").expect(f"^{name}:0:7$")


@check("kafka-delete-records")
def moves_the_beginning(site: Site) -> None:
    name = site.filled_topic(10)
    wanted = {"partitions": [{"topic": name, "partition": 0, "offset": 6}], "version": 1}
    file = site.file("records.json", json.dumps(wanted))
    site.kafka("kafka-delete-records", "--offset-json-file", str(file)).expect(f"{name}-0\tlow_watermark: 6")
    site.kafka("kafka-get-offsets", "--topic", name, "--time", "earliest").expect(f"^{name}:0:6$")
    site.consume(name, "--from-beginning", messages=4).expect().equals(["m7", "m8", "m9", "m10"])
    wanted["partitions"][0]["offset"] = 99  # type: ignore[index]
    file = site.file("records.json", json.dumps(wanted))
    site.kafka("kafka-delete-records", "--offset-json-file", str(file)).shows("OffsetOutOfRange")


@check("kafka-log-dirs")
def says_how_large_a_partition_is(site: Site) -> None:
    name = site.filled_topic(10, partitions=2)
    output = site.kafka("kafka-log-dirs", "--describe", "--topic-list", name).expect()
    found = json.loads(next(line for line in output.lines() if line.startswith("{")))
    folder = found["brokers"][0]["logDirs"][0]
    sizes = {entry["partition"]: entry["size"] for entry in folder["partitions"]}
    if folder["error"] or set(sizes) != {f"{name}-0", f"{name}-1"} or sum(sizes.values()) < 70:
        raise output.failure("it should have the sizes of both partitions")


@check("kafka-dump-log")
def reads_our_segments(site: Site) -> None:
    name = site.filled_topic(10)
    site.consume(name, "--from-beginning", messages=10).expect()  # they are written by then
    segments = sorted(site.peer.data.rglob(f"{name}-0*/*.log"))
    if not segments:
        segments = sorted(file for file in site.peer.data.rglob("*.log") if name in str(file))
    dumped = site.kafka(
        "kafka-dump-log", "--deep-iteration", "--print-data-log", "--files", ",".join(map(str, segments))
    )
    dumped.expect("baseOffset: 0", "isvalid: true", "payload: m10").lacks("isvalid: false")
