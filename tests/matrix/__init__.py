"""The fault matrix: a cluster of processes with a real ZooKeeper under load, one fault after another, and a verdict.

    pytest tests/matrix                                        every fault once, small
    python -m tests.chaos --cluster --minutes 30 --seed 7      faults drawn at random for as long as you like

places, network    where processes run: on the loopback, or each in a network of its own, which can be cut
launch, broker     how a broker's process begins; one with a disk or a clock that misbehaves
member, cluster    the processes, and what may be done to them
truth              what ZooKeeper knows: who leads, who controls, who is in sync
crowd              the writers and readers
faults/            what can happen, each a begin and an end
trial              load, fault, recovery, verdict; `table` shows the rows of all of them
campaign           the long form
"""
