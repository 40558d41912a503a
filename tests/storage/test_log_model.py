"""A log against a list: whatever is done to both, they hold the same records."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.protocol.record_batch import Record, read_batches
from penstock.storage import summary, truncation
from penstock.storage.log import Log, LogSettings
from penstock.storage.recovery import recover
from tests.storage.disks import HastyDisk
from tests.storage.logs import NOW_MS, batch_at, read_all, seal_all, stage


class LogMachine(RuleBasedStateMachine):
    """Batches are kept whole in the model, since that is how a log gives them out and takes them away."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.directory = self.folder / "t-0"
        self.disk = HastyDisk()
        self.batches: list[list[Record]] = []
        self.epochs: dict[int, int] = {}
        self.start = self.end = 0
        self.epoch = -1

    @initialize(segment_bytes=st.integers(100, 2000), interval=st.sampled_from([1, 100, 4096]))
    def create(self, segment_bytes: int, interval: int) -> None:
        self.settings = LogSettings(segment_bytes=segment_bytes, index_interval_bytes=interval)
        self.log = Log(self.disk, self.directory, self.settings, [], 0, 0)
        self.new_epoch()

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @property
    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in batch if record.offset >= self.start]

    # ---- what changes the log

    @rule(
        turn=st.lists(
            st.tuples(st.integers(1, 4), st.integers(0, 300), st.lists(st.integers(-50, 50), min_size=4, max_size=4)),
            min_size=1,
            max_size=4,
        )
    )
    def append(self, turn: list[tuple[int, int, list[int]]]) -> None:
        for count, size, times in turn:
            timestamps = [NOW_MS + 1000 * len(self.batches) + 1000 * time for time in times]
            data = batch_at(self.end, count, size=size, timestamps=timestamps[:count], epoch=self.epoch)
            stage(self.log, data)
            self.batches.append(
                [
                    Record(self.end + n, timestamps[n], None, f"{self.end + n}".ljust(size, ".").encode())
                    for n in range(count)
                ]
            )
            self.end += count
        self.log.write_staged()

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1
        self.log.begin_epoch(self.epoch)
        self.epochs = {epoch: start for epoch, start in self.epochs.items() if start < self.end}
        self.epochs[self.epoch] = self.end

    @precondition(lambda self: self.log.active is not None and self.log.active.size)
    @rule()
    def roll(self) -> None:
        self.log.roll(self.end, NOW_MS)

    @rule()
    def seal(self) -> None:
        seal_all(self.log)

    @rule(back=st.integers(0, 30))
    def truncate(self, back: int) -> None:
        offset = max(self.end - back, self.start)
        truncation.truncate_to(self.log, offset)
        kept = [batch for batch in self.batches if batch[-1].offset < offset]
        if len(kept) < len(self.batches):
            self.end = max(min(offset, self.batches[len(kept)][0].offset), self.start)
        self.batches = kept
        assert self.log.end_offset == self.end
        self.epochs = {epoch: start for epoch, start in self.epochs.items() if start < self.end}
        self.epoch = max(self.epoch, 0)
        self.new_epoch()

    @rule(offset=st.integers(0, 500))
    def restart_elsewhere(self, offset: int) -> None:
        truncation.restart_at(self.log, offset)
        self.batches, self.epochs = [], {}
        self.start = self.end = offset
        self.new_epoch()

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self.start + round((self.end - self.start) * share)
        self.log.advance_start(offset)
        self.log.save_start() if self.log.segments else None
        self.start = offset if self.log.segments else self.log.start_offset

    @rule(share=st.floats(0, 1), roll=st.booleans())
    def delete_segments(self, share: float, roll: bool) -> None:
        offset = self.start + round((self.end - self.start) * share)
        dropped = self.log.delete_before(offset, NOW_MS if roll else None)
        if dropped:
            self.log.discard(dropped)
        self.start = max(self.start, self.log.segments[0].base_offset) if self.log.segments else self.start
        assert self.log.start_offset == self.start
        assert self.start <= max(offset, self.start)

    @rule()
    def restart_cleanly(self) -> None:
        summary.close_cleanly(self.log)
        summary.save(self.disk, self.folder, {"t-0": summary.summarize(self.log, bytes(16))})
        found = summary.load(self.disk, self.folder)
        assert found is not None
        assert summary.load(self.disk, self.folder) is None
        self.log = summary.open_log(self.disk, self.directory, self.settings, found["t-0"])

    @rule()
    def restart_uncleanly(self) -> None:
        result = recover(self.disk, self.directory, self.settings, NOW_MS)
        assert (result.bytes_cut, result.damaged) == (0, False)
        self.log = result.log
        if not self.log.segments:
            self.start = self.end = self.log.end_offset
        self.epochs = {epoch: start for epoch, start in self.epochs.items() if start <= self.end}

    # ---- what must hold

    @rule(max_bytes=st.integers(1, 3000), data=st.data())
    def read_from_anywhere(self, max_bytes: int, data: st.DataObject) -> None:
        if not self.records:
            return
        offset = data.draw(st.integers(self.start, self.end - 1))
        found = self.log.read(offset, max_bytes, self.log.end)
        assert found is not None
        batches = list(read_batches(found.read()))
        assert sum(len(raw) for _, raw in batches) == found.size
        assert batches[0][0].base_offset <= offset <= batches[0][0].last_offset
        assert found.size <= max_bytes or len(batches) == 1
        assert read_all(self.log, max_bytes, offset) == [r for r in self.records if r.offset >= offset]

    @rule(data=st.data())
    def find_by_time(self, data: st.DataObject) -> None:
        times = sorted({r.timestamp_ms for r in self.records}) or [NOW_MS]
        timestamp = data.draw(st.sampled_from(times)) + data.draw(st.integers(-1, 1))
        expected = next((r for r in self.records if r.timestamp_ms >= timestamp), None)
        found = self.log.offset_for_timestamp(timestamp)
        assert (found and found[:2]) == (expected and (expected.offset, expected.timestamp_ms))
        assert found is None or found.leader_epoch == self.log.epochs.epoch_of(found.offset)

    @rule()
    def find_the_newest(self) -> None:
        newest = max(self.records, key=lambda r: (r.timestamp_ms, -r.offset), default=None)
        found = self.log.max_timestamp()
        assert (found and found[:2]) == (newest and (newest.offset, newest.timestamp_ms))

    @invariant()
    def offsets_agree(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
            assert self.log.next_offset == self.end
            known = {epoch: max(start, self.start) for epoch, start in self.epochs.items()}
            for epoch, start in zip(self.log.epochs.epochs, self.log.epochs.starts):
                assert known[epoch] == start


LogMachine.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestALogHoldsWhatAListHolds = LogMachine.TestCase
