"""Producers of both versions that share transactional ids, on a network that delays and repeats what they say.

Whatever happens, in any order:
- what is decided stays decided, and is followed by its completion;
- the epoch of an id only rises, and behind the last one comes a producer id that nobody had;
- no two producers are ever told the same id and epoch;
- who is told that it has committed has committed, and who is told that it has aborted has aborted;
- markers say what was decided, and go to all partitions that were added, under the id that has written;
- who keeps a transaction hears of the one that is open, and what two phases commit is not ended by time;
- a machine that is made again from the log is the same;
and in the end, when the markers are written, everything that was begun is over and every id can be used again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.protocol.errors import ErrorCode
from penstock.transactions.commands import Kept
from penstock.transactions.config import TransactionConfig
from penstock.transactions.machine import TransactionMachine
from penstock.transactions.records import read_record, transaction_record
from penstock.transactions.states import State
from penstock.transactions.transaction import EPOCH_MAX, NO_EPOCH, Transaction
from tests.transactions.engine import BUMPING, CLASSIC, NOBODY, Call, Stamp, TransactionEngine

NAMES = ["a", "b", "c"]
TIMEOUT_MS = 20_000
PARTITIONS = [("t", 0), ("t", 1), ("u", 0)]


@dataclass(eq=False)
class Producer:
    """One client: it believes the last answer that reached it."""

    number: int
    name: str
    version: int
    two_phase: bool = False
    stamp: Stamp = NOBODY


Request = tuple[Producer, Callable[[], Call], Callable[[Call], None]]
"""Who sends it, the request, and what is to be true of the answer."""


class TransactionsOnABadNetwork(RuleBasedStateMachine):
    @initialize(epochs_left=st.sampled_from([3, 5, EPOCH_MAX]))
    def begin(self, epochs_left: int) -> None:
        config = TransactionConfig(id_expiration_ms=300_000, expiration_check_ms=50_000)
        self.engine = engine = TransactionEngine(config)
        self.producers = [
            Producer(number, name, version, two_phase=name == "c")
            for number, (name, version) in enumerate(
                [("a", CLASSIC), ("a", BUMPING), ("a", BUMPING), ("b", BUMPING), ("c", BUMPING), ("c", CLASSIC)]
            )
        ]
        self.owners: dict[tuple[str, Stamp], Producer] = {}
        self.network: list[Request] = []
        self.waiting: list[tuple[Producer, Call, Callable[[Call], None]]] = []
        for name in NAMES if epochs_left < EPOCH_MAX else ():
            old = Transaction(name, next(engine.ids), EPOCH_MAX - epochs_left, timeout_ms=1, updated_ms=engine.now_ms)
            record = transaction_record(old)
            engine.log.append(record)
            engine.machine.apply(record, engine.now_ms)

    # ---- what producers say

    def _send(self, who: Producer, request: Callable[[], Call], check: Callable[[Call], None], fate: str) -> None:
        """`fate` of the request: it arrives now, is delayed, or both."""
        if fate != "late":
            self._deliver((who, request, check))
        if fate != "now":
            self.network.append((who, request, check))

    def _deliver(self, request: Request) -> None:
        who, make, check = request
        self.waiting.append((who, make(), check))
        self._hear()

    def _hear(self) -> None:
        """Answers that have come since."""
        waiting, self.waiting = self.waiting, []
        for who, call, check in waiting:
            if call.value is None:
                self.waiting.append((who, call, check))
            else:
                check(call)

    def _told(self, who: Producer, stamp: Stamp) -> None:
        owner = self.owners.setdefault((who.name, stamp), who)
        assert owner is who, f"{stamp} of {who.name} is told to two producers"
        who.stamp = stamp

    fates = st.sampled_from(["now", "now", "late", "both"])
    numbers = st.integers(0, 5)

    @rule(number=numbers, recovers=st.booleans(), fate=fates)
    def a_producer_begins(self, number: int, recovers: bool, fate: str) -> None:
        who = self.producers[number]
        stamp = who.stamp if recovers else NOBODY

        def check(call: Call) -> None:
            if isinstance(call.value, tuple):
                self._told(who, call.value)

        self._send(
            who,
            lambda: self.engine.initialize(who.name, stamp, TIMEOUT_MS, two_phase=who.two_phase),
            check,
            fate,
        )

    @rule(number=numbers, fate=fates)
    def a_producer_keeps_what_is_open(self, number: int, fate: str) -> None:
        who = self.producers[number]

        def ask() -> Call:
            call = self.engine.initialize(who.name, timeout_ms=TIMEOUT_MS, two_phase=who.two_phase, keeps=True)
            if isinstance(call.value, Kept):
                transaction = self.engine.transaction(who.name)
                told = (call.value.ongoing_producer_id, call.value.ongoing_producer_epoch)
                assert (transaction.state, self.engine.stamp(who.name)) == (State.ONGOING, told)
            return call

        def check(call: Call) -> None:
            if isinstance(call.value, Kept):
                self._told(who, (call.value.producer_id, call.value.producer_epoch))
            elif isinstance(call.value, tuple):
                self._told(who, call.value)

        self._send(who, ask, check, fate)

    @rule(number=numbers, partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1), fate=fates)
    def a_producer_adds_partitions(self, number: int, partitions: set[tuple[str, int]], fate: str) -> None:
        who = self.producers[number]
        stamp = who.stamp

        def check(call: Call) -> None:
            if isinstance(call.value, dict) and ErrorCode.NONE in call.value.values():
                assert (who.name, stamp) in self.owners, "nobody was given this"

        self._send(
            who, lambda: self.engine.add(stamp, *partitions, name=who.name, version=who.version), check, fate
        )  # fmt: skip

    @rule(number=numbers, commit=st.booleans(), fate=fates)
    def a_producer_ends_its_transaction(self, number: int, commit: bool, fate: str) -> None:
        who = self.producers[number]
        stamp = who.stamp

        def check(call: Call) -> None:
            if not isinstance(call.value, tuple):
                return
            assert self._decided(who.name, stamp) is commit, f"{stamp} of {who.name} was told a lie"
            if who.stamp == stamp:
                self._told(who, call.value)
            else:
                assert self.owners.setdefault((who.name, call.value), who) is who

        self._send(
            who, lambda: self.engine.end(stamp, commit=commit, name=who.name, version=who.version), check, fate
        )  # fmt: skip

    @rule(number=numbers, commit=st.booleans())
    def a_producer_has_a_good_time(self, number: int, commit: bool) -> None:
        """Everything arrives at once, and markers are fast."""
        if self.producers[number].stamp == NOBODY:
            self.a_producer_begins(number, False, "now")
        self.a_producer_adds_partitions(number, {PARTITIONS[0]}, "now")
        self.a_producer_ends_its_transaction(number, commit, "now")
        self.engine.write_markers()
        self._hear()

    def _history(self, name: str) -> list[Transaction | None]:
        found = [read_record(record) for record in self.engine.log]
        return [each[1] for each in found if each is not None and each[0] == name]

    def _decided(self, name: str, stamp: Stamp) -> bool | None:
        """What the log says of the last transaction that was ended while a producer's id and epoch owned it."""
        decided = [
            after.state.is_commit
            for before, after in pairwise(self._history(name))
            if before is not None and after is not None and after.state.is_prepared and before.owner == stamp
        ]
        return decided[-1] if decided else None

    # ---- what the world does

    @precondition(lambda self: self.network)
    @rule(data=st.data(), again=st.booleans())
    def the_network_delivers(self, data: st.DataObject, again: bool) -> None:
        place = data.draw(st.integers(0, len(self.network) - 1))
        self._deliver(self.network[place] if again else self.network.pop(place))

    @precondition(lambda self: self.engine.effects)
    @rule(data=st.data(), reports=st.integers(1, 2))
    def markers_are_written(self, data: st.DataObject, reports: int) -> None:
        effects = self.engine.effects
        effect = effects.pop(data.draw(st.integers(0, len(effects) - 1)))
        for _ in range(reports):
            self.engine.markers_written(effect)
        self._hear()

    @rule()
    def the_coordinator_is_another(self) -> None:
        self.engine.reload()
        self._hear()

    @rule(ms=st.sampled_from([1, 999, 1_000, 19_999, 60_000, 400_000]))
    def time_passes(self, ms: int) -> None:
        endless = [name for name, each in self.engine.machine.transactions.items() if _is_endless(each)]
        self.engine.advance(ms)
        assert all(_is_endless(self.engine.transaction(name)) for name in endless)
        self._hear()

    # ---- what holds

    @invariant()
    def what_is_decided_stays_decided(self) -> None:
        for name in NAMES:
            history = self._history(name)
            for before, after in pairwise(history):
                if before is not None and before.state.is_prepared:
                    assert after is not None
                    assert after.state.is_complete
                    assert after.state.is_commit is before.state.is_commit
                if after is not None and after.state is State.PREPARE_COMMIT:
                    assert before is not None
                    assert (before.state, before.partitions) == (State.ONGOING, after.partitions)

    @invariant()
    def epochs_only_rise(self) -> None:
        seen: dict[int, str] = {}
        for name in NAMES:
            last: Stamp = NOBODY
            for each in self._history(name):
                if each is None:
                    continue
                if each.owner[0] == last[0]:
                    assert each.owner[1] >= last[1]
                else:
                    assert each.owner[0] not in seen, "an id that was used before"
                    seen[each.owner[0]] = name
                    assert each.owner[1] == 0 or last == NOBODY
                last = each.owner

    @invariant()
    def markers_have_the_id_that_has_written_and_an_epoch_that_ends_it(self) -> None:
        for name in NAMES:
            for before, after in pairwise(self._history(name)):
                if before is None or after is None or not after.state.is_prepared:
                    continue
                assert after.producer_id == before.producer_id
                is_fenced = after.version == BUMPING or before.is_kept
                is_last = before.producer_epoch == EPOCH_MAX
                assert after.producer_epoch > before.producer_epoch or not is_fenced or is_last

    @invariant()
    def markers_say_what_was_decided(self) -> None:
        for effect in self.engine.effects:
            transaction = self.engine.transaction(effect.transactional_id)
            assert transaction.state.is_prepared
            assert (effect.committed, effect.partitions) == (transaction.state.is_commit, transaction.partitions)
        waiting = [effect.transactional_id for effect in self.engine.effects]
        prepared = [name for name, each in self.engine.machine.transactions.items() if each.state.is_prepared]
        assert sorted(waiting) == sorted(prepared), "whatever is decided is on its way, once"

    @invariant()
    def the_log_is_all_there_is(self) -> None:
        loaded = TransactionMachine(self.engine.config)
        for record in self.engine.log:
            loaded.apply(record, self.engine.now_ms)
        assert loaded.transactions == {
            name: replace(each, last_epoch=NO_EPOCH) for name, each in self.engine.machine.transactions.items()
        }

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        engine = self.engine
        engine.advance(TIMEOUT_MS + 1)
        while engine.effects:
            engine.write_markers()
        self._hear()
        assert not self.waiting, "everyone is answered"
        for name, transaction in list(engine.machine.transactions.items()):
            assert (
                transaction.state is State.EMPTY
                or transaction.state.is_complete
                or _is_endless(transaction)
                or (transaction.state is State.ONGOING and transaction.started_ms + TIMEOUT_MS > engine.now_ms)
            )
            call = engine.initialize(name, timeout_ms=TIMEOUT_MS)
            engine.write_markers()
            assert isinstance(call.value, tuple)
            assert (name, call.value) not in self.owners


def _is_endless(transaction: Transaction) -> bool:
    return transaction.state is State.ONGOING and transaction.is_two_phase


TransactionsOnABadNetwork.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestTransactionsOnABadNetwork = TransactionsOnABadNetwork.TestCase
