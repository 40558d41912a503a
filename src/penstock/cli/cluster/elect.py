"""`penstock cluster elect`: leaders as they were meant to be, or any at all for whoever accepts what that costs."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.cli.cluster.options import add_reach
from penstock.cli.parser import Parser, add_json, add_yes

if TYPE_CHECKING:
    from penstock.cli.cluster.reaching import Cluster, Key

EXAMPLES = """\
examples:
  penstock cluster elect                      the first replica of each partition leads it, where it is in sync
  penstock cluster elect orders payments:3
  penstock cluster elect --unclean orders:0   a replica leads that lacks messages, because those that have them are lost
"""
PREFERRED, UNCLEAN = 0, 1


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("places", metavar="TOPIC[:PARTITION]", nargs="*", help="default: all partitions")
    parser.add_argument(
        "--unclean", action="store_true", help="where there is no leader, accept that messages are lost"
    )
    add_yes(parser)
    add_json(parser)
    add_reach(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.cluster.reaching import reach
    from penstock.cli.output import confirm, plural, print_json, print_table
    from penstock.protocol.errors import ErrorCode

    cluster = reach(args)
    wanted = _partitions(cluster, args.places) if args.places else None
    if args.unclean:
        where = " ".join(args.places) or "every partition without a leader"
        confirm(f"Elect leaders of {where} that may lack messages? What only others hold is lost for good.", args.yes)
    results = elect(cluster, wanted, UNCLEAN if args.unclean else PREFERRED)
    needless = {key for key, (code, _) in results.items() if code == ErrorCode.ELECTION_NOT_NEEDED}
    elected = {key for key, (code, _) in results.items() if not code}
    failed = {key: result for key, result in results.items() if key not in needless | elected}
    if args.json:
        print_json({
            "elected": [{"topic": topic, "partition": index} for topic, index in sorted(elected)],
            "failed": [
                {"topic": topic, "partition": index, "error": ErrorCode(code).name, "message": message}
                for (topic, index), (code, message) in sorted(failed.items())
            ],
        })  # fmt: skip
        return 1 if failed else 0
    if failed:
        rows = [(*key, ErrorCode(code).name, message) for key, (code, message) in sorted(failed.items())]
        print_table(["topic", "partition", "error", "message"], rows)
        print()
    print(f"Elected {plural(len(elected), 'leader')}." if elected else "No election was needed." if not failed else "")
    return 1 if failed else 0


def _partitions(cluster: Cluster, places: Iterable[str]) -> list[Key]:
    from penstock.cli.problem import Problem, did_you_mean

    known: defaultdict[str, list[int]] = defaultdict(list)
    for each in cluster.snapshot().partitions:
        known[each.topic].append(each.index)
    found: list[Key] = []
    for place in places:
        topic, separator, index = place.rpartition(":") if ":" in place else (place, "", "")
        if topic not in known:
            raise Problem(f"there is no topic {topic!r}.", did_you_mean(topic, known))
        if separator and (not index.isdecimal() or int(index) not in known[topic]):
            raise Problem(f"topic {topic!r} has no partition {index!r}.", f"It has 0 to {max(known[topic])}.")
        found += [(topic, int(index))] if separator else [(topic, each) for each in known[topic]]
    return found


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
