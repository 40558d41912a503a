from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from penstock.pipeline import fetching, producing
from penstock.pipeline.brokers import EARLIEST, LATEST, Brokers, TopicPartition
from penstock.pipeline.columns import Encoded
from penstock.pipeline.connection import ANSWER_MAX_BYTES, ClientSettings, Connection
from penstock.pipeline.fetching import OffsetRange, RangeFetcher
from penstock.pipeline.options import read_options
from penstock.pipeline.problem import DataLost, PipelineError
from penstock.pipeline.row_decoder import RowDecoder
from penstock.pipeline.source import read_rows
from penstock.pipeline.transactions import init_idempotent
from penstock.protocol.compression import Compression
from penstock.protocol.errors import CorruptBatch
from penstock.protocol.messages.fetch import FetchResponse
from penstock.protocol.record_batch import read_records
from tests.brokers import BrokerProcess
from tests.pipeline.conftest import Topics, create_topic


def settings(broker: BrokerProcess, patience_s: float = 20.0) -> ClientSettings:
    return ClientSettings((("127.0.0.1", broker.port),), patience_s=patience_s)


def produce(bootstrap: str, topic: str, values: list[str], **more: object) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **more})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def values(brokers: Brokers, topic: str, start: int, stop: int, **more: bool) -> list[str]:
    wanted = OffsetRange(TopicPartition(topic, 0), start, stop)
    found = []
    for batch in RangeFetcher(brokers, wanted, **more).batches():
        for record in read_records(batch, 1 << 30, check_crc=True):
            if start <= record.offset < stop:
                assert record.value is not None
                found.append(record.value.decode())
    return found


