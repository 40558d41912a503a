"""What only a cluster has, with Kafka's tools: replicas that move, leaders that are elected, brokers that die."""

from __future__ import annotations

import json
import re
import time
from collections import Counter

from interop.checks import check
from interop.performance import events
from interop.site import Output, Site

PATIENCE_S = 60.0
MESSAGES, RATE = 4_000, 500
BEFORE_IT_DIES_S = 4.0  # a JVM starts and some of the messages are sent


def placed_topic(site: Site, *replicas: int) -> str:
    """With ten messages, which may be led by any of them."""
    name = site.fresh("placed")
    assignment = ":".join(map(str, replicas))
    site.kafka("kafka-topics", "--create", "--topic", name, "--replica-assignment", assignment).expect()
    site.kafka("kafka-console-producer", "--topic", name, typed="".join(f"m{n}\n" for n in range(1, 11))).expect()
    return name


def described(site: Site, topic: str, *patterns: str) -> Output:
    """As soon as all of them are there."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        output = site.kafka("kafka-topics", "--describe", "--topic", topic)
        if time.monotonic() > deadline or all(re.search(pattern, output.text) for pattern in patterns):
            return output.expect(*patterns)


def move(site: Site, topic: str, *replicas: int) -> None:
    plan = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": list(replicas)}]}
    file = ("--reassignment-json-file", str(site.file("plan.json", json.dumps(plan))))
    executed = site.kafka("kafka-reassign-partitions", *file, "--execute", "--throttle", "50000000")
    executed.expect("Successfully started partition reassignment")
    deadline = time.monotonic() + PATIENCE_S
    while True:
        verified = site.kafka("kafka-reassign-partitions", *file, "--verify")
        if "still in progress" not in verified.text or time.monotonic() > deadline:
            break
    verified.expect(rf"Reassignment of partition {topic}-0 is completed", "Clearing topic-level throttles")


@check("kafka-reassign-partitions", of_cluster=True)
def moves_replicas_with_a_throttle(site: Site) -> None:
    topic = placed_topic(site, 1, 2)
    move(site, topic, 3, 2)
    described(site, topic, r"Replicas: 3,2\tIsr: (3,2|2,3)\t").lacks("throttled")
    site.kafka("kafka-reassign-partitions", "--list").expect().lacks(rf"{topic}-0")
    site.consume(topic, "--from-beginning", messages=10).expect().equals([f"m{n}" for n in range(1, 11)])


@check("kafka-reassign-partitions", of_cluster=True)
def proposes_a_plan_and_refuses_brokers_that_are_not_there(site: Site) -> None:
    topic = placed_topic(site, 1, 2)
    topics = site.file("topics.json", json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generate = ("--topics-to-move-json-file", str(topics), "--broker-list", "2,3", "--generate")
    site.kafka("kafka-reassign-partitions", *generate).expect(
        "Current partition replica assignment", "Proposed partition reassignment", r'"replicas":\[(2,3|3,2)\]'
    )
    plan = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [1, 99]}]}
    file = ("--reassignment-json-file", str(site.file("plan.json", json.dumps(plan))))
    site.kafka("kafka-reassign-partitions", *file, "--execute").shows("Unknown broker id|INVALID|does not exist")


@check("kafka-leader-election", of_cluster=True)
def the_preferred_leader_leads(site: Site) -> None:
    """Whether it is elected by the tool or, a moment before, by the controller."""
    topic = placed_topic(site, 1, 2, 3)
    move(site, topic, 2, 1, 3)
    elect = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    site.kafka("kafka-leader-election", *elect).expect("Successfully completed leader election|already elected")
    described(site, topic, r"Leader: 2\tReplicas: 2,1,3\t")


@check("kafka-topics", of_cluster=True)
def finds_nothing_that_lacks_a_replica(site: Site) -> None:
    topic = placed_topic(site, 3, 1, 2)
    described(site, topic, r"Replicas: 3,1,2\tIsr: (\d,?){3}\t")
    for lacking in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        site.kafka("kafka-topics", "--describe", "--topic", topic, lacking).expect().lacks("Partition:")


@check("kafka-verifiable-producer", alone=True, of_cluster=True)
def loses_nothing_when_the_leader_is_killed(site: Site) -> None:
    assert site.fleet is not None
    topic, victim = placed_topic(site, 3, 2, 1), site.fleet.members[3]
    limits = ("--topic", topic, "--max-messages", str(MESSAGES), "--throughput", str(RATE))
    patient = site.file("producer.properties", f"retries={2**31 - 1}\n")  # else this tool does not try twice
    with site.background("kafka-verifiable-producer", *limits, "--command-config", str(patient)) as producer:
        time.sleep(BEFORE_IT_DIES_S)
        victim.kill()
        printed, _ = producer.communicate(timeout=PATIENCE_S)
    victim.start()
    sent = Output("kafka-verifiable-producer", producer.returncode, printed, "").expect()
    happened = Counter(str(event["name"]) for event in events(sent))
    if happened["producer_send_success"] != MESSAGES or happened["producer_send_error"]:
        raise sent.failure(f"{MESSAGES} acknowledgements, not {dict(happened)}")
    site.kafka("kafka-get-offsets", "--topic", topic).expect(f"^{topic}:0:{MESSAGES + 10}$")
    described(site, topic, r"Isr: (\d,?){3}\t")
