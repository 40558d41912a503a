"""A part of a topic's history, back into a topic: keys, headers, timestamps and order as they were, each record once.

    plan        which offsets of each partition may hold what is wanted; written down before anything else
    source      `penstock_history`, one task for each partition, archive and log, only what is in the window of time
    sink        `format("penstock")`, exactly once

Spark's checkpoint tells how far the query has come, and the plan beside it where it ends. So a replay that was stopped,
or killed, goes on when it is started again, and what was written once is not written again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipeline import topics
from penstock.pipeline.archived_rows import Window
from penstock.pipeline.brokers import EARLIEST, LATEST, Brokers
from penstock.pipeline.folders import state_folder
from penstock.pipeline.history_source import FORMAT, register
from penstock.pipeline.problem import OptionError, PipelineError
from penstock.pipeline.seams import Span
from penstock.pipeline.survey import Survey, late_enough, survey
from penstock.protocol.errors import ApiError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.pipeline.archive.layout import Archive

PLAN = "plan.json"
QUERY = "query"  # the folder of Spark's own checkpoint


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    topic: str
    into: str
    first_ms: int | None
    stop_ms: int | None
    asked: tuple[str, ...]  # as a person wrote it: a time may be so long ago, and would be another one today
    archive: str | None
    starting: dict[int, int]
    ending: dict[int, int]
    keep_partitions: bool  # else the keys choose
    fail_on_data_loss: bool = True
    finished: bool = False
    topic_id: str | None = None  # in hexadecimal; names come again, on other clusters too
    into_id: str | None = None

    @property
    def offsets(self) -> int:
        return sum(self.ending[each] - self.starting[each] for each in self.ending)

    def position(self, end: str | None) -> int:
        """How many offsets lie behind a query whose source stands there."""
        found: Mapping[str, int] = json.loads(end).get(self.topic, {}) if end else {}
        return sum(offset - self.starting[int(partition)] for partition, offset in found.items())


# ---- the plan


def plan_replay(
    brokers: Brokers, topic: str, archive: Archive | None, window: Window, *, fail_on_data_loss: bool = True
) -> tuple[dict[int, int], dict[int, int], int]:
    """Where each partition starts and ends, and how many partitions the topic has.

    The archive tells by its days which files may matter. A log tells which record is the first that is late enough, but
    not which one is the last that is early enough, because times may go back: so it is read to where it ends now.
    """
    found = survey(brokers, topic, archive, fail_on_data_loss=fail_on_data_loss)
    spans = _in_archive(found, window)
    for partition, live in _in_log(brokers, found, window).items():
        spans.setdefault(partition, []).append(live)
    starting = {partition: min(each.start for each in some) for partition, some in spans.items()}
    ending = {partition: max(each.stop for each in some) for partition, some in spans.items()}
    return starting, ending, max(found.division, default=-1) + 1


def _in_archive(found: Survey, window: Window) -> dict[int, list[Span]]:
    spans: dict[int, list[Span]] = {}
    for partition, pieces in found.archived.items():
        for piece in pieces:
            if any(not window.misses_day(each.day) for each in piece.files):
                spans.setdefault(partition, []).append(Span(piece.start, piece.stop))
    return spans


def _in_log(brokers: Brokers, found: Survey, window: Window) -> dict[int, Span]:
    live = {
        partition: Span(pieces.live[0].start, pieces.live[-1].stop)
        for partition, pieces in found.division.items()
        if pieces.live
    }
    if window.first_ms is None or not live:
        return live
    starts = late_enough(brokers, found.topic, live, window.first_ms)
    return {partition: Span(start, live[partition].stop) for partition, start in starts.items()}


def default_folder(brokers: Brokers, topic: str, into: str) -> Path:
    """The same for the same replay, in whatever folder its command is run."""
    brokers.topics([topic, into])
    return state_folder() / "replay" / (brokers.cluster_id or "of-no-cluster") / topic / f"into-{into}"


def read_plan(folder: Path) -> ReplayPlan | None:
    try:
        found = json.loads((folder / PLAN).read_text())
        for name in ("starting", "ending"):
            found[name] = {int(partition): int(offset) for partition, offset in found[name].items()}
        return ReplayPlan(**{**found, "asked": tuple(found["asked"])})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PipelineError(f"{folder / PLAN} is not the plan of a replay: {error}") from error


def write_plan(folder: Path, plan: ReplayPlan) -> None:
    """Whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{PLAN}.{os.getpid()}"
    with temporary.open("w") as file:
        json.dump(asdict(plan), file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / PLAN)


