"""Who leads a partition and who is in sync with it, given who is alive. Pure: states in, states out.

What this keeps: **each member of `isr` and of `eligible` holds all that is committed.** Any of them can lead, and
nobody else can without loss. Why that holds, whoever dies and whatever a stale leader believes:

- A leader commits only what the whole in-sync set holds, and nothing while `commits` says no. So no member of the
  in-sync set lacks anything when it leaves the set.
- Who leaves the set while what is left is too small to commit becomes eligible (KIP-966): from then on nothing is
  committed that it could lack. Once the set is large enough again, nobody stays eligible.
- Only leaders bring someone into the set, who holds by then all that is committed; every other change takes away, or
  begins a new leader epoch, under which the old leader's followers fetch from it no more.

So safety does not rest on everyone agreeing about `min.insync.replicas`: a leader whose setting says that its set is
large enough still commits nothing until `eligible` is empty. An election that gives up this rule is unclean. It happens
where a person allowed it, and else only if isr and eligible are empty: then the last leader knows most.

Each function returns the very object that it was given where nothing changes. Each change of leader, to nobody too,
begins a new leader epoch; a change of the in-sync set alone does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from penstock.cluster.model import NO_LEADER, BrokerState, PartitionState, TopicState
from penstock.cluster.reassignments import complete, original, target

Brokers = Mapping[int, BrokerState]  # those that are alive


def insync_needed(state: PartitionState, min_insync: int) -> int:
    """How many must be in sync for anything to be committed: never more than there are replicas.

    While the partition is on its way to other replicas, the smaller number counts: a topic that gets more replicas than
    `min.insync.replicas` is written to meanwhile.
    """
    if state.adding or state.removing:
        return max(1, min(min_insync, len(original(state)), len(target(state))))
    return max(1, min(min_insync, len(state.replicas)))


def commits(state: PartitionState, min_insync: int) -> bool:
    """Whether the leader may advance its high watermark (over what all of the in-sync set hold)."""
    return not state.eligible and len(state.isr) >= insync_needed(state, min_insync)


# What the controller decides


def settle_topic(topic: TopicState, brokers: Brokers, min_insync: int, unclean: bool = False) -> TopicState:
    partitions = topic.partitions
    changed = {}
    for index, state in enumerate(partitions):
        if not _at_rest(state, brokers):
            settled = settle(state, brokers, min_insync, unclean)
            if settled is not state:
                changed[index] = settled
    if not changed:
        return topic
    return replace(topic, partitions=tuple(changed.get(index, state) for index, state in enumerate(partitions)))


def settle(state: PartitionState, brokers: Brokers, min_insync: int, unclean: bool = False) -> PartitionState:
    """What the partition should be now. `unclean` allows a leader that may lack what is committed."""
    if _at_rest(state, brokers):
        return state
    settled = _with_isr(state, _staying(state.isr, brokers), min_insync)
    settled = _led(settled, brokers, min_insync, unclean)
    reassigned = complete(settled)
    if reassigned is not settled and any(_can_lead(member, brokers) for member in reassigned.isr):
        settled = _led(reassigned, brokers, min_insync, unclean)
    if settled.leader_epoch > state.leader_epoch + 1:
        settled = replace(settled, leader_epoch=state.leader_epoch + 1)  # one step, one epoch
    return settled


def prefer(state: PartitionState, brokers: Brokers) -> PartitionState:
    """Led by its first replica, if that can."""
    first = state.replicas[0]
    if first == state.leader or first not in state.isr or not _can_lead(first, brokers):
        return state
    return _led_by(state, first)


def elect_unclean(state: PartitionState, brokers: Brokers, min_insync: int) -> PartitionState:
    """Led by anyone, if nobody leads it: the best there is, and if need be one that lacks what is committed."""
    return state if state.leader in brokers else settle(state, brokers, min_insync, unclean=True)


# What leaders and replicas decide


def shrink(state: PartitionState, gone: Collection[int], min_insync: int) -> PartitionState:
    """The leader found that these lag. It never leaves by itself this way."""
    assert state.leader not in gone, "a leader is in sync with itself"
    return _with_isr(state, tuple(member for member in state.isr if member not in gone), min_insync)


def expand(state: PartitionState, joined: int, min_insync: int) -> PartitionState:
    """The leader found that this one has caught up. Whether it is alive and not stopping is the leader's to ask."""
    if joined in state.isr or joined not in state.replicas:
        return state
    return _with_isr(state, (*state.isr, joined), min_insync)


