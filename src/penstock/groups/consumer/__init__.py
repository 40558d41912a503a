"""Consumer groups of the protocol of Kafka 4 (KIP-848): the coordinator assigns, and members follow step by step.

Owns: the rules for such groups, and how a group goes from one protocol to the other with its members in it.
Never: which member should read what (that is `assignors`), or the offsets, which both kinds of groups commit alike.

    states                       the theory
    partitions, member, group    one group and its books
    records, applying            the log's format, and how the books follow it
    heartbeating, validating     ConsumerGroupHeartbeat: joining, staying and leaving
    advancing, draft             what follows when a member has come or changed, in order
    subscribing                  which topics that means, patterns included
    targeting                    who should read what
    reconciling                  how a member gets there: nothing is given to one before the other has let go
    fencing                      members that leave, or are made to
    classic_members              members of the old protocol in such a group
    migrating                    from one kind of group to the other
    describing                   what is told
"""
