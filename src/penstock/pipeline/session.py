"""A Spark session with everything set that our jobs need, and a plain word where Java is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipeline.problem import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_OLDEST = 17
DEFAULT_MASTER = "local[*]"
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.python.daemon.module": "penstock.pipeline.daemon",
}


def java() -> str:
    """The Java that Spark would take. Raises PipelineError where there is none, or one that is too old."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None or not Path(found).exists():
        raise PipelineError(f"Spark needs Java {JAVA_OLDEST} or newer, and there is none. {_advice()}")
    said = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=30).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < JAVA_OLDEST:
        first = said.splitlines()[0] if said else "no version"
        raise PipelineError(f"Spark needs Java {JAVA_OLDEST} or newer; {found} says: {first}. {_advice()}")
    return found


def _advice() -> str:
    return "On Debian or Ubuntu: apt install openjdk-17-jre-headless."


def open_session(name: str, master: str | None = None, more: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process, made if there is none. Tasks run with the Python that runs this."""
    java()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    master = master or DEFAULT_MASTER
    builder = SparkSession.builder.appName(name).master(master)
    settings = {**SETTINGS, **(more or {})}
    if not master.startswith("local"):
        settings.pop("spark.driver.host", None)
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
