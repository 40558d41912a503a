"""Apache Kafka's jars, and those of Spark's connector, fetched once by Maven into a cache outside the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

VERSION = "4.2.0"
FETCH_TIMEOUT_S = 600
POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId><artifactId>peer</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = """
    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"""
ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", VERSION),
    ("org.apache.kafka", "kafka-tools", VERSION),
    # Only so that the tools write their warnings: without a binding they are silent about what went wrong.
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)


class NoKafka(Exception):
    """What is missing, in a sentence."""


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "penstock-bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def classpath() -> str:
    return f"{libraries()}/*"


def libraries() -> Path:
    folder = cache() / f"kafka-{VERSION}"
    if not folder.exists():
        fetch(ARTIFACTS, folder, f"Apache Kafka {VERSION}")
    return folder


Artifact = tuple[str, str, str]  # its group, its name and its version


def fetch(artifacts: Iterable[Artifact], folder: Path, title: str, *, transitive: bool = True) -> None:
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise NoKafka(f"{title} needs {program}, which is not installed")
    print(f"fetching {title} with Maven …", flush=True)
    with tempfile.TemporaryDirectory(dir=cache()) as temporary:
        lines = [DEPENDENCY.format(group=g, artifact=a, version=v) for g, a, v in artifacts]
        (Path(temporary) / "pom.xml").write_text(POM.format(dependencies="".join(lines)))
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
        if not transitive:
            command.append("-DexcludeTransitive=true")
        try:
            done = subprocess.run(command, cwd=temporary, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise NoKafka("Maven took too long") from None
        if done.returncode:
            raise NoKafka(f"Maven failed: {(done.stdout or done.stderr).strip().splitlines()[0]}")
        (Path(temporary) / "jars").rename(folder)
