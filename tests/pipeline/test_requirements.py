"""The oldest Spark that may be installed has what the data source is made of."""

from __future__ import annotations

import importlib
import inspect
import re
import tomllib
from pathlib import Path

from pyspark.sql import datasource

ROOT = Path(__file__).parents[2]
SINCE = re.compile(r"\.\. versionadded:: (\d+)\.(\d+)")


def version_of(text: str, pattern: str) -> tuple[int, int]:
    major, minor = re.findall(pattern, text)[0]
    return int(major), int(minor)


def test_the_oldest_spark_that_is_taken_has_every_method_that_our_readers_and_writers_take_over() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (wanted,) = [each for each in project["project"]["optional-dependencies"]["spark"] if each.startswith("pyspark")]
    oldest = version_of(wanted, r">=(\d+)\.(\d+)")
    needed = {}
    for name in ("source", "sink", "history_source", "archive.ranges", "archive.sink"):
        for ours in vars(importlib.import_module(f"penstock.pipeline.{name}")).values():
            for theirs in ours.__mro__ if inspect.isclass(ours) else ():
                if theirs.__module__ != datasource.__name__:
                    continue
                taken_over = [each for key, each in vars(theirs).items() if getattr(ours, key, each) is not each]
                for each in (theirs, *taken_over):
                    if since := SINCE.findall(inspect.getdoc(each) or ""):
                        needed[each.__qualname__] = tuple(map(int, since[0]))
    assert len(needed) > 5
    assert oldest >= max(needed.values()), max(needed, key=lambda each: needed[each])
    said = (ROOT / "docs" / "spark.md").read_text()
    assert version_of(said, r"Spark (\d+)\.(\d+) and newer") == oldest
