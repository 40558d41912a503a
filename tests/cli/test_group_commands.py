from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer

from .conftest import Finished, clean_environment, command

Penstock = Callable[..., Finished]

# One after the other, of a log of ten.
OFFSETS_AFTER = {
    "--to start": 0,
    "--shift 3": 3,
    "--shift -2": 1,
    "--to end": 10,
    "--shift -100": 0,
    "--shift 100": 10,
    "--to -2": 8,
    "--to 1h": 0,
    "--to 5": 5,
}


@pytest.fixture
def group(penstock: Penstock, topic: str) -> Iterator[str]:
    """A group that has read six of ten messages, all in partition 0, and left."""
    penstock("produce", topic, "-p", "0", stdin="".join(f"{number}\n" for number in range(10)))
    name = f"{topic}-group"
    assert penstock("consume", topic, "--group", name, "-n", "6").out.split() == list("012345")
    yield name
    penstock("group", "delete", name, "--yes")


def committed(penstock: Penstock, group: str) -> dict[int, int | None]:
    described = penstock("group", "describe", group, "--json").json
    return {row["partition"]: row["committed"] for row in described["partitions"]}


@pytest.fixture
def consumer_group(penstock: Penstock, bootstrap: str, group: str, topic: str) -> Iterator[str]:
    """The same, with a member of the consumer protocol that has read on and committed nothing yet."""
    settings = {"group.protocol": "consumer", "group.id": group, "bootstrap.servers": bootstrap, "log_level": 0}
    with closing(Consumer({**settings, "client.id": "app", "enable.auto.commit": False})) as member:
        member.subscribe([topic])
        deadline = time.monotonic() + 20
        while (message := member.poll(0.1)) is None:
            assert time.monotonic() < deadline, "no message came"
        assert message.value() == b"6"
        yield group


def test_a_group_is_listed_with_its_state_and_type(penstock: Penstock, group: str) -> None:
    rows = [row for row in penstock("group", "list", "--json").json if row["group"] == group]
    assert rows == [{"group": group, "state": "empty", "type": "classic"}]
    assert [group, "empty", "classic"] in [line.split() for line in penstock("group", "list").out.splitlines()]


def test_a_consumer_group_is_shown_with_epochs_and_targets(penstock: Penstock, consumer_group: str, topic: str) -> None:
    rows = [row for row in penstock("group", "list", "--json").json if row["group"] == consumer_group]
    assert rows == [{"group": consumer_group, "state": "stable", "type": "consumer"}]
    document = penstock("group", "describe", consumer_group, "--json").json
    assert (document["type"], document["state"], document["lag"]) == ("consumer", "stable", 4)
    (member,) = document["members"]
    assert (member["client_id"], member["state"]) == ("app", "stable")
    assert document["epoch"] == document["assignment_epoch"] == member["epoch"] > 0
    assert member["assignment"] == member["target"] == [{"topic": topic, "partition": n} for n in range(3)]
    out = penstock("group", "describe", consumer_group).out
    assert ["TYPE", "consumer"] in [line.split() for line in out.splitlines()]
    row = next(line.split() for line in out.splitlines() if line.startswith(member["member"]))
    assert row[1:] == ["app", "127.0.0.1", "-", str(member["epoch"]), "stable", *[f"{topic}[0,1,2]"] * 2]


def test_a_consumer_group_in_use_can_not_be_moved_or_deleted(penstock: Penstock, consumer_group: str) -> None:
    moved = penstock("group", "reset", consumer_group, "--to", "start")
    assert (moved.code, "in use by 1 member: app" in moved.err) == (1, True)
    deleted = penstock("group", "delete", consumer_group, "--yes")
    assert (deleted.code, "Stop the group's consumers first" in deleted.err) == (1, True)


def test_a_description_tells_how_far_behind_it_is(penstock: Penstock, group: str, topic: str) -> None:
    document = penstock("group", "describe", group, "--json").json
    assert (document["state"], document["lag"], document["members"]) == ("empty", 4, [])
    row = next(row for row in document["partitions"] if row["partition"] == 0)
    assert (row["topic"], row["committed"], row["end"], row["lag"]) == (topic, 6, 10, 4)
    out = penstock("group", "describe", group).out
    assert "TOTAL LAG    4" in out
    assert [topic, "0", "6", "0", "10", "4", "-"] in [line.split() for line in out.splitlines()]


def test_a_group_in_use_shows_its_members_and_can_not_be_moved_or_deleted(
    penstock: Penstock, bootstrap: str, group: str, topic: str
) -> None:
    arguments = command("consume", topic, "--group", group, "--bootstrap", bootstrap)
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, env=clean_environment(), text=True) as member:
        assert member.stdout is not None
        assert member.stdout.readline() == "6\n"
        document = penstock("group", "describe", group, "--json").json
        assert document["state"] == "stable"
        assert [sorted(place["partition"] for place in m["assignment"]) for m in document["members"]] == [[0, 1, 2]]
        assert f"{topic}[0,1,2]" in penstock("group", "describe", group).out
        moved = penstock("group", "reset", group, "--to", "start")
        assert moved.code == 1
        assert "in use by 1 member: penstock-cli" in moved.err
        deleted = penstock("group", "delete", group, "--yes")
        assert deleted.code == 1
        assert "Stop the group's consumers first" in deleted.err
        member.terminate()
        member.wait(timeout=10)


def test_a_group_goes_where_it_is_told(penstock: Penstock, group: str) -> None:
    for options, offset in OFFSETS_AFTER.items():
        moved = penstock("group", "reset", group, *options.split())
        assert moved.code == 0, moved.err
        assert f"Moved {group}." in moved.out
        assert committed(penstock, group)[0] == offset, options


def test_a_dry_run_shows_the_move_and_does_not_make_it(penstock: Penstock, group: str, topic: str) -> None:
    dry = penstock("group", "reset", group, "--to", "start", "--dry-run")
    assert [topic, "0", "6", "0", "10", "10"] in [line.split() for line in dry.out.splitlines()]
    assert "Nothing was changed." in dry.out
    assert committed(penstock, group)[0] == 6


def test_a_group_can_be_placed_before_it_exists(penstock: Penstock, topic: str) -> None:
    penstock("produce", topic, "-p", "1", stdin="old\n")
    name = f"{topic}-new"
    assert "--topic NAME" in penstock("group", "reset", name, "--to", "end").err
    assert penstock("group", "reset", name, "--to", "end", "--topic", topic).code == 0
    penstock("produce", topic, "-p", "1", stdin="new\n")
    assert penstock("consume", topic, "--group", name, "--no-follow").out == "new\n"
    penstock("group", "delete", name, "--yes")


def test_a_deleted_group_is_gone(penstock: Penstock, group: str) -> None:
    asked = penstock("group", "delete", group)
    assert asked.code == 2
    deleted = penstock("group", "delete", group, "--yes", "--json")
    assert (deleted.code, deleted.json) == (0, {"deleted": [group]})
    again = penstock("group", "describe", group)
    assert again.code == 1
    assert f"there is no group {group!r}" in again.err


def test_an_unknown_group_is_answered_with_a_near_miss(penstock: Penstock, group: str) -> None:
    unknown = penstock("group", "describe", group[:-1])
    assert unknown.code == 1
    assert f"Did you mean {group!r}?" in unknown.err
