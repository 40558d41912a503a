"""`penstock query`: SQL over topics, archive and log as one table."""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from penstock.cli.clients import add_client
from penstock.cli.parser import Parser, add_bootstrap, key_value, positive
from penstock.cli.problem import Problem, did_you_mean, usage
from penstock.cli.sparking import add_allow_loss

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("penstock.query")

EXAMPLES = """\
tables:
  A topic is a table of the name; one with dots or dashes stands in backticks. Its columns are key, value, topic,
  partition, offset, timestamp, timestampType, headers and day. Here key, value and the values of headers are text;
  what is not UTF-8 is shown as 0x and its bytes in hexadecimal. Times are in UTC. Filters on timestamp, day, partition
  and offset are quick: what they leave out is not read.

examples:
  penstock query "SELECT * FROM orders ORDER BY timestamp DESC LIMIT 10"
  penstock query "SELECT key, count(*) AS n FROM orders WHERE timestamp >= '2026-05-01' GROUP BY key ORDER BY n DESC"
  penstock query "SELECT value:customer FROM orders WHERE day = '2026-05-01'" --format csv > orders.csv
  penstock query 'SELECT count(*) FROM `web.clicks`' --archive web.clicks=s3a://bucket/archive
"""
FORMATS = ("table", "csv", "json")
TABLE_ROWS = 1_000  # without --limit; a table is for people, and in memory
TABLES_MAX = 100  # in one query
NAMES = re.compile(
    r"""'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | --[^\n]* | /\*.*?\*/ | `((?:[^`]|``)+)` | (\w+)""",
    re.VERBOSE | re.DOTALL,
)  # in groups; what strings and comments hold is passed over


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("sql", metavar="SQL")
    parser.add_argument("--format", choices=FORMATS, default="table", help="default: table; json is one object a line")
    parser.add_argument("--limit", metavar="N", type=positive, help=f"at most N rows (a table: {TABLE_ROWS:,})")
    parser.add_argument(
        "--archive",
        metavar="TOPIC=LOCATION",
        type=key_value,
        action="append",
        default=[],
        help="where a topic is archived, if its archive's group does not tell; repeatable",
    )
    add_allow_loss(parser)
    parser.add_argument("--master", metavar="URL", help="the Spark cluster (default: this machine)")
    add_client(parser)
    add_bootstrap(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.clients import client_options, topics
    from penstock.cli.sparking import session

    known = topics(args, "table")
    expect_distinct(args.sql, known)
    _speak_utc()
    with session("penstock query", args.master) as spark:
        _push_filters(spark)
        tables = Tables(spark, client_options(args), dict(args.archive), known)
        tables.fail_on_data_loss = not args.allow_loss
        print_rows(tables.query(args.sql), args.format, args.limit)
    return 0


def _speak_utc() -> None:
    """PySpark hands out times in the zone of this process."""
    os.environ["TZ"] = "UTC"
    time.tzset()


def _push_filters(spark: SparkSession) -> None:
    """Without them the answer is the same, and takes longer."""
    from penstock.pipeline.problem import PipelineError
    from penstock.spark import push_filters

    try:
        push_filters(spark)
    except PipelineError as error:
        log.info("whole logs are read: %s", error)


def expect_distinct(sql: str, topics: Iterable[str]) -> None:
    """Tables are the same to Spark if they differ in case alone: one topic would answer for the other."""
    named = {quoted.replace("``", "`") or word for quoted, word in NAMES.findall(sql)}
    alike: dict[str, str] = {}
    for topic in sorted(named.intersection(topics)):
        other = alike.setdefault(topic.lower(), topic)
        if other != topic:
            raise usage(
                f"the query names {other!r} and {topic!r}, which are one table in SQL: it does not tell case apart.",
                "Ask for one of them at a time.",
            )


class Tables:
    """Topics become tables when a query names them."""

    def __init__(
        self, spark: SparkSession, client: dict[str, str], archives: dict[str, str], topics: Iterable[str]
    ) -> None:
        self._spark = spark
        self._client = client
        self._archives = archives
        self._topics = set(topics) | archives.keys()
        self._made: set[str] = set()
        self.fail_on_data_loss = True

    def query(self, sql: str) -> DataFrame:
        """Spark says which table it misses, one at a time, and then it is made."""
        from pyspark.errors import AnalysisException, ParseException

        for _ in range(TABLES_MAX):
            try:
                return self._spark.sql(sql)
            except ParseException as failure:
                raise _cannot_parse(failure) from failure
            except AnalysisException as failure:
                if failure.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
                    raise _explained(failure) from failure
                named = (failure.getMessageParameters() or {}).get("relationName", "")
                self._make(named)
        raise usage(f"the query names more than {TABLES_MAX} tables.")

    def _make(self, named: str) -> None:
        topic = named.strip("`").replace("``", "`")
        if "`.`" in named:
            topic = topic.replace("`.`", ".")
            raise usage(f"{topic!r} is a schema and a table for Spark.", f"Write the topic's name as `{topic}`.")
        if topic not in self._topics or topic in self._made:
            hint = did_you_mean(topic, self._topics) or "'penstock topic list' shows which there are."
            raise Problem(f"there is no topic {topic!r}.", hint)
        self._made.add(topic)
        view = readable(self._table(topic))
        view.createOrReplaceTempView(f"`{topic}`")

    def _table(self, topic: str) -> DataFrame:
        from penstock.cli.sparking import unreadable
        from penstock.pipeline.options import OF_CLIENTS, Options
        from penstock.pipeline.problem import PipelineError
        from penstock.pipeline.tables import TableOptions, table
        from penstock.protocol.errors import ApiError

        options = TableOptions(
            topic,
            Options(self._client, OF_CLIENTS, "table").client(),
            self._client,
            archive=self._archives.get(topic),
            fail_on_data_loss=self.fail_on_data_loss,
        )
        try:
            return table(self._spark, options)
        except (PipelineError, ApiError, OSError) as problem:
            raise unreadable(problem, f"can't read {topic!r}") from problem


def readable(rows: DataFrame) -> DataFrame:
    """Keys, values and the values of headers as text."""
    from pyspark.sql import Column
    from pyspark.sql import functions as sf

    def text(column: Column) -> Column:
        as_text = column.cast("string")
        return sf.when(sf.is_valid_utf8(as_text), as_text).otherwise(sf.concat(sf.lit("0x"), sf.lower(sf.hex(column))))

    headers = sf.transform(
        "headers", lambda each: sf.struct(each["key"].alias("key"), text(each["value"]).alias("value"))
    )
    changed = {"key": text(sf.col("key")), "value": text(sf.col("value")), "headers": headers}
    return rows.withColumns(changed)


def _cannot_parse(failure: Any) -> Problem:
    from penstock.cli.sparking import first_sentence

    lines = str(failure).strip().splitlines()
    first = first_sentence(lines[0]) if lines else "it is not SQL"
    backticks = "Names with dots or dashes stand in backticks: `web-clicks`." if "-" in str(failure) else None
    return usage(f"the query can't be read: {first}", backticks)


def _explained(failure: Any) -> Problem:
    from penstock.cli.sparking import explain

    return explain(failure, "the query makes no sense")


# ---- what comes out


def print_rows(rows: DataFrame, form: str, limit: int | None) -> None:
    from penstock.cli.sparking import explain

    names = rows.columns
    try:
        if form == "table":
            _print_table(names, rows, limit or TABLE_ROWS)
            return
        wanted = rows if limit is None else rows.limit(limit)
        if form == "csv":
            _print_csv(names, _plain_rows(wanted.toLocalIterator()))
        else:
            _print_json(unambiguous(names), _plain_rows(wanted.toLocalIterator(), zones=_zones(rows)))
    except BrokenPipeError:
        raise
    except Exception as failure:
        raise explain(failure, "the query failed") from failure


def _plain_rows(rows: Iterable[Any], zones: list[str] | None = None) -> Iterator[list[Any]]:
    from penstock.cli.sparking import plain

    for row in rows:
        yield [plain(cell, zone) for cell, zone in zip(row, zones or [""] * len(row))]


def _zones(rows: DataFrame) -> list[str]:
    """What is written behind the times of each column: a program can't ask in which zone they are."""
    from pyspark.sql.types import TimestampNTZType

    return ["" if isinstance(each.dataType, TimestampNTZType) else "Z" for each in rows.schema]


def unambiguous(names: list[str]) -> list[str]:
    """A JSON object has each name once: the second column of a name is `name_2`, unless another one is called so."""
    found: list[str] = []
    for name in names:
        count, chosen = 1, name
        while chosen in found or (count > 1 and chosen in names):
            count += 1
            chosen = f"{name}_{count}"
        found.append(chosen)
    return found


def _print_table(names: list[str], rows: DataFrame, limit: int) -> None:
    from penstock.cli.output import plural, print_table

    found = list(islice(_plain_rows(rows.limit(limit + 1).collect()), limit + 1))
    print_table(names, [[_cell(each) for each in row] for row in found[:limit]])
    if len(found) > limit:
        sys.stdout.flush()
        shown = plural(limit, "row")
        print(f"penstock: the first {shown}; there are more (--limit N, or --format csv for all)", file=sys.stderr)


def _cell(value: Any) -> Any:
    """On one line, and with nothing that drives the terminal."""
    import json

    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and not value.isprintable():
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in value)
    return value


def _print_csv(names: list[str], rows: Iterable[list[Any]]) -> None:
    import csv
    import json

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow(json.dumps(each, ensure_ascii=False) if isinstance(each, list | dict) else each for each in row)


def _print_json(names: list[str], rows: Iterable[list[Any]]) -> None:
    import json

    for row in rows:
        print(json.dumps(dict(zip(names, row)), ensure_ascii=False))
