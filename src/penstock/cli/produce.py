"""`penstock produce`: one message per line of input."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from penstock.cli.parser import Parser, add_bootstrap, key_value, not_negative
from penstock.cli.problem import Problem, usage

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

    from penstock.cli.records import Outgoing

EXAMPLES = """\
examples:
  echo hello | penstock produce orders
  penstock produce orders --key-separator : --file orders.txt      each line is KEY:VALUE
  penstock produce orders -k customer-7 -H source=shop < order.json
  penstock consume orders --json --no-follow | penstock produce copy --json
"""
FLUSH_TIMEOUT_S = 60.0


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
    parser.add_argument("--compression", choices=["none", "gzip", "snappy", "lz4", "zstd"], default="none")
    parser.add_argument(
        "--json",
        action="store_true",
        help='each line is {"key", "value", "headers", "partition"}; the report is JSON as well',
    )
    add_bootstrap(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from confluent_kafka import Producer

    from penstock.cli.connection import Connection, client_settings

    if args.key is not None and args.key_separator is not None:
        raise usage("--key and --key-separator both say where the key comes from.", "Choose one of them.")
    if args.key_separator == "":
        raise usage("--key-separator is empty.", r"For a tab: --key-separator '\t'")
    connection = Connection(args.bootstrap)
    connection.partitions(args.topic, None if args.partition is None else [args.partition])
    settings = client_settings(args.bootstrap, acks=args.acks, **{"compression.type": args.compression})
    if args.acks == "all":
        settings["enable.idempotence"] = True
    sender = _Sender(args.topic, Producer(settings), interactive=sys.stdin.isatty() and not args.file)
    try:
        for outgoing in _messages(args):
            sender.send(outgoing)
    finally:
        sender.finish()
    return sender.report(args.json)


class _Sender:
    """Sends, counts what came back, and remembers the first failure."""

    def __init__(self, topic: str, producer: Producer, interactive: bool) -> None:
        self.topic = topic
        self.producer = producer
        self.interactive = interactive
        self.produced = 0
        self.failed = 0
        self.first_error: str | None = None

    def send(self, outgoing: Outgoing) -> None:
        while not self._offer(outgoing):
            self.producer.poll(0.1)
        self.producer.poll(0)
        if self.interactive:
            self.producer.flush(FLUSH_TIMEOUT_S)

    def _offer(self, outgoing: Outgoing) -> bool:
        """False while librdkafka's queue is full."""
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
        return True

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.produced += 1
            if self.interactive:
                print(f"Produced to partition {message.partition()} at offset {message.offset()}.")
        else:
            self.failed += 1
            self.first_error = self.first_error or f"{error.str()} ({error.name()})"

    def finish(self) -> None:
        unanswered = self.producer.flush(FLUSH_TIMEOUT_S)  # which counts failures itself, as they come in
        self.failed += unanswered

    def report(self, as_json: bool) -> int:
        from penstock.cli.output import plural, print_json

        if as_json:
            print_json({"topic": self.topic, "produced": self.produced, "failed": self.failed})
        elif not self.interactive:
            print(f"Produced {plural(self.produced, 'message')} to {self.topic}.", file=sys.stderr)
        if self.failed:
            reason = self.first_error or f"no answer within {FLUSH_TIMEOUT_S:.0f} s"
            raise Problem(f"{plural(self.failed, 'message')} could not be produced: {reason}.")
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
