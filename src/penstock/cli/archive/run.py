"""`penstock archive run`: topics to Parquet files, as a streaming job of Spark's."""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.archive.needs import add_compression, add_s3, duration
from penstock.cli.clients import add_client
from penstock.cli.parser import Parser, key_value, positive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.pipeline.archive.job import ArchiveJob

EXAMPLES = """\
places:
  a folder, hdfs://namenode/folder (needs Hadoop's client) or s3a://bucket/folder ($AWS_ACCESS_KEY_ID and such)

examples:
  penstock archive run --topic orders --to /srv/archive
  penstock archive run --topic orders --topic payments --to s3a://lake/topics --trigger 5m
  penstock archive run --topic-pattern 'orders\\..*' --to /srv/archive --once
"""
POLL_S = 0.5


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    what = parser.add_argument_group("what and where")
    what.add_argument("--topic", dest="topics", metavar="NAME", action="append", default=[], help="repeatable")
    what.add_argument(
        "--topic-pattern", metavar="REGEX", help="every topic with such a name, also those that come later"
    )
    what.add_argument("--to", dest="location", metavar="LOCATION", required=True, help="the place of the archive")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--trigger", metavar="TIME", type=duration, default=60.0, help="between batches (default: 1m)")
    when.add_argument("--once", action="store_true", help="archive what is there now, and end")
    parser.add_argument("--master", metavar="URL", help="of a Spark cluster (default: this machine, local[*])")
    parser.add_argument("--conf", metavar="NAME=VALUE", type=key_value, action="append", default=[], help="of Spark's")
    parser.add_argument(
        "--group", metavar="NAME", help="that commits what is covered (default: penstock-archive-TOPIC)"
    )
    parser.add_argument("--checkpoint", metavar="PATH", help="of the job (default: beside the files)")
    parser.add_argument("--records-per-file", metavar="N", type=positive, default=1_000_000, help="(default: 1000000)")
    parser.add_argument("--records-per-batch", metavar="N", type=positive, help="at most (default: all that there are)")
    add_compression(parser)
    parser.add_argument("--allow-gaps", action="store_true", help="go on where records were deleted before their time")
    add_s3(parser)
    add_client(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.archive.needs import need, need_java, plain_refusals

    need("pyarrow", "pyspark")
    need_java()
    with tempfile.TemporaryDirectory(prefix="penstock-archive-") as folder, plain_refusals():
        return _run(args, _job(args, Path(folder, "report")))


def _job(args: argparse.Namespace, report: Path) -> ArchiveJob:
    from penstock.cli.clients import client_options, topics
    from penstock.cli.connection import expect_topic
    from penstock.cli.problem import usage
    from penstock.pipeline.archive.job import ArchiveJob
    from penstock.pipeline.archive.settings import ArchiveOptions

    if bool(args.topics) == bool(args.topic_pattern):
        raise usage("what is to be archived?", "Use --topic NAME, as often as needed, or --topic-pattern REGEX.")
    if args.topics:
        known = topics(args, "archive")
        for name in args.topics:
            expect_topic(name, known)
        subscription = {"subscribe": ",".join(dict.fromkeys(args.topics))}
    else:
        subscription = {"subscribePattern": args.topic_pattern}
    archive = ArchiveOptions(
        location=args.location,
        s3_endpoint=args.s3_endpoint,
        records_per_file=args.records_per_file,
        compression=args.compression,
        group=args.group,
        report=str(report),
    )
    return ArchiveJob(
        archive=archive,
        subscription=subscription,
        client=client_options(args),
        trigger_s=None if args.once else args.trigger,
        checkpoint=args.checkpoint,
        allow_gaps=args.allow_gaps,
        records_per_batch=args.records_per_batch,
    )


def _run(args: argparse.Namespace, job: ArchiveJob) -> int:
    from penstock.cli.sparking import session
    from penstock.pipeline.archive.job import WORKERS, explain, start, tidy
    from penstock.pipeline.folders import expect_writable

    archive = job.archive.open()
    if archive.location.is_local:
        expect_writable(archive.location.root)
    expect_writable(job.checkpoint_path())
    tidy(archive, args.topics or archive.topics())
    for name, value in WORKERS.items():
        os.environ.setdefault(name, value)  # which workers on this machine inherit
    settings = {f"spark.executorEnv.{name}": value for name, value in WORKERS.items()}
    with session(f"archive {job.name}", args.master, {**settings, **dict(args.conf)}) as spark:
        spark.sparkContext.setLogLevel("OFF")  # what fails is told once, by us
        stopping = threading.Event()
        with _told_to_stop(stopping):
            query = start(spark, job)
            _watch(args, spark, query, Path(job.archive.report or ""), stopping)
        failure = None if stopping.is_set() else query.exception()
        if failure is not None:
            raise explain(failure)
    return 0


@contextmanager
def _told_to_stop(stopping: threading.Event) -> Iterator[None]:
    """Only after Spark has started, since it sets handlers of its own. The second signal does not wait."""

    def stop(*_: object) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()

    previous = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)


def _watch(
    args: argparse.Namespace, spark: SparkSession, query: StreamingQuery, report: Path, stopping: threading.Event
) -> None:
    from penstock.cli.archive.progress import Progress

    with Progress(args, query, spark, report) as progress:
        while query.isActive and not stopping.wait(POLL_S):
            progress.update()
        query.stop()
        progress.update()
    progress.finish()
