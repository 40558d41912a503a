"""What a pipeline's file says, once it was read: nothing here has asked a broker or Spark yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

ONCE = 0.0  # as a trigger: take what is there, and end


class Format(Enum):
    """How a record's value becomes columns."""

    JSON = "json"
    AVRO = "avro"
    TEXT = "text"
    BINARY = "binary"


@dataclass(frozen=True, slots=True)
class Watermark:
    column: str
    delay: str  # as Spark reads it, such as '1 minute'


@dataclass(frozen=True, slots=True)
class Source:
    """A view for the SQL, and where its rows come from: topics, or all whose names fit a pattern."""

    name: str
    topics: tuple[str, ...]
    pattern: str | None
    format: Format
    schema: str  # DDL for JSON, JSON for Avro, and nothing for the others
    dead_letters: str
    starting: str = "earliest"  # or latest, or milliseconds since 1970
    text_key: bool = True
    watermark: Watermark | None = None
    expect: Mapping[str, str] = field(default_factory=dict)  # conditions, by what is to be said where one fails
    offsets_max: int | None = None  # in one batch
    fail_on_data_loss: bool = True

    @property
    def may_be_bad(self) -> bool:
        """Bytes of which nothing is expected are never bad, and need no dead letters."""
        return self.format is not Format.BINARY or self.text_key or bool(self.expect)


@dataclass(frozen=True, slots=True)
class Sink:
    """A statement, and where its rows go: exactly one of topic, path and table."""

    name: str
    sql: str
    topic: str | None = None
    key: str | None = None
    path: str | None = None
    table: str | None = None
    format: str = "parquet"
    partition_by: tuple[str, ...] = ()
    mode: str = "append"
    trigger_s: float | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pipeline:
    name: str
    file: Path
    sources: tuple[Source, ...]
    sinks: tuple[Sink, ...]
    checkpoint: str  # a folder, in which every query has one of its own
    trigger_s: float | None = None
    bootstrap: str | None = None
    client: Mapping[str, str] = field(default_factory=dict)  # options of format("penstock"), such as those of TLS
    spark: Mapping[str, str] = field(default_factory=dict)

    def query(self, part: str) -> str:
        """The name of a query, by which progress tells of it."""
        return f"{self.name}.{part}"
