"""Workers find what they need imported: Spark forks one for each step of a batch, from a process of one thread."""

from __future__ import annotations

import os
import subprocess
import sys

from pyspark.sql import SparkSession

from penstock.pipeline.daemon import NEEDED, OF_ARROW, OF_NUMPY


def test_a_worker_is_forked_with_everything_imported_and_from_one_thread(spark: SparkSession) -> None:
    needed = NEEDED

    def found(_: int) -> tuple[list[str], int, int]:
        import gc
        import os
        import sys

        imported = [each for each in needed if each in sys.modules]
        return imported, len(os.listdir(f"/proc/{os.getppid()}/task")), gc.get_freeze_count()

    imported, threads, frozen = spark.sparkContext.parallelize([0], 1).map(found).first()
    assert set(imported) == set(NEEDED)
    assert threads == 1
    assert frozen > 10_000, "else each search for garbage after a task looks through all that was imported"


def test_imports_start_no_threads_and_leave_the_environment_as_it_was() -> None:
    program = (
        "import os\n"
        "from penstock.pipeline.daemon import preload\n"
        "before = dict(os.environ)\n"
        "preload()\n"
        "assert dict(os.environ) == before\n"
        "print([open(f'/proc/self/task/{each}/comm').read().strip() for each in os.listdir('/proc/self/task')])\n"
    )
    bare = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", OF_NUMPY, OF_ARROW)}
    environment = bare | {OF_ARROW: "dirty_decay_ms:1000"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(",") == 0, f"more than one thread: {done.stdout}"


def test_the_first_task_in_a_worker_takes_what_is_imported_out_of_the_search_for_garbage() -> None:
    program = (
        "import gc\n"
        "from penstock.pipeline.settling import settle\n"
        "settle(); first = gc.get_freeze_count(); more = [[] for _ in range(1000)]\n"
        "settle(); print(first > 1000, gc.get_freeze_count() - first < 1000)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True True\n", done.stderr
