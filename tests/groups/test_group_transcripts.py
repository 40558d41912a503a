"""Transcripts: what clients ask, and what happens then, as a person would tell it.

A transcript is a file of blocks: commands, a line of dashes, and the trace that must follow. A client keeps its member
id and its generation, as a real one does, until it restarts.

    join alice [instance=i] [topics=t,u] [version=9] [session=10] [rebalance=60]
    sync alice [alice=p0 bob=p1]          beat alice           leave alice [by=instance]
    commit alice t-0=10                   fetch t-0            after 10 (seconds)
    restart alice (it forgets its id)     reload (the coordinator moves)
    describe                              delete

With REWRITE_TRANSCRIPTS=1 in the environment, the traces are written anew, to be read over before they are kept.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from group_engine import GROUP, GroupEngine, offers, subscription

from penstock.coordinator.machine import LogRecord, Ticket
from penstock.groups.config import GroupConfig
from penstock.groups.records import GroupStored, OffsetCommitted, read_record
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.leave_group import MemberIdentity
from penstock.protocol.messages.sync_group import SyncGroupResponse

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))
DASHES = "----"


class Client:
    def __init__(self, name: str) -> None:
        self.name = name
        self.instance: str | None = None
        self.restart()

    def restart(self) -> None:
        self.member_id, self.generation_id = "", -1


class Narrator:
    """Carries commands out, and tells what happened."""

    def __init__(self) -> None:
        self.engine = GroupEngine(GroupConfig(initial_rebalance_delay_ms=3_000))
        self.clients: dict[str, Client] = {}
        self.asked_by: dict[Ticket, Client] = {}
        self.told: set[Ticket] = set()
        self.logged = 0
        self.state = "Dead"

    def tell(self, line: str) -> list[str]:
        verb, *words = line.split()
        names = [word for word in words if "=" not in word]
        options = dict(word.split("=") for word in words if "=" in word)
        said = getattr(self, verb)(*names, **options) or []
        return [*self._log(), *self._replies(), *said, *self._state()]

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    # ---- commands

    def join(
        self,
        name: str,
        instance: str | None = None,
        topics: str = "t",
        version: str = "9",
        session: str = "10",
        rebalance: str = "60",
    ) -> None:
        client = self.client(name)
        client.instance = instance or client.instance
        ticket = self.engine.join(
            client.member_id,
            client=name,
            instance=client.instance,
            protocols=offers(range=subscription(*topics.split(","))),
            version=int(version),
            session_ms=int(session) * 1000,
            rebalance_ms=int(rebalance) * 1000,
        )
        self.asked_by[ticket] = client

    def sync(self, name: str, **shares: str) -> None:
        client = self.client(name)
        assignments = {self.client(who).member_id: share.encode() for who, share in shares.items()}
        ticket = self.engine.sync(client.member_id, client.generation_id, assignments, instance=client.instance)
        self.asked_by[ticket] = client

    def beat(self, name: str) -> list[str]:
        client = self.client(name)
        error = self.engine.heartbeat(client.member_id, client.generation_id, instance=client.instance)
        return [f"{name} <- {error.name}"]

    def leave(self, name: str, by: str = "id") -> list[str]:
        client = self.client(name)
        member_id = client.member_id if by == "id" else ""
        who = MemberIdentity(member_id=member_id, group_instance_id=client.instance)
        (left,) = self.engine.leave(who).members
        return [f"{name} <- {ErrorCode(left.error_code).name}"]

    def commit(self, name: str, **offsets: str) -> list[str]:
        client = self.client(name)
        wanted = {self._partition(partition): int(offset) for partition, offset in offsets.items()}
        errors = self.engine.commit(wanted, client.member_id, client.generation_id, instance=client.instance)
        return [f"{name} <- {' '.join(error.name for error in errors)}"]

    def fetch(self, *partitions: str) -> list[str]:
        offsets = self.engine.fetch(*map(self._partition, partitions))
        return [f"{topic}-{partition} is at {offset}" for (topic, partition), offset in offsets.items()]

    def after(self, seconds: str) -> None:
        self.engine.advance(int(float(seconds) * 1000))

    def restart(self, name: str) -> None:
        self.client(name).restart()

    def reload(self) -> None:
        self.engine.reload()

    def describe(self) -> list[str]:
        members = self.engine.describe().members
        return [f"{m.member_id} has {m.member_assignment.decode() or 'nothing'}" for m in members] or ["nobody"]

    def delete(self) -> list[str]:
        return [self.engine.delete()[GROUP].name]

    @staticmethod
    def _partition(text: str) -> tuple[str, int]:
        topic, _, partition = text.rpartition("-")
        return topic, int(partition)

    # ---- the trace

    def _log(self) -> list[str]:
        new, self.logged = self.engine.log[self.logged :], len(self.engine.log)
        return [f"  log: {self._record(record)}" for record in new]

    @staticmethod
    def _record(record: LogRecord) -> str:
        stored = read_record(record)
        if isinstance(stored, OffsetCommitted):
            where = f"{stored.topic}-{stored.partition}"
            return f"{where} forgotten" if stored.offset is None else f"{where} at {stored.offset.committed_offset}"
        assert isinstance(stored, GroupStored)
        if stored.value is None:
            return "group deleted"
        shares = [f"{m.member_id} has {m.assignment.decode() or 'nothing'}" for m in stored.value.members]
        return f"generation {stored.value.generation}: {', '.join(shares) or 'nobody'}"

    def _replies(self) -> list[str]:
        lines = []
        for ticket, reply in self.engine.replies.items():
            if ticket in self.asked_by and ticket not in self.told:
                self.told.add(ticket)
                client = self.asked_by[ticket]
                lines.append(f"{client.name} <- {self._reply(client, reply)}")
        return lines

    @staticmethod
    def _reply(client: Client, reply: Any) -> str:
        error = ErrorCode(reply.error_code)
        if isinstance(reply, SyncGroupResponse):
            return error.name if error else f"assigned {reply.assignment.decode() or 'nothing'}"
        assert isinstance(reply, JoinGroupResponse)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = reply.member_id
            return f"MEMBER_ID_REQUIRED {reply.member_id}"
        if error:
            return error.name
        client.member_id, client.generation_id = reply.member_id, reply.generation_id
        members = [m.member_id for m in reply.members]
        role = f"leads {', '.join(members)}" if members else f"follows {reply.leader}"
        skips = ", skips the assignment" if reply.skip_assignment else ""
        return f"{reply.member_id} in generation {reply.generation_id}, {role}{skips}"

    def _state(self) -> list[str]:
        group = self.engine.machine.groups.get(GROUP)
        before, self.state = self.state, group.state.value if group else "Dead"
        return [] if self.state == before else [f"  group: {before} -> {self.state}"]


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    narrator = Narrator()
    told = []
    for block in path.read_text().rstrip("\n").split("\n\n"):
        commands = block.split(DASHES)[0].rstrip("\n").split("\n")
        trace = [line for command in commands if command and command[0] != "#" for line in narrator.tell(command)]
        if all(command.startswith("#") for command in commands):
            told.append("\n".join(commands))
        else:
            told.append("\n".join([*commands, DASHES, *trace]))
    text = "\n\n".join(told) + "\n"
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(text)
    assert text == path.read_text()


def test_there_are_transcripts() -> None:
    assert TRANSCRIPTS
