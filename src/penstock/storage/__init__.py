"""One partition's durable log.

Owns: segments, indexes, recovery, retention, compaction, producer state, leader epochs. disk.py alone touches files.
Never: who leads, who is in sync, what a client asked.
"""
