"""Both twins of the columns, by name. From source there is no compiled one, so it is compiled for the tests."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from penstock.pipeline import pure_columns, pure_records, twins

each_twin = pytest.mark.parametrize("twin", ["pure", "compiled"])

PURE = SimpleNamespace(Columns=pure_columns.Columns, Partitions=pure_records.Partitions, encode=pure_records.encode)
COMPILER = (sysconfig.get_config_var("CC") or "cc").split()[0]


def can_compile() -> bool:
    return shutil.which(COMPILER) is not None and (Path(sysconfig.get_path("include")) / "Python.h").exists()


@functools.cache
def compiled_twin() -> ModuleType | None:
    try:
        from penstock.pipeline import _columns

        return _columns
    except ImportError:
        if "--installed" in sys.argv or not can_compile():
            return None
    room = Path(pure_columns.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / f"_columns{importlib.machinery.EXTENSION_SUFFIXES[0]}"
        flags = ["-O1", "-g", "-Wall", "-fPIC", "-shared", f"-I{sysconfig.get_path('include')}"]
        sources = [str(room / "_columns.c"), str(room / "_records.c")]
        subprocess.run([COMPILER, *flags, *sources, "-o", str(library)], check=True, timeout=100)
        spec = importlib.util.spec_from_file_location("_columns", library)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def twin_of(name: str) -> Any:
    twin = PURE if name == "pure" else compiled_twin()
    if twin is None:
        pytest.skip("nothing is compiled here")
    return twin


@contextmanager
def using(name: str) -> Iterator[None]:
    """Decoders and encoders that are made and used in here have that twin."""
    twin, before = twin_of(name), (twins.Columns, twins.Partitions, twins.encode)
    twins.Columns, twins.Partitions, twins.encode = twin.Columns, twin.Partitions, twin.encode  # type: ignore[misc]
    try:
        yield
    finally:
        twins.Columns, twins.Partitions, twins.encode = before  # type: ignore[misc]
