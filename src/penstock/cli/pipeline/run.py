"""`penstock pipeline run`."""

from __future__ import annotations

import argparse
import signal
import threading

from penstock.cli.parser import Parser, add_json
from penstock.cli.pipeline.planning import add_file

EXAMPLES = """\
A pipeline goes on where it was: its checkpoint keeps how far it has come. Ctrl-C stops it after the batch that runs.
Records that can't be decoded go to a topic of dead letters, with the reason in their headers.

examples:
  penstock pipeline run orders.toml
  penstock pipeline run orders.toml --once               what is there now, and end
  penstock pipeline run errors.sql --master spark://host:7077
"""


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    add_file(parser)
    parser.add_argument("--once", action="store_true", help="take what is there now, and end")
    add_json(parser, "print one JSON document a line for each batch")
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.pipeline.planning import planned
    from penstock.cli.pipeline.progress import Progress

    with planned(args, runs=True) as plan:
        from penstock.pipeline.transform.running import Run

        # Now, since Spark sets handlers of its own when it starts.
        stopping = threading.Event()
        previous = {each: signal.signal(each, _stop(stopping)) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            running = Run(plan, once=args.once)
            running.start()
            with Progress(plan.pipeline.name, running.names, as_json=args.json) as progress:
                running.watch(progress.tell, stopping)
            progress.summary()
        finally:
            for each, handler in previous.items():
                signal.signal(each, handler)
    return 0


def _stop(stopping: threading.Event) -> signal.Handlers:
    """The first signal lets the batch end; the second does not."""

    def handler(*_: object) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()

    return handler  # type: ignore[return-value]
