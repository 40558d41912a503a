"""Kafka's load tools and its verifiable clients: what they send must arrive, each once and in order.

The figures are printed by the tools; none of them is a goal here, where a Java client shares the machine.
"""

from __future__ import annotations

import json
from collections import Counter

from bench.peers import penstock

from interop.checks import check
from interop.site import Output, Site


def events(output: Output) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.lines() if line.startswith("{")]


@check("kafka-producer-perf-test", alone=True)
def sends_and_the_consumer_test_reads(site: Site) -> None:
    topic, count = site.topic(partitions=6), 200_000
    arguments = ("--topic", topic, "--num-records", str(count), "--record-size", "200", "--throughput", "-1")
    properties = ("--producer-props", f"bootstrap.servers={site.address}", "acks=all", "compression.type=lz4")
    site.kafka("kafka-producer-perf-test", *arguments, *properties).expect(rf"{count} records sent, [\d.]+ records/sec")
    read = site.kafka("kafka-consumer-perf-test", "--topic", topic, "--num-records", str(count)).expect()
    if f" {count}, " not in read.out:
        raise read.failure(f"it should have read {count} records")


@check("kafka-e2e-latency", alone=True)
def measures_end_to_end(site: Site) -> None:
    arguments = (site.address, site.topic(), "2000", "all", "100")
    site.kafka("kafka-e2e-latency", *arguments).expect(r"Avg latency: [\d.]+ ms", "Percentiles: 50th = ")


@check("kafka-verifiable-producer")
def every_message_is_acknowledged_and_consumed_once(site: Site) -> None:
    topic, group, count = site.topic(partitions=3), site.fresh("group"), 5_000
    sent = site.kafka("kafka-verifiable-producer", "--topic", topic, "--max-messages", str(count)).expect()
    happened = Counter(str(event["name"]) for event in events(sent))
    if happened["producer_send_success"] != count or happened["producer_send_error"]:
        raise sent.failure(f"{count} acknowledgements, not {dict(happened)}")
    arguments = (
        "--topic",
        topic,
        "--group-id",
        group,
        "--max-messages",
        str(count),
        "--verbose",
        "--session-timeout",
        "10000",
    )
    read = site.kafka("kafka-verifiable-consumer", *arguments).expect()
    values = [event["value"] for event in events(read) if event["name"] == "record_data"]
    if sorted(map(int, map(str, values))) != list(range(count)):
        raise read.failure(f"each of {count} messages once, not {len(values)} and {len(set(values))} different ones")


@check("kafka-verifiable-producer")
def sends_without_and_with_one_acknowledgement(site: Site) -> None:
    for acks in ("0", "1"):
        topic = site.topic()
        plain = site.file("producer.properties", "enable.idempotence=false\n")
        arguments = ("--topic", topic, "--max-messages", "500", "--acks", acks, "--command-config", str(plain))
        site.kafka("kafka-verifiable-producer", *arguments).expect('"acked":500|"name":"tool_data"')
        site.kafka("kafka-get-offsets", "--topic", topic).expect(f"^{topic}:0:500$")


@check("kafka-verifiable-consumer")
def every_assignor_and_static_members_work(site: Site) -> None:
    topic = site.topic(partitions=4)
    site.kafka("kafka-verifiable-producer", "--topic", topic, "--max-messages", "400").expect()
    for assignor in ("RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor"):
        arguments = ("--topic", topic, "--group-id", site.fresh("group"), "--max-messages", "400")
        strategy = ("--assignment-strategy", f"org.apache.kafka.clients.consumer.{assignor}")
        static = ("--group-instance-id", site.fresh("static"), "--session-timeout", "10000")
        read = site.kafka("kafka-verifiable-consumer", *arguments, *strategy, *static).expect("offsets_committed")
        if sum(int(str(event["count"])) for event in events(read) if event["name"] == "records_consumed") < 400:
            raise read.failure(f"all 400 messages with the {assignor}")


@check("kafka-log-compaction-tester", alone=True, of_cluster=False)
def the_last_value_of_each_key_survives(site: Site) -> None:
    """On a broker of its own, where segments are small and compaction does not wait."""
    settings = {
        "log.segment.bytes": "1048576",
        "log.cleaner.backoff.ms": "300",
        "log.cleaner.min.cleanable.ratio": "0.1",
    }
    with penstock(site.work / "compacting", settings) as peer:
        arguments = ("--messages", "150000", "--duplicates", "5", "--percent-deletes", "10", "--sleep", "5")
        tested = Site(peer, site.work).kafka("kafka-log-compaction-tester", *arguments, timeout_s=180)
        tested.expect(r"\([1-9][\d.]*% reduction\)", r"Validated [1-9]\d* values, 0 mismatches")
