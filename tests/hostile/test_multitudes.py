"""Every array of every request, filled with very many elements: all the same, and all different.

While a request is handled nothing else is, so the processor time that it costs is what everybody else waits. It is
measured at a fraction of what a request may hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.protocol.apis import REQUESTS
from penstock.protocol.framing import request_frame
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.protocol.schema import Field, Message, Struct, Type
from tests.brokers import BrokerProcess
from tests.hostile.clients import RawClient, batch_of
from tests.hostile.conftest import Hostile
from tests.machine import slowness

TOPIC, GROUP = "known-topic", "known-group"
FRACTION = 10  # of what a request may hold at most
HANDLING_S_MAX = 0.75  # for as much as a request may hold, on a quick machine
PARTICULAR = {"acks": 1, "session_epoch": -1, "allow_auto_topic_creation": False, "resource_type": 2}

Path = tuple[str, ...]


@pytest.fixture(scope="module")
def inhabited(broker: BrokerProcess) -> None:
    """A topic with records in it, and a group with a member that has much to say."""
    client = RawClient(broker.port)
    client.create_topic(TOPIC)
    for _ in range(3):
        client.produce(TOPIC, batch_of(b"v" * 20_000))
    while client.ask(FindCoordinatorRequest(coordinator_keys=[GROUP], key_type=0), 4).coordinators[0].error_code:
        time.sleep(0.02)
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"m" * 100_000)]
    request = JoinGroupRequest(
        group_id=GROUP, session_timeout_ms=300_000, rebalance_timeout_ms=300_000, protocol_type="consumer",
        protocols=protocols,
    )  # fmt: skip
    assert client.ask(request, 3).error_code == 0


def processor_s(pid: int) -> float:
    """What the main thread of a process has used."""
    with open(f"/proc/{pid}/task/{pid}/schedstat") as file:
        return int(file.read().split()[0]) / 1e9


def _name(cls: type[Message]) -> str:
    return cls.__name__


def arrays(cls: type[Struct], version: int, around: Path = ()) -> Iterator[Path]:
    """Where the arrays of a message are, those inside others too."""
    for name, f in _carried(cls, version):
        if f.type.name == "array":
            yield (*around, name)
            if not isinstance(f.type.element, Type):
                yield from arrays(f.type.element, version, (*around, name))


def _carried(cls: type[Struct], version: int) -> list[tuple[str, Field]]:
    return [(name, f) for name, f in cls.fields.items() if version in f.versions and version not in f.tagged]


def filled(cls: type[Message], version: int, path: Path, number: Callable[[int], int | None]) -> Message:
    """The message with the array at `path` full; `number` gives an element its number, None for one that is known."""
    message = _element(cls, version, None)
    holder: Any = message
    for name in path[:-1]:
        inner = _element(holder.fields[name].type.element, version, None)
        setattr(holder, name, [inner])
        holder = inner
    element = holder.fields[path[-1]].type.element
    count = cls.elements_max // FRACTION
    setattr(holder, path[-1], [_value(element, path[-1], version, number(i)) for i in range(count)])
    return message


def _element(cls: Any, version: int, number: int | None) -> Any:
    return cls(**{name: _field(f, name, version, number) for name, f in _carried(cls, version)})


def _field(f: Field, name: str, version: int, number: int | None) -> Any:
    if f.type.name in ("string", "struct", "bytes", "records") and not (f.type.name == "struct" and f.default is None):
        return _value(f.type, name, version, number)
    return [] if f.type.name == "array" else PARTICULAR.get(name, f.default)


def _value(t: Any, name: str, version: int, number: int | None) -> Any:
    if not isinstance(t, Type):
        return _element(t, version, number)
    if t.name == "string":
        known = GROUP if "group" in name or "key" in name else TOPIC
        return known if number is None else f"n{number}"
    if t.name in ("bytes", "records"):
        return b""
    if t.name == "struct":
        return _element(t.element, version, number)
    if t.format == "16s":
        return (number or 0).to_bytes(16, "big")
    return (number or 0) & 0x7F if t.format == "b" else number or 0


@pytest.mark.parametrize("cls", [cls for cls in REQUESTS.values() if any(arrays(cls, cls.versions.last))], ids=_name)
def test_as_many_elements_as_a_request_may_hold_are_handled_before_anybody_waits(
    hostile: Hostile, broker: BrokerProcess, inhabited: None, cls: type[Message]
) -> None:
    client = hostile(timeout_s=30)
    version = cls.versions.last if cls.api_key > 1 else 12  # the hot ones by name: ids would be unknown at once
    client.ask(_element(cls, version, None), version)  # the first of a kind compiles its reader
    costs = {}
    for path in arrays(cls, version):
        for number in (lambda _: None, lambda i: i):
            frame = request_frame(filled(cls, version, path, number), version, 1, "hostile")
            before = processor_s(broker.pid)
            client.send(frame)
            assert client.frame() is not None, path
            costs[path, "different" if number(1) else "same"] = FRACTION * (processor_s(broker.pid) - before)
    assert max(costs.values()) < HANDLING_S_MAX * slowness(), costs
