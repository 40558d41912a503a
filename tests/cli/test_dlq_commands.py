"""`penstock dlq`: dead letters are listed, shown, sent back once, and given up."""

from __future__ import annotations

import io
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.cli import main
from penstock.cli.dlq import finding, letters, selection, shelf, transaction
from penstock.cli.dlq.letters import mark_of
from penstock.cli.dlq.shelf import Shelf
from penstock.client import Consumer as PenstockConsumer
from penstock.client import Retry, fixed
from penstock.testing import PenstockBroker
from tests.brokers import BrokerProcess
from tests.cli.conftest import Finished, clean_environment, command

PARTITIONS = 2
OLD, NEW = "2026-01-01T00:00:00.000Z", "2026-06-01T00:00:00.000Z"


class Post:
    """An origin with dead letters of its own."""

    def __init__(self, bootstrap: str, origin: str) -> None:
        self.bootstrap = bootstrap
        self.origin = origin
        self.topic = f"{origin}.billing.dlq"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.create_topics([NewTopic(name, PARTITIONS) for name in (origin, self.topic)]).values():
            future.result(20)

    def lay_down(
        self, numbers: Iterable[int], error: str = "no money", failed_at: str = OLD, region: str = "eu"
    ) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "queue.buffering.max.messages": 1_000_000})
        for number in numbers:
            partition = number % PARTITIONS
            facts = {
                "error": error, "error.type": "shop.PaymentError", "stack": "Traceback …", "topic": self.origin,
                "partition": str(partition), "offset": str(number), "attempts": "3", "failed.at": failed_at,
            }  # fmt: skip
            ours = [(f"penstock.{name}", text.encode()) for name, text in facts.items()]
            headers = [("region", region.encode()), *ours]
            producer.produce(self.topic, b"v%d" % number, b"k", partition=partition, headers=headers)
        producer.flush(20)

    def hand_over(self, value: bytes) -> Producer:
        """A letter in a transaction that is still open, as handlers with delivery='exactly-once' have them."""
        handler = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": self.topic})
        handler.init_transactions(20)
        handler.begin_transaction()
        headers = [("penstock.error", b"no money"), ("penstock.topic", self.origin.encode())]
        handler.produce(self.topic, value, partition=0, headers=headers)
        assert handler.flush(20) == 0
        return handler

    def run(self, *arguments: str, expect: int = 0) -> Finished:
        done = run_here("dlq", *arguments, "--bootstrap", self.bootstrap)
        assert done.code == expect, done.err
        return done

    def returned(self) -> list[tuple[int, bytes, list[tuple[str, bytes]]]]:
        """Partition, value and headers of what is in the origin, for readers of committed data."""
        return [(m.partition(), m.value(), m.headers() or []) for m in read_all(self.bootstrap, self.origin)]

    def values(self) -> Counter[bytes]:
        return Counter(value for _, value, _ in self.returned())

    def left(self) -> int:
        listed = self.run("list", "--all", "--json").json
        return next(each["letters"] for each in listed if each["topic"] == self.topic)


