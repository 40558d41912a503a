"""Several brokers in one process, under a clock that stands still until nothing else is left to do.

Nothing sleeps, nothing runs in a thread, no socket is real; every delay is drawn from one seed. So a run of hours takes
seconds, and the same seed gives the same run. What is simulated is what lies below the brokers; the brokers' own code,
down to the connection that cuts a stream into frames, is the real one.

    loop, process      the event loop and its clock; what can be paused and killed as if it were a process
    channel            things that arrive later, in the order in which they were sent
    sockets, network   streams between hosts, links that can be cut one way or both
    disk, committer    a disk that forgets what was not synced, and syncs that take their time
    tree, zookeeper    a coordination service with sessions that expire
    store              its client
    cluster            machines that have all of these, and one seed for all of them
    brokers            whole brokers on such machines: started, stopped, paused, killed, without power
    client, verdict    who writes and reads, and whether what was promised is so in the end
    scenarios          stories, and schedules of random faults

A seed that fails is replayed by its number: `test_nothing_is_lost_whatever_fails[SEED]`, or for another seed
`python -m tests.simulation random_faults SEED`, which prints the trace.
"""
