"""From a file on the command line to a plan that was checked: what `run` and `check` have in common."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.parser import Parser, key_value

if TYPE_CHECKING:
    from penstock.pipeline.transform.checking import Plan
    from penstock.pipeline.transform.model import Pipeline


def add_file(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="a pipeline: .toml, or .sql with TOML in its comment")
    parser.add_argument("--master", metavar="URL", help="of a Spark cluster (default: this machine, local[*])")
    parser.add_argument(
        "--packages", metavar="COORDINATES", help="for Spark to fetch from Maven, such as its module for Avro"
    )
    parser.add_argument(
        "--conf", metavar="NAME=VALUE", type=key_value, action="append", default=[], help="of Spark's; repeatable"
    )


@contextmanager
def planned(args: argparse.Namespace, *, runs: bool = False) -> Iterator[Plan]:
    """Spark lives as long as the plan. Whatever is wrong with the file is told before Spark starts, if it can be."""
    from penstock.cli.problem import Problem
    from penstock.cli.sparking import not_installed, session
    from penstock.pipeline.folders import expect_writable
    from penstock.pipeline.problem import PipelineError
    from penstock.protocol.errors import ApiError

    try:
        from penstock.pipeline.transform.checking import check
        from penstock.pipeline.transform.reading import read_pipeline
    except ImportError as missing:
        raise not_installed(missing) from missing
    try:
        pipeline = read_pipeline(args.file)
        bootstrap = _expect_topics(args, pipeline)
        if runs:
            expect_writable(pipeline.checkpoint)
        settings = {**pipeline.spark, **dict(args.conf)}
        if args.packages:
            settings["spark.jars.packages"] = args.packages
        pipeline = replace(pipeline, spark=settings)
        with session(f"pipeline {pipeline.name}", args.master, settings) as spark:
            spark.sparkContext.setLogLevel("OFF")  # what fails is told once, by us
            yield check(spark, pipeline, bootstrap)
    except PipelineError as error:
        text = str(error)
        named = text if text.startswith(f"{args.file}") else f"{args.file}: {text}"
        raise Problem(named if named.endswith("?") else f"{named}.") from error
    except ApiError as error:
        raise Problem(f"{error.code.name}: {error}.") from error


def _expect_topics(args: argparse.Namespace, pipeline: Pipeline) -> str:
    """Spark takes seconds to start; a topic that is missing can be told at once."""
    from penstock.cli.bootstrap import find
    from penstock.cli.connection import Connection
    from penstock.pipeline.transform.checking import check_topics

    bootstrap = find(args.bootstrap or pipeline.bootstrap)
    if not pipeline.client:  # with TLS and such, the pipeline's own client asks, later
        check_topics(pipeline, set(Connection(bootstrap).topics))
    return bootstrap.addresses