def run_here(*arguments: str) -> Finished:
    """The command in this process: an interpreter of its own takes longer to start than the rest of it."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(arguments)
    return Finished(code, out.getvalue(), err.getvalue())


def read_all(bootstrap: str, topic: str) -> list:
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True,
        "enable.auto.commit": False, "isolation.level": "read_committed", "fetch.wait.max.ms": 10,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    found, ended = [], 0
    while ended < PARTITIONS:
        for message in consumer.consume(1000, 0.02):
            if message.error() is None:
                found.append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended += 1
    consumer.close()
    return found


@pytest.fixture
def post(shared_broker: BrokerProcess, unique: Callable[[str], str]) -> Post:
    return Post(shared_broker.bootstrap, unique("orders"))


def test_letters_are_listed_and_shown(post: Post) -> None:
    post.lay_down(range(3))
    (listed,) = [each for each in post.run("list", "--json").json if each["topic"] == post.topic]
    assert (listed["letters"], listed["redriven"], listed["purged"]) == (3, 0, 0)
    assert post.topic in post.run("list").out
    shown = post.run("show", post.topic, "--json").json_lines
    assert sorted(each["value"] for each in shown) == ["v0", "v1", "v2"]
    first = next(each for each in shown if each["value"] == "v0")
    assert (first["error"], first["error_type"], first["attempts"]) == ("no money", "shop.PaymentError", 3)
    assert first["headers"] == [{"key": "region", "value": "eu"}]
    table = post.run("show", post.topic, "-n", "2")
    assert "PaymentError: no money" in table.out
    assert "3 dead letters, the last 2 of them shown" in table.err
    whole = post.run("show", post.topic, "--stack", "-n", "1").out
    assert "Traceback …" in whole
    assert "region=eu" in whole, "as --header takes it"


def test_filters_look_at_time_error_and_header(post: Post) -> None:
    post.lay_down(range(2), error="no money", failed_at=OLD, region="eu")
    post.lay_down(range(2, 5), error="Timed out", failed_at=NEW, region="us")

    def count(*filters: str) -> int:
        return len(post.run("show", post.topic, "--json", *filters).json_lines)

    assert count() == 5
    assert count("--since", "2026-03-01T00:00:00Z") == 3
    assert count("--until", "2026-03-01T00:00:00Z") == 2
    assert count("--error", "timed OUT") == 3
    assert count("--error", "paymenterror") == 5
    assert count("--header", "region=eu") == 2
    assert count("--header", "region=eu", "--error", "timed") == 0


def test_letters_go_back_to_their_origin_as_they_were_and_once(post: Post) -> None:
    post.lay_down(range(4))
    dry = post.run("redrive", post.topic, "--dry-run", "--json").json
    assert dry == {"topic": post.topic, "redriven": 4, "dry_run": True, "to": {post.origin: 4}}
    assert post.returned() == []
    assert "--yes" in post.run("redrive", post.topic, expect=2).err, "nobody is there to ask"
    assert "Sent 4 dead letters back." in post.run("redrive", post.topic, "--yes").out
    assert sorted(post.returned()) == sorted((n % PARTITIONS, b"v%d" % n, [("region", b"eu")]) for n in range(4))
    assert "Sent 0 dead letters back." in post.run("redrive", post.topic, "--yes").out
    assert post.left() == 0
    done = post.run("show", post.topic, "--done", "--json").json_lines
    assert [each["done"] for each in done] == ["redriven"] * 4
    assert len(post.returned()) == 4


def test_a_redrive_with_filters_and_one_without_send_each_letter_once(post: Post) -> None:
    post.lay_down(range(3), error="no money")
    post.lay_down(range(3, 6), error="timed out")
    assert post.run("redrive", post.topic, "--error", "timed", "--yes", "--json").json["redriven"] == 3
    assert post.values() == Counter([b"v3", b"v4", b"v5"])
    assert post.run("redrive", post.topic, "-n", "1", "--yes", "--json").json["redriven"] == 1
    assert post.run("redrive", post.topic, "--yes", "--json").json["redriven"] == 2
    assert post.values() == Counter(b"v%d" % number for number in range(6))


def test_a_redrive_that_is_killed_half_way_and_run_again_sends_each_letter_once(post: Post) -> None:
    count = 3_000
    post.lay_down(range(count))
    arguments = ["dlq", "redrive", post.topic, "--yes", "--bootstrap", post.bootstrap]
    process = subprocess.Popen(
        command(*arguments), env=clean_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 30
    while not post.returned() and process.poll() is None and time.monotonic() < deadline:
        pass
    process.kill()
    process.wait(10)
    before = len(post.returned())
    assert before
    again = post.run("redrive", post.topic, "--yes", "--json").json
    assert post.values() == Counter(b"v%d" % number for number in range(count))
    assert again["redriven"] == count - before
    assert post.left() == 0


def test_two_redrives_at_once_send_each_letter_once(post: Post) -> None:
    count = 2_000
    post.lay_down(range(count))
    arguments = ["dlq", "redrive", post.topic, "--yes", "--bootstrap", post.bootstrap]
    both = [
        subprocess.Popen(command(*arguments), env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=60)[1].decode() for process in both]
    codes = [process.returncode for process in both]
    assert 0 in codes, said
    assert all(code == 0 or "another redrive" in text for code, text in zip(codes, said)), said
    assert post.values() == Counter(b"v%d" % number for number in range(count))


def test_what_is_purged_is_neither_shown_nor_redriven_and_then_deleted(post: Post) -> None:
    post.lay_down(range(2), error="timed out")
    post.lay_down(range(2, 6), error="no money")
    assert post.run("purge", post.topic, "--error", "money", "--dry-run", "--json").json["purged"] == 4
    kept = post.run("purge", post.topic, "--error", "money", "--yes", "--json").json
    assert (kept["purged"], kept["deleted"]) == (4, 0), "the first letters are still wanted"
    assert post.left() == 2
    assert post.run("redrive", post.topic, "--yes", "--json").json["redriven"] == 2
    assert post.values() == Counter([b"v0", b"v1"])
    done = post.run("purge", post.topic, "--done", "--yes", "--json").json
    assert done["purged"] == 0
    assert done["deleted"] > 6
    assert [message for message in read_all(post.bootstrap, post.topic) if mark_of(message) is None] == []


def test_letters_of_a_transaction_that_is_still_open_are_not_deleted(post: Post) -> None:
    post.lay_down(range(4))
    assert post.run("redrive", post.topic, "--yes", "--json").json["redriven"] == 4
    handler = post.hand_over(b"not yet committed")
    purged = post.run("purge", post.topic, "--yes", "--json").json
    assert purged["purged"] == 0
    assert purged["deleted"] > 4, "what is before the transaction is done, and deleted"
    handler.commit_transaction(20)
    left = [message.value() for message in read_all(post.bootstrap, post.topic) if mark_of(message) is None]
    assert left == [b"not yet committed"]


def test_nothing_is_sent_while_marks_may_be_behind_an_open_transaction(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "OPEN_S_MAX", 0.2)
    post.lay_down(range(2))
    assert post.run("redrive", post.topic, "-n", "1", "--yes", "--json").json["redriven"] == 1
    handler = post.hand_over(b"not yet committed")
    for _ in range(2):
        said = post.run("redrive", post.topic, "--yes", expect=1).err
        assert f"a transaction is open in {post.topic}[0]" in said
    assert post.values() == Counter([b"v0"])
    handler.abort_transaction(20)
    assert post.run("redrive", post.topic, "--yes", "--json").json["redriven"] == 1
    assert post.values() == Counter([b"v0", b"v1"])


def test_a_redrive_waits_for_a_transaction_that_ends(post: Post) -> None:
    post.lay_down(range(2))
    handler = post.hand_over(b"late")
    ending = threading.Timer(0.3, handler.commit_transaction)
    ending.start()
    assert post.run("redrive", post.topic, "--yes", "--json").json["redriven"] == 3
    ending.join()
    assert post.values() == Counter([b"v0", b"v1", b"late"])


def test_the_oldest_go_back_first_whichever_partition_they_are_in(post: Post) -> None:
    post.lay_down([2], failed_at=NEW)
    post.lay_down([1], failed_at=OLD)
    assert post.run("redrive", post.topic, "-n", "1", "--yes", "--json").json["redriven"] == 1
    assert post.values() == Counter([b"v1"])


def test_a_redrive_gives_up_when_the_brokers_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "COMMIT_S_MAX", 0.1)
    monkeypatch.setattr(transaction, "SLICE_S", 0.05)
    with PenstockBroker() as broker:
        post = Post(broker.bootstrap, "orders")
        post.lay_down(range(2))
        broker.fail_next("EndTxn", "COORDINATOR_LOAD_IN_PROGRESS", times=1000)
        assert "run this again" in post.run("redrive", post.topic, "--yes", expect=1).err
        broker.clear_faults()
        post.run("redrive", post.topic, "--yes")
        assert post.values() == Counter([b"v0", b"v1"])


def test_many_letters_are_kept_in_a_file(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    shelves: list[Shelf] = []
    monkeypatch.setattr(shelf, "IN_MEMORY_BYTES_MAX", 1000)
    monkeypatch.setattr(letters, "Shelf", lambda: shelves.append(Shelf()) or shelves[-1])
    monkeypatch.setattr(transaction, "LETTERS_MAX", 7)
    post.lay_down(range(50))
    assert post.run("redrive", post.topic, "--yes", "--json").json["redriven"] == 50
    assert [each.is_in_memory for each in shelves] == [False]
    assert post.values() == Counter(b"v%d" % number for number in range(50))


def test_a_dry_run_says_what_would_be_deleted(post: Post) -> None:
    post.lay_down(range(4))
    post.run("redrive", post.topic, "-n", "2", "--yes")
    dry = post.run("purge", post.topic, "--done", "--dry-run", "--json").json
    assert dry["purged"] == 0
    assert dry["deleted"] > 2, "the letters of one partition, and their marks"
    assert post.run("purge", post.topic, "--done", "--yes", "--json").json["deleted"] == dry["deleted"]


def test_dead_letters_in_a_topic_of_another_name_are_listed_by_it(post: Post) -> None:
    post.lay_down(range(2))
    post.run("redrive", post.topic, "--yes")
    assert [each["topic"] for each in post.run("list", post.origin, "--json").json] == [post.origin]
    assert "there is no topic" in post.run("list", "nowhere", expect=1).err


def test_dead_letters_of_a_handler_that_names_their_topic_are_found() -> None:
    with PenstockBroker() as broker:
        broker.topic("orders", 2)
        broker.produce("orders", "bad", "worse", key="ada")
        broker.topic("kept", retention_ms=-1)
        broker.produce("kept", "an ordinary message")
        broker.topic("empty", retention_ms=-1)
        options: dict[str, Any] = {"retry": Retry(attempts=2, backoff=fixed("1ms")), "dead_letter": "graveyard"}
        with PenstockConsumer[bytes, bytes](broker.bootstrap, "billing", "orders", handle_signals=False) as consumer:

            @consumer.handler(**options)
            def fail(message: object) -> None:
                raise LookupError

            running = threading.Thread(target=consumer.run)
            running.start()
            broker.messages("graveyard", at_least=2)
            consumer.stop()
            running.join()

        def run(*arguments: str, expect: int = 0) -> Finished:
            done = run_here("dlq", *arguments, "--bootstrap", broker.bootstrap)
            assert done.code == expect, done.err
            return done

        assert [(each["topic"], each["letters"]) for each in run("list", "--json").json] == [("graveyard", 2)]
        assert len(run("show", "graveyard", "--json").json_lines) == 2
        for topic in ("kept", "empty", "orders.billing.retry.1ms"):
            assert "no topic of dead letters" in run("show", topic, expect=1).err
        assert run("redrive", "graveyard", "-n", "1", "--yes", "--json").json["to"] == {"orders": 1}
        broker.produce("graveyard", "a stranger")
        assert "1 of the messages in graveyard are no dead letters" in run("purge", "graveyard", "--yes", expect=1).err
        assert run("purge", "graveyard", "--any-topic", "--yes", "--json").json["purged"] == 2


def test_a_message_whose_headers_can_not_be_read_is_no_letter() -> None:
    class Bent:
        def headers(self) -> None:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

        def set_headers(self, headers: object) -> None:
            pass

    assert not finding._says_so(Bent())  # type: ignore[arg-type]


def test_ordinary_topics_and_letters_without_an_address_are_refused(post: Post) -> None:
    assert "no topic of dead letters" in post.run("redrive", post.origin, "--yes", expect=1).err
    assert "there is no topic" in post.run("show", "nowhere.dlq", expect=1).err
    producer = Producer({"bootstrap.servers": post.bootstrap})
    producer.produce(post.topic, b"who am I", partition=0)
    producer.flush(10)
    assert "--to TOPIC" in post.run("redrive", post.topic, "--yes", expect=1).err
    assert post.run("redrive", post.topic, "--to", post.origin, "--yes", "--json").json["to"] == {post.origin: 1}
    assert post.values() == Counter([b"who am I"])
