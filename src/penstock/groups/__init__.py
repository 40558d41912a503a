"""Consumer groups: who is a member, which generation it is, which offsets were committed.

Owns: the group state machine, its records in `__consumer_offsets`, the commands that drive it.
Never: sockets, files, a clock of its own. The coordinator engine calls the machine and carries its outcome out.

    commands, config, topics     what may be asked, with which settings, and what is known of topics
    states                       the theory of classic groups, and the transition table
    group, member, subscription  one classic group and its books
    joining, syncing, heartbeating, leaving, rebalancing    the rules of membership in it
    consumer/, assignors/, patterns                         groups of the protocol of Kafka 4 (KIP-848)
    kinds                        the two kinds of groups
    committing, deleting, expiring, offsets, pending        the rules of offsets, in transactions too
    describing, responses        what is told
    records                      the log's format
    turn, timers, machine        how it is driven
"""
