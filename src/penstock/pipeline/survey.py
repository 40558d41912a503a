"""What there is of a topic, in its archive and in its log, at one moment.

The order of the questions is what makes the seam safe. First the log is asked where it begins, then the archive for its
files, then the log where it ends. Whatever retention had deleted before the first answer was committed by the archive's
group before, and was in a file before that: the listing, which comes later, shows it. So the files reach at least to
where the log began, and nothing lies between the two. What retention deletes after that is in files that this listing
does not show; who reads it finds out, and looks again (history.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.pipeline.archive.group import location_in
from penstock.pipeline.archive.layout import Archive, Piece, another_topic, coverage_of
from penstock.pipeline.archive.settings import default_group
from penstock.pipeline.brokers import EARLIEST, LATEST, Brokers, TopicPartition
from penstock.pipeline.group_offsets import committed
from penstock.pipeline.problem import DataLost, OptionError
from penstock.pipeline.seams import Pieces, Span, divide
from penstock.pipeline.topics import setting

HOLD_SETTING = "retention.hold.group"


@dataclass(frozen=True, slots=True)
class Survey:
    topic: str
    topic_id: bytes | None  # of the log, where there is one
    archive: Archive | None
    archived: dict[int, list[Piece]]  # by partition
    division: dict[int, Pieces]  # by partition: who has which offsets

    def lost(self) -> str | None:
        """What neither has, in words, or None."""
        for partition, pieces in self.division.items():
            for span in pieces.lost:
                return (
                    f"{TopicPartition(self.topic, partition)}: offsets {span.start} to {span.stop - 1} are neither in "
                    f"the log nor in {self._whose()}"
                )
        return None

    def _whose(self) -> str:
        return "an archive" if self.archive is None else f"the archive {self.archive.location.given}"


def survey(brokers: Brokers, topic: str, archive: Archive | None, *, fail_on_data_loss: bool = True) -> Survey:
    known = brokers.topics([topic]).get(topic)
    places = [] if known is None else known.partitions
    if known is not None and archive is not None and archive.topic_id(topic) not in (b"", known.topic_id):
        raise another_topic(archive, topic)
    starts = brokers.offsets(dict.fromkeys(places, EARLIEST))
    archived: dict[int, list[Piece]] = {}
    for piece in archive.pieces(topic) if archive is not None else ():
        archived.setdefault(piece.partition, []).append(piece)
    if known is None and not archived:
        raise OptionError(f"there is no topic {topic!r}{'' if archive is None else ', and nothing of it is archived'}")
    ends = brokers.offsets(dict.fromkeys(places, LATEST))
    division = {}
    for partition in sorted({each.partition for each in places} | archived.keys()):
        place = TopicPartition(topic, partition)
        log = Span(starts[place], max(starts[place], ends[place])) if place in starts and place in ends else None
        spans = [Span(*each) for each in coverage_of(archived.get(partition, [])).get(partition, [])]
        if spans and log is not None and spans[-1].stop > log.stop:
            if fail_on_data_loss:
                raise DataLost(_shorter(place, spans[-1], log))
            log = None
        division[partition] = divide(spans, log)
    found = Survey(topic, None if known is None else known.topic_id, archive, archived, division)
    if fail_on_data_loss and (lost := found.lost()) is not None:
        raise DataLost(f"{lost}. Retention may have deleted them before they were archived.")
    return found


def _shorter(place: TopicPartition, last: Span, log: Span) -> str:
    return (
        f"{place}: the archive has offsets up to {last.stop - 1}, and the log ends at {log.stop}. Was the topic "
        "deleted and made anew? Then the archive belongs to another topic of the same name."
    )


def late_enough(brokers: Brokers, topic: str, wanted: dict[int, Span], first_ms: int) -> dict[int, int]:
    """The first offset in each span of a log that may be as late as this. Partitions without any are left out."""
    places = {TopicPartition(topic, partition): span for partition, span in wanted.items()}
    if first_ms < 0:  # which means an end of the log, where offsets are asked for
        return {partition: span.start for partition, span in wanted.items()}
    late = brokers.offsets(dict.fromkeys(places, first_ms), committed=False)
    begins = brokers.offsets(dict.fromkeys(places, EARLIEST))
    found = {}
    for place, span in places.items():
        if begins.get(place, span.stop) > span.start:
            # The log lost some of the span meanwhile, and knows no more of the times that were in it.
            found[place.partition] = span.start
        elif 0 <= late.get(place, -1) < span.stop:
            found[place.partition] = max(span.start, late[place])
    return found


# ---- where the archive is


def find_archive(brokers: Brokers, topic: str, group: str | None = None) -> str | None:
    """The location that the archive's group has left with its commits, or None."""
    known = brokers.topics([topic]).get(topic)
    if known is None:
        return None
    hold = None if group is not None else hold_group(brokers, topic)
    groups = [group] if group is not None else [hold, default_group(topic)]
    for name in dict.fromkeys(each for each in groups if each):
        for each in committed(brokers, name, known.partitions).values():
            if (location := location_in(each.metadata)) is not None:
                return location
    if group is not None:
        raise OptionError(f"group {group!r} has not committed anything of {topic!r} that names an archive")
    return None


def hold_group(brokers: Brokers, topic: str) -> str | None:
    """The group that retention waits for. None too where the broker knows no such setting."""
    return setting(brokers, topic, HOLD_SETTING)
