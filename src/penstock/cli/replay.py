"""`penstock replay`: a part of a topic's history, from its archive and its log, back into a topic."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli.clients import add_client
from penstock.cli.parser import Parser, add_bootstrap, positive
from penstock.cli.positions import TIMES, parse_time
from penstock.cli.problem import Problem, usage
from penstock.cli.sparking import add_allow_loss

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.pipeline.brokers import Brokers
    from penstock.pipeline.replaying import ReplayPlan

EXAMPLES = f"""\
times:
  {TIMES}

Keys, values, headers and timestamps are as they were, and so is the order within a partition. Partitions keep their
numbers where the target has as many; else keys choose. A replay that was stopped goes on when the same command is run
again: it remembers in --checkpoint how far it came, and writes nothing twice. A target that holds messages which no
replay of --checkpoint has begun to write is refused, unless --append says that more are to come after them.

examples:
  penstock replay --topic orders --from 2026-05-01 --to 2026-05-02 --into orders-replay
  penstock replay --topic orders --from 7d --into orders-again --rate 500
  penstock replay --topic orders --archive s3a://bucket/archive --into orders-restored
"""
POLL_S = 1
OFFSETS_SHOWN = "messages looked at"


@dataclass(frozen=True, slots=True)
class Time:
    """A time as it was written, and what it meant then."""

    text: str
    timestamp_ms: int


def _time(text: str) -> Time:
    return Time(text, parse_time(text))


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--topic", metavar="NAME", required=True, help="whose messages")
    parser.add_argument("--into", metavar="NAME", required=True, help="the topic to write to; made if it is not there")
    parser.add_argument("--from", dest="first", metavar="TIME", type=_time, help="the earliest (default: all)")
    parser.add_argument("--to", dest="stop", metavar="TIME", type=_time, help="only what is earlier (default: all)")
    parser.add_argument("--rate", metavar="N", type=positive, help="at most N messages a second")
    parser.add_argument(
        "--archive", metavar="LOCATION", help="where the topic is archived, if its archive's group does not tell"
    )
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        type=Path,
        help="where to remember (default: a folder of its own in $XDG_STATE_HOME or ~/.local/state)",
    )
    parser.add_argument("--append", action="store_true", help="also to a target that holds messages already")
    add_allow_loss(parser)
    parser.add_argument("--master", metavar="URL", help="the Spark cluster (default: this machine)")
    add_client(parser)
    add_bootstrap(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.clients import client_options, topics
    from penstock.cli.output import plural
    from penstock.cli.sparking import not_installed, session

    _check(args)
    topics(args, "replay")
    try:
        from penstock.pipeline.replaying import mark_finished
    except ImportError as missing:
        raise not_installed(missing) from missing
    folder, plan = _planned(args)
    if plan.finished:
        print(f"Finished before: {args.topic} is in {args.into}. To do it again, delete {folder}.")
        return 0
    with session("penstock replay", args.master) as spark:
        rows = _follow(spark, plan, client_options(args), folder, args.rate)
    mark_finished(folder, plan)
    print(f"Replayed {plural(rows, 'message')} of {args.topic} into {args.into}.")
    return 0


def _check(args: argparse.Namespace) -> None:
    if args.topic == args.into:
        raise usage("a topic can't be replayed into itself.", "Name another one with --into.")
    if args.first and args.stop and args.first.timestamp_ms >= args.stop.timestamp_ms:
        raise usage("--from is not before --to.")


def _asked(args: argparse.Namespace) -> tuple[str, ...]:
    return (args.topic, args.into, args.first.text if args.first else "", args.stop.text if args.stop else "")


def _planned(args: argparse.Namespace) -> tuple[Path, ReplayPlan]:
    """The plan that is there already, or a new one, and the folder that it is in."""
    from penstock.cli.clients import open_brokers
    from penstock.cli.sparking import unreadable
    from penstock.pipeline.folders import expect_writable
    from penstock.pipeline.problem import PipelineError
    from penstock.pipeline.replaying import default_folder, read_plan, write_plan
    from penstock.protocol.errors import ApiError

    try:
        with open_brokers(args, "replay") as brokers:
            folder: Path = args.checkpoint or default_folder(brokers, args.topic, args.into)
            plan = read_plan(folder)
            if plan is not None:
                _check_same(plan, args, folder, brokers)
                return folder, replace(plan, fail_on_data_loss=not args.allow_loss)  # minds change between two runs
            expect_writable(str(folder))
            plan = _new_plan(args, brokers, folder)
            write_plan(folder, plan)
            return folder, plan
    except (PipelineError, ApiError, OSError) as problem:
        raise unreadable(problem, f"can't replay {args.topic!r}") from problem


def _check_same(plan: ReplayPlan, args: argparse.Namespace, folder: Path, brokers: Brokers) -> None:
    from penstock.pipeline.archive.layout import Archive
    from penstock.pipeline.problem import PipelineError
    from penstock.pipeline.replaying import expect_same_topics

    if plan.asked != _asked(args):
        topic, into, first, stop = plan.asked
        times = f"{f' --from {first}' if first else ''}{f' --to {stop}' if stop else ''}"
        raise _another(f"--topic {topic} --into {into}{times}", folder)
    if args.archive and plan.archive != Archive(args.archive).location.name:
        raise _another(f"--archive {plan.archive}" if plan.archive else "without an archive", folder)
    try:
        expect_same_topics(brokers, plan)
    except PipelineError as problem:
        raise Problem(f"can't replay {args.topic!r}: {problem}.", _another_folder(folder)) from problem


def _another(replay: str, folder: Path) -> Problem:
    return usage(f"another replay was begun there: {replay}.", _another_folder(folder))


def _another_folder(folder: Path) -> str:
    return f"Choose another folder with --checkpoint, or delete it to forget that replay: {folder}"


def _new_plan(args: argparse.Namespace, brokers: Brokers, folder: Path) -> ReplayPlan:
    from penstock.pipeline.archive.layout import Archive
    from penstock.pipeline.archived_rows import Window
    from penstock.pipeline.replaying import ReplayPlan, ensure_target, holds_records, plan_replay, topic_ids
    from penstock.pipeline.survey import find_archive

    first = args.first.timestamp_ms if args.first else None
    stop = args.stop.timestamp_ms if args.stop else None
    location = args.archive or find_archive(brokers, args.topic)
    archive = Archive(location) if location else None
    starting, ending, partitions = plan_replay(
        brokers, args.topic, archive, Window(first, stop), fail_on_data_loss=not args.allow_loss
    )
    if not args.append and holds_records(brokers, args.into):
        raise _holds_some(args.into, folder)
    count, made = ensure_target(brokers, args.into, max(partitions, 1), args.topic)
    topic_id, into_id = topic_ids(brokers, args.topic, args.into)
    if made:
        _tell(f"Created {args.into}, which keeps what it gets for good (retention.ms=-1).")
    kept = count >= partitions
    if not kept:
        _tell(f"{args.into} has fewer partitions than {args.topic}: keys choose, and order holds for each key alone.")
    strict, location = not args.allow_loss, archive.location.name if archive is not None else None
    return ReplayPlan(
        args.topic, args.into, first, stop, _asked(args), location, starting, ending, kept, strict,
        topic_id=topic_id, into_id=into_id,
    )  # fmt: skip


def _holds_some(into: str, folder: Path) -> Problem:
    """Perhaps of this very replay, begun by somebody else or on another machine: it would write all of it again."""
    return usage(
        f"{into!r} holds messages already, and no replay into it was begun in {folder}.",
        "To go on with one that was begun elsewhere, name its folder with --checkpoint.\n"
        "To write after what is there, say --append; or choose another topic with --into.",
    )


def _tell(text: str) -> None:
    print(f"penstock: {text}", file=sys.stderr)


# ---- while it runs


def _follow(spark: Any, plan: ReplayPlan, client: dict[str, str], folder: Path, rate: int | None) -> int:
    """How many messages were written in this run."""
    from penstock.cli.sparking import explain
    from penstock.pipeline.replaying import start_replay

    if not plan.offsets:
        return 0
    try:
        query = start_replay(spark, plan, client, folder, rate)
        with _bar() as bar:
            task = bar.add_task(f"{plan.topic} → {plan.into}", total=plan.offsets)
            rows: dict[int, int] = {}
            while True:
                ended = query.awaitTermination(POLL_S)
                bar.update(task, completed=_look(query, plan, rows))
                if ended:
                    return sum(rows.values())
    except KeyboardInterrupt:
        raise Problem("stopped.", "Run the same command again to go on.", 130) from None
    except Exception as failure:
        problem = explain(failure, "the replay failed")
        problem.hint = problem.hint or "Run the same command again to go on."
        raise problem from failure


def _look(query: StreamingQuery, plan: ReplayPlan, rows: dict[int, int]) -> int:
    """Fills in the rows of each batch; the offsets that lie behind."""
    done = 0
    for progress in query.recentProgress:
        rows[progress.batchId] = max(rows.get(progress.batchId, 0), progress.numInputRows)
        for source in progress.sources:
            done = max(done, plan.position(source.endOffset))
    return done


def _bar() -> Any:
    from rich import progress

    from penstock.cli.output import console

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn(OFFSETS_SHOWN),
        progress.TimeElapsedColumn(),
        console=console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
