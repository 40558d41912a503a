"""Opening a log that was not closed cleanly.

An index file vouches for the bytes that it covers: they were on the device before it was written. Only what lies
behind them is read, batch by batch, from the device, and the log is cut at the first bad one; later segments go with
it. What was kept is synced before anyone is served from it. Where sound batches stand behind the cut, data has been
damaged and not just torn: the bytes are kept beside the log as `<base>.log.cut-<position>`, and whoever asked for the
recovery is told.

Of a log that has lost more than a torn end nothing is left to see once it was cut. So the file `damaged` says it before
that, and stays until whoever had to be told was told: a start that does not get so far leaves it to the next.

Where a log begins is noted before a segment goes that nobody needs any more. So one that begins behind that has lost
its first segments, unless its first batch was copied with a gap before it.

Index, leader epochs and producers are rebuilt for what was read; a file of them that is lost costs time, never data.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from penstock.protocol.record_batch import LEADER_EPOCH_AT
from penstock.storage import checkpoint, index, leader_epochs, snapshots, swap
from penstock.storage.disk import Disk
from penstock.storage.index import FOOTER_SIZE, Footer, Index
from penstock.storage.log import Log, LogSettings
from penstock.storage.producer_state import Producers
from penstock.storage.scan import Scan
from penstock.storage.segment import RELATIVE_OFFSET_MAX, WALK_CHUNK, Batch, CorruptSegment, Segment, file_name

OFFSET_MAX = 2**63 - 1
DAMAGED = "damaged"
COPY_CHUNK = 4 * 1024 * 1024
LEFTOVERS = (".tmp", ".cleaned", ".deleted")
_SEGMENT = re.compile(r"(\d{20})\.(log|index)")


class Recovery(NamedTuple):
    log: Log
    bytes_read: int
    bytes_cut: int
    damaged: bool
    lost_more: bool  # than a batch that was cut short as it was written: now, or in a recovery that nobody heard of
    begins_late: bool  # segments are missing before the first, and nobody has deleted them


def recover(disk: Disk, directory: Path, settings: LogSettings, now_ms: int) -> Recovery:
    return _Recoverer(disk, directory, settings, now_ms).run()


class _Recoverer:
    def __init__(self, disk: Disk, directory: Path, settings: LogSettings, now_ms: int) -> None:
        self.disk = disk
        self.directory = directory
        self.settings = settings
        self.now_ms = now_ms
        # Once compacted, or copied from one that was, a log has gaps, whatever its policy is by now.
        notes = (checkpoint.CLEANER_OFFSET, checkpoint.COPIED_GAPS)
        self.compacted = settings.compact or any(map(self._is_noted, notes))
        self.begins_late = False
        self.segments: list[Segment] = []
        self.unsealed: list[Segment] = []
        self.end = 0  # of what was found good so far
        self.leader_epoch = -1  # of the last batch that was read
        self.bytes_read = 0
        self.bytes_cut = 0
        self.damaged = False
        self.behind: list[int] = []  # the segments behind the one that is looked at
        self.lost_more = disk.read(directory / DAMAGED) is not None
        self.removed = False
        self.recorded_epochs = leader_epochs.load(disk, directory)
        self.epochs = leader_epochs.load(disk, directory)
        self.producers, self.producers_from = Producers(), 0

    def run(self) -> Recovery:
        swap.finish_interrupted(self.disk, self.directory)
        bases = self._tidy()
        start = checkpoint.load(self.disk, self.directory / checkpoint.START_OFFSET) or 0
        while len(bases) > 1 and bases[1] <= start:
            self._remove(bases.pop(0))
        if bases and bases[0] > start and not self._is_noted(checkpoint.COPIED_GAPS):
            self.begins_late = True
            self._note_loss()
        known = snapshots.newest(self.disk, self.directory, self._vouched_for(bases))
        self.producers, self.producers_from = known or (Producers(), 0)
        for slot, base in enumerate(bases):
            if slot and base != self.end and not (self.compacted and base > self.end):
                self._set_aside(bases[slot:])  # offsets are missing, so what was read before has lost its end
                break
            self.end, self.behind = base, bases[slot + 1 :]
            if not self._open(base, self.behind[0] if self.behind else None):
                self._set_aside(self.behind)
                break
        log = self._log(start)
        return Recovery(log, self.bytes_read, self.bytes_cut, self.damaged, self.lost_more, self.begins_late)

    def _is_noted(self, name: str) -> bool:
        return checkpoint.load(self.disk, self.directory / name) is not None

    def _tidy(self) -> list[int]:
        """Removes what interrupted work left; the base offsets of the segments, in order."""
        bases: set[int] = set()
        indexes: set[int] = set()
        for name in self.disk.names(self.directory):
            if name.endswith(LEFTOVERS):
                self.disk.remove(self.directory / name)
            elif match := _SEGMENT.fullmatch(name):
                (bases if match[2] == "log" else indexes).add(int(match[1]))
        for orphan in indexes - bases:
            self._remove(orphan)
        return sorted(bases)

    def _vouched_for(self, bases: list[int]) -> int:
        """Up to where it is on the device what is known of transactions. A snapshot behind it would hide those whose
        end must be learnt again."""
        for base in bases:
            segment = Segment(self.disk, self.directory, base, size=0, created_ms=0)
            footer = self._footer(segment)
            size = self.disk.size(segment.path("log"))
            if footer is None or footer.segment_size > size or segment.saved_aborted(footer) is None:
                return base
            if footer.segment_size < size:
                return base if index.load(self.disk.map(segment.path("index"))) is None else footer.end_offset
        return OFFSET_MAX

    # ---- one segment

    def _open(self, base: int, next_base: int | None) -> bool:
        """Whether it is sound to its end."""
        path = self.directory / file_name(base, "log")
        size = self.disk.size(path)
        segment = Segment(self.disk, self.directory, base, size=size, created_ms=self.now_ms)
        self.segments.append(segment)
        entries = self._trust(segment)
        if segment.sealed_to == size:
            segment.name_is_durable = size > 0
            return True
        return self._scan(segment, entries, next_base)

    def _trust(self, segment: Segment) -> Index:
        """Takes over what the index file vouches for. Its entries are only needed where the segment goes on."""
        footer, entries = self._footer(segment), Index()
        segment.aborted = []
        if footer is None:
            return entries
        if footer.segment_size > segment.size:
            self._note_damage()  # bytes are gone that were on the device
            return entries
        if footer.segment_size < segment.size:
            found = index.load(self.disk.map(segment.path("index")))
            if found is None:
                return entries
            entries = found[0]
        try:
            self._learn(segment, footer)
        except CorruptSegment:
            self._note_damage()
            return Index()
        saved = segment.saved_aborted(footer)
        if saved is not None and footer.end_offset <= self.producers_from:
            segment.aborted = saved
        elif saved is not None:
            learnt = segment.aborted
            segment.aborted = [each for each in saved if each.last_offset < self.producers_from] + learnt
        segment.sealed_to = footer.segment_size
        segment.created_ms, segment.first_timestamp_ms = footer.created_ms, footer.first_timestamp_ms
        segment.max_timestamp_ms, segment.max_timestamp_offset = footer.max_timestamp_ms, footer.max_timestamp_offset
        self.end = footer.end_offset
        return entries

    def _footer(self, segment: Segment) -> Footer | None:
        try:
            file = self.disk.open(segment.path("index"), writable=False)
        except FileNotFoundError:
            return None
        return index.read_footer(file.read(FOOTER_SIZE, max(file.size - FOOTER_SIZE, 0)))

    def _learn(self, segment: Segment, footer: Footer) -> None:
        """From headers alone: producers behind the last snapshot, and epochs if the file of them is lost."""
        if self.recorded_epochs.epochs and footer.end_offset <= self.producers_from:
            return
        for batch in segment.batches(0, footer.segment_size):
            self.bytes_read += min(batch.size, WALK_CHUNK)
            self._note(segment, batch)

    def _note(self, segment: Segment, batch: Batch) -> None:
        recorded = self.recorded_epochs.epochs
        if batch.leader_epoch >= 0 and (not recorded or batch.leader_epoch in recorded):
            self.epochs.begin(batch.leader_epoch, batch.base_offset)
        segment.aborted += self.producers.replay((batch,), self.producers_from, segment.read_marker)

    def _scan(self, segment: Segment, entries: Index, next_base: int | None) -> bool:
        """Whether the segment is sound to its end."""
        # What is still to be written is, and nothing is believed because memory has it: see `File.forget`.
        segment.file.sync()
        segment.file.forget(segment.sealed_to, segment.size - segment.sealed_to)
        scan = Scan(segment.file, segment.sealed_to, segment.size)
        offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
        batches = scan.batches(
            self.end, offset_max if next_base is None else min(offset_max, next_base - 1), self.leader_epoch,
            self.recorded_epochs, gap_at_end=self.compacted or next_base is not None,
        )  # fmt: skip
        for batch in batches:
            if batch.position >= segment.indexed_to:
                entries.add(batch.base_offset - segment.base_offset, batch.position, segment.max_timestamp_ms)
                segment.indexed_to = batch.position + self.settings.index_interval_bytes
            if batch.max_timestamp > segment.max_timestamp_ms:
                segment.note_times(batch.base_offset, batch.max_timestamp)
            if batch.producer_id >= 0 or batch.leader_epoch != self.leader_epoch:
                self._note(segment, batch)
                self.leader_epoch = batch.leader_epoch
            self.end = batch.last_offset + 1
        if 0 <= segment.first_timestamp_ms < segment.created_ms:
            segment.created_ms = segment.first_timestamp_ms
        for batch in scan.wrong_epochs:
            segment.file.patch(batch.leader_epoch.to_bytes(4, "big"), batch.position + LEADER_EPOCH_AT)
        sound = scan.position == segment.size
        if not sound:
            self._cut(segment, scan)
        self.bytes_read += scan.bytes_read
        segment.size = segment.trusted_from = scan.position
        segment.index = entries
        segment.name_is_durable = False
        self.unsealed.append(segment)
        return sound

    # ---- cutting

    def _cut(self, segment: Segment, scan: Scan) -> None:
        position, size = scan.position, segment.size
        if not scan.torn or any(self._size(base) for base in self.behind):
            self._note_loss()
        if scan.has_batch_behind(self.end):
            self._note_damage()
            self._keep_aside(segment, position, size)
        segment.file.truncate(position)
        self.bytes_cut += size - position

    def _note_damage(self) -> None:
        self.damaged = True
        self._note_loss()

    def _note_loss(self) -> None:
        """Before anything is cut: what is left looks sound, and the next recovery would believe it."""
        if not self.lost_more:
            self.disk.replace(self.directory / DAMAGED, b"", durable=True)
            self.lost_more = True

    def _size(self, base: int) -> int:
        return self.disk.size(self.directory / file_name(base, "log"))

    def _keep_aside(self, segment: Segment, position: int, size: int) -> None:
        aside = self.disk.open(segment.path(f"log.cut-{position}"), create=True)
        aside.truncate(0)
        while position < size:
            piece = segment.file.read(min(COPY_CHUNK, size - position), position)
            aside.append([piece], len(piece))
            position += len(piece)
        aside.sync()
        self.disk.sync_directory(self.directory)

    def _set_aside(self, bases: list[int]) -> None:
        for base in bases:
            path = self.directory / file_name(base, "log")
            size = self._size(base)
            if size:
                self._note_damage()
                self.disk.rename(path, self.directory / file_name(base, "log.cut-0"))
                self.bytes_cut += size
            self._remove(base)

    def _remove(self, base: int) -> None:
        Segment(self.disk, self.directory, base, size=0, created_ms=0).remove(("log", "index", "aborted"))
        self.removed = True

    # ---- the log

    def _log(self, start: int) -> Log:
        if self.segments:
            start = max(start, self.segments[0].base_offset)
        if self.end < start:  # all that is left was deleted before
            for segment in self.segments:
                self._remove(segment.base_offset)
            self.segments, self.unsealed, self.end = [], [], start
        for segment in self.unsealed:
            segment.seal()
        if self.removed:
            # A new segment may get the name of a removed one, whose index must not come back and vouch for it.
            self.disk.sync_directory(self.directory)
        log = Log(self.disk, self.directory, self.settings, self.segments, start, self.end)
        self._settle_epochs(log)
        self._settle_producers(log)
        return log

    def _settle_epochs(self, log: Log) -> None:
        recorded = self.recorded_epochs
        self.epochs.cut_end(self.end + 1)  # one that began at the end, and has written nothing yet, may go on
        if self.epochs.epochs != recorded.epochs or self.epochs.starts != recorded.starts:
            self.epochs.save(self.disk, self.directory)
        self.epochs.cut_start(log.start_offset)
        log.epochs = self.epochs

    def _settle_producers(self, log: Log) -> None:
        snapshots.remove_behind(self.disk, self.directory, self.end)
        if self.producers_from <= self.end:
            log.producers = self.producers
            log.snapshot_offset = self.producers_from
        if self.segments:
            log.save_producers(self.end)
