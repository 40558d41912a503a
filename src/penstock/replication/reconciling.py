"""Where a follower's log and its leader's part (KIP-101, KIP-279, KIP-320). Pure.

The leader says where an epoch ends in its log; the answer names the largest epoch it has that is not above the asked
one. Offsets alone, or the high watermark, could not tell: two logs may have different records at the same offset.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.storage.leader_epochs import LeaderEpochs


class Parting(NamedTuple):
    offset: int  # behind which this log has nothing in common with the leader's
    agreed: bool  # whether both have the epoch in which that lies: if not, the leader is to be asked again


def parting(epochs: LeaderEpochs, end_offset: int, leaders_epoch: int, leaders_end: int) -> Parting:
    if leaders_epoch < 0 or leaders_end < 0:  # the leader has nothing of what was asked about
        return Parting(epochs.starts[0] if epochs.starts else end_offset, True)
    epoch, end = epochs.end_offset(leaders_epoch, end_offset)
    if epoch < 0:  # nothing of this log is as old as what the leader has
        return Parting(min(epochs.starts[0] if epochs.starts else end_offset, leaders_end), True)
    return Parting(min(end, leaders_end), epoch == leaders_epoch)
