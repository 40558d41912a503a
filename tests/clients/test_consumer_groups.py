"""Groups of the consumer protocol (KIP-848), through librdkafka: the broker assigns, members follow."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.brokers import BrokerProcess
from tests.clients.conftest import PEER, Topics
from tests.clients.drivers import CLIENTS, Outgoing, send_all
from tests.clients.drivers.face import Partition
from tests.clients.steps import create_topic, wait_until
from tests.clients.wire import Wire

CONFLUENT = CLIENTS["confluent"]
REPOSITORY = Path(__file__).parents[2]
CONSUMER, CLASSIC = ConsumerGroupType.CONSUMER, ConsumerGroupType.CLASSIC
# Sessions so short that nobody waits long for a member's death.
QUICK = {
    "group_consumer_min_session_timeout_ms": 1000,
    "group_consumer_session_timeout_ms": 3000,
    "group_consumer_min_heartbeat_interval_ms": 100,
    "group_consumer_heartbeat_interval_ms": 200,
    "group_min_session_timeout_ms": 100,
}


class Ledger:
    """Who owns what, by what members are told. Two owners of one partition are written down."""

    def __init__(self) -> None:
        self.owners: dict[Partition, Reader] = {}
        self.clashes: list[Partition] = []
        self._lock = threading.Lock()

    def assigned(self, reader: Reader, partitions: list[Partition]) -> None:
        with self._lock:
            self.clashes += [each for each in partitions if self.owners.get(each, reader) is not reader]
            self.owners.update(dict.fromkeys(partitions, reader))

    def revoked(self, reader: Reader, partitions: list[Partition]) -> None:
        with self._lock:
            for each in partitions:
                if self.owners.get(each) is reader:
                    del self.owners[each]

    def shares(self) -> list[int]:
        with self._lock:
            return sorted(Counter(self.owners.values()).values())

    def of(self, reader: Reader) -> set[Partition]:
        with self._lock:
            return {partition for partition, owner in self.owners.items() if owner is reader}


class Reader:
    """A member that reads in a thread of its own, and commits what it has read before it lets go of a partition."""

    def __init__(self, ledger: Ledger, bootstrap: str, group: str, *topics: str, **options: Any) -> None:
        config = {"group.protocol": "consumer", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        config |= {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0, "fetch.wait.max.ms": 50}
        config |= {"topic.metadata.refresh.interval.ms": 500, "reconnect.backoff.max.ms": 200}
        config |= {name.replace("_", "."): value for name, value in options.items()}
        self.ledger = ledger
        self.read: list[tuple[str, int, int]] = []
        self.error: KafkaError | None = None
        self.consumer = Consumer(config)
        self.consumer.subscribe(
            list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.ledger.assigned(self, [(p.topic, p.partition) for p in partitions])

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit()
        self.ledger.revoked(self, [(p.topic, p.partition) for p in partitions])

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.ledger.revoked(self, [(p.topic, p.partition) for p in partitions])

    def _commit(self) -> None:
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError._NO_OFFSET:
                raise

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self.consumer.poll(0.05)
            if message is None:
                continue
            if problem := message.error():
                self.error = problem
                if problem.fatal():
                    return
            else:
                self.read.append((message.topic(), message.partition(), message.offset()))

    @property
    def owned(self) -> set[Partition]:
        return self.ledger.of(self)

    def stop(self) -> None:
        """Stops polling, and says nothing of it."""
        self._stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive(), "poll never returned"

    def close(self) -> None:
        self.stop()
        self.consumer.close()
        self.ledger.revoked(self, list(self.owned))


class Group:
    """One group, its members, and what they are told."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.ledger = Ledger()
        self.members: list[Reader] = []
        self.left: list[Reader] = []

    def join(self, *topics: str, **options: Any) -> Reader:
        self.members.append(Reader(self.ledger, self.bootstrap, self.name, *topics, **options))
        return self.members[-1]

    def join_classic(self, *topics: str, **options: Any) -> Reader:
        quick = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 200}
        return self.join(*topics, group_protocol="classic", **quick, **options)

    def leave(self, member: Reader) -> None:
        self.members.remove(member)
        self.left.append(member)
        member.close()

    def settles(self, *shares: int) -> None:
        wait_until(lambda: self.ledger.shares() == sorted(shares), message=f"shares are {self.ledger.shares()}")
        assert self.ledger.clashes == []

    def everything_read(self) -> Counter[tuple[str, int, int]]:
        return Counter(place for member in [*self.members, *self.left] for place in list(member.read))

    def close(self) -> None:
        with ThreadPoolExecutor(max_workers=8) as closers:
            list(closers.map(Reader.close, self.members))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The broker of all of these groups."""
    if PEER:
        yield PEER
        return
    broker = BrokerProcess(tmp_path_factory.mktemp("consumer-groups"), **QUICK)
    yield broker.start().bootstrap
    broker.close()


@pytest.fixture
def group(home: str, unique: Callable[[str], str]) -> Iterator[Group]:
    with closing(Group(home, unique("group"))) as group:
        yield group


@pytest.fixture
def topic_of(home: str, new_topic: Topics) -> Callable[[int], str]:
    return lambda partitions: new_topic(partitions, at=home)


@pytest.fixture(scope="module")
def manager(home: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": home, "log_level": 0})


def send(bootstrap: str, topic: str, count: int, partitions: int) -> None:
    send_all(CONFLUENT, bootstrap, topic, [Outgoing(b"%d" % n, partition=n % partitions) for n in range(count)])


def penstock(bootstrap: str, *arguments: str) -> Any:
    command = [sys.executable, "-m", "penstock", *arguments, "--json", "--bootstrap", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def committed(admin: AdminClient, group: str) -> dict[Partition, int]:
    (found,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(p.topic, p.partition): p.offset for p in found.result(20).topic_partitions}


def test_members_come_and_go_and_every_partition_has_one_reader(group: Group, topic_of: Callable[[int], str]) -> None:
    topic = topic_of(12)
    first = group.join(topic)
    group.settles(12)
    for shares in ((6, 6), (4, 4, 4), (3, 3, 3, 3), (2, 2, 2, 3, 3)):
        group.join(topic)
        group.settles(*shares)
    group.leave(first)
    group.settles(3, 3, 3, 3)


def test_messages_are_read_once_while_members_come_and_go(
    home: str, group: Group, topic_of: Callable[[int], str]
) -> None:
    topic = topic_of(6)
    first = group.join(topic)
    send(home, topic, 60, 6)
    second = group.join(topic)
    group.settles(3, 3)
    send(home, topic, 60, 6)
    group.leave(first)
    group.settles(6)
    send(home, topic, 60, 6)
    group.join(topic)
    group.settles(3, 3)
    wait_until(lambda: len(group.everything_read()) == 180)
    assert set(group.everything_read().values()) == {1}
    assert second.error is None


def test_a_member_that_dies_is_replaced_after_its_session(group: Group, topic_of: Callable[[int], str]) -> None:
    topic = topic_of(4)
    survivor = group.join(topic)
    group.settles(4)
    script = (
        "import sys, confluent_kafka\n"
        "consumer = confluent_kafka.Consumer({'bootstrap.servers': sys.argv[1], 'group.id': sys.argv[2],"
        " 'group.protocol': 'consumer', 'log_level': 0})\n"
        "consumer.subscribe([sys.argv[3]])\n"
        "for _ in range(600):\n"
        "    consumer.poll(0.1)\n"
        "    print(len(consumer.assignment()), flush=True)\n"
    )
    command = [sys.executable, "-c", script, group.bootstrap, group.name, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as victim:
        assert victim.stdout is not None
        assert any(line == "2\n" for line in victim.stdout)
        group.settles(2)
        victim.kill()
        began = time.monotonic()
    group.settles(4)
    assert time.monotonic() - began > 2
    assert len(survivor.owned) == 4


def test_a_static_member_that_returns_finds_its_partitions_untouched(
    group: Group, topic_of: Callable[[int], str]
) -> None:
    topic = topic_of(4)
    first = group.join(topic, group_instance_id="one")
    second = group.join(topic, group_instance_id="two")
    group.settles(2, 2)
    had, kept = first.owned, second.owned
    group.leave(first)
    time.sleep(1)
    assert second.owned == kept
    again = group.join(topic, group_instance_id="one")
    group.settles(2, 2)
    assert (again.owned, second.owned) == (had, kept)


def test_two_members_of_one_instance_id_are_not_served_both(group: Group, topic_of: Callable[[int], str]) -> None:
    topic = topic_of(2)
    first = group.join(topic, group_instance_id="one")
    group.settles(2)
    second = group.join(topic, group_instance_id="one")
    wait_until(lambda: second.error is not None or first.error is not None)
    refused = second if second.error is not None else first
    assert refused.error is not None
    assert refused.error.code() in (KafkaError.UNRELEASED_INSTANCE_ID, KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL)


@pytest.mark.parametrize(
    ("assignor", "expected"), [("range", [{0, 1}, {2, 3}]), ("uniform", None)], ids=["range", "uniform"]
)
def test_a_group_is_assigned_as_it_asks(
    group: Group, topic_of: Callable[[int], str], manager: AdminClient, assignor: str, expected: list[set[int]] | None
) -> None:
    topics = [topic_of(4), topic_of(4)]
    members = [group.join(*topics, group_remote_assignor=assignor) for _ in range(2)]
    group.settles(4, 4)
    described = manager.describe_consumer_groups([group.name])[group.name].result(20)
    assert described.partition_assignor == assignor
    if expected:
        for topic in topics:
            shares = [{index for name, index in member.owned if name == topic} for member in members]
            assert sorted(shares, key=min) == expected


def test_an_assignor_that_does_not_exist_is_refused(group: Group, topic_of: Callable[[int], str]) -> None:
    member = group.join(topic_of(1), group_remote_assignor="astrology")
    wait_until(lambda: member.error is not None)
    assert member.error is not None
    assert member.error.code() in (KafkaError.UNSUPPORTED_ASSIGNOR, KafkaError._FATAL)


def test_a_pattern_finds_topics_that_are_and_topics_that_will_be(
    home: str, group: Group, unique: Callable[[str], str]
) -> None:
    prefix = unique("metrics")
    create_topic(home, f"{prefix}-cpu", 2)
    create_topic(home, f"other-{prefix}-cpu", 2)
    member = group.join(f"^{prefix}-.*")
    group.settles(2)
    create_topic(home, f"{prefix}-disk", 3)
    group.settles(5)
    assert {name for name, _ in member.owned} == {f"{prefix}-cpu", f"{prefix}-disk"}


def test_a_pattern_that_re2_does_not_have_is_refused(group: Group) -> None:
    member = group.join(r"^(a)\1")  # librdkafka has back-references, and lets it through
    wait_until(lambda: member.error is not None)
    assert member.error is not None
    assert member.error.code() in (KafkaError.INVALID_REGULAR_EXPRESSION, KafkaError._FATAL)


def test_new_partitions_are_picked_up(group: Group, topic_of: Callable[[int], str], manager: AdminClient) -> None:
    topic = topic_of(2)
    group.join(topic)
    group.join(topic)
    group.settles(1, 1)
    manager.create_partitions([NewPartitions(topic, 6)])[topic].result(20)
    group.settles(3, 3)


def test_a_topic_that_is_made_after_the_subscription_is_picked_up(
    home: str, group: Group, unique: Callable[[str], str]
) -> None:
    name = unique("later")
    group.join(name, allow_auto_create_topics=False)
    time.sleep(0.5)
    create_topic(home, name, 2)
    group.settles(2)


def test_a_group_goes_on_where_it_committed_and_shows_its_lag(
    home: str, group: Group, topic_of: Callable[[int], str]
) -> None:
    topic = topic_of(2)
    send(home, topic, 10, 2)
    first = group.join(topic)
    wait_until(lambda: len(first.read) == 10)
    document = penstock(home, "group", "describe", group.name)
    assert (document["type"], document["state"], document["assignor"]) == ("consumer", "stable", "uniform")
    (member,) = document["members"]
    assert member["state"] == "stable"
    assert member["epoch"] == document["epoch"] == document["assignment_epoch"]
    assert member["assignment"] == member["target"]
    assert len(member["assignment"]) == 2
    group.leave(first)
    send(home, topic, 6, 2)
    assert penstock(home, "group", "describe", group.name)["lag"] == 6
    second = group.join(topic)
    wait_until(lambda: len(second.read) == 6)
    assert set(group.everything_read().values()) == {1}


def test_a_group_outlives_its_broker(new_broker: Callable[..., BrokerProcess], unique: Callable[[str], str]) -> None:
    broker = new_broker(**QUICK)
    topic = create_topic(broker.bootstrap, unique("topic"), 4)
    with closing(Group(broker.bootstrap, unique("group"))) as group:
        members = [group.join(topic) for _ in range(2)]
        group.settles(2, 2)
        had = [member.owned for member in members]
        before = penstock(broker.bootstrap, "group", "describe", group.name)
        send(broker.bootstrap, topic, 20, 4)
        wait_until(lambda: len(group.everything_read()) == 20)
        broker.kill()
        broker.start()
        send(broker.bootstrap, topic, 20, 4)
        wait_until(lambda: len(group.everything_read()) == 40)
        after = penstock(broker.bootstrap, "group", "describe", group.name)
        assert after["epoch"] == before["epoch"], "nobody had to rebalance"
        assert [member.owned for member in members] == had
        group.join(topic)
        group.settles(1, 1, 2)
        assert set(group.everything_read().values()) == {1}


def kind_of(admin: AdminClient, group: str) -> ConsumerGroupType | None:
    listed = admin.list_consumer_groups(request_timeout=20).result(20).valid
    return next((each.type for each in listed if each.group_id == group), None)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_moves_to_the_consumer_protocol_and_back_while_it_reads(
    home: str, group: Group, topic_of: Callable[[int], str], manager: AdminClient, strategy: str
) -> None:
    """One member after the other is replaced by one of the other protocol; nothing is lost or read twice."""
    topic = topic_of(6)
    classic = [group.join_classic(topic, partition_assignment_strategy=strategy) for _ in range(2)]
    group.settles(3, 3)
    send(home, topic, 60, 6)
    assert kind_of(manager, group.name) is CLASSIC
    modern = [group.join(topic)]
    group.settles(2, 2, 2)
    assert kind_of(manager, group.name) is CONSUMER
    send(home, topic, 60, 6)
    group.leave(classic.pop())
    group.settles(3, 3)
    modern.append(group.join(topic))
    group.leave(classic.pop())
    group.settles(3, 3)
    send(home, topic, 60, 6)
    classic = [group.join_classic(topic, partition_assignment_strategy=strategy)]
    group.settles(2, 2, 2)
    assert kind_of(manager, group.name) is CONSUMER
    for member in modern:
        group.leave(member)
    group.settles(6)
    assert kind_of(manager, group.name) is CLASSIC
    send(home, topic, 60, 6)
    wait_until(lambda: len(group.everything_read()) == 240)
    assert set(group.everything_read().values()) == {1}
    assert group.ledger.clashes == []


def test_a_group_has_settings_of_its_own_which_count_from_the_next_heartbeat_on(
    home: str, group: Group, topic_of: Callable[[int], str], manager: AdminClient
) -> None:
    topic = topic_of(1)
    resource = ConfigResource(ResourceType.GROUP, group.name)

    def interval() -> ConfigEntry:
        return manager.describe_configs([resource])[resource].result(20)["consumer.heartbeat.interval.ms"]

    def told_interval_ms() -> int:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group.name, member_id="me", rebalance_timeout_ms=1000, subscribed_topic_names=[topic],
            topic_partitions=[],
        )  # fmt: skip
        with Wire(home) as wire:
            answer = wire.ask(request)
        assert answer.error_code == 0, answer.error_message
        return answer.heartbeat_interval_ms

    group.join(topic)
    group.settles(1)
    assert (interval().value, told_interval_ms()) == ("200", 200)
    change = ConfigEntry("consumer.heartbeat.interval.ms", "300", incremental_operation=AlterConfigOpType.SET)
    manager.incremental_alter_configs([ConfigResource(ResourceType.GROUP, group.name, incremental_configs=[change])])[
        resource
    ].result(20)
    assert (interval().value, told_interval_ms()) == ("300", 300)


def test_groups_are_listed_by_their_type_and_state(
    group: Group, topic_of: Callable[[int], str], manager: AdminClient, unique: Callable[[str], str]
) -> None:
    topic = topic_of(1)
    group.join(topic)
    group.settles(1)
    with closing(Group(group.bootstrap, unique("classic"))) as other:
        other.join_classic(topic)
        other.settles(1)

        def listed(**filters: Any) -> set[str]:
            found = manager.list_consumer_groups(request_timeout=20, **filters).result(20)
            assert not found.errors
            return {each.group_id for each in found.valid} & {group.name, other.name}

        assert listed() == {group.name, other.name}
        assert listed(types={CONSUMER}) == {group.name}
        assert listed(types={CLASSIC}) == {other.name}
        wait_until(lambda: listed(states={ConsumerGroupState.STABLE}) == {group.name, other.name})
        assert listed(types={CONSUMER}, states={ConsumerGroupState.EMPTY}) == set()


def test_a_group_is_described_with_its_members_and_what_they_own(
    group: Group, topic_of: Callable[[int], str], manager: AdminClient
) -> None:
    topic = topic_of(4)
    members = [group.join(topic, group_instance_id=name, client_id=f"app-{name}") for name in ("a", "b")]
    group.settles(2, 2)

    def described() -> Any:
        return manager.describe_consumer_groups([group.name], include_authorized_operations=True)[group.name].result(20)

    wait_until(lambda: described().state is ConsumerGroupState.STABLE)
    found = described()
    assert found.type is CONSUMER
    assert found.authorized_operations
    owned = {
        member.group_instance_id: {(p.topic, p.partition) for p in member.assignment.topic_partitions}
        for member in found.members
    }
    assert owned == {"a": members[0].owned, "b": members[1].owned}
    for member in found.members:
        target = {(p.topic, p.partition) for p in member.target_assignment.topic_partitions}
        assert target == owned[member.group_instance_id]
        assert member.client_id == f"app-{member.group_instance_id}"
        assert "127.0.0.1" in member.host


def test_offsets_of_an_empty_group_are_moved_and_the_group_is_deleted(
    home: str, group: Group, topic_of: Callable[[int], str], manager: AdminClient
) -> None:
    topic = topic_of(1)
    send(home, topic, 10, 1)
    member = group.join(topic)
    wait_until(lambda: len(member.read) == 10)
    moved = ConsumerGroupTopicPartitions(group.name, [TopicPartition(topic, 0, 4)])
    (place,) = manager.alter_consumer_group_offsets([moved])[group.name].result(20).topic_partitions
    assert place.error.code() == KafkaError.UNKNOWN_MEMBER_ID
    with pytest.raises(KafkaException) as refused:
        manager.delete_consumer_groups([group.name])[group.name].result(20)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    group.leave(member)
    assert committed(manager, group.name) == {(topic, 0): 10}
    manager.alter_consumer_group_offsets([moved])[group.name].result(20)
    assert committed(manager, group.name) == {(topic, 0): 4}
    again = group.join(topic)
    wait_until(lambda: len(again.read) == 6)
    group.leave(again)
    manager.delete_consumer_groups([group.name])[group.name].result(20)
    assert kind_of(manager, group.name) is None