def test_the_ends_of_a_log_and_the_first_record_of_a_time(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic(2)
    place, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(10):
        producer.produce(topic, b"v", partition=0, timestamp=1000 * (n + 1))
    producer.flush(30)
    with Brokers(settings(broker)) as brokers:
        assert brokers.offsets({place: LATEST, other: LATEST}) == {place: 10, other: 0}
        assert brokers.offsets({place: EARLIEST}) == {place: 0}
        assert brokers.offsets({place: 3500, other: 3500}) == {place: 3, other: -1}
        assert brokers.offsets({TopicPartition("no-such-topic", 0): LATEST, place: LATEST}) == {place: 10}
        assert sorted(brokers.topics([topic])[topic].partitions) == [place, other]
        assert topic in brokers.topics()


def test_a_range_is_read_whole_through_many_small_answers(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    sent = [f"value-{n}" for n in range(5000)]
    produce(broker.bootstrap, topic, sent, **{"batch.num.messages": 7})
    with Brokers(settings(broker)) as brokers:
        assert values(brokers, topic, 0, 5000, fetch_bytes=2000) == sent
        assert values(brokers, topic, 1234, 1240) == sent[1234:1240]


def test_what_was_aborted_is_not_seen_and_what_is_open_is_not_waited_for(
    broker: BrokerProcess, new_topic: Topics, unique: Callable[[str], str]
) -> None:
    topic = new_topic()
    place = TopicPartition(topic, 0)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": unique("txn")})
    producer.init_transactions(30)
    seen = []
    for n in range(6):
        producer.begin_transaction()
        producer.produce(topic, f"{n}", partition=0)
        producer.flush(30)
        if n % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            seen.append(f"{n}")
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush(30)
    with Brokers(settings(broker)) as brokers:
        stop = brokers.offsets({place: LATEST})[place]
        assert stop == 12
        assert values(brokers, topic, 0, stop) == seen
        # In the middle of what was aborted, too.
        assert values(brokers, topic, 3, stop) == seen[1:]
        end = brokers.offsets({place: LATEST}, committed=False)[place]
        assert values(brokers, topic, 0, end, committed=False) == [*map(str, range(6)), "open"]
    producer.abort_transaction(30)


def test_records_that_are_gone_are_told_or_passed_over(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    produce(broker.bootstrap, topic, [f"{n}" for n in range(100)], **{"batch.num.messages": 5})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    place = KafkaPartition(topic, 0, 60)
    next(iter(admin.delete_records([place]).values())).result(30)
    with Brokers(settings(broker)) as brokers:
        with pytest.raises(DataLost, match=rf"{topic}-0: offset 10 .*from 60 to 100"):
            values(brokers, topic, 10, 100)
        assert values(brokers, topic, 10, 100, fail_on_data_loss=False) == [f"{n}" for n in range(60, 100)]
        assert values(brokers, topic, 10, 50, fail_on_data_loss=False) == []
        with pytest.raises(DataLost, match="offset 150"):
            values(brokers, topic, 150, 160)


def test_a_topic_that_is_gone_is_told(
    broker: BrokerProcess, new_topic: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "GONE_PATIENCE_S", 0.3)
    with Brokers(settings(broker)) as brokers:
        with pytest.raises(DataLost, match="no such partition"):
            values(brokers, "never-there", 0, 10)
        assert values(brokers, "never-there", 0, 10, fail_on_data_loss=False) == []


def test_a_broker_that_restarts_in_the_middle_is_waited_for(new_broker: Callable[..., BrokerProcess]) -> None:
    broker = new_broker()
    create_topic(broker.bootstrap, "t")
    sent = [f"value-{n}" for n in range(2000)]
    produce(broker.bootstrap, "t", sent, **{"batch.num.messages": 10})
    found: list[str] = []
    with Brokers(settings(broker)) as brokers:
        wanted = OffsetRange(TopicPartition("t", 0), 0, 2000)
        back: threading.Timer | None = None
        for batch in RangeFetcher(brokers, wanted, fetch_bytes=5000).batches():
            found += [record.value.decode() for record in read_records(batch, 1 << 20) if record.value]
            if back is None and len(found) > 500:
                broker.kill()
                back = threading.Timer(1.0, broker.start)
                back.start()
    assert back is not None
    back.join()
    assert found == sent


def test_an_answer_with_nothing_in_it_is_asked_for_again(
    broker: BrokerProcess, new_topic: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    produce(broker.bootstrap, topic, ["a", "b"])
    plain, emptied = Connection.receive, []

    def receive(self: Connection, number: int) -> object:
        answer = plain(self, number)
        if isinstance(answer, FetchResponse) and not emptied:
            emptied.append(answer)
            return FetchResponse()
        return answer

    monkeypatch.setattr(Connection, "receive", receive)
    with Brokers(settings(broker)) as brokers:
        assert values(brokers, topic, 0, 2) == ["a", "b"]
    assert emptied


def test_whoever_leaves_early_leaves_nothing_to_the_next(broker: BrokerProcess, new_topic: Topics) -> None:
    """The answer to what was asked ahead comes on the connection that the next one reads from."""
    left, other = new_topic(), new_topic()
    produce(broker.bootstrap, left, [str(n) for n in range(20)], **{"batch.num.messages": 1})
    produce(broker.bootstrap, other, ["a", "b"])
    with Brokers(settings(broker)) as brokers:
        batches = RangeFetcher(brokers, OffsetRange(TopicPartition(left, 0), 0, 20), fetch_bytes=100).batches()
        next(batches)
        assert values(brokers, other, 0, 2) == ["a", "b"], "while the first one may go on"
        assert len(list(batches)) == 19
        for _ in RangeFetcher(brokers, OffsetRange(TopicPartition(left, 0), 0, 20), fetch_bytes=100).batches():
            break
        assert values(brokers, other, 0, 2) == ["a", "b"]
        (connection,) = brokers._connections.values()
        assert not connection._kept, "what nobody waits for is not kept"


def test_a_cluster_that_does_not_answer_is_given_up_in_time() -> None:
    lonely = ClientSettings((("127.0.0.1", 1),), patience_s=0.5)
    began = time.monotonic()
    with Brokers(lonely) as brokers, pytest.raises(PipelineError, match="no broker answers"):
        brokers.topics()
    assert time.monotonic() - began < 5


def test_a_task_refuses_a_batch_that_expands_past_what_it_may_hold(
    broker: BrokerProcess, new_topic: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers keep what a producer has compressed without looking inside. The bound is a smaller one here."""
    topic, bound = new_topic(), RowDecoder.__init__.__kwdefaults__
    assert bound["decompressed_max"] == ANSWER_MAX_BYTES
    monkeypatch.setitem(bound, "decompressed_max", 1 << 20)
    with Brokers(settings(broker)) as brokers:
        producer = producing.Producer(brokers, init_idempotent(brokers), compression=Compression.ZSTD)
        producer.send(Encoded(topic, 0, bytes((1 << 20) + 1), 1, 1, 1))
        producer.flush()
    options = read_options({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}, streaming=False)
    with pytest.raises(CorruptBatch, match=f"{topic}-0.*expands to more than"):
        list(read_rows(options, OffsetRange(TopicPartition(topic, 0), 0, 1)))
