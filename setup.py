"""Compiles the hot path, and what has a twin in C: requests' bytes, sockets, the pipeline's columns and the client's
messages, where there is a C compiler.

Without one the same modules run as they are. Each of them may fail without the others.
"""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# What every produce and fetch request passes, and every message that the Python client reads. `storage/disk.py` is not
# among them: tests put doubles in its place.
HOT = [
    "transport/turn.py",
    "transport/memory.py",
    "transport/connection.py",
    "transport/peer.py",
    "protocol/plain_fetch.py",
    "storage/index.py",
    "storage/producer_state.py",
    "storage/segment.py",
    "storage/log.py",
    "replication/admission.py",
    "replication/in_sync.py",
    "replication/partition_settings.py",
    "replication/batches.py",
    "replication/syncs.py",
    "replication/waiters.py",
    "replication/partition.py",
    "replication/copying.py",
    "replication/fetching.py",
    "replication/fetcher.py",
    "server/fast_produce.py",
    "server/fast_fetch.py",
    "server/replica_place.py",
    "server/replica_fetch.py",
    "server/fast_replica.py",
    "client/serializers.py",
    "client/spans.py",
    "client/pace.py",
    "client/turns.py",
    "client/stream.py",
    "client/intake.py",
    "client/reader.py",
    "client/retrying/ledger.py",
    "client/retrying/headers.py",
    "client/retrying/assigned.py",
    "client/retrying/copies.py",
    "client/retrying/work.py",
]

# Written in C: what every request's bytes pass, each with a twin in Python beside it that is called pure.
SHORT = "penstock.protocol._short"
SOCKETS = "penstock.transport._sockets"

# The same: what reads and writes single records for Spark. pure_columns.py and pure_records.py are its twin.
COLUMNS = "penstock.pipeline._columns"
COLUMNS_SOURCES = ["src/penstock/pipeline/_columns.c", "src/penstock/pipeline/_records.c"]
COLUMNS_HEADERS = ["src/penstock/pipeline/_columns.h"]

# And every message that the Python client reads. pure_messages.py is its twin.
MESSAGES = "penstock.client._messages"
MESSAGES_SOURCES = ["src/penstock/client/_messages.c", "src/penstock/client/_batches.c"]
MESSAGES_HEADERS = ["src/penstock/client/_messages.h"]


def extensions() -> list:
    """None for an editable install, where a module that was edited must win over what was compiled from it before."""
    if "editable_wheel" in sys.argv or os.environ.get("PENSTOCK_PURE"):
        return []
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    if shutil.which(compiler) is None or not headers.exists():
        print("penstock: no C compiler or no headers of Python, so nothing is compiled", file=sys.stderr)
        return []
    flags = ["-g0", "-fvisibility=hidden"]
    columns = Extension(COLUMNS, COLUMNS_SOURCES, depends=COLUMNS_HEADERS, extra_compile_args=flags)
    messages = Extension(MESSAGES, MESSAGES_SOURCES, depends=MESSAGES_HEADERS, extra_compile_args=flags)
    short = Extension(SHORT, ["src/penstock/protocol/_short.c"], extra_compile_args=flags)
    sockets = Extension(SOCKETS, ["src/penstock/transport/_sockets.c"], extra_compile_args=flags)
    return [*hot_path(), short, sockets, columns, messages]


def hot_path() -> list:
    try:
        from mypyc.build import mypycify

        # Libraries may not be there yet, so what they return is of no known type, and a remark about them is of no use.
        flags = ["--no-warn-return-any", "--no-warn-unused-ignores", "--follow-imports=silent"]
        return mypycify([*flags, *(f"src/penstock/{path}" for path in HOT)], debug_level="0", group_name="penstock")
    except (Exception, SystemExit) as error:
        print(f"penstock: not compiled: {error}", file=sys.stderr)
        return []


class AllOrNothing(build_ext):
    """A library without the modules that load it, or they without it, would not even import."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            self.forget(self.extensions, error)
            self.extensions.clear()

    def build_extensions(self) -> None:
        asked, built = self.extensions, []
        twins = [[extension] for extension in asked if extension.name in (SHORT, SOCKETS, COLUMNS, MESSAGES)]
        for together in ([extension for extension in asked if [extension] not in twins], *twins):
            self.extensions = together
            try:
                super().build_extensions()
                built += together
            except Exception as error:
                self.forget(together, error)
        asked[:] = built  # the list is the distribution's too
        self.extensions = asked

    def forget(self, together: list, error: Exception) -> None:
        print(f"penstock: not compiled: {error}", file=sys.stderr)
        for extension in together:
            Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)


setup(ext_modules=extensions(), cmdclass={"build_ext": AllOrNothing})
