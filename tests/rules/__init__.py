"""The rules that keep data, each with a story that ends well because of it, and badly without it.

Where a rule is one line of a pure part, the story is told twice: once as it is, and once with the rule taken out, to
show that the story would notice. Those told here need a cluster, which is a simulated one. The other rules, and what a
single broker can show, have their tests where the code is:

1. Epochs and reconciling: `test_epochs.py`; consecutive elections in tests/replication/test_reconciling.py; any order
   of crashes, pauses and late writes in tests/cluster/test_election_safety.py, which takes out each rule in turn.
2. What counts as committed: `test_committing.py`; the arithmetic in tests/replication/test_in_sync.py.
3. Unclean elections: `test_elections.py`; who may be elected in tests/cluster/test_elections.py.
4. Without coordination: `test_coordination.py`; the client in tests/cluster/test_zookeeper.py and test_coordination.py.
5. Transactions: tests/transactions (every rule of the machine, a model of many producers with restarts),
   tests/server/test_transactions_crashes.py and test_coordinators_elsewhere.py.
6. Failed syncs and full disks: `test_syncs.py`; tests/storage/test_durability.py, tests/replication/test_committing.py,
   tests/faults/test_full_disk.py.
7. Damage, and whatever else may be lost: `test_damage.py`, `test_suspicion.py`; recovery in
   tests/storage/test_recovery.py and test_flipped_bits.py.
8. Bounds and bad input: tests/hostile, tests/fuzz, and the table of bounds in ARCHITECTURE.md.
"""
