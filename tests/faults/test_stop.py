"""Stopping on purpose: quickly, cleanly, and so that the next start has nothing to repair."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from penstock.protocol.errors import ErrorCode
from tests.brokers import BrokerProcess
from tests.clients.drivers import CLIENTS, Commit, Outgoing, Refused, read_all, send_all
from tests.clients.steps import create_topic
from tests.clients.wire import Wire, batch_of, fetch_request

CONFLUENT = CLIENTS["confluent"]
STOP_S_MAX = 5.0


def stop(broker: BrokerProcess, how: signal.Signals) -> tuple[int, float]:
    """The exit code, and the seconds it took."""
    assert broker.process is not None
    began = time.monotonic()
    broker.process.send_signal(how)
    return broker.process.wait(30), time.monotonic() - began


def start_again(broker: BrokerProcess) -> str:
    """What the broker says in its new life."""
    said = len(broker.log.read_text())
    broker.start()
    deadline = time.monotonic() + 10  # the port is open a moment before
    while "ready" not in (text := broker.log.read_text()[said:]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return text


def use(broker: BrokerProcess) -> str:
    topic = create_topic(broker.bootstrap, "kept", 4, segment_bytes=1 << 20)
    messages = [Outgoing(b"%d" % n * 300, partition=n % 4) for n in range(4000)]
    send_all(CONFLUENT, broker.bootstrap, topic, messages, idempotent=True)
    consumer = CONFLUENT.consumer(broker.bootstrap, group="readers")
    consumer.assign((topic, 0))
    consumer.commit({(topic, 0): Commit(7, "here")})
    consumer.close()
    return topic


def check_everything_is_there(broker: BrokerProcess, topic: str) -> None:
    received = read_all(CONFLUENT, broker.bootstrap, topic, 4000, partitions=range(4))
    for partition in range(4):
        own = [(m.offset, m.value) for m in received if m.partition == partition]
        assert own == [(at, b"%d" % n * 300) for at, n in enumerate(range(partition, 4000, 4))]
    consumer = CONFLUENT.consumer(broker.bootstrap, group="readers")
    assert consumer.committed((topic, 0)) == Commit(7, "here")
    consumer.close()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_clean_stop_is_quick_and_leaves_nothing_to_recover(
    how: signal.Signals, new_broker: Callable[..., BrokerProcess]
) -> None:
    broker = new_broker()
    topic = use(broker)
    code, seconds = stop(broker, how)
    assert code == 0
    assert seconds < STOP_S_MAX
    said = start_again(broker)
    assert "recovered" not in said
    assert "ready" in said
    check_everything_is_there(broker, topic)
    # and again, with nothing written in between
    assert stop(broker, how)[0] == 0
    assert "recovered" not in start_again(broker)
    check_everything_is_there(broker, topic)


def test_a_killed_broker_says_what_it_recovered(new_broker: Callable[..., BrokerProcess]) -> None:
    broker = new_broker()
    topic = use(broker)
    broker.kill()
    assert "recovered" in start_again(broker)
    check_everything_is_there(broker, topic)


def test_a_stop_does_not_wait_for_clients_that_wait(new_broker: Callable[..., BrokerProcess]) -> None:
    broker = new_broker()
    topic = create_topic(broker.bootstrap, "quiet")
    waiting = [Wire(broker.bootstrap) for _ in range(20)]
    for connection in waiting:
        connection.send(fetch_request(topic, 0, wait_ms=60_000), 11)
    half = Wire(broker.bootstrap)
    half.sock.sendall(b"\0\0\1\0" + bytes(10))  # and one that is in the middle of a request
    code, seconds = stop(broker, signal.SIGTERM)
    assert code == 0
    assert seconds < STOP_S_MAX
    for connection in [*waiting, half]:
        connection.sock.close()


def test_a_stop_under_load_loses_nothing_that_was_acknowledged(new_broker: Callable[..., BrokerProcess]) -> None:
    broker = new_broker()
    topic = create_topic(broker.bootstrap, "busy")
    producer = CONFLUENT.producer(broker.bootstrap, idempotent=True, **{"message.timeout.ms": 60_000})
    for n in range(3000):
        producer.send(topic, Outgoing(b"%d" % n))
    assert stop(broker, signal.SIGTERM)[0] == 0
    assert "recovered" not in start_again(broker)
    placed = producer.finish()
    producer.close()
    assert [p.offset for p in placed] == list(range(3000))
    received = read_all(CONFLUENT, broker.bootstrap, topic, 3000)
    assert [m.value for m in received] == [b"%d" % n for n in range(3000)]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_producer_is_known_again_after_a_restart(how: str, new_broker: Callable[..., BrokerProcess]) -> None:
    """A batch that was stored, but whose acknowledgement was lost with the broker, is not stored again."""
    broker = new_broker()
    topic = create_topic(broker.bootstrap, "once")
    batches = [batch_of(b"%d" % n, producer_id=4711, producer_epoch=0, base_sequence=n) for n in range(7)]
    with Wire(broker.bootstrap) as wire:
        for batch in batches[:6]:
            assert wire.produce(topic, batch).error_code == ErrorCode.NONE
    if how == "stop":
        assert broker.stop() == 0
    else:
        broker.kill()
    broker.start()
    with Wire(broker.bootstrap) as wire:
        for n in range(1, 6):  # the last five are remembered with their offsets
            again = wire.produce(topic, batches[n])
            assert (again.error_code, again.base_offset) == (ErrorCode.NONE, n)
        skipped = batch_of(b"?", producer_id=4711, producer_epoch=0, base_sequence=9)
        assert wire.produce(topic, skipped).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert wire.produce(topic, batches[6]).base_offset == 6
        stale = batch_of(b"?", producer_id=4711, producer_epoch=1, base_sequence=0)
        assert wire.produce(topic, stale).base_offset == 7
        assert wire.produce(topic, batches[6]).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(read_all(CONFLUENT, broker.bootstrap, topic, 8)) == 8


def test_topics_and_settings_survive_a_kill(new_broker: Callable[..., BrokerProcess]) -> None:
    broker = new_broker()
    for n in range(20):
        create_topic(broker.bootstrap, f"topic-{n}", 3, retention_ms=1000 + n, max_message_bytes=500)
    broker.kill()
    broker.start()
    with pytest.raises(Refused) as refusal:
        send_all(CONFLUENT, broker.bootstrap, "topic-19", [Outgoing(bytes(1000), partition=2)])
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE
