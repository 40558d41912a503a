"""The process that Spark forks its Python workers from, with everything imported that a worker of ours needs.

Spark forks a new one for each step of a batch that its driver takes (a plan, a writer, a commit), and each would spend
more time on imports than on its work.
"""

from __future__ import annotations

import importlib

from pyspark.daemon import manager

NEEDED = ("pyarrow", "penstock.pipeline.datasource")

if __name__ == "__main__":
    for name in NEEDED:
        importlib.import_module(name)
    manager()
