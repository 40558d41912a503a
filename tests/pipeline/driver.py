"""A driver of its own: `python -m tests.pipeline.driver BOOTSTRAP FOLDER [MASTER]` copies topic "in" to "out".

Where the plan has `"kill": "me"`, this process and its JVM are killed at the planned step.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from penstock.pipeline.session import open_session
from tests.pipeline.copying import start
from tests.pipeline.faulty import FaultySource


def main(bootstrap: str, folder: Path, master: str = "local[1]") -> None:
    session = open_session("driver", master, {"spark.executor.memory": "512m", "spark.task.maxFailures": "8"})
    session.dataSource.register(FaultySource)
    plan = folder / "plan.json"
    planned = json.loads(plan.read_text())
    if planned.get("kill") == "me":
        gateway = session.sparkContext._gateway
        assert gateway is not None
        planned["kill"] = [gateway.jvm.java.lang.ProcessHandle.current().pid(), os.getpid()]
        plan.write_text(json.dumps(planned))
    start(session, bootstrap, folder).awaitTermination()
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
