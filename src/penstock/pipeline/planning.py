"""Which offsets a job reads: the driver's part, before any task runs."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise

from penstock.pipeline.brokers import EARLIEST, LATEST, Brokers, Topic, TopicPartition
from penstock.pipeline.fetching import OffsetRange
from penstock.pipeline.options import Edge, Position, ReadOptions
from penstock.pipeline.problem import ALLOW_LOSS, DataLost, OptionError

log = logging.getLogger("penstock.source")

Offsets = dict[TopicPartition, int]
OURS = "__penstock_"  # topics of the pipeline itself begin so


def partitions_of(brokers: Brokers, options: ReadOptions) -> list[TopicPartition]:
    """What is subscribed to, as far as it exists now."""
    wanted = options.subscription
    if wanted.pattern is not None:
        pattern = re.compile(wanted.pattern)
        topics = [each for each in brokers.topics().values() if pattern.fullmatch(each.name)]
        return [each for topic in topics if not _is_internal(topic) for each in topic.partitions]
    if wanted.partitions is not None:
        known = brokers.topics({place.topic for place in wanted.partitions})
        for place in wanted.partitions:
            if place.topic not in known or place.partition not in known[place.topic].leaders:
                raise OptionError(f"option 'assign' names {place}, which does not exist")
        return list(wanted.partitions)
    assert wanted.topics is not None
    found = brokers.topics(wanted.topics)
    return [each for name in wanted.topics if name in found for each in found[name].partitions]


def _is_internal(topic: Topic) -> bool:
    """No pattern means these: whoever wants one names it."""
    return topic.internal or topic.name.startswith(OURS)


def expect_topics(brokers: Brokers, options: ReadOptions) -> None:
    """A topic that is not there is told before the job starts."""
    wanted = options.subscription
    if wanted.topics is None:
        return
    missing = sorted(set(wanted.topics) - brokers.topics(wanted.topics).keys())
    if missing:
        raise OptionError(f"option 'subscribe' names {missing[0]!r}, and there is no such topic")


def resolve(
    brokers: Brokers, places: Iterable[TopicPartition], at: Position, options: ReadOptions, side: str
) -> Offsets:
    """The offsets that a position means now."""
    places = list(places)
    if at.edge is not None:
        return edges(brokers, places, at.edge, options.committed)
    if at.timestamp_ms is not None:
        return _by_time(brokers, dict.fromkeys(places, at.timestamp_ms), options, side)
    if at.timestamps_ms is not None:
        _expect_each(places, at.timestamps_ms, f"{side}OffsetsByTimestamp")
        return _by_time(brokers, {place: at.timestamps_ms[place] for place in places}, options, side)
    assert at.offsets is not None
    _expect_each(places, at.offsets, f"{side}Offsets")
    found = {place: at.offsets[place] for place in places}
    for edge in Edge:
        found |= edges(brokers, [place for place in places if found[place] == edge.value], edge, options.committed)
    for place, offset in found.items():
        if offset < 0:
            raise OptionError(f"option '{side}Offsets' has {offset} for {place}; -2 is earliest, -1 latest")
    return _inside(brokers, found, options, side)


def _inside(brokers: Brokers, found: Offsets, options: ReadOptions, side: str) -> Offsets:
    """Nothing begins or ends behind the end. What is in open transactions can't be read, but be left out."""
    latest = edges(brokers, found, Edge.LATEST, options.committed and side == "ending")
    for place, offset in found.items():
        if offset > latest.get(place, offset) and options.fail_on_data_loss:
            raise OptionError(
                f"option '{side}Offsets' has {offset} for {place}, which ends at {latest[place]}. Option "
                f"{ALLOW_LOSS} takes the end instead."
            )
    return {place: min(offset, latest.get(place, offset)) for place, offset in found.items()}


def _expect_each(places: list[TopicPartition], given: Mapping[TopicPartition, int], name: str) -> None:
    missing, more = set(places) - given.keys(), given.keys() - set(places)
    if missing:
        raise OptionError(f"option {name!r} does not say where {min(missing)} begins or ends")
    if more:
        raise OptionError(f"option {name!r} has {min(more)}, which is not read")


def edges(brokers: Brokers, places: Iterable[TopicPartition], edge: Edge, committed: bool) -> Offsets:
    return brokers.offsets(dict.fromkeys(places, EARLIEST if edge is Edge.EARLIEST else LATEST), committed=committed)


def _by_time(brokers: Brokers, wanted: Mapping[TopicPartition, int], options: ReadOptions, side: str) -> Offsets:
    found = brokers.offsets(wanted, committed=options.committed)
    late = [place for place, offset in found.items() if offset < 0]
    if late and side == "starting" and not options.latest_if_too_late:
        raise OptionError(
            f"no record of {late[0]} is as late as {wanted[late[0]]}. Option startingOffsetsByTimestampStrategy="
            '"latest" begins behind the last one instead.'
        )
    return found | edges(brokers, late, Edge.LATEST, options.committed)


