"""Kafka's tools for consumer groups: their members, their lag, and where they stand."""

from __future__ import annotations

import time

from interop.checks import check
from interop.site import Failed, Output, Site

SETTLE_S = 30.0


def group_at(site: Site, topic: str, messages: int) -> str:
    """An empty group that has read so many."""
    group = site.fresh("group")
    site.consume(topic, "--group", group, "--from-beginning", messages=messages).expect()
    return group


def groups(site: Site, *arguments: str) -> Output:
    return site.kafka("kafka-consumer-groups", *arguments)


def reset(site: Site, group: str, topic: str, *how: str) -> Output:
    return groups(site, "--reset-offsets", "--group", group, "--topic", topic, *how, "--execute").expect()


@check("kafka-consumer-groups")
def lists_and_describes(site: Site) -> None:
    topic = site.filled_topic(10)
    group = group_at(site, topic, 4)
    groups(site, "--list").expect(f"^{group}$")
    groups(site, "--list", "--state", "--type").expect(rf"{group}\s+Classic\s+Empty")
    groups(site, "--describe", "--group", group).expect(rf"{group}\s+{topic}\s+0\s+4\s+10\s+6\s")
    groups(site, "--describe", "--group", group, "--state").expect(rf"{group}.*Empty\s+0")
    groups(site, "--describe", "--group", "nobody").shows("does not exist|GroupIdNotFound")


@check("kafka-consumer-groups")
def describes_members_at_work(site: Site) -> None:
    topic, group = site.filled_topic(10, partitions=2), site.fresh("group")
    consume = ("--topic", topic, "--group", group, "--from-beginning", "--command-property", "client.id=worker")
    with site.background("kafka-console-consumer", *consume):
        until(lambda: groups(site, "--describe", "--group", group, "--state"), "Stable", "range")
        members = groups(site, "--describe", "--group", group, "--members", "--verbose")
        members.expect(rf"{group}\s+worker-\S+\s+/?127.0.0.1\s+worker\s+2", f"{topic}:0,1")
        until(lambda: groups(site, "--describe", "--group", group), rf"{topic}\s+1\s+\d+\s+\d+\s+0\s+worker-")
        groups(site, "--delete", "--group", group).shows("GroupNotEmpty|not empty|is not empty")
        groups(site, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute").shows(
            "inactive"
        )
    until(lambda: groups(site, "--describe", "--group", group, "--state"), "Empty")


def until(look: object, *patterns: str) -> None:
    """Groups take a moment to settle, here as with Kafka."""
    assert callable(look)
    deadline = time.monotonic() + SETTLE_S
    while True:
        try:
            look().shows(*patterns)
            return
        except Failed:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


@check("kafka-consumer-groups")
def resets_offsets_in_every_way(site: Site) -> None:
    topic = site.filled_topic(10)
    group = group_at(site, topic, 4)
    moved = rf"{group}\s+{topic}\s+0\s+"
    reset(site, group, topic, "--to-earliest").shows(moved + "0")
    reset(site, group, topic, "--to-offset", "5").shows(moved + "5")
    reset(site, group, topic, "--shift-by", "2").shows(moved + "7")
    reset(site, group, topic, "--to-current").shows(moved + "7")
    reset(site, group, topic, "--by-duration", "PT1H").shows(moved + "0")
    reset(site, group, topic, "--to-datetime", "2020-01-01T00:00:00.000").shows(moved + "0")
    reset(site, group, topic, "--to-latest").shows(moved + "10")
    file = site.file("offsets.csv", f'"{topic}",0,3\n')
    groups(site, "--reset-offsets", "--group", group, "--from-file", str(file), "--execute").expect(moved + "3")
    site.consume(topic, "--group", group, messages=2).expect().equals(["m4", "m5"])


@check("kafka-consumer-groups")
def deletes_offsets_and_groups(site: Site) -> None:
    one, two = site.filled_topic(3), site.filled_topic(3)
    group = group_at(site, one, 3)
    site.consume(two, "--group", group, "--from-beginning", messages=3).expect()
    groups(site, "--delete-offsets", "--group", group, "--topic", one).expect("Request succeed|Successful")
    groups(site, "--describe", "--group", group).expect(two).lacks(rf"\s{one}\s")
    groups(site, "--delete", "--group", group).expect("was successful")
    groups(site, "--list").expect().lacks(f"^{group}$")
    groups(site, "--delete", "--group", group).shows("GroupIdNotFound|does not exist|not found")


@check("kafka-groups")
def lists_groups_of_every_type(site: Site) -> None:
    group = group_at(site, site.filled_topic(1), 1)
    site.kafka("kafka-groups", "--list").expect(rf"{group}\s+Classic\s+consumer")
    site.kafka("kafka-groups", "--list", "--group-type", "share").expect().lacks(group)


@check("kafka-streams-application-reset")
def moves_an_applications_input_to_its_beginning(site: Site) -> None:
    topic = site.filled_topic(5)
    group = group_at(site, topic, 5)
    arguments = ("--application-id", group, "--input-topics", topic, "--force")
    site.kafka("kafka-streams-application-reset", *arguments).expect(f"Topic: {topic} Partition: 0 Offset: 0|{topic}")
    groups(site, "--describe", "--group", group).expect(rf"{group}\s+{topic}\s+0\s+0\s+5\s+5")
