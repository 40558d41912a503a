"""The states of a group, and the only ways from one to another.

A group lives through rebalances. In each, every member joins, and says what it wants (JoinGroup); the coordinator
begins a generation and tells one member, the leader, who has joined; the leader shares the work out, and every member
collects its part (SyncGroup). Until then nobody works; from then on they do, until somebody comes, goes, or changes
its mind.

                        +---------------- PreparingRebalance <------------------+
                        |  MEMBERS_GONE     ^           |                       |
                        v                   |           | MEMBERS_JOINED        | REBALANCE
      (new) ------->  Empty ----------------+           v                       |
                        |      REBALANCE      CompletingRebalance --------------+
          GROUP_DELETED |                               |                       |
                        v                               | ASSIGNMENT_STORED     |
                      Dead                              v                       |
                                                     Stable --------------------+

Empty                nobody is a member. Offsets may be kept, and for a group that only ever stores offsets (a simple
                     group) this is the whole life. Answers every member with UNKNOWN_MEMBER_ID.
PreparingRebalance   JoinGroup is parked until everyone has joined, or the rebalance timeout has passed; those who did
                     not come are removed. Heartbeats and SyncGroup are answered with REBALANCE_IN_PROGRESS; offsets of
                     the generation that ends may still be committed.
CompletingRebalance  a generation has begun. SyncGroup is parked until the leader's comes, with the assignment. Offset
                     commits are answered with REBALANCE_IN_PROGRESS, for nobody has been given a partition yet.
Stable               the assignment is in the log, and SyncGroup is answered from it.
Dead                 the group is deleted. Nothing leads out: who asks for the group again gets a new one.

Empty and Stable are what the log knows: they are entered when a record is applied, never before. The two between are
known to this coordinator alone, and a new one falls back to the last Empty or Stable of the log; members find out from
UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION, and join again.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """The value is the name that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(Enum):
    REBALANCE = "a member came, went or changed"
    MEMBERS_JOINED = "all who will join have joined"
    MEMBERS_GONE = "no member is left, and the log says so"
    ASSIGNMENT_STORED = "the leader's assignment is in the log"
    GROUP_DELETED = "the group's tombstone is in the log"


TRANSITIONS: dict[State, dict[Event, State]] = {
    State.EMPTY: {
        Event.REBALANCE: State.PREPARING_REBALANCE,
        Event.GROUP_DELETED: State.DEAD,
    },
    State.PREPARING_REBALANCE: {
        Event.MEMBERS_JOINED: State.COMPLETING_REBALANCE,
        Event.MEMBERS_GONE: State.EMPTY,
    },
    State.COMPLETING_REBALANCE: {
        Event.ASSIGNMENT_STORED: State.STABLE,
        Event.REBALANCE: State.PREPARING_REBALANCE,
    },
    State.STABLE: {
        Event.REBALANCE: State.PREPARING_REBALANCE,
    },
    State.DEAD: {},
}


def after(state: State, event: Event) -> State:
    to = TRANSITIONS[state].get(event)
    assert to is not None, f"{event.name} can't happen to a group that is {state.value}"
    return to
