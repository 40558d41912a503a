"""Transcripts of consumer groups: what clients of both protocols ask, and what happens then (KIP-848).

Files of blocks as in `test_group_transcripts`: commands, a line of dashes, the trace that must follow.

    join alice [instance=i] [topics=t,u] [regex=t.*]     with the consumer protocol
    beat alice                                           a heartbeat; it has let go of what it was told to
    slow alice                                           a heartbeat; it has not yet
    leave alice                                          away alice (a static member that will be back)
    classic.join carol [topics=t]                        with the classic protocol: joins, and syncs if it may
    classic.beat carol                                   and joins again if it is told to
    restart alice                                        reload (the coordinator moves)
    grow t=8                                             after 10 (seconds)
    describe

With REWRITE_TRANSCRIPTS=1 in the environment, the traces are written anew, to be read over before they are kept.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from group_engine import GROUP, GroupEngine, offers, subscription

from penstock.groups.consumer.records import (
    AssignmentEpochStored,
    CurrentStored,
    GroupEpochStored,
    MemberStored,
    PatternStored,
    TargetStored,
)
from penstock.groups.consumer.states import MemberState
from penstock.groups.records import GroupStored, read_record
from penstock.protocol.codec import decode_versioned, encode_versioned
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, TopicPartition

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts" / "consumer").glob("*.txt"))
DASHES = "----"

Share = dict[str, set[int]]


def told(share: Share) -> str:
    parts = [f"{topic}-{partition}" for topic, each in sorted(share.items()) for partition in sorted(each)]
    return ",".join(parts) or "nothing"


class Client:
    def __init__(self, name: str) -> None:
        self.name = name
        self.lives = 0
        self.instance: str | None = None
        self.restart()

    def restart(self) -> None:
        self.lives += 1
        self.member_id = self.name if self.lives == 1 else f"{self.name}{self.lives}"
        self.epoch = 0
        self.reads: Share = {}
        self.given: Share = {}


class Narrator:
    def __init__(self) -> None:
        self.engine = GroupEngine()
        self.clients: dict[str, Client] = {}
        self.logged = 0
        self.state = "Dead"

    def tell(self, line: str) -> list[str]:
        verb, *words = line.split()
        names = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        said = getattr(self, verb.replace(".", "_"))(*names, **options) or []
        return [*self._log(), *said, *self._state()]

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    # ---- commands

    def join(self, name: str, instance: str | None = None, topics: str = "t", regex: str | None = None) -> list[str]:
        client = self.client(name)
        client.instance = instance or client.instance
        names = topics.split(",") if regex is None else []
        response = self.engine.beat(
            client.member_id, 0, topics=names, regex=regex, owned={}, rebalance_ms=60_000, instance=client.instance
        )
        return self._hear(client, response)

    def beat(self, name: str, topics: str | None = None) -> list[str]:
        client = self.client(name)
        has_changed = client.reads != client.given
        client.reads = client.given
        return self._beat(client, client.reads if has_changed else None, topics)

    def slow(self, name: str) -> list[str]:
        client = self.client(name)
        return self._beat(client, client.reads, None)

    def _beat(self, client: Client, owned: Share | None, topics: str | None) -> list[str]:
        names = None if topics is None else topics.split(",")
        response = self.engine.beat(client.member_id, client.epoch, owned=owned, topics=names)
        return self._hear(client, response)

    def _hear(self, client: Client, response: Any) -> list[str]:
        error = ErrorCode(response.error_code)
        if error:
            return [f"{client.name} <- {error.name}"]
        client.epoch = response.member_epoch
        given = self.engine.given(response)
        if given is None:
            return [f"{client.name} <- epoch {client.epoch}"]
        client.given = given
        return [f"{client.name} <- epoch {client.epoch}, reads {told(given)}"]

    def leave(self, name: str) -> list[str]:
        client = self.client(name)
        response = self.engine.beat(client.member_id, -1, instance=client.instance)
        return [f"{name} <- {ErrorCode(response.error_code).name}"]

    def away(self, name: str) -> list[str]:
        client = self.client(name)
        response = self.engine.beat(client.member_id, -2, instance=client.instance)
        return [f"{name} <- {ErrorCode(response.error_code).name}"]

    def classic_join(self, name: str, topics: str = "t") -> list[str]:
        client = self.client(name)
        protocols = offers(cooperative=subscription(*topics.split(","), holds=client.reads))
        ticket = self.engine.join(client.member_id, protocols=protocols, session_ms=45_000)
        reply = self.engine.replies.get(ticket)
        if reply is None:
            return [f"{name} waits"]
        if reply.error_code:
            return [f"{name} <- {ErrorCode(reply.error_code).name}"]
        client.epoch = reply.generation_id
        leads = reply.leader == client.member_id  # and takes everything for itself
        shares = {client.member_id: self._everything(topics.split(","))} if leads else {}
        synced = self.engine.replies[self.engine.sync(client.member_id, client.epoch, shares)]
        if synced.error_code:
            return [f"{name} <- generation {client.epoch}, {ErrorCode(synced.error_code).name}"]
        message = decode_versioned(ConsumerProtocolAssignment, synced.assignment)
        client.reads = {each.topic: set(each.partitions) for each in message.assigned_partitions}
        return [f"{name} <- generation {client.epoch}, reads {told(client.reads)}"]

    def _everything(self, topics: list[str]) -> bytes:
        shapes = [shape for topic in topics if (shape := self.engine.topics.shape(topic)) is not None]
        named = [TopicPartition(topic=shape.name, partitions=list(range(shape.partitions))) for shape in shapes]
        return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=named), 1)

    def classic_beat(self, name: str) -> list[str]:
        client = self.client(name)
        error = self.engine.heartbeat(client.member_id, client.epoch)
        said = [f"{name} <- {error.name}"]
        return said + self.classic_join(name) if error is ErrorCode.REBALANCE_IN_PROGRESS else said

    def restart(self, name: str) -> None:
        self.client(name).restart()

    def reload(self) -> None:
        self.engine.reload()

    def after(self, seconds: str) -> None:
        self.engine.advance(int(float(seconds) * 1000))

    def grow(self, **partitions: str) -> None:
        for topic, count in partitions.items():
            self.engine.topics.set(topic, int(count))
        self.engine.topics_changed()

    def describe(self) -> list[str]:
        members = self.engine.describe_consumer().members
        return [f"{m.member_id} at {m.member_epoch} has {self._named(m.assignment)}" for m in members] or ["nobody"]

    @staticmethod
    def _named(assignment: Any) -> str:
        return told({topic.topic_name: set(topic.partitions) for topic in assignment.topic_partitions})

    # ---- the trace

    def _log(self) -> list[str]:
        new, self.logged = self.engine.log[self.logged :], len(self.engine.log)
        return [f"  log: {self._record(read_record(record))}" for record in new]

    def _record(self, stored: Any) -> str:
        match stored:
            case GroupEpochStored(epoch=None):
                return "no consumer group any more"
            case GroupEpochStored():
                return f"group epoch {stored.epoch}"
            case AssignmentEpochStored(epoch=None):
                return "no assignment any more"
            case AssignmentEpochStored():
                return f"assignment epoch {stored.epoch}"
            case MemberStored(value=None):
                return f"{stored.member_id} is gone"
            case MemberStored():
                wants = stored.value.subscribed_topic_regex or ",".join(stored.value.subscribed_topic_names)
                return f"{stored.member_id} wants {wants}"
            case TargetStored(partitions=None):
                return f"{stored.member_id} should have nothing any more"
            case TargetStored():
                return f"{stored.member_id} should have {self._share(stored.partitions)}"
            case CurrentStored(value=None):
                return f"{stored.member_id} has nothing any more"
            case CurrentStored():
                value = stored.value
                held = {each.topic_id: each.partitions for each in value.assigned_partitions}
                owed = {each.topic_id: each.partitions for each in value.partitions_pending_revocation}
                owes = f" and must let go of {self._share(owed)}" if owed else ""
                state = MemberState(value.state).name.lower().replace("_", " ")
                return f"{stored.member_id} at {value.member_epoch} has {self._share(held)}{owes}, {state}"
            case PatternStored(resolved=None):
                return f"{stored.regex} forgotten"
            case PatternStored():
                return f"{stored.regex} matches {','.join(sorted(stored.resolved.topics))}"
            case GroupStored(value=None):
                return "no classic group any more"
        assert isinstance(stored, GroupStored)
        assert stored.value is not None
        ids = ", ".join(member.member_id for member in stored.value.members)
        return f"classic generation {stored.value.generation}: {ids}"

    def _share(self, partitions: Any) -> str:
        return told({self.engine.topics.name_of(topic_id): set(each) for topic_id, each in partitions.items()})

    def _state(self) -> list[str]:
        group = self.engine.machine.groups.get(GROUP)
        before, self.state = self.state, group.state.value if group else "Dead"
        return [] if self.state == before else [f"  group: {before} -> {self.state}"]


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    narrator = Narrator()
    blocks = []
    for block in path.read_text().rstrip("\n").split("\n\n"):
        commands = block.split(DASHES)[0].rstrip("\n").split("\n")
        trace = [line for command in commands if command and command[0] != "#" for line in narrator.tell(command)]
        is_comment = all(command.startswith("#") for command in commands)
        blocks.append("\n".join(commands if is_comment else [*commands, DASHES, *trace]))
    text = "\n\n".join(blocks) + "\n"
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(text)
    assert text == path.read_text()


def test_there_are_transcripts() -> None:
    assert TRANSCRIPTS
