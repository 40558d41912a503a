"""The states of a consumer group and of its members.

Three epochs say how far a group has come. Each only rises.

    group epoch        something that matters to the assignment has changed: a member, a subscription, a topic
    assignment epoch   the group epoch for which it was last worked out who should read what, the target assignment
    member epoch       the assignment epoch that a member has reached, by letting go of what is no longer its own

                     group epoch > assignment epoch         all members at the assignment epoch
      Empty -------------> Assigning -------------> Reconciling -------------> Stable
        ^                      ^                         |                        |
        |   no members left    +-------------------------+------------------------+
        +----------------------------- from any of them

The state of a group follows from its books and is stored nowhere. A member goes its way alone, at the pace of its own
heartbeats; there is no barrier, and who has nothing to give up reads on undisturbed:

STABLE                 it has all of its target, or knows of no newer one.
UNREVOKED_PARTITIONS   it was told to let go of partitions, and has not said yet that it did. It keeps its epoch until
                       then, and is out after its rebalance timeout.
UNRELEASED_PARTITIONS  it is at the newest epoch, but some of its target are still others'. It gets them, heartbeat by
                       heartbeat, as they are let go of.

The rule above all: a partition is given to a member only while no other holds it, be it assigned or yet to be revoked.
"""

from __future__ import annotations

from enum import Enum, IntEnum

# Epochs by which a member says what it wants.
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2  # a static member that will be back (KIP-345), and is kept with this epoch until then


class ConsumerGroupState(Enum):
    """The value is the name that clients see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """The value is what the log holds."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127  # written by a newer coordinator: the member must begin again
