"""The broker is killed at each step of the sink's protocol: each row is there once, in the order of its partition.

Without Spark: a test does what Spark does, and calls what the tasks and the driver call there. The sender of the
request lives, and does not know what came of it; or it dies too, and the next run of the query comes with the same
batch.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow
import pytest

from penstock.pipeline import sink
from penstock.pipeline.brokers import Brokers
from penstock.pipeline.options import write_options
from penstock.pipeline.sink import PREFIX, StreamWriter, Written
from penstock.pipeline.transactions import names_under
from tests.brokers import BrokerProcess
from tests.pipeline.broker_kills import STEPS, BrokerKiller, Died, Fate
from tests.pipeline.conftest import create_topic
from tests.pipeline.copying import PARTITIONS, read_all

TASKS = 2
ROWS = 24  # of a batch
LIVES, DIES = "the sender lives", "the sender dies"
LEAVES_SOMETHING = {  # behind, that another must find when the sender dies
    "a task writes more rows",
    "all is prepared",
    "the claim is written",
    "the last transaction is taken over",
    "the decision is written",
    "the decision is committed",
    "the first transaction is ended",
    "it is done",
}


class Query:
    """Does what Spark does: runs the tasks of a batch, has them committed, and starts again what has died."""

    def __init__(self, broker: BrokerProcess, topic: str, killer: BrokerKiller) -> None:
        self._options = write_options({"kafka.bootstrap.servers": broker.bootstrap, "topic": topic})
        self._killer = killer
        self.sink = f"{PREFIX}{uuid.uuid4()}"
        self._run = str(uuid.uuid4())

    def batch(self, number: int) -> int:
        """How often it died; any other failure is one of the test."""
        for deaths in itertools.count():
            with suppress(Died):
                writer = _Writer(self._options, sink.new_job())
                self._killer.sender = "task"
                messages = [self._task(writer, task, number) for task in range(TASKS)]
                self._killer.sender = "driver"
                writer.commit([*messages], number)
                return deaths
            self._run = str(uuid.uuid4())
        raise AssertionError("never comes here")

    def _task(self, writer: StreamWriter, task: int, number: int) -> Written:
        name = f"{self.sink}/{self._run}/{task}.0"
        return Written(self.sink, self._run, writer._prepare(name, f"{task}", _rows(task, number)))

    def open_names(self) -> dict[str, str]:
        with Brokers(self._options.client) as brokers:
            return names_under(brokers, f"{self.sink}/")


class _Writer(StreamWriter):
    def _give_up(self, *transaction: object) -> None:
        """A process that was killed gives up nothing, and none of these fails otherwise."""


def _rows(task: int, number: int) -> Iterator[pyarrow.RecordBatch]:
    """In several requests. A partition belongs to one task, so that its order is known."""
    values = [each for each in range(number * ROWS, (number + 1) * ROWS) if each % PARTITIONS % TASKS == task]
    for half in (values[: len(values) // 2], values[len(values) // 2 :]):
        partitions = pyarrow.array([each % PARTITIONS for each in half], pyarrow.int32())
        yield pyarrow.record_batch({"value": [b"%d" % each for each in half], "partition": partitions})


@pytest.mark.parametrize("sender", [LIVES, DIES])
@pytest.mark.parametrize("fate", Fate, ids=lambda fate: fate.value)
def test_a_broker_that_is_killed_at_each_step(
    new_broker: Callable[..., BrokerProcess],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    fate: Fate,
    sender: str,
) -> None:
    """At another one with each batch of a query."""
    is_everything = request.config.getoption("--every-fault")
    if fate is not Fate.UNHEARD and not is_everything:
        pytest.skip("the one that tells least is enough here; --every-fault runs all")
    broker = new_broker()
    create_topic(broker.bootstrap, "out", PARTITIONS)
    monkeypatch.setattr(sink, "SEND_BYTES", 1)
    killer = BrokerKiller(broker, monkeypatch)
    query = Query(broker, "out", killer)
    query.batch(0)
    steps = [each for each in STEPS if is_everything or sender == LIVES or each in LEAVES_SOMETHING]
    for number, step in enumerate(steps, start=1):
        killer.plan(STEPS[step], fate, sender_dies=sender == DIES)
        deaths = query.batch(number)
        assert killer.killed == number, f"not reached: {step}"
        assert deaths == int(sender == DIES), step
        assert query.open_names() == {}, step
        assert_each_once(broker, number + 1, step)


def assert_each_once(broker: BrokerProcess, batches: int, step: str) -> None:
    expected: dict[int, list[int]] = {each: [] for each in range(PARTITIONS)}
    for value in range(batches * ROWS):
        expected[value % PARTITIONS].append(value)
    assert read_all(broker.bootstrap, "out") == expected, step
