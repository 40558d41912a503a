"""A pipeline's file, read: TOML, or SQL whose leading comment is that TOML.

Nothing is passed over: a key that is not known is refused by its name, since a setting that was misspelt would be
one that is not in force.
"""

from __future__ import annotations

import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from penstock.pipeline.durations import seconds
from penstock.pipeline.problem import PipelineError
from penstock.pipeline.transform.entries import Entries, FileError
from penstock.pipeline.transform.model import ONCE, Format, Pipeline, Sink, Source, Watermark

FILE_BYTES_MAX = 1 << 20
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
MODES = ("append", "update", "complete")
FORMATS = tuple(each.value for each in Format)

OF_PIPELINES = (
    "name", "checkpoint", "trigger", "bootstrap", "source", "sink", "client", "spark",
)  # fmt: skip
OF_SOURCES = (
    "topic", "topics", "pattern", "format", "schema", "schema_file", "key", "starting", "watermark", "dead_letters",
    "expect", "max_offsets_per_trigger", "fail_on_data_loss",
)  # fmt: skip
OF_SINKS = (
    "sql", "topic", "key", "path", "table", "format", "partition_by", "mode", "trigger", "options",
)  # fmt: skip


def read_pipeline(file: Path) -> Pipeline:
    """Raises PipelineError, which names the file and the key."""
    try:
        with file.open("rb") as opened:
            text = opened.read(FILE_BYTES_MAX + 1).decode()
    except OSError as error:
        raise PipelineError(f"{file} can't be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise PipelineError(f"{file} is not text in UTF-8") from None
    if len(text) > FILE_BYTES_MAX:
        raise PipelineError(f"{file} is longer than {FILE_BYTES_MAX:,} bytes")
    try:
        return parse_pipeline(text, file)
    except FileError as error:
        raise PipelineError(f"{file}: {error}") from None


def parse_pipeline(text: str, file: Path) -> Pipeline:
    sql = None
    if file.suffix.lower() == ".sql":
        text, sql = split_sql(text)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileError(f"no TOML: {error}") from None
    entries = Entries(document, "", OF_PIPELINES)
    name = entries.text("name") or file.stem
    if not NAME.fullmatch(name):
        raise FileError(f"'name' is {name!r}; it takes letters, digits, '.', '_' and '-'")
    sources = tuple(_source(each, key, name, file) for key, each in entries.tables("source", OF_SOURCES).items())
    if not sources:
        raise FileError("there is no [source.NAME]: the SQL has nothing to read from")
    return Pipeline(
        name=name,
        file=file,
        sources=sources,
        sinks=_sinks(entries, sql, file),
        checkpoint=_beside(file, entries.text("checkpoint") or f"penstock-pipelines/{name}"),
        trigger_s=_trigger(entries),
        bootstrap=entries.text("bootstrap"),
        client=entries.texts("client"),
        spark=entries.texts("spark"),
    )


def split_sql(text: str) -> tuple[str, str]:
    """The TOML in the comment lines at the head of an SQL file, and the SQL behind them.

    Lines stay where they are, so that whatever is said about a line is said about the right one.
    """
    lines = text.splitlines()
    end = next((n for n, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("--")), len(lines))
    head = [re.sub(r"^\s*-- ?", "", line) for line in lines[:end]]
    return "\n".join(head), "\n".join(lines[end:]).strip().rstrip(";")


# ---- sources


def _source(entries: Entries, name: str, pipeline: str, file: Path) -> Source:
    if not VIEW.fullmatch(name):
        raise FileError(f"[source.{name}] is to be a view in SQL: letters, digits and '_'")
    entries.one_of("topic", "topics", "pattern")
    topics = (entries.required("topic"),) if "topic" in entries else entries.list("topics")
    pattern = entries.text("pattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise entries.error("pattern", f"is {pattern!r}: {error}") from None
    elif not topics:
        raise entries.error("topics", "names no topic")
    format_ = Format(entries.choice("format", FORMATS, None))
    dead_letters = entries.text("dead_letters")
    return Source(
        name=name,
        topics=topics,
        pattern=pattern,
        format=format_,
        schema=_schema(entries, format_, file),
        dead_letters=dead_letters or f"{topics[0] if len(topics) == 1 else pipeline}-dead-letters",
        starting=_starting(entries),
        text_key=entries.choice("key", ("text", "binary"), "text") == "text",
        watermark=_watermark(entries),
        expect=entries.texts("expect"),
        offsets_max=entries.number("max_offsets_per_trigger", 1),
        fail_on_data_loss=entries.flag("fail_on_data_loss", True),
    )


def _schema(entries: Entries, format_: Format, file: Path) -> str:
    given = [each for each in ("schema", "schema_file") if each in entries]
    if format_ in (Format.TEXT, Format.BINARY):
        if given:
            raise entries.error(given[0], f"is not for format {format_.value!r}, which has one column, 'value'")
        return ""
    entries.one_of("schema", "schema_file")
    if "schema" in entries:
        return entries.required("schema")
    path = Path(_beside(file, entries.required("schema_file")))
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise entries.error("schema_file", f"names {path}, which can't be read: {error}") from None


def _starting(entries: Entries) -> str:
    value = entries.raw("starting")
    if value is None:
        return "earliest"
    if isinstance(value, str) and value in ("earliest", "latest"):
        return value
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise entries.error("starting", f"is {value!r}; it must be earliest, latest, or a time in ISO 8601") from None
    return str(int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


def _watermark(entries: Entries) -> Watermark | None:
    if "watermark" not in entries:
        return None
    inner = entries.table("watermark", ("column", "delay"))
    return Watermark(inner.required("column"), inner.required("delay"))


# ---- sinks


def _sinks(entries: Entries, sql: str | None, file: Path) -> tuple[Sink, ...]:
    found = entries.raw("sink")
    if isinstance(found, dict) and any(not isinstance(each, dict) for each in found.values()):
        sinks = {"sink": entries.table("sink", OF_SINKS)}
    else:
        sinks = entries.tables("sink", OF_SINKS)
    if not sinks:
        raise FileError("there is no [sink]: the rows have nowhere to go")
    if sql is not None and len(sinks) > 1:
        raise FileError("an SQL file has one statement, and so one [sink]; use a TOML file for several")
    return tuple(_sink(each, name, sql, file) for name, each in sinks.items())


def _sink(entries: Entries, name: str, sql: str | None, file: Path) -> Sink:
    if not NAME.fullmatch(name):
        raise FileError(f"[sink.{name}] names a query: letters, digits, '.', '_' and '-'")
    if sql is not None and "sql" in entries:
        raise entries.error("sql", "is the rest of an SQL file; leave it out of the comment")
    statement = sql if sql is not None else entries.required("sql").strip().rstrip(";")
    if not statement.strip():
        raise entries.error("sql", "is missing")
    entries.one_of("topic", "path", "table")
    for key in ("key",) if "topic" not in entries else ("format", "partition_by"):
        if key in entries:
            raise entries.error(key, "is not for a topic" if "topic" in entries else "is for topics only")
    path = entries.text("path")
    mode = entries.choice("mode", MODES, "append")
    if path is not None and mode != "append":
        raise entries.error("mode", f"is {mode!r}; a path takes append only, since its files are never rewritten")
    return Sink(
        name=name,
        sql=statement,
        topic=entries.text("topic"),
        key=entries.text("key"),
        path=_beside(file, path) if path else None,
        table=entries.text("table"),
        format=entries.text("format") or "parquet",
        partition_by=entries.list("partition_by"),
        mode=mode,
        trigger_s=_trigger(entries),
        options=entries.texts("options"),
    )


def _trigger(entries: Entries) -> float | None:
    text = entries.text("trigger")
    if text is None:
        return None
    if text == "once":
        return ONCE
    found = seconds(text)
    if not found:
        raise entries.error("trigger", f"is {text!r}; it must be like 10s, 500ms, 1m, or once")
    return found


def _beside(file: Path, path: str) -> str:
    """Paths are taken from the file's own folder: a run from elsewhere must find the same checkpoint."""
    return path if "://" in path else str((file.parent / path).resolve())
