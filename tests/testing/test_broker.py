"""One broker in this process: what a test puts in and finds, and what is left of it in the process afterwards."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from penstock import AsyncProducer
from penstock.testing import PenstockBroker, StoredMessage
from penstock.testing.partitioning import murmur2
from tests.machine import slowness
from tests.testing.conftest import WAIT_S, read, send

NewProducer = Callable[..., Producer]
NewConsumer = Callable[..., Consumer]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# ---- topics and messages


def test_what_a_test_writes_is_what_it_finds(broker: PenstockBroker) -> None:
    broker.topic("orders", partitions=3)
    written = broker.produce(
        "orders", "text", b"\xff", None, {"id": 1}, key="k", headers={"a": "x", "b": b"\x00"}, partition=2,
        timestamp_ms=1_700_000_000_000,
    )  # fmt: skip
    assert written == broker.messages("orders")
    assert written[0] == StoredMessage("orders", 2, 0, 1_700_000_000_000, b"k", b"text", (("a", b"x"), ("b", b"\x00")))
    assert [message.value for message in written] == [b"text", b"\xff", None, b'{"id": 1}']
    assert [message.offset for message in written] == [0, 1, 2, 3]
    assert written[0].text == "text"
    assert written[2].text == ""
    assert written[3].json() == {"id": 1}
    assert written[0].header("a") == b"x"
    assert written[0].header("c") is None


def test_what_clients_write_is_found_whatever_it_is_packed_in(
    broker: PenstockBroker, new_producer: NewProducer
) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = new_producer(broker, compression_type=codec, linger_ms=50)
        for n in range(20):
            producer.produce(codec, f"{n}" * 50, key=f"k{n}", headers=[("n", f"{n}")], timestamp=1000 + n)
        assert producer.flush(WAIT_S) == 0
        found = broker.messages(codec)
        assert [(each.text, each.key, each.headers, each.timestamp_ms) for each in found] == [
            (f"{n}" * 50, b"k%d" % n, (("n", b"%d" % n),), 1000 + n) for n in range(20)
        ]


def test_what_a_test_writes_reaches_consumers(broker: PenstockBroker, new_consumer: NewConsumer) -> None:
    broker.produce("orders", "one", key="k", headers=[("h", "1"), ("h", "2")])
    (message,) = read(new_consumer(broker, "orders"), 1)
    assert (message.key(), message.value(), message.headers()) == (b"k", b"one", [("h", b"1"), ("h", b"2")])


def test_a_key_picks_the_partition_that_other_clients_pick(broker: PenstockBroker, new_producer: NewProducer) -> None:
    broker.topic("orders", partitions=7)
    producer = new_producer(broker, partitioner="murmur2_random")
    keys = [f"key-{n}" for n in range(50)] + ["", "é"]
    for key in keys:
        producer.produce("orders", b"theirs", key=key)
    assert producer.flush(WAIT_S) == 0
    theirs = {message.key: message.partition for message in broker.messages("orders")}
    for key in keys:
        assert broker.produce("orders", "ours", key=key)[0].partition == theirs[key.encode()]
    assert murmur2(b"21") & 0xFFFFFFFF == -973932308 & 0xFFFFFFFF


def test_without_a_key_partitions_take_turns(broker: PenstockBroker) -> None:
    broker.topic("orders", partitions=3)
    assert [message.partition for message in broker.produce("orders", *range(6))] == [0, 1, 2, 0, 1, 2]


def test_only_what_was_committed_is_found_unless_asked_otherwise(
    broker: PenstockBroker, new_producer: NewProducer
) -> None:
    producer = new_producer(broker, transactional_id="t")
    producer.init_transactions(WAIT_S)
    for value, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("orders", value)
        assert producer.flush(WAIT_S) == 0
        end(WAIT_S)
    assert [message.text for message in broker.messages("orders", at_least=1)] == ["committed"]
    uncommitted = broker.messages("orders", isolation="read_uncommitted")
    assert [message.text for message in uncommitted] == ["aborted", "committed"]


def test_messages_are_waited_for(broker: PenstockBroker) -> None:
    later = threading.Timer(0.1, lambda: broker.produce("orders", "one", "two"))
    later.start()
    assert len(broker.messages("orders", at_least=2)) == 2
    later.join()
    with pytest.raises(TimeoutError, match="has 2 messages, and not 3"):
        broker.messages("orders", at_least=3, timeout_s=0.01)


async def test_a_coroutine_waits_for_what_tasks_of_its_loop_write(broker: PenstockBroker) -> None:
    async def write() -> None:
        async with AsyncProducer(broker.bootstrap) as producer:
            await producer.send_and_wait("orders", b"one")

    writing = asyncio.create_task(write())
    with pytest.raises(TimeoutError, match="messages_async"):
        broker.messages("orders", at_least=1, timeout_s=0.01)
    (message,) = await broker.messages_async("orders", at_least=1)
    assert message.value == b"one"
    await writing
    with pytest.raises(TimeoutError, match="has 1 messages, and not 2"):
        await broker.messages_async("orders", at_least=2, timeout_s=0.01)


def test_mistakes_say_what_to_do(broker: PenstockBroker) -> None:
    broker.topic("orders")
    with pytest.raises(ValueError, match="no topic 'order': did you mean orders"):
        broker.messages("order")
    with pytest.raises(ValueError, match="already exists"):
        broker.topic("orders")
    with pytest.raises(ValueError, match="from 1 on"):
        broker.topic("bills", partitions=0)
    with pytest.raises(ValueError, match="retention"):
        broker.topic("bills", retention_mss=1)
    with pytest.raises(ValueError, match="partitions 0 to 0"):
        broker.produce("orders", "x", partition=1)
    with pytest.raises(TypeError, match="can't be a message"):
        broker.produce("orders", object())
    with pytest.raises(ValueError, match="did you mean read_committed"):
        broker.messages("orders", isolation="committed")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"did you mean num\.partitions"):
        PenstockBroker(num_partition=1)
    assert broker.topics() == ["orders"]


def test_settings_are_those_of_a_broker(new_producer: NewProducer) -> None:
    with PenstockBroker(num_partitions=5, auto_create_topics_enable=True) as broker:
        send(new_producer(broker), "orders", b"one")
        broker.produce("orders", "two", partition=4)


# ---- outages


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_broker_that_comes_back_has_what_it_had(broker: PenstockBroker, new_producer: NewProducer, end: str) -> None:
    producer = new_producer(broker)
    send(producer, "orders", b"before")
    address = broker.bootstrap
    getattr(broker, end)()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=5)
    with pytest.raises(RuntimeError, match="no broker is running"):
        broker.messages("orders")
    producer.produce("orders", b"meanwhile")
    broker.start()
    assert broker.bootstrap == address
    assert producer.flush(WAIT_S) == 0
    assert [message.text for message in broker.messages("orders")] == ["before", "meanwhile"]
    with pytest.raises(RuntimeError, match="is running"):
        broker.start()


def test_a_broker_that_is_opened_again_is_new() -> None:
    broker = PenstockBroker()
    for _ in range(2):
        with broker:
            assert broker.topics() == []
            broker.produce("orders", "one")
            broker.fail_next("Produce", "INVALID_RECORD")
    assert not broker._faults.there_are_any


# ---- a guest in somebody else's process


def test_nothing_is_left_of_500_brokers(new_producer: NewProducer) -> None:
    def one() -> None:
        with PenstockBroker() as broker:
            broker.topic("orders", partitions=2)
            broker.produce("orders", "one", "two")
            address = ("127.0.0.1", int(broker.bootstrap.rpartition(":")[2]))
            with socket.create_connection(address):
                assert len(broker.messages("orders")) == 2
            folders.append(broker._folder.name if broker._folder else "")

    folders: list[str] = []
    one()
    gc.collect()
    threads, files = threading.active_count(), descriptors()
    for _ in range(500):
        one()
    gc.collect()
    assert threading.active_count() == threads
    assert descriptors() <= files
    assert not any(Path(folder).exists() for folder in folders)


def test_a_broker_leaves_the_host_s_collector_and_signals_alone() -> None:
    frozen, handlers = gc.get_freeze_count(), [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    gc.disable()
    try:
        with PenstockBroker() as broker:
            loading = broker._running[1].broker._loading
            while not loading.done():
                time.sleep(0.01)
            assert not gc.isenabled()
    finally:
        gc.enable()
    assert gc.get_freeze_count() == frozen
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_what_the_broker_logs_goes_to_its_logger(broker: PenstockBroker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "penstock"):
        broker.topic("orders")
    assert any(record.name == "penstock.broker" and "created topic" in record.message for record in caplog.records)


def test_a_host_without_logging_sees_nothing_on_standard_error() -> None:
    program = """
import logging
from penstock.testing import PenstockBroker
with PenstockBroker() as broker:
    broker.produce("orders", "one")
    logging.getLogger("penstock.server").warning("not to be seen")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_broker_that_can_t_start_says_why_and_leaves_nothing() -> None:
    threads, files = threading.active_count(), descriptors()
    with pytest.raises(Exception, match="not HOST:PORT"):
        PenstockBroker(advertised="nonsense").open()
    assert threading.active_count() == threads
    assert descriptors() <= files


def test_a_broker_is_ready_before_one_notices() -> None:
    took_s = []
    for _ in range(5):
        began = time.perf_counter()
        with PenstockBroker():
            took_s.append(time.perf_counter() - began)
    assert min(took_s) < 0.02 * slowness()


def test_the_first_broker_of_a_process_is_ready_in_half_a_second() -> None:
    program = """
import time
began = time.process_time()
from penstock.testing import PenstockBroker
with PenstockBroker():
    print(time.process_time() - began)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert float(done.stdout) < 0.5 * slowness()
