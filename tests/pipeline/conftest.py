"""One Spark for all tests of the pipeline, and a broker that it reads from and writes to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import BrokerProcess
from tests.pipeline.gate import gate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Topics = Callable[..., str]
# Tests are over before a thorough compiler pays, and two cores have other things to do than to collect in parallel.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
QUICK = {
    "SPARK_SUBMIT_OPTS": f"{SHORT_LIVED} -Dspark.sql.shuffle.partitions=2 -Dspark.ui.enabled=false",  # of drivers
    "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,  # of masters and workers
}
S3_KEYS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "secret"}  # which moto's server takes


@pytest.fixture(scope="session", autouse=True)
def _quick(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Also for the commands that tests start, which remember nothing of other tests' either."""
    os.environ.update(QUICK, XDG_STATE_HOME=str(tmp_path_factory.mktemp("state")))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from penstock.pipeline.session import open_session

    os.environ.update(S3_KEYS)  # tasks have the environment in which Spark was started
    session = open_session("tests", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def pushing(spark: SparkSession) -> SparkSession:
    """A session beside the other, whose filters narrow what is read; the other goes on as Spark comes."""
    from penstock.spark import push_filters

    session = spark.newSession()
    for _ in range(2):  # once is enough, and twice does no harm
        push_filters(session)
    return session


@pytest.fixture(scope="session")
def broker(shared_broker: BrokerProcess) -> BrokerProcess:
    return shared_broker


@pytest.fixture
def door(broker: BrokerProcess) -> Iterator[str]:
    """An address at which the broker asks for a password."""
    with gate(broker.bootstrap) as address:
        yield address


@pytest.fixture
def new_topic(broker: BrokerProcess, unique: Callable[[str], str]) -> Topics:
    """Makes a topic of its own for a test."""

    def make(partitions: int = 1, prefix: str = "rows", **configs: object) -> str:
        name = unique(prefix)
        create_topic(broker.bootstrap, name, partitions, **configs)
        return name

    return make


def create_topic(bootstrap: str, name: str, partitions: int = 1, **configs: object) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    config = {"retention.ms": "-1"}  # records of any time stay, however long a test takes
    config |= {key.replace("_", "."): str(value) for key, value in configs.items()}
    admin.create_topics([NewTopic(name, partitions, config=config)])[name].result(30)
