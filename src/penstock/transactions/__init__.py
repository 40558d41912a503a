"""Transactions: who may write under a transactional id, what its transaction holds, and how it ends.

Owns: the transaction state machine, its records in `__transaction_state`, writing the markers that end a transaction.
Never: sockets, files. The machine does no I/O at all; the marker writer appends to partitions and reports back.

    commands, config     what may be asked, and with which settings
    states, transaction  the theory, and one transactional id with its books
    initializing, adding, ending, describing    the rules
    records              the log's format
    turn, machine        how it is driven
    markers              how a marker gets into a partition here
    marker_requests      and into those that other brokers lead
    marker_writer        the effect of a decision, carried out
"""
