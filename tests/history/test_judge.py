from __future__ import annotations

import random
from collections import defaultdict

import pytest

from tests.history.events import (
    ABORTED,
    COMMITTED,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    UNKNOWN,
    Assigned,
    BadHistory,
    Event,
    FinalRead,
    Message,
    Read,
    Trouble,
)
from tests.history.forged import TOPIC, Forgery
from tests.history.judge import Broken, Verdict, judge


def broken(forgery: Forgery) -> dict[Broken, int]:
    return dict(judge(forgery.events).counts)


def a_busy_run() -> Forgery:
    """Three kinds of writers, a transaction of each outcome, a group that hands over, and both final reads."""
    run = Forgery(partitions=2)
    run.began("plain", idempotent=False)
    run.began("once")
    run.began("txn", transactional_id="txn")
    for number in range(4):
        run.wrote("plain", number, number % 2)
        run.wrote("once", number, number % 2)
    run.sent("plain", 4)
    run.failed("plain", 4)
    run.stored("plain", 4)  # unknown, but there
    run.sent("once", 4)
    run.failed("once", 4)  # unknown, and not there
    for transaction, outcome in enumerate((COMMITTED, ABORTED, UNKNOWN, UNKNOWN)):
        visible = transaction in (0, 3)
        run.wrote("txn", 2 * transaction, 0, transaction, visible=visible)
        run.wrote("txn", 2 * transaction + 1, 1, transaction, visible=visible)
        run.marker(0)
        run.marker(1)
        if transaction < 3:  # of the last nobody said how it ended
            run.ended("txn", transaction, outcome)
    run.assigned("one")
    for offset in range(3):
        run.read("one", offset, group="g")
    run.assigned("other")
    for offset in range(2, 5):  # the third was read, but its offset was not committed
        run.read("other", offset, group="g")
    run.final()
    return run


def test_a_clean_run_is_clean() -> None:
    verdict = judge(a_busy_run().events)
    assert verdict.is_clean, str(verdict)
    assert verdict.facts["sent"] == 18
    assert verdict.facts["acknowledged"] == 16
    assert str(verdict).startswith("KEPT")


def test_the_order_of_the_files_does_not_matter() -> None:
    """Events of one party stay in their order; those of different parties come in any."""
    parties: dict[str, list[Event]] = defaultdict(list)
    for event in a_busy_run().events:
        parties[event.reader if isinstance(event, Assigned | Read | FinalRead) else event[1]].append(event)
    for seed in range(20):
        names = sorted(parties)
        random.Random(seed).shuffle(names)
        verdict = judge([event for name in names for event in parties[name]])
        assert verdict.is_clean, str(verdict)


def test_what_was_acknowledged_and_is_not_in_a_final_read_is_lost() -> None:
    run = Forgery()
    run.began("once")
    for number in range(3):
        run.wrote("once", number)
    run.final(without=(1,))
    assert broken(run) == {Broken.LOST: 2}  # in the one final read and in the other


def test_what_was_never_acknowledged_may_be_missing() -> None:
    run = Forgery()
    run.began("plain", idempotent=False)
    run.wrote("plain", 0)
    run.sent("plain", 1)
    run.failed("plain", 1)
    run.sent("plain", 2)  # not even answered
    run.final()
    assert broken(run) == {}


def test_an_idempotent_producer_writes_once_and_others_may_repeat() -> None:
    run = Forgery()
    run.began("once")
    run.began("plain", idempotent=False)
    run.wrote("once", 0)
    run.wrote("plain", 0)
    run.stored("plain", 0)
    run.final()
    assert broken(run) == {}
    run.stored("once", 0)
    run.events = [event for event in run.events if not hasattr(event, "reader")]
    run.final(isolations=(READ_COMMITTED,))
    assert broken(run) == {Broken.DUPLICATE: 1}


def test_a_duplicate_in_another_partition_is_one_too() -> None:
    run = Forgery(partitions=2)
    run.began("once")
    run.sent("once", 0, None)
    run.acknowledged("once", 0, run.stored("once", 0, 0))
    run.stored("once", 0, 1)
    run.final(isolations=(READ_COMMITTED,))
    assert broken(run) == {Broken.DUPLICATE: 1}


def test_an_idempotent_producer_writes_in_order_and_others_need_not() -> None:
    run = Forgery()
    run.began("once")
    run.began("plain", idempotent=False)
    for producer in ("plain", "once"):
        run.sent(producer, 0)
        run.sent(producer, 1)
        run.acknowledged(producer, 1, run.stored(producer, 1))
        run.acknowledged(producer, 0, run.stored(producer, 0))
    run.final(isolations=(READ_COMMITTED,))
    assert broken(run) == {Broken.ORDER: 1}


def test_a_reader_goes_forward_unless_it_is_assigned_anew() -> None:
    run = Forgery()
    run.began("once")
    for number in range(3):
        run.wrote("once", number)
    run.assigned("one")
    for offset in (0, 1, 2):
        run.read("one", offset, group="g")
    run.assigned("one")
    run.read("one", 1, group="g")
    run.final()
    assert broken(run) == {}
    run.read("one", 1, group="g")
    assert broken(run) == {Broken.ORDER: 1}


def test_an_aborted_message_is_for_nobody_who_reads_what_is_committed() -> None:
    run = Forgery()
    run.began("txn", transactional_id="txn")
    run.wrote("txn", 0, 0, 1, visible=False)
    run.marker()
    run.ended("txn", 1, ABORTED)
    run.final()
    run.read("curious", 0, isolation=READ_UNCOMMITTED)
    assert broken(run) == {}
    run.read("one", 0, group="g")
    assert broken(run)[Broken.ABORTED] == 1


