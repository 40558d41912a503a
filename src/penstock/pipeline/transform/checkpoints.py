"""Files of a pipeline's checkpoint, wherever it is: on this machine, or where only Spark gets at it.

What is elsewhere (s3a, hdfs, …) is reached by what Spark writes its own offsets with, so that it takes no other jar,
key or setting than the queries themselves.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from penstock.pipeline.folders import LOCAL
from penstock.pipeline.problem import PipelineError
from penstock.pipeline.transform.saying import in_short

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Checkpoint(Protocol):
    """Paths are relative to its folder."""

    def where(self, path: str) -> str:
        """For people."""

    def read(self, path: str) -> str | None:
        """None if there is no such file."""

    def names(self, folder: str) -> list[str]:
        """None at all if there is no such folder."""

    def write(self, path: str, text: str) -> None:
        """Whole or not at all."""


def checkpoint_at(location: str, spark: SparkSession | None) -> Checkpoint:
    if "://" not in location or location.startswith(LOCAL):
        return LocalCheckpoint(Path(location.removeprefix(LOCAL)))
    assert spark is not None, "whoever runs a pipeline has a session"
    return SparkCheckpoint(spark, location)


class LocalCheckpoint:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def where(self, path: str) -> str:
        return str(self._folder / path)

    def read(self, path: str) -> str | None:
        try:
            return (self._folder / path).read_text()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PipelineError(f"{self.where(path)} can't be read: {error}") from error

    def names(self, folder: str) -> list[str]:
        path = self._folder / folder
        return [each.name for each in path.iterdir()] if path.is_dir() else []

    def write(self, path: str, text: str) -> None:
        file = self._folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.{os.getpid()}")
        with temporary.open("w") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        temporary.replace(file)


class SparkCheckpoint:
    def __init__(self, spark: SparkSession, location: str) -> None:
        assert spark._jvm is not None
        self._java: Any = spark._jvm
        self._root = location.rstrip("/")
        settings = spark._jsparkSession.sessionState().newHadoopConf()
        streaming = self._java.org.apache.spark.sql.execution.streaming
        try:
            self._files = streaming.checkpointing.CheckpointFileManager.create(self._path(""), settings)
        except Exception as error:  # whatever Java says
            raise PipelineError(f"checkpoint {location} can't be opened: {_said(error)}") from error

    def _path(self, path: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(self.where(path))

    def where(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def read(self, path: str) -> str | None:
        try:
            if not self._files.exists(self._path(path)):
                return None
            opened = self._files.open(self._path(path))
            try:
                return str(self._java.org.apache.commons.io.IOUtils.toString(opened, "UTF-8"))
            finally:
                opened.close()
        except Exception as error:  # whatever Java says
            raise PipelineError(f"{self.where(path)} can't be read: {_said(error)}") from error

    def names(self, folder: str) -> list[str]:
        try:
            if not self._files.exists(self._path(folder)):
                return []
            return [each.getPath().getName() for each in self._files.list(self._path(folder))]
        except Exception as error:  # whatever Java says
            raise PipelineError(f"{self.where(folder)} can't be read: {_said(error)}") from error

    def write(self, path: str, text: str) -> None:
        try:
            self._files.mkdirs(self._path(path).getParent())
            opened = self._files.createAtomic(self._path(path), True)
            try:
                opened.write(bytearray(text.encode()))
            except BaseException:
                opened.cancel()
                raise
            opened.close()
        except Exception as error:  # whatever Java says
            raise PipelineError(f"{self.where(path)} can't be written: {_said(error)}") from error


def _said(error: Exception) -> str:
    """The first cause, in a line."""
    cause = getattr(error, "java_exception", None)
    while cause is not None and cause.getCause() is not None:
        cause = cause.getCause()
    return in_short(error) if cause is None else str(cause.toString())
