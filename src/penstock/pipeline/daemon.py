"""The process that Spark forks its Python workers from, with everything imported that a worker of ours needs.

Spark forks a new one for each step of a batch that its driver takes (a plan, a writer, a commit), and each would spend
more time on imports than on its work.

Spark looks for garbage after each task and each such step, and would look through everything that was imported every
time, which takes longer than many a task. What is there before the first fork is none, and is left out (gc.freeze).

It has one thread. What another one holds while the process is forked, a lock of an allocator say, is held in the worker
for ever; so libraries that start threads when they are imported are told not to.
"""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark.daemon import manager

NEEDED = (
    "pyarrow",
    "penstock.pipeline.datasource",
    "penstock.pipeline.columns",
    "penstock.pipeline.archive.copying",
    "penstock.pipeline.archive.ranges",
    "penstock.pipeline.archive.sink",
    "penstock.pipeline.history_source",
    "pyspark.worker",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
)
OF_ARROW = "JE_ARROW_MALLOC_CONF"  # of the jemalloc inside
OF_NUMPY = "OPENBLAS_NUM_THREADS"


def preload() -> None:
    with _without_threads():
        for name in NEEDED:
            with suppress(ImportError):  # not every version of Spark has each of its own
                importlib.import_module(name)
    gc.collect()
    gc.freeze()


@contextmanager
def _without_threads() -> Iterator[None]:
    """Only for these imports: what a user's functions import later, or start, finds the environment as it was.

    Spark tells executors by OMP_NUM_THREADS how many threads numpy may have, one unless told otherwise. Whoever asked
    for more gets them: OpenBLAS ends its threads before a fork, and starts them again where they are used.
    """
    before = dict(os.environ)
    given = before.get(OF_ARROW)
    os.environ[OF_ARROW] = "background_thread:false" if not given else f"{given},background_thread:false"
    if "OMP_NUM_THREADS" not in before:
        os.environ.setdefault(OF_NUMPY, "1")
    try:
        yield
    finally:
        for name in (OF_ARROW, OF_NUMPY):
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)


if __name__ == "__main__":
    preload()
    manager()