def withdraw(state: PartitionState, node_id: int, min_insync: int) -> PartitionState:
    """Without a replica whose data can't be trusted, if anyone else holds all that is committed.

    If nobody else does, what it has is the best there is, and it stays.
    """
    isr = tuple(member for member in state.isr if member != node_id)
    eligible = tuple(member for member in state.eligible if member != node_id)
    if (isr == state.isr and eligible == state.eligible) or not (isr or eligible):
        return state
    withdrawn = replace(state, isr=isr, eligible=() if len(isr) >= insync_needed(state, min_insync) else eligible)
    return _led_by(withdrawn, NO_LEADER) if node_id == state.leader else withdrawn


def vacate(state: PartitionState, node_id: int) -> PartitionState:
    """Without this leader until it is elected again: its next life begins an epoch of its own.

    What it wrote and did not sync may be gone, and be on followers still. In the same epoch nobody could tell that from
    what it writes to the same offsets now.
    """
    return _led_by(state, NO_LEADER) if state.leader == node_id else state


def put_last(state: PartitionState, node_id: int, brokers: Collection[int]) -> PartitionState:
    """A replica that has nothing any more of what was committed leads only where there is no other.

    Where none that has all of it is alive, a person may have to say who leads. That is then the first replica that is
    alive, or the last leader without being asked.
    """
    if any(member in brokers for member in (*state.isr, *state.eligible)):
        return state
    replicas = (*(each for each in state.replicas if each != node_id), node_id)
    last_leader = NO_LEADER if state.last_leader == node_id else state.last_leader
    return replace(state, replicas=replicas, last_leader=last_leader)


# The rules


def _at_rest(state: PartitionState, brokers: Brokers) -> bool:
    """Whether nothing can need to change: most partitions, most of the time, told as quickly as can be."""
    isr = state.isr
    if state.leader not in isr or state.eligible or state.adding or state.removing:
        return False
    for member in isr:
        broker = brokers.get(member)
        if broker is None or broker.stopping:
            return False
    return True


def _staying(isr: Iterable[int], brokers: Brokers) -> tuple[int, ...]:
    """Who of the set is alive and does not stop; those that stop stay where there is nobody else."""
    alive = tuple(member for member in isr if member in brokers)
    return tuple(member for member in alive if not brokers[member].stopping) or alive


def _with_isr(state: PartitionState, isr: tuple[int, ...], min_insync: int) -> PartitionState:
    eligible = _eligible(state, isr, min_insync)
    return state if (isr, eligible) == (state.isr, state.eligible) else replace(state, isr=isr, eligible=eligible)


def _eligible(state: PartitionState, isr: Collection[int], min_insync: int) -> tuple[int, ...]:
    """Who, besides this new in-sync set, goes on holding all that is committed."""
    if len(isr) >= insync_needed(state, min_insync):
        return ()
    held = (*state.isr, *state.eligible)
    return tuple(replica for replica in state.replicas if replica in held and replica not in isr)


def _led(state: PartitionState, brokers: Brokers, min_insync: int, unclean: bool) -> PartitionState:
    """Under its leader if that is in sync, and else under the one that is elected, if any can be."""

    def first(members: Collection[int]) -> int:
        able = (replica for replica in state.replicas if replica in members and _can_lead(replica, brokers))
        return next(able, NO_LEADER)

    if state.leader in state.isr:
        return state
    if (elected := first(state.isr)) != NO_LEADER:
        return _led_by(state, elected)
    if (elected := first(state.eligible)) != NO_LEADER:
        return _led_by(_with_isr(state, (elected,), min_insync), elected)
    if not state.isr and not state.eligible:
        elected = first([state.last_leader if state.leader == NO_LEADER else state.leader])
    if elected == NO_LEADER and unclean:
        elected = first(state.replicas)
    if elected != NO_LEADER:
        return _led_by(replace(state, isr=(elected,), eligible=()), elected)
    return state if state.leader == NO_LEADER else _led_by(state, NO_LEADER)


def _can_lead(node_id: int, brokers: Brokers) -> bool:
    return (broker := brokers.get(node_id)) is not None and not broker.stopping


def _led_by(state: PartitionState, leader: int) -> PartitionState:
    last_leader = state.leader if leader == NO_LEADER else NO_LEADER
    return replace(state, leader=leader, leader_epoch=state.leader_epoch + 1, last_leader=last_leader)
