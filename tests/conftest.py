"""What every test may ask for."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess

pytest_plugins = ["tests.matrix.table", "tests.zookeepers"]

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src"

# The broker's, which count what the process holds open, before others leave clients behind. Then where tests take long,
# or one worker is left with them when the others are done.
FIRST = ("broker", "pipeline", "matrix", "client", "docs", "cluster")

_names = itertools.count()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--installed", action="store_true", help="test the installed package, not the source")
    parser.addoption("--every-fault", action="store_true", help="kill brokers in every way at every step of a sink")
    parser.addoption("--fault-rounds", type=int, default=1, help="how often each fault of the matrix happens")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rooms = {room: place for place, room in enumerate(FIRST)}
    items.sort(key=lambda item: rooms.get(item.path.relative_to(TESTS).parts[0], len(FIRST)))


# Now, before another conftest imports anything of penstock. Processes that tests start follow, and so do the workers of
# pytest-xdist, which are not given the arguments. What pytest has imported for the plugin of the installed package is
# forgotten: the plugin finds the source when a test asks it for a broker.
if "--installed" in sys.argv:
    os.environ["PENSTOCK_TESTED"] = "installed"
elif os.environ.get("PENSTOCK_TESTED") != "installed":
    sys.path.insert(0, str(SOURCE))
    os.environ["PYTHONPATH"] = str(SOURCE)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each of hundreds of processes compiles all of it again
    for name in [name for name in sys.modules if name.partition(".")[0] == "penstock"]:
        del sys.modules[name]


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker for all tests that only need one: each uses topics and groups of its own."""
    broker = BrokerProcess(tmp_path_factory.mktemp("shared")).start()
    yield broker
    broker.close()


@pytest.fixture
def new_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Makes and starts brokers that this test may stop, kill and start again."""
    made: list[BrokerProcess] = []

    def make(**settings: object) -> BrokerProcess:
        broker = BrokerProcess(tmp_path / f"broker-{len(made)}", **settings)
        made.append(broker)
        return broker.start()

    yield make
    for broker in made:
        broker.close()


@pytest.fixture
def unique() -> Callable[[str], str]:
    """A name that no other test uses."""
    return lambda prefix: f"{prefix}-{next(_names)}"
