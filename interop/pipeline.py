"""Our own pipeline on Spark, a client like others: against this broker, and with --kafka against Apache Kafka."""

from __future__ import annotations

import importlib.util
import shutil
import sys

from interop.checks import check
from interop.site import Missing, Site

JOB_S = 400.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
EACH = 200  # rows of each codec, and of each transaction
COMMITTED = len(CODECS) * EACH + EACH


@check("penstock on Spark", alone=True)
def reads_writes_and_archives_topics(site: Site) -> None:
    if importlib.util.find_spec("pyspark") is None or shutil.which("java") is None:
        raise Missing("Spark needs pyspark and Java")
    folder = site.work / site.fresh("spark")
    folder.mkdir()
    saw = site.run(sys.executable, "-m", "interop.spark_job", site.address, str(folder), timeout_s=JOB_S)
    all_of_it = f"{COMMITTED} rows, {COMMITTED} different$"
    saw.expect(
        f"^batch read: {COMMITTED} rows, {len(CODECS) * EACH} with headers, 0 aborted$",
        "^filtered read: 10 rows$",
        f"^stream at-least-once: {all_of_it}",
        f"^batch write at-least-once: {all_of_it}",
        "^archive: ended with 0$",
        f"Compared {COMMITTED:,} records: no difference",
        "^verify: ended with 0$",
    )
    for kind in ("stream", "batch write"):
        # Kafka has no two-phase transactions that are switched on: it is found out before a job starts, and said.
        refused = r'refused: .*delivery "exactly-once" needs a broker with two-phase.*delivery="at-least-once"'
        saw.shows(f"^{kind} exactly-once: {refused if site.peer.name == 'kafka' else all_of_it}")
