"""Moving partitions between brokers: asked for, watched to the end, held back to a rate, taken back.

Once asked for, the brokers do it, with or without a command that watches: the same command again goes on watching.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from penstock.cli.cluster.balancing import Move, Placement
from penstock.cli.cluster.reaching import Cluster, Key, Moving, Snapshot
from penstock.cli.output import plural
from penstock.cli.problem import Problem
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages import alter_partition_reassignments as altering

PER_REQUEST = 1_000
LOOK_S = 0.5
LINE_S = 5.0  # between two lines where there is no terminal
SHOWN_MAX = 20
INTERRUPTED = 130


def placements(
    snapshot: Snapshot, moving: Mapping[Key, Moving], sizes: Mapping[int, Mapping[Key, int]]
) -> list[Placement]:
    """Where partitions are, or will be if they move already."""
    return [
        Placement(
            each.topic, each.index, moving[each.key].target if each.key in moving else each.replicas,
            max((held.get(each.key, 0) for held in sizes.values()), default=0),
        )
        for each in snapshot.partitions
    ]  # fmt: skip


def carry_out(cluster: Cluster, plan: Sequence[Move], args: argparse.Namespace, again: str) -> int:
    """To the end, unless it is a dry run. What was on its way before is waited for, too."""
    from penstock.cli.cluster import throttling
    from penstock.cli.output import print_json

    snapshot, options = cluster.snapshot(), cluster.bootstrap.options
    if args.dry_run:
        if args.json:
            print_json({"moves": [_document(move) for move in plan]})
        else:
            show(plan)
        return 0
    if plan and args.throttle:
        throttling.begin(cluster, snapshot, plan, args.throttle)
    try:
        ask_for(cluster, {(move.topic, move.partition): move.replicas for move in plan})
        watch(cluster, plan, quiet=args.json)
        throttling.end(cluster, snapshot)
    except KeyboardInterrupt:
        print(
            "\nThe brokers go on moving without this command. To go on watching: "
            f"{again}{options}\nTo take back what is not complete: penstock cluster rebalance --cancel{options}",
            file=sys.stderr,
        )
        return INTERRUPTED
    if args.json:
        print_json({"moves": [_document(move) for move in plan]})
    return 0


def _document(move: Move) -> dict[str, Any]:
    return {
        "topic": move.topic, "partition": move.partition, "before": move.before, "replicas": move.replicas,
        "bytes": move.moved_bytes,
    }  # fmt: skip


def show(plan: Sequence[Move]) -> None:
    from penstock.cli.output import print_table

    if plan:
        rows = [(each.topic, each.partition, each.before, each.replicas, human(each.moved_bytes)) for each in plan]
        print_table(["topic", "partition", "replicas", "would be", "moves"], rows[:SHOWN_MAX], right=(4,))
        if len(plan) > SHOWN_MAX:
            print(f"… and {len(plan) - SHOWN_MAX:,} more: --json has all of them.")
        print()
    print(f"{summary(plan)} Nothing was changed.")


def summary(plan: Sequence[Move]) -> str:
    if not plan:
        return "Nothing has to move."
    moved = sum(move.moved_bytes for move in plan)
    return f"{plural(len(plan), 'partition')} to move, {human(moved)}."


def ask_for(cluster: Cluster, wanted: Mapping[Key, Sequence[int] | None]) -> None:
    """The replicas that partitions shall have; None takes back a move that is not complete."""
    keys = sorted(wanted)
    for start in range(0, len(keys), PER_REQUEST):
        topics: defaultdict[str, list[altering.ReassignablePartition]] = defaultdict(list)
        for topic, index in keys[start : start + PER_REQUEST]:
            replicas = wanted[topic, index]
            asked = altering.ReassignablePartition(
                partition_index=index, replicas=None if replicas is None else list(replicas)
            )
            topics[topic].append(asked)
        request = altering.AlterPartitionReassignmentsRequest(
            topics=[altering.ReassignableTopic(name=name, partitions=each) for name, each in topics.items()]
        )
        answer = cluster.ask(request, 0, altering.AlterPartitionReassignmentsResponse)
        _check(answer)


def _check(answer: altering.AlterPartitionReassignmentsResponse) -> None:
    from penstock.cli.raw import check

    check(answer.error_code, "can't move partitions", answer.error_message)
    for topic in answer.responses:
        for each in topic.partitions:
            if each.error_code not in (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS):
                check(each.error_code, f"can't move {topic.name}-{each.partition_index}", each.error_message)


def watch(cluster: Cluster, plan: Sequence[Move], *, quiet: bool) -> None:
    """Until nothing moves any more."""
    moves = {(move.topic, move.partition): move for move in plan}
    waited = set(moves)
    with Meter(quiet) as meter:
        while True:
            moving = cluster.moving()
            waited |= moving.keys()
            meter.update(waited, moving, moves, _arrived(cluster, moving))
            if not moving:
                return
            time.sleep(LOOK_S)


def _arrived(cluster: Cluster, moving: Mapping[Key, Moving]) -> dict[tuple[Key, int], int]:
    """Bytes of replicas that are being added, by partition and broker."""
    wanted = {node_id for each in moving.values() for node_id in each.adding}
    brokers = cluster.snapshot().brokers if wanted else {}
    sizes = cluster.sizes(brokers[node_id] for node_id in sorted(wanted & brokers.keys()))
    return {
        (key, node_id): sizes.get(node_id, {}).get(key, 0) for key, each in moving.items() for node_id in each.adding
    }


class Meter:
    """A bar for a person, a line now and then for a log."""

    def __init__(self, quiet: bool) -> None:
        from rich import progress

        from penstock.cli.output import console

        self._fine = not quiet and sys.stderr.isatty()
        self._quiet = quiet
        self._said = ""
        self._said_at = 0.0
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"), progress.BarColumn(), progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[amount]}"), progress.TimeRemainingColumn(), console=console(stderr=True),
            disable=not self._fine,
        )  # fmt: skip
        self._task = self._bar.add_task("moving", total=1.0, amount="")

    def __enter__(self) -> Meter:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(
        self,
        waited: Collection[Key],
        moving: Mapping[Key, Moving],
        moves: Mapping[Key, Move],
        arrived: Mapping[tuple[Key, int], int],
    ) -> None:
        complete = len(waited) - len(moving)
        total = sum(move.moved_bytes for move in moves.values())
        done = sum(move.moved_bytes for key, move in moves.items() if key not in moving)
        done += sum(min(size, moves[key].size_bytes) for (key, _), size in arrived.items() if key in moves)
        part = complete / len(waited) if waited else 1.0
        if total:  # what has arrived is not all: a replica must be in sync, too
            part = (part + min(1.0, done / total)) / 2
        amount = f"{complete:,} of {plural(len(waited), 'partition')}"
        if total:
            amount += f", {human(done)} of {human(total)}"
        self._bar.update(self._task, completed=part, amount=amount)
        late = time.monotonic() - self._said_at >= LINE_S or not moving
        if waited and not self._fine and not self._quiet and amount != self._said and late:
            self._said, self._said_at = amount, time.monotonic()
            print(f"moved {amount}", file=sys.stderr, flush=True)


def cancel(cluster: Cluster) -> set[Key]:
    """Takes back every move that is not complete, and every throttle."""
    from penstock.cli.cluster import throttling

    moving = cluster.moving()
    ask_for(cluster, dict.fromkeys(moving))
    throttling.end(cluster, cluster.snapshot())
    return set(moving)


def refuse_unknown(node_ids: Iterable[int], snapshot: Snapshot) -> None:
    known = {*snapshot.brokers, *(replica for each in snapshot.partitions for replica in each.replicas)}
    for node_id in node_ids:
        if node_id not in known:
            raise Problem(f"there is no broker {node_id}.", f"There are {', '.join(map(str, sorted(known)))}.")


def human(size_bytes: int | None) -> str:
    if size_bytes is None:
        return "-"
    size, units = float(size_bytes), ["B", "kB", "MB", "GB", "TB", "PB"]
    while size >= 999.5 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:.0f} {units[0]}" if units[0] == "B" or size >= 99.5 else f"{size:.1f} {units[0]}"
