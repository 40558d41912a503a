"""`penstock pipeline check`."""

from __future__ import annotations

import argparse

from penstock.cli.parser import Parser, add_json
from penstock.cli.pipeline.planning import add_file

EXAMPLES = """\
examples:
  penstock pipeline check orders.toml
"""


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    add_file(parser)
    add_json(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.output import print_json, print_table
    from penstock.cli.pipeline.planning import planned

    with planned(args) as plan:
        pipeline = plan.pipeline
        rows = [
            ("source", each.name, each.pattern or ",".join(each.topics), _columns(plan.spark.table(each.name).schema))
            for each in pipeline.sources
        ]
        rows += [
            ("sink", each.name, each.topic or each.table or each.path or "", _columns(found.schema))
            for each, found in plan.rows
        ]
        rows += [("dead letters", each.name, each.dead_letters, "") for each, _ in plan.dead_letters]
    if args.json:
        parts = [{"part": part, "name": name, "place": place, "columns": text} for part, name, place, text in rows]
        print_json(
            {"name": pipeline.name, "checkpoint": pipeline.checkpoint, "parts": parts, "to_create": plan.missing}
        )
        return 0
    print_table(["part", "name", "topic or table", "columns"], rows)
    for topic in plan.missing:
        print(f"Topic {topic} will be created.")
    print(f"Pipeline {pipeline.name} is sound. Its checkpoint is {pipeline.checkpoint}.")
    return 0


def _columns(schema: object) -> str:
    from pyspark.sql.types import StructType

    assert isinstance(schema, StructType)
    return ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in schema if not each.name.startswith("_"))
