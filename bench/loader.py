"""Compiles `load.c` and runs it: one call is one load on one broker, and returns its figures."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from bench import jars
from bench.peers import die_with_parent

SOURCES = [Path(__file__).with_name(name) for name in ("load.c", "wire.h", "histogram.h", "transact.h")]
GRACE_S = 60.0

Figures = dict[str, float]


class LoadFailed(Exception):
    """What the load generator, or the compiler, had to say."""


@cache
def binary() -> Path:
    program = jars.cache() / "load"
    if program.exists() and program.stat().st_mtime > max(source.stat().st_mtime for source in SOURCES):
        return program
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise LoadFailed("the load generator needs a C compiler, and there is none")
    fresh = program.with_suffix(".new")
    command = [compiler, "-O2", "-march=native", "-std=gnu11", "-o", str(fresh), str(SOURCES[0])]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise LoadFailed(done.stderr.strip())
    fresh.rename(program)
    return program


def _command(mode: str, port: int, options: dict[str, object]) -> list[str]:
    return [str(binary()), mode, f"port={port}", *(f"{name}={value}" for name, value in options.items())]


def load(mode: str, port: int, **options: object) -> Figures:
    """`options` are those of `load.c`, by its names."""
    command = _command(mode, port, options)
    seconds = float(str(options.get("seconds", 2)))
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds + GRACE_S, preexec_fn=die_with_parent
        )
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"{mode} on port {port} did not end") from None
    if done.returncode:
        raise LoadFailed(f"{mode} on port {port}: {done.stderr.strip()}")
    figures: Figures = json.loads(done.stdout)
    return figures


@contextmanager
def idle_connections(port: int, count: int) -> Iterator[Figures]:
    """`count` connections that have said hello and nothing since, until the block ends."""
    command = _command("idle", port, {"connections": count})
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise LoadFailed(f"idle on port {port}: {process.stderr.read().strip()}")
        yield json.loads(line)
    finally:
        process.kill()
        process.communicate()
