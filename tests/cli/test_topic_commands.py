from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from penstock.cli.connection import Connection
from penstock.cli.topic import create

from .conftest import Finished

Penstock = Callable[..., Finished]


def fill(penstock: Penstock, topic: str, count: int, partition: int = 0) -> None:
    lines = "".join(f"message {number}\n" for number in range(count))
    sent = penstock("produce", topic, "--partition", str(partition), stdin=lines)
    assert sent.code == 0, sent.err


def bounds(penstock: Penstock, topic: str) -> list[tuple[int, int]]:
    described = penstock("topic", "describe", topic, "--json").json
    return [(row["start"], row["end"]) for row in described["partitions"]]


def test_a_topic_is_created_listed_described_and_deleted(penstock: Penstock) -> None:
    name = f"cli-{uuid.uuid4().hex[:12]}"
    created = penstock("topic", "create", name, "-p", "4", "-r", "1", "-c", "retention.ms=60000")
    assert (created.code, created.out) == (0, f"Created {name}: 4 partitions, 1 replica.\n")
    assert [row for row in penstock("topic", "list", "--json").json if row["topic"] == name] == [
        {"topic": name, "partitions": 4, "replicas": 1}
    ]
    described = penstock("topic", "describe", name, "--json").json
    assert [row["partition"] for row in described["partitions"]] == [0, 1, 2, 3]
    assert {"name": "retention.ms", "value": "60000", "source": "topic"} in described["settings"]
    deleted = penstock("topic", "delete", name, "--yes")
    assert (deleted.code, deleted.out) == (0, f"Deleted {name}.\n")
    assert name not in penstock("topic", "list").out


def test_the_list_is_a_table_without_the_brokers_own_topics(penstock: Penstock, topic: str) -> None:
    penstock("consume", topic, "--group", f"{topic}-group", "--no-follow")
    lines = penstock("topic", "list").out.splitlines()
    assert lines[0].split() == ["TOPIC", "PARTITIONS", "REPLICAS"]
    assert [topic, "3", "1"] in [line.split() for line in lines]
    assert "__consumer_offsets" not in penstock("topic", "list").out
    assert "__consumer_offsets" in penstock("topic", "list", "--internal").out


def test_a_description_counts_the_messages_of_each_partition(penstock: Penstock, topic: str) -> None:
    fill(penstock, topic, 5, partition=1)
    described = penstock("topic", "describe", topic)
    assert "MESSAGES    5" in described.out
    assert ["1", "0", "5", "5"] in [
        [cells[0], *cells[4:]] for line in described.out.splitlines() if (cells := line.split())
    ]


def test_an_existing_topic_is_refused_unless_that_is_fine(penstock: Penstock, topic: str) -> None:
    again = penstock("topic", "create", topic)
    assert again.code == 1
    assert "TOPIC_ALREADY_EXISTS" in again.err
    assert "--if-not-exists" in again.err
    fine = penstock("topic", "create", topic, "--if-not-exists", "--json")
    assert (fine.code, fine.json) == (0, {"created": [], "present": [topic]})


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (["-c", "retention.mss=5"], "Did you mean 'retention.ms'?"),
        (["-c", "retention.ms=soon"], "INVALID_CONFIG"),
        (["-r", "3"], "try fewer, or leave out -r"),
    ],
)
def test_a_topic_that_can_not_be_is_refused_with_advice(penstock: Penstock, options: list[str], advice: str) -> None:
    name = f"cli-{uuid.uuid4().hex[:12]}"
    refused = penstock("topic", "create", name, *options)
    assert refused.code == 1
    assert advice in refused.err
    assert name not in penstock("topic", "list").out


def test_one_bad_name_among_several_does_not_stop_the_others(penstock: Penstock) -> None:
    good = f"cli-{uuid.uuid4().hex[:12]}"
    both = penstock("topic", "create", good, "no/slashes")
    assert both.code == 1
    assert f"Created {good}" in both.out
    assert "can't create 'no/slashes'" in both.err
    penstock("topic", "delete", good, "--yes")


def test_an_unknown_topic_is_answered_with_a_near_miss(penstock: Penstock, topic: str) -> None:
    for arguments in (["topic", "describe"], ["produce"], ["consume"], ["topic", "delete", "--yes"]):
        unknown = penstock(*arguments, topic[:-1] + "_")
        assert unknown.code == 1
        assert f"Did you mean {topic!r}?" in unknown.err


def test_settings_are_set_and_unset_one_by_one(penstock: Penstock, topic: str) -> None:
    changed = penstock("topic", "alter", topic, "--set", "retention.ms=1000000", "--set", "cleanup.policy=compact")
    assert (changed.code, changed.out) == (0, "Set retention.ms to 1000000.\nSet cleanup.policy to compact.\n")
    assert penstock("topic", "alter", topic, "--unset", "cleanup.policy").code == 0
    settings = penstock("topic", "describe", topic, "--json").json["settings"]
    own = {entry["name"]: entry["value"] for entry in settings if entry["source"] == "topic"}
    assert own == {"retention.ms": "1000000"}


