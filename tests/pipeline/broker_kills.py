"""A broker that is killed at one request of the sink's, as its tasks or its driver sends it, and started again.

A step is a request: of whom, of which kind, under whose name, and the how-manieth of its like in a batch. What is
killed is a real process (SIGKILL). Three things can have happened to the request, and the sender can't tell them
apart: it never arrived, it was under way, or it was carried out and its answer is lost.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import pytest

from penstock.pipeline.connection import Connection
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.fetch import FetchRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.list_transactions import ListTransactionsRequest
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.protocol.messages.produce import ProduceRequest
from penstock.protocol.schema import Message
from tests.brokers import BrokerProcess


class Name(Enum):
    """Under which transactional id a request is sent."""

    NONE = "none"
    SINK = "the sink's"
    TASK = "a task's"


class Step(NamedTuple):
    sender: str
    request: type[Message]
    name: Name
    count: int = 0


class Fate(Enum):
    UNSENT = "it never arrives"
    UNDER_WAY = "it is under way"
    UNHEARD = "its answer is lost"


STEPS = {
    "a task takes its name": Step("task", InitProducerIdRequest, Name.TASK),
    "a task writes its first rows": Step("task", ProduceRequest, Name.TASK),
    "a task writes more rows": Step("task", ProduceRequest, Name.TASK, 2),
    "all is prepared": Step("driver", MetadataRequest, Name.NONE),
    "the driver claims": Step("driver", InitProducerIdRequest, Name.SINK),
    "the claim is written": Step("driver", ProduceRequest, Name.SINK),
    "the claim is committed": Step("driver", EndTxnRequest, Name.SINK),
    "decisions are read": Step("driver", FetchRequest, Name.NONE),
    "the first transaction is taken over": Step("driver", InitProducerIdRequest, Name.TASK),
    "the last transaction is taken over": Step("driver", InitProducerIdRequest, Name.TASK, 1),
    "the decision is written": Step("driver", ProduceRequest, Name.SINK, 1),
    "the decision is committed": Step("driver", EndTxnRequest, Name.SINK, 1),
    "the first transaction is ended": Step("driver", EndTxnRequest, Name.TASK),
    "the last transaction is ended": Step("driver", EndTxnRequest, Name.TASK, 1),
    "it is done": Step("driver", ProduceRequest, Name.NONE),
    "what is open is looked for": Step("driver", ListTransactionsRequest, Name.NONE),
}


class Died(BaseException):
    """A process that is killed handles no exception."""


class BrokerKiller:
    """Sees every request that the pipeline sends in this process."""

    def __init__(self, broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
        self._broker = broker
        self._step: Step | None = None
        self._fate = Fate.UNHEARD
        self._sender_dies = False
        self._seen: dict[Step, int] = {}
        self._sent: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()  # the number of the request
        self.sender = "nobody"
        self.killed = 0
        send, receive = Connection.send, Connection.receive

        def send_or_kill(connection: Connection, request: Message, version: int) -> int:
            is_reached = self._is_reached(request)
            if is_reached and self._fate is Fate.UNSENT:
                self._kill()
            number = send(connection, request, version)
            if is_reached:
                self._sent[connection] = number
            if is_reached and self._fate is Fate.UNDER_WAY:
                self._kill()
            return number

        def receive_or_kill(connection: Connection, number: int) -> Any:
            answer = receive(connection, number)
            if self._sent.get(connection) == number and self._fate is Fate.UNHEARD:
                self._kill()
                raise connection._failed(OSError("closed by the broker"))
            return answer

        monkeypatch.setattr(Connection, "send", send_or_kill)
        monkeypatch.setattr(Connection, "receive", receive_or_kill)

    def plan(self, step: Step, fate: Fate, *, sender_dies: bool) -> None:
        self._step, self._fate, self._sender_dies = step, fate, sender_dies
        self._seen.clear()

    def _is_reached(self, request: Message) -> bool:
        if self._step is None:
            return False
        step = Step(self.sender, type(request), _name(request))
        count = self._seen[step] = self._seen.get(step, -1) + 1
        return step._replace(count=count) == self._step

    def _kill(self) -> None:
        self._step = None
        self._broker.kill()
        self._broker.start()
        self.killed += 1
        if self._sender_dies:
            raise Died


def _name(request: Message) -> Name:
    name = getattr(request, "transactional_id", None)
    if name is None:
        return Name.NONE
    return Name.TASK if "/" in name else Name.SINK
