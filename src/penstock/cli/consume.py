"""`penstock consume`: messages as they come, from any place in the log."""

from __future__ import annotations

import argparse
import os
import select
import sys
import time
from typing import TYPE_CHECKING

from penstock.cli.parser import Parser, add_bootstrap, add_json, not_negative, positive
from penstock.cli.positions import END, START, TIMES, Position, parse_position
from penstock.cli.problem import usage

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

    from penstock.cli.bootstrap import Bootstrap
    from penstock.cli.connection import Connection, Key
    from penstock.cli.records import Write

EXAMPLES = f"""\
positions:
  start, end, an offset, -N for the last N of each partition, or a time:
  {TIMES}

format:
  %t topic, %p partition, %o offset, %k key, %v value, %h headers, %T time in ms, %d time, %K and %V the lengths
  of key and value, %% a percent sign; \\n, \\t, \\xHH

examples:
  penstock consume orders                              everything there is, and then what comes
  penstock consume orders --from end                   only what comes
  penstock consume orders --from -10 --no-follow       the last ten of each partition
  penstock consume orders --from 2h --to 1h            what came between two hours ago and one
  penstock consume orders --group billing              as a member of a group, which keeps its place
  penstock consume orders -f '%p/%o %k=%v\\n' -n 5
"""
POLL_S = 0.2  # how long Ctrl-C may have to wait
BATCH = 1_000


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("topics", metavar="TOPIC", nargs="+")
    parser.add_argument("--from", dest="start", metavar="POSITION", type=parse_position, help="default: start")
    parser.add_argument("--to", metavar="POSITION", type=parse_position, help="stop before this position")
    parser.add_argument("-n", "--count", metavar="N", type=positive, help="stop after N messages")
    parser.add_argument("-g", "--group", metavar="NAME", help="join this group and commit what was printed")
    parser.add_argument(
        "-p", "--partition", dest="partitions", metavar="N", type=not_negative, action="append", help="repeatable"
    )
    parser.add_argument("-f", "--format", metavar="TEXT", help="how to print a message, see below")
    parser.add_argument(
        "--follow", action=argparse.BooleanOptionalAction, default=True, help="wait for more at the end"
    )
    add_json(parser, "print one JSON object a line")
    add_bootstrap(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.connection import connect

    _check(args)
    write = _writer(args)
    connection = connect(args)
    for topic in args.topics:
        connection.partitions(topic, args.partitions)
    reader = _InGroup(connection, args) if args.group else _Assigned(connection, args)
    try:
        _copy(reader, write, args.count, following=args.follow and args.to is None)
    except KeyboardInterrupt:
        pass
    finally:
        reader.consumer.close()
    return 0


def _check(args: argparse.Namespace) -> None:
    if args.json and args.format:
        raise usage("--json and --format both say how to print.", "Choose one of them.")
    if not args.group:
        return
    if args.partitions:
        raise usage("a group decides itself who reads which partition.", "Leave out --partition or --group.")
    if args.start not in (None, START, END) or args.to is not None:
        hint = f"Move the group first: 'penstock group reset {args.group} --to POSITION'."
        raise usage("a group starts where it stopped; --from may be start or end, for where it never was.", hint)


def _writer(args: argparse.Namespace) -> Write:
    from penstock.cli.records import compile_format, to_json, to_terminal

    if args.json:
        return to_json
    if args.format is not None:
        return compile_format(args.format)
    if sys.stdout.isatty():
        return to_terminal(colour="NO_COLOR" not in os.environ)
    return compile_format("%v\\n")


def _copy(reader: _Assigned | _InGroup, write: Write, count: int | None, following: bool) -> None:
    out = sys.stdout.buffer
    left = count if count is not None else -1
    while left != 0 and not reader.finished():
        for message in _next_messages(reader.consumer, BATCH if left < 0 else min(BATCH, left)):
            if not reader.takes(message):
                continue
            out.write(write(message))
            reader.printed(message)
            left -= 1
        out.flush()
        _check_reader(out.fileno())
        reader.outage.check(following)


def _check_reader(out: int) -> None:
    """Whoever read what is printed may have gone, which would show only with the next message."""
    poll = select.poll()
    poll.register(out, 0)
    if any(events & select.POLLERR for _, events in poll.poll(0)):
        raise BrokenPipeError


def _next_messages(consumer: Consumer, limit: int) -> list[Message]:
    """Waits for one message, then takes what has arrived with it, without waiting for a batch to fill."""
    first = consumer.poll(POLL_S)
    if first is None:
        return []
    return [first] if limit == 1 else [first, *consumer.consume(limit - 1, 0)]


def _is_end(message: Message, outage: _Outage) -> bool:
    """Whether this is no message but word that a partition has no more. Any other error ends the command."""
    from confluent_kafka import KafkaError

    from penstock.cli.connection import explain

    error = message.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF:
        outage.over()
        return error is not None
    raise explain(error, "can't consume", outage.bootstrap)


class _Outage:
    """A broker that went away: who follows waits for it, who wants an end is told that there is none."""

    def __init__(self, bootstrap: Bootstrap) -> None:
        self.bootstrap = bootstrap
        self.since: float | None = None
        self.announced = False

    def on_error(self, error: KafkaError) -> None:
        if error.code() == error._ALL_BROKERS_DOWN and self.since is None:
            self.since = time.monotonic()

    def over(self) -> None:
        self.since, self.announced = None, False

    def check(self, following: bool) -> None:
        from penstock.cli.connection import REACH_TIMEOUT_S, not_reachable

        if self.since is None:
            return
        if following and not self.announced:
            self.announced = True
            print(f"penstock: waiting for a broker at {self.bootstrap.addresses} to come back …", file=sys.stderr)
        elif not following and time.monotonic() - self.since > REACH_TIMEOUT_S:
            raise not_reachable(self.bootstrap, "it went away")


class _Assigned:
    """Reads chosen partitions from chosen offsets, and commits nothing."""

    def __init__(self, connection: Connection, args: argparse.Namespace) -> None:
        from confluent_kafka import Consumer, TopicPartition

        from penstock.cli.connection import client_settings
        from penstock.cli.positions import locate

        keys = [key for topic in args.topics for key in connection.partitions(topic, args.partitions)]
        first = locate(connection, args.start or START, keys)
        self.outage = _Outage(connection.bootstrap)
        self.ends: dict[Key, int] = {}
        self.open: set[Key] | None = None  # partitions not read to their end yet, if there is an end
        if args.to is not None or not args.follow:
            self.ends = {key: place.offset for key, place in locate(connection, _last(args), keys).items()}
            self.open = {key for key in keys if first[key].offset < self.ends[key]}
        settings = {
            "group.id": "penstock-cli",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "error_cb": self.outage.on_error,
        }
        self.consumer = Consumer(client_settings(connection.bootstrap, **settings))
        self.consumer.assign([TopicPartition(*key, place.offset) for key, place in first.items()])

    def takes(self, message: Message) -> bool:
        key, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
        if _is_end(message, self.outage):
            if self.open is not None and offset >= self.ends[key]:
                self.open.discard(key)
            return False
        if self.open is None:
            return True
        if offset >= self.ends[key] - 1:
            self.open.discard(key)
        return offset < self.ends[key]

    def printed(self, message: Message) -> None:
        pass

    def finished(self) -> bool:
        return self.open is not None and not self.open


def _last(args: argparse.Namespace) -> Position:
    return END if args.to is None else args.to


class _InGroup:
    """Reads as a member of a group; what was printed is committed, and nothing else."""

    def __init__(self, connection: Connection, args: argparse.Namespace) -> None:
        from confluent_kafka import Consumer

        from penstock.cli.connection import client_settings

        self.outage = _Outage(connection.bootstrap)
        self.follow: bool = args.follow
        self.assigned: set[Key] | None = None
        self.at_end: set[Key] = set()
        settings = {
            "group.id": args.group,
            "auto.offset.reset": "latest" if args.start == END else "earliest",
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "error_cb": self.outage.on_error,
        }
        self.consumer = Consumer(client_settings(connection.bootstrap, **settings))
        self.consumer.subscribe(args.topics, on_assign=self._on_assign)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned = {(place.topic, place.partition) for place in partitions}
        self.at_end.clear()

    def takes(self, message: Message) -> bool:
        key = (message.topic() or "", message.partition() or 0)
        if _is_end(message, self.outage):
            self.at_end.add(key)
            return False
        self.at_end.discard(key)
        return True

    def printed(self, message: Message) -> None:
        self.consumer.store_offsets(message)

    def finished(self) -> bool:
        return not self.follow and self.assigned is not None and self.assigned <= self.at_end
