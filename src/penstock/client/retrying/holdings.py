"""The partitions that are ours, and how far each is committed.

While work goes on, a commit is not waited for, and its metadata says that someone is at work (see `deaths`). The last
commit of a partition is waited for, and takes that back. With exactly-once, copies and offsets go in one transaction.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, TopicPartition

from penstock import wall_clock
from penstock.client.errors import PenstockError, from_kafka
from penstock.client.retrying.assigned import Assigned
from penstock.client.retrying.parking import FLUSH_TIMEOUT_S, LOST, Acknowledged, Copy, PartitionsLost, Transactional
from penstock.client.retrying.waiting import Key

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from penstock.client.retrying.source import Source

log = logging.getLogger("penstock.client")

MOMENT_S = 1.0


def now_ms() -> int:
    return wall_clock.now_ms()


class Holdings:
    def __init__(self, source: Source) -> None:
        self._client: Consumer = source.client
        self._committer = source.committer
        self._heard_before, self._committer.heard = self._committer.heard, self.answered
        self._every = source.commit_every
        self._interval_s = source.commit_interval_s
        self.acknowledged = None if source.is_exactly_once else Acknowledged(source.connection)
        self.transactional = (
            Transactional(source.connection, source.group, source.instance) if source.is_exactly_once else None
        )
        if self.transactional is not None and source.instance is not None:
            self.transactional.take_over()
        self._unanswered: list[TopicPartition] = []  # of the last commit that was not waited for
        self._unsure: set[Key] = set()  # partitions of which another position may be stored than the one noted
        self.parts: dict[Key, Assigned] = {}
        self._unbegun: set[Key] = set()
        self.uncommitted = 0  # messages
        self.is_trying = False  # a message is on record as being tried, which may be done meanwhile
        self.commit_at = time.monotonic() + self._interval_s

    # ---- what is ours

    def add(self, parts: Iterable[Assigned]) -> None:
        for part in parts:
            self.parts[part.key] = part
            self._unbegun.add(part.key)

    def drop(self, keys: Iterable[Key]) -> None:
        gone = set(keys)
        for key in gone:
            self.parts.pop(key, None)
            self._unbegun.discard(key)
            self._unsure.discard(key)
        if self.transactional is not None:
            kept = self.transactional.kept
            self.transactional.kept = [copy for copy in kept if copy.parked.source_key not in gone]

    def begin(self, begins: Mapping[Key, int]) -> None:
        """Before the first message of a partition is handled, its mark says that we are at work.

        If that can't be committed, nothing is begun, and the same may be asked again.
        """
        beginning = []
        for key, offset in begins.items():
            if key in self._unbegun:
                part = self.parts[key]
                if not part.is_placed:
                    part.starts_at(offset, None, 0)
                beginning.append(part)
        if beginning:
            moment_ms = now_ms()
            self.commit_now(beginning, [part.progress(moment_ms) for part in beginning])
        for part in beginning:
            self._unbegun.remove(part.key)
            part.begun = True

    # ---- what is done

    def hand_over(self, part: Assigned, offset: int, copy: Copy) -> None:
        self.uncommitted += 1
        part.ledger.handing_over(offset)
        if self.transactional is not None:
            self.transactional.kept.append(copy)
            return
        assert self.acknowledged is not None
        self.acknowledged.send(copy, partial(part.ledger.acknowledged, offset))

    def dispatch(self) -> None:
        """What was handed over goes on its way, where it need not wait for a transaction."""
        if self.acknowledged is not None:
            self.acknowledged.dispatch()

    def dispatch_due(self) -> None:
        """What has waited for others long enough."""
        if self.acknowledged is not None:
            self.acknowledged.dispatch_due()

    def has_kept(self) -> bool:
        return self.transactional is not None and bool(self.transactional.kept)

    def look_for_acknowledgements(self) -> None:
        if self.acknowledged is not None:
            self.acknowledged.poll()

    def wait_for_acknowledgements(self, timeout_s: float = FLUSH_TIMEOUT_S) -> None:
        if self.acknowledged is not None:
            self.acknowledged.flush(timeout_s)

    # ---- committing

    def _moved(self) -> list[Assigned]:
        return [part for part in self.parts.values() if part.begun and self._has_moved(part, part.ledger.position)]

    def _has_moved(self, part: Assigned, position: int) -> bool:
        return position != part.ledger.committed or part.key in self._unsure

    def is_commit_due(self, now_s: float) -> bool:
        return now_s >= self.commit_at or self.uncommitted >= self._every

    def commit(self) -> list[Assigned]:
        """What is done so far. Returns partitions that were lost meanwhile, with all that was done in them."""
        self.uncommitted = 0
        self.is_trying = False
        self.commit_at = time.monotonic() + self._interval_s
        if self.transactional is not None and self.transactional.kept:
            return self._commit_kept(self.transactional)
        moment_ms = now_ms()
        if moved := self._moved():
            offsets = [part.progress(moment_ms) for part in moved]
            if self._committer.later(offsets):
                self._unanswered = offsets
                self._note(moved)
        return []

    def answered(self, error: KafkaError | None, offsets: Iterable[TopicPartition]) -> None:
        """To a commit that was not waited for. One that was not stored goes again with the next, and so does what
        one that came late has undone."""
        for each in offsets:
            part = self.parts.get((each.topic, each.partition))
            if part is None:
                continue
            if error is not None or each.error is not None or each.offset != part.ledger.committed:
                self._unsure.add(part.key)
        if not self._committer.unanswered:
            self._unanswered = []

    def _commit_kept(self, transactional: Transactional) -> list[Assigned]:
        """Returns what `commit` does. If it raises, copies are kept, and positions stay before their sources."""
        ours = self.parts.values()
        moved = [part for part in ours if part.begun and self._has_moved(part, part.ledger.next_offset)]
        moment_ms = now_ms()
        offsets = [part.progress(moment_ms, part.ledger.next_offset) for part in moved]
        behind = [place for place in self._unanswered if (place.topic, place.partition) in self.parts]
        if not behind or self.commit_now([], behind):  # else it might come after the transaction's, and undo it
            try:
                transactional.commit(self._client, offsets)
            except PartitionsLost:
                pass
            else:
                for part in moved:
                    part.ledger.all_acknowledged()
                self._note(moved)
                return []
        transactional.kept.clear()
        return moved

    def commit_now(self, parts: list[Assigned], offsets: list[TopicPartition], timeout_s: float | None = None) -> bool:
        """Waited for. False when the partitions are not ours any more."""
        error = self._committer.now(offsets, timeout_s)
        if error is not None and error.code() in LOST:
            return False
        if error is not None:
            raise from_kafka(error, "committing offsets")
        self._unanswered = []
        self._note(parts)
        return True

    def commit_attempt(self, part: Assigned, offset: int, is_suspect: bool) -> bool:
        """That this message is about to be tried. All before it in the partition must be done.

        What was done in other partitions is said with it: if this call ends with the process, they are not to blame.
        """
        moment_ms = now_ms()
        attempt = part.at(offset, part.watch.trying(offset, moment_ms, is_suspect))
        others = [each for each in self._moved() if each is not part]
        self.is_trying = True
        return self.commit_now(others, [attempt, *(each.progress(moment_ms) for each in others)])

    def finish(self, keys: Iterable[Key], deadline_s: float) -> list[Assigned]:
        """A last commit for these; returns what `commit` does. Marks go away, but where copies are on their way.

        What is before copies that can't be committed is committed nevertheless, before the error is raised.
        """
        lost: list[Assigned] = []
        try:
            if self.has_kept():
                lost = self.commit()  # else nobody will see the copies: their sources are not done
        finally:
            self.wait_for_acknowledgements(_until(deadline_s))
            ours = [self.parts[key] for key in keys if key in self.parts]
            self._commit_last([part for part in ours if part.begun and part not in lost], deadline_s)
        return lost

    def _commit_last(self, parts: list[Assigned], deadline_s: float) -> None:
        if self.transactional is not None and self.transactional.is_in_doubt:
            # Their positions may be behind the copies already, with them, and must not come back before them.
            parts = [part for part in parts if not part.ledger.on_their_way]
        if not parts:
            return
        moment_ms, are_aborted = now_ms(), self.transactional is not None
        offsets = [
            part.at(part.ledger.position, None)
            if are_aborted or not part.ledger.on_their_way
            else part.progress(moment_ms)
            for part in parts
        ]
        try:
            self.commit_now(parts, offsets, _until(deadline_s))
        except PenstockError as failure:
            log.warning("%s What was done since the last commit will be done again.", failure)

    def close(self) -> None:
        self._committer.heard = self._heard_before
        if self.acknowledged is not None:
            self.acknowledged.close()

    def _note(self, parts: list[Assigned]) -> None:
        for part in parts:
            part.ledger.committed = part.ledger.position
            self._unsure.discard(part.key)


def _until(deadline_s: float) -> float:
    """A last try is always worth a moment."""
    return max(MOMENT_S, deadline_s - time.monotonic())
