"""`penstock produce`: one message per line of input."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from penstock.cli.parser import Parser, add_bootstrap, key_value, not_negative, positive
from penstock.cli.problem import Problem, usage

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from penstock.cli.connection import Connection
    from penstock.cli.records import Outgoing

EXAMPLES = """\
examples:
  echo hello | penstock produce orders
  penstock produce orders --key-separator : --file orders.txt      each line is KEY:VALUE
  penstock produce orders -k customer-7 -H source=shop < order.json
  penstock consume orders --json --no-follow | penstock produce copy --json
"""
DELIVERY_TIMEOUT_S = 60
INT32_MAX = 2**31 - 1
REPORT_S = 5.0  # how long librdkafka may take to say that the time is over


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--file", metavar="FILE", help="read messages from a file instead of standard input")
    parser.add_argument("-k", "--key", help="the key of every message")
    parser.add_argument("--key-separator", metavar="TEXT", help="what ends the key at the head of each line")
    parser.add_argument(
        "-H", "--header", dest="headers", metavar="NAME=VALUE", type=key_value, action="append", default=[]
    )
    parser.add_argument("-p", "--partition", metavar="N", type=not_negative, help="choose the partition yourself")
    parser.add_argument("--acks", choices=["0", "1", "all"], default="all", help="who must have it (default all)")
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=positive, default=DELIVERY_TIMEOUT_S,
        help=f"how long to try to deliver a message (default {DELIVERY_TIMEOUT_S})",
    )  # fmt: skip
    parser.add_argument("--compression", choices=["none", "gzip", "snappy", "lz4", "zstd"], default="none")
    parser.add_argument(
        "--json",
        action="store_true",
        help='each line is {"key", "value", "headers", "partition"}; the report is JSON as well',
    )
    add_bootstrap(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.connection import connect

    if args.key is not None and args.key_separator is not None:
        raise usage("--key and --key-separator both say where the key comes from.", "Choose one of them.")
    if args.key_separator == "":
        raise usage("--key-separator is empty.", r"For a tab: --key-separator '\t'")
    connection = connect(args)
    connection.partitions(args.topic, None if args.partition is None else [args.partition])
    sender = _Sender(connection, args)
    try:
        for outgoing in _messages(args):
            if not sender.send(outgoing):
                break
    finally:
        sender.finish()
    return sender.report(args.json)


class _Sender:
    """Sends, counts what came back, says what it waits for, and remembers the first failure."""

    def __init__(self, connection: Connection, args: argparse.Namespace) -> None:
        from confluent_kafka import Producer

        from penstock.cli.connection import client_settings
        from penstock.cli.waiting import STATISTICS_MS, Waiting

        self.topic: str = args.topic
        self.interactive = sys.stdin.isatty() and not args.file
        self.produced = 0
        self.failed = 0
        self.expired = False  # whether the time of a message was over
        self.given_up = False  # whether there was more to send behind it
        self.first_error: str | None = None
        self.waiting = Waiting(self.topic, self._tell)
        self.timeout_s: int = args.timeout
        self.see = f"'penstock cluster status{connection.bootstrap.options}' tells more."
        settings = {
            "acks": args.acks,
            "compression.type": args.compression,
            "enable.idempotence": args.acks == "all",
            "message.timeout.ms": min(args.timeout * 1000, INT32_MAX),
            "statistics.interval.ms": STATISTICS_MS,
            "stats_cb": self.waiting.on_statistics,
        }
        self.producer = Producer(client_settings(connection.bootstrap, **settings))

    def send(self, outgoing: Outgoing) -> bool:
        """False if there is no use in sending: it would have to wait as long as the one whose time was over."""
        while not self.expired and not self._offer(outgoing):
            self.producer.poll(0.1)
        self.given_up = self.expired
        self.producer.poll(0)
        if self.interactive:
            self.producer.flush(self.timeout_s + REPORT_S)
            return not self.expired
        return not self.given_up

    def _offer(self, outgoing: Outgoing) -> bool:
        """False while librdkafka's queue is full."""
        from confluent_kafka import KafkaException

        try:
            self.producer.produce(
                self.topic,
                outgoing.value,
                outgoing.key,
                partition=-1 if outgoing.partition is None else outgoing.partition,
                timestamp=outgoing.timestamp_ms or 0,
                headers=list(outgoing.headers),
                on_delivery=self._delivered,
            )
        except BufferError:
            return False
        except KafkaException as failure:  # the client itself does not take it: too large, for one
            error = failure.args[0]
            self.failed += 1
            self.first_error = self.first_error or f": {error.str()} ({error.name()})"
        return True

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition = message.partition() or 0
        self.waiting.answered(partition)
        if error is None:
            self.produced += 1
            if self.interactive:
                print(f"Produced to partition {partition} at offset {message.offset()}.")
            return
        self.failed += 1
        reason = f": {error.str()} ({error.name()})"
        if error.code() == error._MSG_TIMED_OUT:
            self.expired = True
            reason = f" within {self.timeout_s} s: {self.waiting.why(partition) or 'nobody answered'}"
        self.first_error = self.first_error or reason

    def _tell(self, reason: str) -> None:
        print(f"penstock: waiting for up to {self.timeout_s} s: {reason}.\n  {self.see}", file=sys.stderr, flush=True)

    def finish(self) -> None:
        unanswered = self.producer.flush(self.timeout_s + REPORT_S)  # which counts failures itself, as they come in
        self.failed += unanswered

    def report(self, as_json: bool) -> int:
        from penstock.cli.output import plural, print_json

        if as_json:
            print_json({"topic": self.topic, "produced": self.produced, "failed": self.failed})
        elif not self.interactive:
            print(f"Produced {plural(self.produced, 'message')} to {self.topic}.", file=sys.stderr)
        if self.failed:
            reason = self.first_error or f" within {self.timeout_s} s: nobody answered"
            hint = self.see if self.expired else None
            if self.given_up:
                hint = f"The rest of the input was not sent.\n{hint}"
            raise Problem(f"{plural(self.failed, 'message')} could not be produced{reason}.", hint)
        return 0


def _messages(args: argparse.Namespace) -> Iterator[Outgoing]:
    if args.file is None:
        yield from _parsed(sys.stdin.buffer, args)
        return
    try:
        source = open(args.file, "rb")  # noqa: SIM115  (the `with` below closes it; only opening is ours to explain)
    except OSError as failure:
        raise usage(f"can't read {args.file!r}: {failure.strerror}.") from failure
    with source:
        yield from _parsed(source, args)


def _parsed(lines: Iterable[bytes], args: argparse.Namespace) -> Iterator[Outgoing]:
    from penstock.cli.records import Outgoing, from_json, unescape

    key = None if args.key is None else args.key.encode()
    headers = tuple((name, value.encode()) for name, value in args.headers)
    separator = unescape(args.key_separator).encode() if args.key_separator else None
    for number, raw in enumerate(lines, start=1):
        line = raw.removesuffix(b"\n")
        if args.json:
            try:
                found = from_json(line)
            except ValueError as failure:
                raise Problem(f"line {number} is not a message: {failure}.", "The lines before it were sent.") from None
            partition = found.partition if args.partition is None else args.partition
            chosen_key = found.key if key is None else key
            yield Outgoing(chosen_key, found.value, found.headers + headers, partition, found.timestamp_ms)
        elif separator is None:
            yield Outgoing(key, line, headers, args.partition)
        else:
            line_key, found_separator, value = line.partition(separator)
            if not found_separator:
                raise Problem(f"line {number} has no {args.key_separator!r}.", "The lines before it were sent.")
            yield Outgoing(line_key, value, headers, args.partition)