def ranges_between(brokers: Brokers, starting: Offsets, ending: Offsets, options: ReadOptions) -> list[OffsetRange]:
    """What there is to read. Offsets outside the log are data that was lost, or never there."""
    places = [place for place in ending if place in starting]
    first = edges(brokers, places, Edge.EARLIEST, options.committed)
    found = []
    for place in places:
        start, stop = starting[place], ending[place]
        if place not in first:
            _lost(options, f"{place} was deleted before it was read up to {stop}")
            continue
        if start < first[place] and start < stop:
            _lost(options, f"{place} begins at {first[place]}, and was to be read from {start}")
            start = min(first[place], stop)
        if start < stop:
            found.append(OffsetRange(place, start, stop))
    return found


def late_enough(brokers: Brokers, ranges: list[OffsetRange], first_ms: int) -> list[OffsetRange]:
    """Without what comes before the first record that is as late as this. Behind it any time may come."""
    if first_ms < 0:  # which means an end of the log, where offsets are asked for
        return ranges
    late = brokers.offsets({each.place: first_ms for each in ranges}, committed=False)
    begins = brokers.offsets({each.place: EARLIEST for each in ranges})
    found = []
    for each in ranges:
        if begins.get(each.place, each.stop) > each.start:
            found.append(each)  # the log lost some of it meanwhile, which is for whoever reads it to tell
        elif 0 <= late.get(each.place, -1) < each.stop:
            found.append(OffsetRange(each.place, max(each.start, late[each.place]), each.stop))
    return found


def _lost(options: ReadOptions, problem: str) -> None:
    if not options.fail_on_data_loss:
        log.warning("%s. The job goes on with what is there.", problem)
    else:
        raise DataLost(
            f"{problem}. Records may have been deleted by retention, or the topic was deleted or made anew. Option "
            f"{ALLOW_LOSS} makes the job go on with what is there."
        )


def made_anew(before: Mapping[str, str], now: Mapping[str, str], options: ReadOptions) -> set[str]:
    """Topics that have another id than they had. A topic whose id was not known then passes."""
    found = {topic for topic in before if now.get(topic, before[topic]) != before[topic]}
    for topic in sorted(found):
        _lost(options, f"{topic} was deleted and made anew since it was read")
    return found


def split(ranges: list[OffsetRange], partitions_min: int | None, records_max: int | None) -> list[OffsetRange]:
    """Large ranges in pieces, until there are as many as wanted, and none is larger than allowed."""
    total = sum(each.stop - each.start for each in ranges)
    pieces = []
    for each in ranges:
        size = each.stop - each.start
        parts = 1
        if partitions_min is not None and total:
            parts = max(1, -(-size * partitions_min // total) if len(ranges) < partitions_min else 1)
        if records_max is not None:
            parts = max(parts, -(-size // records_max))
        parts = min(parts, size)
        bounds = [each.start + size * n // parts for n in range(parts + 1)]
        pieces += [OffsetRange(each.place, *pair) for pair in pairwise(bounds)]
    return pieces


def limited(start: Offsets, end: Offsets, offsets_max: int) -> Offsets:
    """Each partition gets its share of what may be read in one batch, in proportion to what it has.

    One that ends before it starts has become shorter, which is for whoever looks for losses to see.
    """
    sizes = {place: max(0, end[place] - start.get(place, 0)) for place in end}
    total = sum(sizes.values())
    if total <= offsets_max:
        return end
    found = {}
    for place, size in sizes.items():
        share = size * offsets_max / total
        begin = min(start.get(place, 0), end[place])
        # At least one record where there is one: else a small partition beside a large one would never move.
        found[place] = begin + min(size, int(share) if share >= 1 else (1 if size else 0))
    # What rounding has left over, so that a few records do not take a batch of their own at the end.
    left = offsets_max - sum(found[place] - min(start.get(place, 0), end[place]) for place in found)
    for place in sorted(found, key=lambda each: found[each] - end[each]):
        more = max(0, min(left, end[place] - found[place]))
        found[place] += more
        left -= more
    return found


def expect_no_loss(begun: Offsets, ended: Offsets, options: ReadOptions) -> None:
    """A stream's partitions neither vanish nor become shorter."""
    for place, offset in begun.items():
        if place not in ended:
            _lost(options, f"{place} was read up to {offset}, and does not exist any more")
        elif ended[place] < offset:
            _lost(options, f"{place} was read up to {offset}, and ends at {ended[place]} now")