def test_a_misspelt_setting_is_answered_with_a_near_miss(penstock: Penstock, topic: str) -> None:
    refused = penstock("topic", "alter", topic, "--set", "cleanup.polcy=compact")
    assert refused.code == 1
    assert "Did you mean 'cleanup.policy'?" in refused.err


def test_partitions_can_be_added_and_not_removed(penstock: Penstock, topic: str) -> None:
    assert penstock("topic", "alter", topic, "--partitions", "5").out == f"{topic} has 5 partitions now, from 3.\n"
    fewer = penstock("topic", "alter", topic, "--partitions", "2")
    assert fewer.code == 1
    assert "can't be removed" in fewer.err


def test_truncation_before_an_offset_touches_one_partition(penstock: Penstock, topic: str) -> None:
    fill(penstock, topic, 10, partition=0)
    fill(penstock, topic, 10, partition=1)
    cut = penstock("topic", "truncate", topic, "--partition", "1", "--before-offset", "4", "--yes", "--json")
    assert cut.json["deleted"] == 4
    assert bounds(penstock, topic) == [(0, 10), (4, 10), (0, 0)]


def test_truncation_before_a_time_keeps_what_is_younger(penstock: Penstock, topic: str) -> None:
    fill(penstock, topic, 3)
    time.sleep(0.05)
    between_ms = int(time.time() * 1000)
    time.sleep(0.05)
    fill(penstock, topic, 2)
    cut = penstock("topic", "truncate", topic, "--before-time", f"@{between_ms}", "--yes")
    assert (cut.code, cut.out) == (0, f"Deleted 3 messages of {topic}.\n")
    assert bounds(penstock, topic)[0] == (3, 5)


def test_truncation_behind_the_end_is_refused(penstock: Penstock, topic: str) -> None:
    fill(penstock, topic, 3)
    cut = penstock("topic", "truncate", topic, "--before-offset", "100", "--yes")
    assert (cut.code, cut.out) == (1, "")
    assert "ends at offset 3" in cut.err
    assert bounds(penstock, topic)[0] == (0, 3)


def test_truncation_of_all_leaves_an_empty_topic_that_goes_on(penstock: Penstock, topic: str) -> None:
    fill(penstock, topic, 3)
    assert penstock("topic", "truncate", topic, "--all", "--yes").code == 0
    assert bounds(penstock, topic)[0] == (3, 3)
    fill(penstock, topic, 1)
    assert penstock("consume", topic, "--no-follow").out == "message 0\n"


def test_what_destroys_asks_first(penstock: Penstock, topic: str) -> None:
    fill(penstock, topic, 1)
    for arguments in (["topic", "delete", topic], ["topic", "truncate", topic, "--all"]):
        unasked = penstock(*arguments)
        assert unasked.code == 2
        assert "--yes" in unasked.err
    assert bounds(penstock, topic)[0] == (0, 1)


def test_a_broker_that_is_told_of_a_new_topic_late_is_asked_again() -> None:
    made = SimpleNamespace(partitions={0: SimpleNamespace(replicas=[1, 2, 3])})
    answers = iter([{}, {"t": SimpleNamespace(partitions={})}, {"t": made}])
    admin = SimpleNamespace(list_topics=lambda timeout: SimpleNamespace(topics=next(answers)))
    shapes = create._shapes(cast(Connection, SimpleNamespace(admin=admin)), ["t"])
    assert shapes == {"t": {"partitions": 1, "replicas": 3}}


def test_nothing_is_altered_if_the_partitions_can_t_be(penstock: Penstock, topic: str) -> None:
    for count, problem in (("1", "partitions can't be removed"), ("100001", "are too many")):
        refused = penstock("topic", "alter", topic, "--set", "retention.ms=5", "--partitions", count)
        assert refused.code != 0
        assert problem in refused.err
    settings = penstock("topic", "describe", topic, "--json").json["settings"]
    assert "retention.ms" not in [each["name"] for each in settings]


def test_more_than_any_broker_takes_is_refused_in_a_sentence(penstock: Penstock) -> None:
    for option in ("-p", "-r"):
        refused = penstock("topic", "create", "too-much", option, "100000000")
        assert refused.code == 2
        assert "100000000" in refused.err
        assert "Traceback" not in refused.err


def test_what_groups_have_stored_is_neither_deleted_nor_spread_anew(penstock: Penstock, topic: str) -> None:
    penstock("consume", topic, "--group", f"{topic}-group", "--no-follow")
    before = len(penstock("topic", "describe", "__consumer_offsets", "--json").json["partitions"])
    for command in (["delete", "__consumer_offsets", "--yes"], ["alter", "__consumer_offsets", "--partitions", "60"]):
        assert penstock("topic", *command).code != 0
    assert len(penstock("topic", "describe", "__consumer_offsets", "--json").json["partitions"]) == before
