"""Two logs that were led by many, and where they part: against logs in which every record says who wrote it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.replication.reconciling import parting
from penstock.storage.leader_epochs import LeaderEpochs

Entries = list[tuple[int, int]]  # (epoch, how many records), by rising epoch


def log_of(entries: Entries) -> tuple[list[int], LeaderEpochs]:
    """The epoch of each record, and what the log remembers of its epochs."""
    records: list[int] = []
    epochs = LeaderEpochs()
    for epoch, count in entries:
        if count:
            epochs.begin(epoch, len(records))
        records += [epoch] * count
    return records, epochs


def reconcile(mine: Entries, leaders: Entries) -> tuple[list[int], list[int], int]:
    """As a follower does: asks for its newest epoch, cuts, and asks again until both have it."""
    records, epochs = log_of(mine)
    leaders_records, leaders_epochs = log_of(leaders)
    questions = 0
    while epochs.latest >= 0:
        questions += 1
        assert questions < 50, "it never ends"
        epoch, end = leaders_epochs.end_offset(epochs.latest, len(leaders_records))
        found = parting(epochs, len(records), epoch, end)
        del records[found.offset :]
        epochs.cut_end(found.offset)
        if found.agreed:
            break
    return records, leaders_records, questions


def test_what_the_leader_does_not_have_goes() -> None:
    records, leaders, _ = reconcile([(0, 5), (1, 5)], [(0, 5), (2, 3)])
    assert records == leaders[:5]


def test_a_follower_that_is_behind_keeps_all_it_has() -> None:
    records, _, questions = reconcile([(0, 5), (1, 2)], [(0, 5), (1, 7)])
    assert records == [0] * 5 + [1] * 2
    assert questions == 1


def test_fast_elections_one_after_another() -> None:
    """KIP-279: the follower has an epoch that the leader never saw, which began where the leader's next one did."""
    records, leaders, _ = reconcile([(0, 5), (2, 4)], [(0, 5), (1, 2), (3, 6)])
    assert records == leaders[:5]


def test_a_leader_that_has_nothing() -> None:
    records, _, _ = reconcile([(0, 5)], [])
    assert records == []


histories = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 4), st.lists(st.integers(0, 1), max_size=2, unique=True)), max_size=12
)


@given(history=histories)
def test_after_an_election_a_follower_is_a_beginning_of_its_leader(
    history: list[tuple[int, int, list[int]]],
) -> None:
    """Every epoch has one leader, which appends to its own log; others take some of that, after they reconciled."""
    logs: list[Entries] = [[], [], []]
    for epoch, (leader, count, followers) in enumerate(history):
        logs[leader] = [*logs[leader], (epoch, count)]
        for follower in (each if each < leader else each + 1 for each in followers):
            records, leaders, _ = reconcile(logs[follower], logs[leader])
            assert leaders[: len(records)] == records
            taken = leaders[: max(len(records), len(leaders) - 1)]
            logs[follower] = [(each, taken.count(each)) for each in sorted(set(taken))]
