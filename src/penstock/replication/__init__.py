"""A partition as its leader sees it.

Owns: the high watermark, in-sync replicas, group commit, and everyone who waits for an offset.
Never: the layout of files, or the wire.
"""