def mark_finished(folder: Path, plan: ReplayPlan) -> None:
    write_plan(folder, replace(plan, finished=True))


# ---- the topic it goes to


def ensure_target(brokers: Brokers, name: str, partitions: int, like: str | None = None) -> tuple[int, bool]:
    """How many partitions it has, and whether it was made just now.

    A new one keeps everything: the records are as old as they were, and retention would delete them at once. It takes
    records as large as the topic that they come from.
    """
    known = brokers.topics([name]).get(name)
    if known is not None:
        return len(known.leaders), False
    settings = {"retention.ms": "-1"}
    if like is not None and (largest := topics.message_bytes_max(brokers, like)) is not None:
        settings[topics.MESSAGE_BYTES_MAX] = str(largest)
    try:
        topics.create(brokers, name, partitions, settings)
    except ApiError as error:
        raise OptionError(f"topic {name!r} can't be created: {error.code.name} {error}") from error
    return partitions, True


def holds_records(brokers: Brokers, name: str) -> bool:
    """Also those of transactions that are still open. A topic that is not there holds none."""
    known = brokers.topics([name]).get(name)
    places = [] if known is None else known.partitions
    starts = brokers.offsets(dict.fromkeys(places, EARLIEST))
    ends = brokers.offsets(dict.fromkeys(places, LATEST), committed=False)
    return any(ends[place] > starts.get(place, 0) for place in ends)


def topic_ids(brokers: Brokers, *names: str) -> list[str | None]:
    """Of topics as they are now; None for one that is not there."""
    known = brokers.topics(names)
    return [known[name].topic_id.hex() if name in known else None for name in names]


def expect_same_topics(brokers: Brokers, plan: ReplayPlan) -> None:
    """What was planned, and what was written already, is of these topics and of no others of their names."""
    topic, into = topic_ids(brokers, plan.topic, plan.into)
    changed = []
    if plan.topic_id is not None and topic not in (None, plan.topic_id):  # the archive may do without the topic
        changed.append(plan.topic)
    if plan.into_id is not None and into != plan.into_id:
        changed.append(plan.into)
    if changed:
        raise PipelineError(
            f"topic {changed[0]!r} is not the one that this replay was begun with: it was deleted or made anew, or "
            "these are other brokers"
        )


# ---- the query


def start_replay(
    spark: SparkSession, plan: ReplayPlan, client: Mapping[str, str], folder: Path, rate: int | None = None
) -> StreamingQuery:
    """Ends by itself when everything is there."""
    register(spark)
    options = {
        **client,
        "topic": plan.topic,
        "topicId": plan.topic_id,
        "startingOffsets": json.dumps({plan.topic: plan.starting}),
        "endingOffsets": json.dumps({plan.topic: plan.ending}),
        "archive": plan.archive,
        "failOnDataLoss": str(plan.fail_on_data_loss).lower(),
        "startingTimestamp": None if plan.first_ms is None else str(plan.first_ms),
        "endingTimestamp": None if plan.stop_ms is None else str(plan.stop_ms),
        "rowsPerSecond": None if rate is None else str(rate),
    }
    reader = spark.readStream.format(FORMAT)
    for name, value in options.items():
        if value is not None:
            reader = reader.option(name, value)
    columns = ["key", "value", "headers", "timestamp", *(["partition"] if plan.keep_partitions else [])]
    writer = reader.load().select(*columns).writeStream.format("penstock")
    writer = writer.options(**client).option("topic", plan.into)
    writer = writer.option("checkpointLocation", f"file://{(folder / QUERY).absolute()}")
    return writer.trigger(availableNow=True).start()
