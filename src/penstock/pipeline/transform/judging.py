"""Whether records are good or bad is judged alike by all queries of a pipeline, also when its file has changed.

A sink passes over what is bad, and trusts that the dead letters have it; they pass over what is good. Each query has
offsets of its own. So if the file changes while they stand apart, a record between them could be bad for the one that
was quick and good for the one that comes later, or the other way round, and would be in both places or in none.

The checkpoint holds what each query has judged by. Another judgement is taken where all queries stand at the same
offsets, with no batch half done; elsewhere the pipeline does not start.

Dead letters that are new to sinks which have read already (their source has another name now, or none of its records
could be bad before) begin where those sinks stand, and not at `starting`: what is bad behind that, they pass over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.pipeline.problem import PipelineError
from penstock.pipeline.source import IDS
from penstock.pipeline.transform.checkpoints import Checkpoint, checkpoint_at
from penstock.pipeline.transform.model import Pipeline, Sink, Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTES = "judgements.json"
BEGINNINGS = "beginnings.json"  # of dead letters, by query: kept, since sinks may go on before these have a checkpoint
OFFSETS_VERSION = "v1"  # of the files in which Spark keeps offsets

Judgement = dict[str, Any]
Notes = dict[str, dict[str, Judgement]]  # by query, and by source
Position = dict[str, dict[str, int]]  # offsets, by topic and partition


def judgement(source: Source) -> Judgement:
    """Everything that decides whether a record is bad."""
    return {
        "format": source.format.value,
        "schema": source.schema,
        "key": "text" if source.text_key else "binary",
        "expect": dict(source.expect),
    }


def dead_letters_query(source: Source) -> str:
    return _dead_letters_of(source.name)


def _dead_letters_of(name: str) -> str:
    return f"dead-letters-{name}"


def agree(pipeline: Pipeline, spark: SparkSession | None = None) -> dict[str, Position]:
    """Before its queries start: where those of dead letters begin that don't at `starting`.

    Raises PipelineError where queries would not judge alike.
    """
    checkpoint = checkpoint_at(pipeline.checkpoint, spark)
    notes: Notes = _read(checkpoint, NOTES)
    known: dict[str, Position] = _read(checkpoint, BEGINNINGS)
    begin: dict[str, Position] = {}
    now: Notes = {}
    for source in pipeline.sources:
        readers = [each.name for each in pipeline.sinks if _reads(each, source)]
        if source.may_be_bad:
            begin |= _beginning(checkpoint, source, readers, _former(pipeline, readers, notes), known)
            readers.append(dead_letters_query(source))
        _expect_agreement(checkpoint, source, {name: notes[name] for name in readers if name in notes})
        for name in readers:
            now.setdefault(name, {})[source.name] = judgement(source)
    if any(known.get(name) != each for name, each in begin.items()):
        checkpoint.write(BEGINNINGS, json.dumps({**known, **begin}, indent=2))
    if any(notes.get(name) != each for name, each in now.items()):
        checkpoint.write(NOTES, json.dumps({**notes, **now}, indent=2))  # before any query judges by it
    return begin


def _former(pipeline: Pipeline, sinks: Iterable[str], notes: Notes) -> set[str]:
    """Queries of dead letters that have gone with their sources, of which these sinks read when they ran last."""
    gone = {name for each in sinks for name in notes.get(each, {})} - {each.name for each in pipeline.sources}
    return {query for name in gone if (query := _dead_letters_of(name)) in notes}


def _beginning(
    checkpoint: Checkpoint,
    source: Source,
    sinks: Iterable[str],
    former: Iterable[str],
    known: Mapping[str, Position],
) -> dict[str, Position]:
    """By query. None at all where there is a checkpoint, or where sinks are new too."""
    query = dead_letters_query(source)
    if _has_begun(checkpoint, query):
        return {}
    if query in known:
        return {query: known[query]}
    where = [at for name in sinks if _has_begun(checkpoint, name) for at in _positions(checkpoint, name, source)]
    if not where:
        return {}
    where += [at for name in former for at in _positions(checkpoint, name, source)]
    if where[0] is None or any(each != where[0] for each in where):
        raise PipelineError(
            f"the dead letters of [source.{source.name}] are new, and the queries that have read its topics do not "
            "stand at the same offsets: a record between them that is bad would end up nowhere. Run the pipeline as it "
            "was with --once, which brings them to the same offsets, and then as it is now. What it was is in "
            f"{checkpoint.where(NOTES)}"
        )
    return {query: where[0]}


def _has_begun(checkpoint: Checkpoint, query: str) -> bool:
    return _last(checkpoint.names(f"{query}/offsets")) is not None


def _reads(sink: Sink, source: Source) -> bool:
    """A view is named in the statement, if perhaps elsewhere than as a view."""
    return re.search(rf"\b{re.escape(source.name)}\b", sink.sql, re.IGNORECASE) is not None


def _expect_agreement(checkpoint: Checkpoint, source: Source, notes: Notes) -> None:
    now = judgement(source)
    before = [each[source.name] for each in notes.values() if source.name in each]
    changed = [key for key in now if any(each.get(key) != now[key] for each in before)]
    if not changed:
        return
    where = [at for name in notes for at in _positions(checkpoint, name, source)]
    if None in where or any(each != where[0] for each in where):
        raise PipelineError(
            f"[source.{source.name}] has another {' and another '.join(repr(each) for each in changed)} than before, "
            "and the queries of the pipeline do not stand at the same offsets: a record between them could be bad for "
            "one and good for another, and end up nowhere. Run the pipeline as it was with --once, which brings them "
            f"to the same offsets, and then as it is now. What it was is in {checkpoint.where(NOTES)}"
        )


def _positions(checkpoint: Checkpoint, query: str, source: Source) -> list[Position | None]:
    """How far the topics of a source have been read, each time that the query reads them. None where that is open."""
    begun, done = (_last(checkpoint.names(f"{query}/{kind}")) for kind in ("offsets", "commits"))
    if begun is None:
        return [{}]  # it has read nothing yet
    if begun != done:
        return [None]
    version, _, *lines = (checkpoint.read(f"{query}/offsets/{begun}") or "\n").splitlines()
    if version != OFFSETS_VERSION:
        return [None]
    found = [_of_topics(json.loads(line), source) for line in lines if line.startswith("{")]
    return [each for each in found if each]


def _last(names: Iterable[str]) -> int | None:
    """The number of the newest file. Spark keeps others there too."""
    return max((int(each) for each in names if each.isdigit()), default=None)


def _of_topics(offsets: Mapping[str, dict[str, int]], source: Source) -> Position:
    return {
        topic: partitions
        for topic, partitions in offsets.items()
        if topic != IDS
        and (topic in source.topics or (source.pattern is not None and re.fullmatch(source.pattern, topic)))
    }


def _read(checkpoint: Checkpoint, path: str) -> dict[str, Any]:
    text = checkpoint.read(path)
    try:
        return {} if text is None else dict(json.loads(text))
    except ValueError as error:
        raise PipelineError(f"{checkpoint.where(path)} can't be read: {error}") from error
