"""Spark under a command: started without its noise, and its failures in a sentence."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.cli.problem import Problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS = re.compile(r"penstock\.pipeline\.problem\.(?:\w+): (.+)")
CONDITION = re.compile(r"^\[[A-Z_.0-9]+\] ")
CODE = re.compile(r" SQLSTATE: .*$")
LOG_BYTES_SHOWN = 2_000
NOISY = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")  # which print as JSON what is raised as well


@contextlib.contextmanager
def session(name: str, master: str | None, more: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Ends Spark too, if it began it. What Java says goes to a file that is shown only if Spark does not start."""
    try:
        from pyspark.sql import SparkSession

        from penstock.pipeline.problem import PipelineError
        from penstock.pipeline.session import open_session
    except ImportError as missing:
        raise not_installed(missing) from missing
    for noisy in NOISY:
        logging.getLogger(noisy).disabled = True
    running = SparkSession.getActiveSession() is not None
    if not running and sys.stderr.isatty():
        print("penstock: starting Spark …", file=sys.stderr, flush=True)
    from tempfile import TemporaryFile

    with TemporaryFile() as log:
        try:
            with _stderr_to(log.fileno()):
                spark = open_session(name, master, more)
        except PipelineError as problem:
            raise Problem(str(problem)) from problem
        except Exception as failure:
            log.seek(0)
            said = log.read()[-LOG_BYTES_SHOWN:].decode(errors="replace")
            raise Problem(f"Spark does not start: {failure}", said) from failure
        try:
            yield spark
        finally:
            if not running:
                spark.stop()


def add_allow_loss(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-loss", action="store_true", help="go on without messages that neither archive nor log has any more"
    )


def unreadable(failure: Exception, doing: str) -> Problem:
    """What is found out before Spark has anything to do."""
    from penstock.pipeline.problem import DataLost

    hint = "--allow-loss goes on with what is there." if isinstance(failure, DataLost) else None
    return Problem(f"{doing}: {failure}", hint)


def not_installed(missing: ImportError) -> Problem:
    return Problem(f"this command needs Spark ({missing}).", "Install it with: pip install 'penstock[spark]'")


@contextlib.contextmanager
def _stderr_to(descriptor: int) -> Iterator[None]:
    """For the processes that are started meanwhile, as long as they live."""
    sys.stderr.flush()
    before = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def explain(failure: BaseException, doing: str) -> Problem:
    """Spark wraps what happened in a task in many lines; the one that counts is ours, if there is one."""
    from penstock.pipeline.problem import ALLOW_LOSS

    text = str(failure).replace(ALLOW_LOSS, "--allow-loss")
    if ours := OURS.findall(text):
        return Problem(f"{doing}: {ours[-1].strip()}")
    lines = [line for line in text.splitlines() if line.strip()]
    return Problem(f"{doing}: {first_sentence(lines[0]) if lines else type(failure).__name__}")


def first_sentence(line: str) -> str:
    """Without Spark's names for kinds of errors, which stand around it."""
    return CODE.sub("", CONDITION.sub("", line)).strip()


def plain(value: Any, zone: str = "") -> Any:
    """A cell of a row as JSON has it; times with their zone behind, if one is given, as ISO 8601 has them."""
    from datetime import date, datetime
    from decimal import Decimal

    if isinstance(value, bytes | bytearray):
        return _text(bytes(value))
    if isinstance(value, datetime):
        precision = "milliseconds" if value.microsecond % 1000 == 0 else "auto"
        return value.isoformat(sep="T" if zone else " ", timespec=precision) + zone
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {str(plain(name, zone)): plain(each, zone) for name, each in value.items()}
    if hasattr(value, "asDict"):
        return {name: plain(each, zone) for name, each in value.asDict().items()}
    if isinstance(value, list | tuple):
        return [plain(each, zone) for each in value]
    return value


def _text(content: bytes) -> str:
    """Text where it is text, else hexadecimal, as keys and values are."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return "0x" + content.hex()
