"""Members of groups that are heard of while time flies: as if their clients had been awake all the way."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.broker.app import Broker
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.machine import GroupMachine
from penstock.groups.timers import Timer


async def hear_of_members(broker: Broker, seconds: float) -> None:
    """Before the clock goes forward by so much. A timer may be moved to later by its deadline alone."""
    for machine in broker.groups.machines():
        assert isinstance(machine, GroupMachine)
        for session in _sessions(machine):
            if session.deadline_ms is not None:
                session.deadline_ms += round(seconds * 1000)


def _sessions(machine: GroupMachine) -> Iterator[Timer]:
    for group in machine.groups.values():
        if isinstance(group, ConsumerGroup):
            yield from (group.watch(member_id).session for member_id in group.members)
        else:
            yield from (member.session for member in group.members.values())
