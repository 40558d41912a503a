"""`penstock cluster elect`: leaders as they were meant to be, or any at all for whoever accepts what that costs."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.cli.cluster.options import add_reach
from penstock.cli.parser import Parser, add_json, add_yes

if TYPE_CHECKING:
    from penstock.cli.cluster.leaderless import Leaderless
    from penstock.cli.cluster.reaching import Cluster, Key, Partition, Snapshot

EXAMPLES = """\
examples:
  penstock cluster elect                      the first replica of each partition leads it, where it is in sync
  penstock cluster elect orders payments:3
  penstock cluster elect --unclean orders:0   a replica leads that lacks messages, because those that have them are lost

A partition has no leader when every replica that has all of its messages is down. Bring one of them back, and it leads
again, with nothing lost. --unclean is for when that can't be: a replica that is up leads, though it lacks the newest
messages. They are lost for good, acknowledged ones too, and brokers that have them delete them when they return.
The first of the replicas that are up leads: where another has more, stop the brokers of those before it meanwhile.

exit code: 0 if each partition that was named, or all, is led as asked; 1 if one is not.
"""
PREFERRED, UNCLEAN = 0, 1
ROWS_MAX = 20

Results = dict["Key", tuple[int, str | None]]


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("places", metavar="TOPIC[:PARTITION]", nargs="*", help="default: all partitions")
    parser.add_argument(
        "--unclean",
        action="store_true",
        help="where there is no leader, let a replica lead that lacks messages: they are lost for good, see below",
    )
    add_yes(parser)
    add_json(parser)
    add_reach(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.cluster.reaching import reach
    from penstock.protocol.errors import ErrorCode

    cluster = reach(args)
    snapshot = cluster.snapshot()
    wanted = _partitions(snapshot, args.places)
    if args.unclean:
        results = _elect_unclean(cluster, snapshot, wanted, args)
    else:
        results = elect(cluster, [each.key for each in wanted] if args.places else None, PREFERRED)
    elected = sorted(key for key, (code, _) in results.items() if not code)
    failed = {
        key: result
        for key, result in results.items()
        if result[0] not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    }
    after = cluster.snapshot() if results else snapshot
    if args.json:
        _print_json(after, elected, failed)
    else:
        _print(cluster, after, elected, failed)
    return 1 if failed else 0


def _partitions(snapshot: Snapshot, places: Sequence[str]) -> list[Partition]:
    from penstock.cli.problem import Problem, did_you_mean

    known: defaultdict[str, dict[int, Partition]] = defaultdict(dict)
    for each in snapshot.partitions:
        known[each.topic][each.index] = each
    found: dict[Key, Partition] = {}
    for place in places or known:
        topic, separator, index = place.rpartition(":") if ":" in place else (place, "", "")
        if topic not in known:
            hint = did_you_mean(topic, known) or "'penstock topic list' shows which there are."
            raise Problem(f"there is no topic {topic!r}.", hint)
        if separator and (not index.isdecimal() or int(index) not in known[topic]):
            raise Problem(f"topic {topic!r} has no partition {index!r}.", f"It has 0 to {max(known[topic])}.")
        chosen = [known[topic][int(index)]] if separator else known[topic].values()
        found |= {each.key: each for each in chosen}
    return list(found.values())


def _elect_unclean(
    cluster: Cluster, snapshot: Snapshot, wanted: Sequence[Partition], args: argparse.Namespace
) -> Results:
    """Of those that the person was shown, and no others. Where no replica is up nobody is asked: nobody can lead."""
    from penstock.cli.cluster.leaderless import LOSS, leaderless, named
    from penstock.cli.output import confirm, plural
    from penstock.protocol.errors import ErrorCode

    found = leaderless(cluster, snapshot, wanted)
    results: Results = {each.partition.key: (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, None) for each in found}
    possible = [each for each in found if each.alive]
    if possible:
        if not args.json and not args.yes:
            _show(cluster, snapshot, possible)
        missed = sorted({who for each in possible for who in each.missed})
        others = named(missed) if missed else "other brokers"
        verb = "has" if len(missed) == 1 else "have"
        question = f"Elect leaders of {plural(len(possible), 'partition')} that lack messages?"
        confirm(f"{question} What only {others} {verb} is {LOSS}.", args.yes)
        results |= elect(cluster, [each.partition.key for each in possible], UNCLEAN)
    return results


def _show(cluster: Cluster, snapshot: Snapshot, found: Sequence[Leaderless]) -> None:
    """The first of those that could lead is taken, whatever it has: a person may see that another has more."""
    from penstock.cli.output import print_table

    asked = {who for each in found for who in each.alive}
    held = cluster.sizes(snapshot.brokers[who] for who in sorted(asked))
    rows = [
        (*each.partition.key, each.partition.replicas, each.complete, each.alive,
         tuple(held[who].get(each.partition.key, 0) if who in held else "?" for who in each.alive))
        for each in found
    ]  # fmt: skip
    columns = ["topic", "partition", "replicas", "have all messages", "could lead", "bytes there"]
    print_table(columns, rows[:ROWS_MAX], right=[5])
    if len(rows) > ROWS_MAX:
        print(f"… and {len(rows) - ROWS_MAX:,} more.")
    print()


def _print_json(after: Snapshot, elected: Sequence[Key], failed: Results) -> None:
    from penstock.cli.output import print_json
    from penstock.protocol.errors import ErrorCode

    known = {each.key: each for each in after.partitions}
    print_json({
        "elected": [{"topic": topic, "partition": index, "leader": _leader(known, (topic, index))}
                    for topic, index in elected],
        "failed": [
            {"topic": topic, "partition": index, "leader": _leader(known, (topic, index)),
             "error": ErrorCode(code).name, "message": _reason(after, known, (topic, index), code, message)}
            for (topic, index), (code, message) in sorted(failed.items())
        ],
    })  # fmt: skip


def _print(cluster: Cluster, after: Snapshot, elected: Sequence[Key], failed: Results) -> None:
    from penstock.cli.cluster.leaderless import advice, leaderless
    from penstock.cli.output import plural, print_table

    known = {each.key: each for each in after.partitions}
    if failed:
        rows = [
            (*key, _leader(known, key), _reason(after, known, key, code, message))
            for key, (code, message) in sorted(failed.items())
        ]
        print_table(["topic", "partition", "leader", "why not"], rows[:ROWS_MAX])
        if len(rows) > ROWS_MAX:
            print(f"… and {len(rows) - ROWS_MAX:,} more: --json has all of them.")
        print()
    orphans = leaderless(cluster, after, [known[key] for key in sorted(failed) if key in known])
    said = [f"Elected {plural(len(elected), 'leader')}."] if elected else ["No leader was elected."]
    if not elected and not failed:
        said = ["No election was needed."]
    if others := len(failed) - len(orphans):
        said.append(f"{plural(others, 'partition')} {'keeps its' if others == 1 else 'keep their'} leader.")
    if orphans:
        said.append(f"{plural(len(orphans), 'partition')} without a leader.")
    print(" ".join(said))
    for line in advice(cluster, orphans) if orphans else ():
        print(line)


def _leader(known: Mapping[Key, Partition], key: Key) -> int | None:
    leader = known[key].leader if key in known else -1
    return leader if leader >= 0 else None


def _reason(after: Snapshot, known: Mapping[Key, Partition], key: Key, code: int, message: str | None) -> str:
    """The broker's own words are few: what else is known says more."""
    from penstock.protocol.errors import ErrorCode

    partition = known.get(key)
    if partition is None or code not in (
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ):  # fmt: skip
        return message or ErrorCode(code).name.replace("_", " ").lower()
    preferred = partition.replicas[0]
    if not any(each in after.brokers for each in partition.replicas):
        return "none of its replicas is up"
    if partition.leader < 0:
        return "no replica that has all of its messages is up"
    if preferred not in after.brokers:
        return f"broker {preferred}, its first replica, is down"
    if preferred not in partition.isr:
        return f"broker {preferred}, its first replica, is not in sync"
    return message or f"broker {preferred}, its first replica, can't lead now: try again"


def elect(cluster: Cluster, wanted: Iterable[Key] | None, kind: int) -> dict[Key, tuple[int, str | None]]:
    """The error code of each, and what the broker says about it. All partitions where none is named."""
    from penstock.cli.raw import check
    from penstock.protocol.messages import elect_leaders as electing

    request = electing.ElectLeadersRequest(election_type=kind, topic_partitions=None)
    if wanted is not None:
        topics: defaultdict[str, list[int]] = defaultdict(list)
        for topic, index in wanted:
            topics[topic].append(index)
        request.topic_partitions = [
            electing.TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in topics.items()
        ]
    answer = cluster.ask(request, 2, electing.ElectLeadersResponse)
    check(answer.error_code, "can't elect leaders")
    return {
        (topic.topic, each.partition_id): (each.error_code, each.error_message)
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }
