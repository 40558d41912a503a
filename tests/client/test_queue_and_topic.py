"""Point to point, and publish and subscribe."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
from confluent_kafka.admin import AdminClient

from penstock.client import Queue, QueueEmpty, QueueStopped, Retry, SettingsError, Topic, UsageError
from tests.client.conftest import MakeTopic

Unique = Callable[[str], str]
WAIT_S = 20.0


def test_a_job_that_fails_is_the_next_one_again(bootstrap: str, make_topic: MakeTopic) -> None:
    name = make_topic()
    with Queue(name, bootstrap) as queue:
        for number in range(3):
            queue.put({"number": number})
        with queue.get(WAIT_S) as job:
            assert job.value == {"number": 0}
        with pytest.raises(LookupError), queue.get(WAIT_S):
            raise LookupError
        with queue.get(WAIT_S) as job:
            assert job.value == {"number": 1}
    with Queue(name, bootstrap) as queue, queue.get(WAIT_S) as job:
        assert job.value == {"number": 2}


def test_a_job_in_hand_when_the_worker_ends_is_not_done(bootstrap: str, make_topic: MakeTopic) -> None:
    name = make_topic()
    queue = Queue(name, bootstrap)
    queue.put("job").result(WAIT_S)
    assert queue.take(WAIT_S).value == "job"
    with pytest.raises(UsageError, match="not done"):
        queue.take(0)
    queue.close()
    with Queue(name, bootstrap) as another, another.get(WAIT_S) as job:
        assert job.value == "job"


@pytest.mark.parametrize("retry", [None, Retry(attempts=2)])
def test_a_signal_ends_the_work_behind_the_job_in_hand(
    bootstrap: str, make_topic: MakeTopic, retry: Retry | None
) -> None:
    name = make_topic()
    before = signal.getsignal(signal.SIGTERM)
    done = []
    with Queue(name, bootstrap, retry=retry) as queue:
        for number in range(3):
            queue.put(number)
        while True:
            with suppress(Exception), queue.get(WAIT_S) as job:
                os.kill(os.getpid(), signal.SIGTERM)
                done.append(job.value)
    assert done == [0]
    assert signal.getsignal(signal.SIGTERM) is before
    with Queue(name, bootstrap) as queue, queue.get(WAIT_S) as job:
        assert job.value == 1


def test_a_signal_ends_the_wait_for_a_job(bootstrap: str, make_topic: MakeTopic) -> None:
    with Queue(make_topic(), bootstrap) as queue:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
        with pytest.raises(QueueStopped), queue.get(WAIT_S):
            pass


def test_a_queue_writes_what_it_can_read(bootstrap: str, make_topic: MakeTopic) -> None:
    with Queue(make_topic(), bootstrap, value=(str.encode, bytes.decode)) as queue:
        queue.put("text")
        with queue.get(WAIT_S) as job:
            assert job.value == "text"
    with pytest.raises(SettingsError):
        Queue("jobs", bootstrap, value=str.encode)  # type: ignore[arg-type]


def test_every_group_that_subscribes_reads_everything(bootstrap: str, make_topic: MakeTopic, unique: Unique) -> None:
    with Topic(make_topic(), bootstrap, value="json") as topic:
        for number in range(3):
            topic.publish(number, key="k")
        topic.flush(WAIT_S)
        for _ in range(2):
            with topic.subscribe(unique("group")) as subscriber:
                assert [message.value for message in subscriber.messages(3, timeout=WAIT_S)] == [0, 1, 2]


@pytest.mark.parametrize("retry", [None, Retry(attempts=2)])
def test_a_worker_may_come_before_the_first_job(bootstrap: str, unique: Unique, retry: Retry | None) -> None:
    name = unique("jobs")
    with Queue(name, bootstrap, partitions=3, retry=retry) as queue:
        with pytest.raises(QueueEmpty), queue.get(0):
            pass
        queue.put("job")
        with queue.get(WAIT_S) as job:
            assert job.value == "job"
    assert len(AdminClient({"bootstrap.servers": bootstrap}).list_topics(name, WAIT_S).topics[name].partitions) == 3
    with pytest.raises(SettingsError, match="partitions"):
        Queue(name, bootstrap, partitions=0)


def test_a_subscriber_may_come_before_what_is_published(bootstrap: str, unique: Unique) -> None:
    with Topic(unique("events"), bootstrap, value="json") as topic, topic.subscribe(unique("group")) as subscriber:
        assert subscriber.poll(0.1) is None
        topic.publish(1)
        assert [message.value for message in subscriber.messages(1, timeout=WAIT_S)] == [1]
