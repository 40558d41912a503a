"""Where leader epochs begin and end, against the epoch of every single offset."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.storage import leader_epochs
from penstock.storage.disk import Disk
from penstock.storage.leader_epochs import LeaderEpochs


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), max_size=8), st.integers(0, 20), st.integers(0, 30))
@settings(deadline=None)
def test_epochs_say_of_every_offset_what_was_in_force_there(terms: list[tuple[int, int]], start: int, end: int) -> None:
    epochs, epoch = LeaderEpochs(), 0
    of_offset: list[int] = []
    for step, written in terms:
        epoch += step
        assert epochs.begin(epoch, len(of_offset))
        assert not epochs.begin(epoch, len(of_offset))
        of_offset += [epoch] * written
    for offset, expected in enumerate(of_offset):
        assert epochs.epoch_of(offset) == expected
    for asked in set(of_offset):
        stop = max(offset for offset, each in enumerate(of_offset) if each == asked) + 1
        assert epochs.end_offset(asked, len(of_offset)) == (asked, stop)
    end = min(end, len(of_offset))
    epochs.cut_end(end)
    assert all(first < end for first in epochs.starts)
    start = min(start, end)
    epochs.cut_start(start)
    for offset in range(start, end):
        assert epochs.epoch_of(offset) == of_offset[offset]
    assert all(first >= start for first in epochs.starts)


def test_the_file_holds_them(tmp_path: Path) -> None:
    epochs = LeaderEpochs()
    epochs.begin(2, 0)
    epochs.begin(5, 17)
    epochs.save(Disk(), tmp_path)
    loaded = leader_epochs.load(Disk(), tmp_path)
    assert (loaded.epochs, loaded.starts) == ([2, 5], [0, 17])
    assert leader_epochs.load(Disk(), tmp_path / "nowhere").latest == -1
    (tmp_path / "leader-epochs").write_bytes(b"2 0\n\xff\xfe 3\n")
    assert leader_epochs.load(Disk(), tmp_path).epochs == [2]
