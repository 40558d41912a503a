"""Kafka's tools for the cluster, and clean refusals of what a broker does not do, or not alone."""

from __future__ import annotations

import json

from interop.checks import check
from interop.site import Site

NOT_SERVED = "UnsupportedVersionException|does not support|SecurityDisabled|not supported|UNSUPPORTED"


@check("kafka-broker-api-versions")
def lists_what_is_served(site: Site) -> None:
    listed = site.kafka("kafka-broker-api-versions").expect(r"\(id: 1 rack: ")
    for api in ("Produce", "Fetch", "Metadata", "OffsetCommit", "JoinGroup", "CreateTopics", "InitProducerId"):
        listed.shows(rf"\b{api}\(\d+\): \d+ to \d+ \[usable: \d+\]")


@check("kafka-cluster")
def tells_its_id_and_its_nodes(site: Site) -> None:
    address = ("--bootstrap-server", site.address)
    site.kafka("kafka-cluster", "cluster-id", *address).expect(r"Cluster ID: \S+")
    site.kafka("kafka-cluster", "list-endpoints", *address).expect(rf"127\.0\.0\.1\s+{site.peer.port}")


@check("kafka-features")
def describes_features(site: Site) -> None:
    site.kafka("kafka-features", "describe").expect().lacks("Exception")


@check("kafka-transactions")
def describes_idempotent_producers(site: Site) -> None:
    topic = site.filled_topic(5)  # the console producer is idempotent
    described = site.kafka("kafka-transactions", "describe-producers", "--topic", topic, "--partition", "0")
    described.expect(r"ProducerId\s+ProducerEpoch", r"^\s*\d+\s+0\s+")


@check("kafka-metadata-quorum")
def is_refused_cleanly(site: Site) -> None:
    site.kafka("kafka-metadata-quorum", "describe", "--status", timeout_s=40).shows(NOT_SERVED)


@check("kafka-acls")
def is_refused_cleanly_without_security(site: Site) -> None:
    site.kafka("kafka-acls", "--list", timeout_s=40).shows(NOT_SERVED)


@check("kafka-share-groups")
def share_groups_are_refused_cleanly(site: Site) -> None:
    site.kafka("kafka-share-groups", "--describe", "--group", "nobody", timeout_s=40).shows(
        f"{NOT_SERVED}|does not exist|not found"
    )


@check("kafka-reassign-partitions", of_cluster=False)
def moving_replicas_is_refused_cleanly(site: Site) -> None:
    topic = site.topic()
    plan = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [1]}]}
    file = site.file("plan.json", json.dumps(plan))
    site.kafka("kafka-reassign-partitions", "--list", timeout_s=40).shows(NOT_SERVED)
    arguments = ("--reassignment-json-file", str(file), "--execute")
    site.kafka("kafka-reassign-partitions", *arguments, timeout_s=40).shows(NOT_SERVED)


@check("kafka-leader-election", of_cluster=False)
def electing_is_refused_cleanly(site: Site) -> None:
    arguments = ("--election-type", "preferred", "--topic", site.topic(), "--partition", "0")
    site.kafka("kafka-leader-election", *arguments, timeout_s=40).shows(NOT_SERVED)


@check("kafka-client-compatibility")
def passes_kafkas_own_compatibility_test(site: Site) -> None:
    answers = {
        "offsets-for-times-supported": "True",
        "cluster-id-supported": "True",
        "expect-record-too-large-exception": "False",
        "num-cluster-nodes": str(site.brokers),
        "create-topics-supported": "True",
        "describe-acls-supported": "False",
        "describe-configs-supported": "True",
        "idempotent-producer-supported": "True",
    }
    arguments = [word for name, value in answers.items() for word in (f"--{name}", value)]
    site.kafka("kafka-client-compatibility", "--topic", site.topic(), *arguments).expect("SUCCESS")
