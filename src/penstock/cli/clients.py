"""The connections of jobs, for commands that run them: what --set says of them holds for the first one too.

Such a command reaches brokers through the pipeline's own client, which speaks TLS and SASL by Kafka's names for their
settings. Where nothing is set, librdkafka looks first: what it says of brokers that do not answer is with advice.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import TYPE_CHECKING

from penstock.cli.parser import Parser, key_value
from penstock.cli.problem import Problem, usage

if TYPE_CHECKING:
    from penstock.pipeline.brokers import Brokers


def add_client(parser: Parser) -> None:
    parser.add_argument(
        "--set",
        dest="client",
        metavar="NAME=VALUE",
        type=key_value,
        action="append",
        default=[],
        help="a setting of the connections, such as kafka.security.protocol=SSL; repeatable",
    )


def client_options(args: argparse.Namespace) -> dict[str, str]:
    from penstock.cli.bootstrap import find

    return {**dict(args.client), "kafka.bootstrap.servers": find(args.bootstrap).addresses}


def open_brokers(args: argparse.Namespace, what: str) -> Brokers:
    """An address at which nobody is is told soon. Raises PipelineError for settings that there are not."""
    from penstock.pipeline.brokers import Brokers
    from penstock.pipeline.options import OF_CLIENTS, Options

    return Brokers(Options(client_options(args), OF_CLIENTS, what).client().hasty())


def topics(args: argparse.Namespace, what: str) -> Collection[str]:
    """Their names, before Spark is started: brokers that can't be reached are told at once."""
    from penstock.cli.connection import connect
    from penstock.pipeline.problem import OptionError, PipelineError
    from penstock.protocol.errors import ApiError

    if not args.client:
        return connect(args).topics
    try:
        with open_brokers(args, what) as brokers:
            return brokers.topics()
    except OptionError as problem:
        raise usage(f"{problem}.") from problem
    except (PipelineError, ApiError, OSError) as problem:
        raise Problem(f"{problem}.") from problem
