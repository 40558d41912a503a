"""How far streaming queries have come, as commits of a group that `penstock group describe` shows.

Spark keeps a query's offsets in its checkpoint, and begins from there: the commits are for people, and for alerts on
lag. So they may be late or missing, and no failure of theirs ever reaches the query.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from penstock.pipeline.brokers import Brokers, TopicPartition
from penstock.pipeline.connection import ClientSettings
from penstock.pipeline.group_offsets import commit
from penstock.pipeline.source import IDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("penstock.progress")

PATIENCE_S = 10.0  # listeners are called one after the other
SOURCES = ("PythonMicroBatchStream", "Kafka")


class ProgressReporter(StreamingQueryListener):
    """Commits where each query stands after every batch. `query` is a name, or None for every query of the session."""

    def __init__(self, settings: ClientSettings, group: str, query: str | None = None) -> None:
        self._settings = settings
        self._group = group
        self._query = query
        self._brokers: Brokers | None = None
        self._lock = threading.Lock()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if self._query is not None and progress.name != self._query:
            return
        try:
            offsets: dict[TopicPartition, int] = {}
            for source in progress.sources:
                offsets |= offsets_of(source.description, source.endOffset)
            if offsets:
                self._commit(offsets)
        except Exception as error:  # whatever it is: the query goes on
            log.warning("progress of query %s was not committed to %s: %s", progress.id, self._group, error)

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        with self._lock:
            try:
                if self._brokers is None:
                    self._brokers = Brokers(self._settings)
                commit(self._brokers, self._group, offsets)
            except Exception:
                if self._brokers is not None:
                    self._brokers.close()
                self._brokers = None
                raise


def offsets_of(description: str, end: str | None) -> dict[TopicPartition, int]:
    """The offsets of one source of a query, or nothing, where it does not read topics.

    Spark does not tell the format of a source in Python, so ours are known by the shape of their offsets, which is that
    of Spark's own connector.
    """
    if not end or not any(word in description for word in SOURCES):
        return {}
    try:
        found = json.loads(end)
        return {
            TopicPartition(topic, int(partition)): _offset(offset)
            for topic, partitions in found.items()
            if topic != IDS
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError):
        return {}


def _offset(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no offset")
    return value


def attach(spark: SparkSession, settings: ClientSettings, group: str, query: str | None = None) -> ProgressReporter:
    reporter = ProgressReporter(replace(settings, patience_s=PATIENCE_S), group, query)
    spark.streams.addListener(reporter)
    return reporter
