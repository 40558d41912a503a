"""The broker that the clients talk to, topics, and the clients by name."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient

from tests.brokers import BrokerProcess
from tests.clients.drivers import CLIENTS, Client
from tests.clients.group_readers import QUICK, Group
from tests.clients.members import close_all, open_members
from tests.clients.steps import create_topic
from tests.clients.wire import Wire
from tests.clients.writers import LONG_MS, WRITERS, NewWriter, Writer

PEER = os.environ.get("CLIENTS_TEST_BOOTSTRAP")

Topics = Callable[..., str]


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """A broker as it comes."""
    return PEER or request.getfixturevalue("shared_broker").bootstrap


@pytest.fixture(scope="session")
def quick_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose groups may have short sessions, so that nobody waits long for a member's death."""
    if PEER:
        yield PEER
        return
    broker = BrokerProcess(tmp_path_factory.mktemp("quick"), group_min_session_timeout_ms=100)
    yield broker.start().bootstrap
    broker.close()


@pytest.fixture(autouse=True)
def _own_brokers_are_ours(request: pytest.FixtureRequest) -> None:
    if PEER and "new_broker" in request.fixturenames:
        pytest.skip("this test configures, stops or kills its broker")


@pytest.fixture(autouse=True)
def _nobody_polls_on() -> Iterator[None]:
    yield
    close_all(list(open_members))


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@pytest.fixture
def unique() -> Callable[[str], str]:
    """A name that no other test uses, nor another run against the same broker."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def new_topic(bootstrap: str, unique: Callable[[str], str]) -> Topics:
    """Makes topics: a number of partitions, and settings by their names."""

    def make(partitions: int = 1, *, at: str = bootstrap, **settings: object) -> str:
        return create_topic(at, unique("topic"), partitions, **settings)

    return make


@pytest.fixture
def wire(bootstrap: str) -> Iterator[Wire]:
    with Wire(bootstrap) as connection:
        yield connection


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Client:
    return CLIENTS[request.param]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker for groups of the consumer protocol, with short sessions."""
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


@pytest.fixture
def new_writer(client: Client, bootstrap: str, unique: Callable[[str], str]) -> Iterator[NewWriter]:
    """Makes transactional producers of the client at hand, and closes them."""
    made: list[Writer] = []

    def make(transactional_id: str | None = None, *, at: str = bootstrap, timeout_ms: int = LONG_MS) -> Writer:
        made.append(WRITERS[client.name](at, transactional_id or unique("writer"), timeout_ms))
        return made[-1]

    yield make
    for writer in made:
        writer.close()
