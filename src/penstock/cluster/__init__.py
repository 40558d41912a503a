"""The shared truth: which topics and partitions exist, how they are configured, who leads them.

Owns: the model of the cluster, the coordination interface and its embedded store, settings of topics.
Never: the bytes of a log, or a connection.
"""
