"""The fixtures, in runs of pytest of their own: alone, in several processes at once, and beside an asyncio loop."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from tests.testing.conftest import WITH_PLUGIN

PACKAGE = Path(penstock.__file__).parents[1]

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a suite in a process of its own, with the package that these tests use."""
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))

    def run(suite: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(suite)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *WITH_PLUGIN, *arguments, timeout=90)

    return run


EMPTY_FOR_EACH = """
import pytest
from confluent_kafka import Producer

@pytest.mark.parametrize("n", range({count}))
def test_empty(penstock, n):
    assert penstock.topics() == []
    producer = Producer({{"bootstrap.servers": penstock.bootstrap}})
    producer.produce("orders", b"one")
    assert producer.flush(20) == 0
    assert len(penstock.messages("orders")) == 1
"""


def test_a_broker_is_empty_for_each_test(run: Run) -> None:
    run(EMPTY_FOR_EACH.format(count=10)).assert_outcomes(passed=10)


def test_every_worker_of_xdist_has_its_own(run: Run) -> None:
    run(EMPTY_FOR_EACH.format(count=20), "-n", "2").assert_outcomes(passed=20)


def test_coroutines_of_pytest_asyncio_may_use_it(run: Run) -> None:
    suite = """
import asyncio
import pytest
from aiokafka import AIOKafkaProducer

@pytest.fixture
async def producer(penstock):
    async with AIOKafkaProducer(bootstrap_servers=penstock.bootstrap) as producer:
        yield producer

async def test_produces(penstock, producer):
    await producer.send_and_wait("orders", b"one")
    assert penstock.messages("orders")[0].value == b"one"

async def test_produces_again(penstock, producer):
    await asyncio.gather(*[producer.send_and_wait("orders", b"%d" % n) for n in range(50)])
    assert len(penstock.messages("orders")) == 50
"""
    run(suite, "-o", "asyncio_mode=auto").assert_outcomes(passed=2)


def test_a_cluster_fails_over_in_a_test(run: Run) -> None:
    suite = """
def test_failover(penstock_cluster):
    penstock_cluster.topic("orders")
    penstock_cluster.produce("orders", "one")
    penstock_cluster.kill(penstock_cluster.leader("orders"))
    penstock_cluster.produce("orders", "two")
    assert [each.text for each in penstock_cluster.messages("orders")] == ["one", "two"]

def test_is_new(penstock_cluster):
    assert penstock_cluster.topics() == []
    assert len(penstock_cluster.brokers) == 3
"""
    run(suite).assert_outcomes(passed=2)


def test_markers_give_settings(run: Run) -> None:
    suite = """
import pytest
pytestmark = pytest.mark.penstock(num_partitions=2, message_max_bytes=5000)

@pytest.mark.penstock(num_partitions=7)
def test_one(penstock):
    assert penstock._given["num.partitions"] == "7"
    assert penstock._given["message.max.bytes"] == "5000"

@pytest.mark.penstock(brokers=2)
def test_two(penstock_cluster):
    assert list(penstock_cluster.brokers) == [1, 2]

@pytest.mark.penstock(num_partitons=7)
def test_wrong(penstock):
    pass
"""
    result = run(suite, "--strict-markers")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*BadArgument: no setting is called 'num.partitons': did you mean num.partitions*"])


def test_a_test_that_fails_is_shown_what_the_broker_logged(run: Run) -> None:
    suite = """
def test_fails(penstock):
    penstock.topic("orders")
    assert False
"""
    result = run(suite, "--log-level", "INFO")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["INFO * created topic"])
    assert "created topic" not in result.stderr.str()


def test_the_broker_s_own_assertions_are_not_rewritten(run: Run) -> None:
    suite = """
import importlib

def test_as_it_is(penstock):
    for name in ("penstock.broker.app", "penstock.testing.kit", "penstock.testing.broker"):
        module = importlib.import_module(name)
        assert "rewrite" not in type(module.__loader__).__module__
"""
    run(suite).assert_outcomes(passed=1)


def test_who_asks_for_no_broker_pays_for_none() -> None:
    program = f"""
import sys
sys.path.insert(0, {str(PACKAGE)!r})
import pytest
import penstock.testing.plugin
print(sorted(name for name in sys.modules if name.partition(".")[0] in ("penstock", "confluent_kafka", "uvloop")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "['penstock', 'penstock.testing', 'penstock.testing.plugin']"