@pytest.mark.parametrize("outcome", [COMMITTED, UNKNOWN])
def test_a_transaction_is_there_as_a_whole(outcome: str) -> None:
    run = Forgery()
    run.began("txn", transactional_id="txn")
    run.sent("txn", 0, 0, 1)
    run.stored("txn", 0)
    run.sent("txn", 1, 0, 1)
    run.stored("txn", 1, visible=False)
    run.ended("txn", 1, outcome)
    run.final()
    assert broken(run) == {Broken.PARTIAL: 1}


def test_a_committed_transaction_that_is_not_there_at_all_is_broken_too() -> None:
    run = Forgery()
    run.began("txn", transactional_id="txn")
    run.sent("txn", 0, 0, 1)
    run.ended("txn", 1, COMMITTED)
    run.final()
    assert broken(run) == {Broken.PARTIAL: 1}


def test_what_the_client_did_not_take_is_no_part_of_its_transaction() -> None:
    run = Forgery()
    run.began("txn", transactional_id="txn")
    run.wrote("txn", 0, 0, 1)
    run.sent("txn", 1, 0, 1)
    run.failed("txn", 1, certain=True)
    run.ended("txn", 1, COMMITTED)
    run.final()
    assert broken(run) == {}


def test_an_offset_keeps_its_content() -> None:
    run = Forgery()
    run.began("once")
    run.wrote("once", 0)
    run.sent("once", 1)
    run.stored("once", 1)
    run.read("early", 1, message=Message("once", 0))
    run.final(isolations=(READ_COMMITTED,))
    assert broken(run)[Broken.CHANGED] == 1


def test_an_acknowledged_offset_holds_what_was_acknowledged() -> None:
    run = Forgery()
    run.began("once")
    run.sent("once", 0)
    run.sent("once", 1)
    run.acknowledged("once", 0, 1)
    run.acknowledged("once", 1, 0)
    run.stored("once", 0)
    run.stored("once", 1)
    run.final(isolations=(READ_COMMITTED,))
    assert broken(run)[Broken.CHANGED] == 2


def test_what_was_read_once_stays() -> None:
    run = Forgery()
    run.began("plain", idempotent=False)
    run.wrote("plain", 0)
    run.sent("plain", 1)
    run.read("early", 1, message=Message("plain", 1))
    run.final()
    assert broken(run) == {Broken.VANISHED: 2}


def test_a_reader_leaves_nothing_out() -> None:
    run = Forgery()
    run.began("once")
    for number in range(4):
        run.wrote("once", number)
    for offset in (0, 1, 3):
        run.read("alone", offset)
    run.final(isolations=(READ_COMMITTED,))
    assert broken(run) == {Broken.SKIPPED: 1}


def test_a_group_leaves_nothing_out_between_its_members() -> None:
    run = Forgery()
    run.began("once")
    for number in range(4):
        run.wrote("once", number)
    for reader, offset in (("one", 0), ("other", 2)):  # as if 2 offsets had been committed and only one read
        run.assigned(reader)
        run.read(reader, offset, group="g")
    run.final(isolations=(READ_COMMITTED,))
    assert broken(run) == {Broken.SKIPPED: 1}


def test_nobody_reads_what_nobody_sent() -> None:
    run = Forgery(partitions=2)
    run.began("once")
    run.wrote("once", 0)
    run.stored("stranger", 7)
    run.sent("once", 1, 0)
    run.stored("once", 1, 1)  # in another partition than it was sent to
    run.acknowledged("once", 99, 50)
    run.final(isolations=(READ_COMMITTED,))
    assert broken(run) == {Broken.INVENTED: 3}


def test_a_run_that_nobody_read_to_its_end_proves_nothing() -> None:
    run = Forgery()
    run.began("once")
    run.wrote("once", 0)
    assert broken(run) == {Broken.UNPROVEN: 1}
    assert dict(judge([]).counts) == {Broken.UNPROVEN: 1}


def test_two_producers_of_one_name_are_no_history() -> None:
    run = Forgery()
    run.began("once")
    run.began("once")
    with pytest.raises(BadHistory, match="two producers"):
        judge(run.events)


def test_a_transaction_that_never_ends_is_found_by_the_ends() -> None:
    run = Forgery()
    run.began("once")
    run.wrote("once", 0)
    run.final()
    run.events.append(FinalRead(run.now(), "final read_uncommitted", TOPIC, READ_UNCOMMITTED, [5]))
    assert broken(run) == {Broken.HANGING: 1}


def test_the_longest_pause_is_found_overall_and_in_each_partition() -> None:
    run = Forgery(partitions=2)
    run.began("once")
    run.wrote("once", 0, 0)
    run.wrote("once", 1, 1)
    run.wait(0.5)
    run.wrote("once", 2, 0)
    run.wait(0.7)
    run.wrote("once", 3, 0)
    run.sent("once", 4, 1)  # in vain
    run.final()
    overall, first, second = judge(run.events).pauses
    assert (overall.where, round(overall.seconds, 1)) == ("all", 0.7)
    assert (first.where, round(first.seconds, 1)) == ("t-1", 1.2)
    assert (second.where, round(second.seconds, 1)) == ("t-0", 0.7)
    assert 0.4 < overall.since < 0.6


def test_a_verdict_counts_all_and_shows_some() -> None:
    run = Forgery()
    run.began("once")
    for number in range(100):
        run.wrote("once", number)
    run.events.append(Trouble(run.now(), "once", "_TRANSPORT"))
    run.final(isolations=(READ_COMMITTED,), without=tuple(range(100)))
    verdict: Verdict = judge(run.events)
    assert verdict.counts[Broken.LOST] == 100
    text = str(verdict)
    assert text.startswith("BROKEN\n  100 acknowledged, but lost:")
    assert "_TRANSPORT (1)" in text
    assert len(text.splitlines()) < 20
