"""Consumer groups: who is a member, which generation it is, which offsets were committed.

Owns: the group state machine, its records in `__consumer_offsets`, the commands that drive it.
Never: sockets, files, a clock of its own. The coordinator engine calls the machine and carries its outcome out.

    commands, config             what may be asked, and with which settings
    states                       the theory, and the transition table
    group, member, subscription  one group and its books
    joining, syncing, heartbeating, leaving, rebalancing    the rules of membership
    committing, deleting, expiring, offsets                 the rules of offsets
    describing, responses        what is told
    records                      the log's format
    turn, timers, machine        how it is driven
"""
