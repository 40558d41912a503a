"""What the commands of the archive have in common: the extra they need, where the archive is, and plain refusals."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.cli.clients import add_client
from penstock.cli.parser import Parser
from penstock.cli.problem import Problem, usage
from penstock.pipeline.durations import seconds

if TYPE_CHECKING:
    from penstock.pipeline.archive.layout import Archive
    from penstock.pipeline.brokers import Brokers

INSTALL = "pip install 'penstock[spark]'"
UNITS_BYTES = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def need(*modules: str) -> None:
    """Told before anything is begun."""
    from importlib.util import find_spec

    for name in modules:
        if find_spec(name) is None:
            raise Problem(f"the archive needs {name}, which is not installed.", INSTALL)


def need_java() -> None:
    from penstock.pipeline.session import java

    with plain_refusals():
        java()


@contextmanager
def plain_refusals() -> Iterator[None]:
    """What ends a job becomes a sentence."""
    from penstock.pipeline.problem import OptionError, PipelineError
    from penstock.protocol.errors import ApiError, CorruptBatch

    try:
        yield
    except OptionError as error:
        raise usage(f"{error}.") from error
    except (PipelineError, CorruptBatch, OSError) as error:
        raise Problem(str(error)) from error
    except ApiError as error:
        raise Problem(f"{error.code.name}: {error}") from error


# ---- options


def add_s3(parser: Parser) -> None:
    parser.add_argument(
        "--s3-endpoint", metavar="URL", help="of an S3 that is not Amazon's (default: $AWS_ENDPOINT_URL)"
    )


def add_compression(parser: Parser) -> None:
    parser.add_argument("--compression", choices=["zstd", "snappy", "lz4", "none"], default="zstd")


def add_archive(parser: Parser) -> None:
    parser.add_argument(
        "--archive", metavar="LOCATION", help="a folder, hdfs://… or s3a://… (default: where the topic's archive says)"
    )
    parser.add_argument("--topic", dest="topics", metavar="NAME", action="append", default=[], help="repeatable")
    parser.add_argument("--group", metavar="NAME", help="of the archive (default: penstock-archive-TOPIC)")
    add_s3(parser)
    add_client(parser)


def duration(text: str) -> float:
    found = seconds(text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 30s, 1m or 2h")
    return found


def byte_size(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?B)?", text.upper())
    if match is None or int(match[1]) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 64MB or 1GB")
    return int(match[1]) * UNITS_BYTES[match[2] or ""]


def human_bytes(size: int) -> str:
    for unit, one in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= one:
            return f"{size / one:,.1f} {unit}"
    return f"{size} B"


# ---- brokers and archives


def open_brokers(args: argparse.Namespace, patience_s: float) -> Brokers:
    from dataclasses import replace

    from penstock.cli.clients import client_options
    from penstock.pipeline.brokers import Brokers
    from penstock.pipeline.options import OF_CLIENTS, Options

    options = Options(client_options(args), OF_CLIENTS, "archive")
    return Brokers(replace(options.client(), patience_s=patience_s))


def open_archive(args: argparse.Namespace, brokers: Brokers) -> Archive:
    """The one that was named, or the one that the topic's group names."""
    from penstock.pipeline.archive.layout import Archive
    from penstock.pipeline.survey import find_archive

    if args.archive:
        return Archive(args.archive, s3_endpoint=args.s3_endpoint)
    if not args.topics:
        raise usage("which archive?", "Name one with --archive LOCATION, or a topic of it with --topic NAME.")
    found = find_archive(brokers, args.topics[0], args.group)
    if found is None:
        raise Problem(
            f"nothing says where {args.topics[0]!r} is archived.",
            f"Name the place with --archive LOCATION, or begin with 'penstock archive run --topic {args.topics[0]}'.",
        )
    return Archive(found, s3_endpoint=args.s3_endpoint)


def wanted_topics(args: argparse.Namespace, archive: Archive) -> list[str]:
    """Those that were named, which must be there, or all."""
    from penstock.cli.problem import did_you_mean

    known = archive.topics()
    for name in args.topics:
        if name not in known:
            raise Problem(f"topic {name!r} is not in {archive.location.given}.", did_you_mean(name, known))
    if not known:
        raise Problem(f"there is no archive in {archive.location.given}.")
    return sorted(set(args.topics)) or known
