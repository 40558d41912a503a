"""Where an archive is: a folder, HDFS or an object store, through Arrow's file systems."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipeline.problem import OptionError, PipelineError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

S3_CONNECT_TIMEOUT_S = 10.0
S3_REQUEST_TIMEOUT_S = 60.0
HDFS_NEEDS = (
    "HDFS needs Hadoop's client on every machine that runs a part of the job: libhdfs.so (ARROW_LIBHDFS_DIR), Java "
    "(JAVA_HOME) and Hadoop's classes (CLASSPATH=$(hadoop classpath --glob))."
)


@dataclass(frozen=True, slots=True)
class Location:
    """What was given, and what it means. It travels to workers, which open the file system for themselves."""

    given: str
    scheme: str  # file, hdfs or s3
    root: str  # as the file system knows it, without a slash at the end
    authority: str = ""
    s3_endpoint: str | None = None

    @property
    def is_local(self) -> bool:
        return self.scheme == "file"

    @property
    def name(self) -> str:
        """The same from wherever it is read."""
        return self.root if self.is_local else self.given.rstrip("/")

    def open(self) -> FileSystem:
        """Raises PipelineError where what the file system needs is not there."""
        from pyarrow import fs

        if self.scheme == "file":
            return fs.LocalFileSystem()
        if self.scheme == "s3":
            return fs.S3FileSystem(
                **_endpoint(self.s3_endpoint),
                connect_timeout=S3_CONNECT_TIMEOUT_S,
                request_timeout=S3_REQUEST_TIMEOUT_S,
            )
        try:
            return fs.HadoopFileSystem.from_uri(f"hdfs://{self.authority}/")
        except OSError as error:
            raise PipelineError(f"{self.given} can't be opened ({error}). {HDFS_NEEDS}") from error

    def spark_path(self, path: str) -> str:
        """A path of the file system, as Spark names it."""
        if self.scheme == "file":
            return f"file://{path}"
        return f"s3a://{path}" if self.scheme == "s3" else f"hdfs://{self.authority}{path}"


def parse_location(given: str, s3_endpoint: str | None = None) -> Location:
    scheme, separator, rest = given.partition("://")
    if not given:
        raise OptionError("an archive's location is empty")
    if not separator or scheme == "file":
        path = Path(rest if separator else given).expanduser()
        return Location(given, "file", str(path.absolute()))
    rest = rest.rstrip("/")
    authority, slash, path_in = rest.partition("/")
    if scheme in ("s3", "s3a"):
        if not authority:
            raise OptionError(f"{given!r} names no bucket; it must be like s3a://bucket/folder")
        return Location(given, "s3", rest, s3_endpoint=s3_endpoint)
    if scheme == "hdfs":
        return Location(given, "hdfs", slash + path_in, authority)
    raise OptionError(f"{given!r} is neither a folder nor begins with file://, hdfs://, s3:// or s3a://")


def _endpoint(given: str | None) -> dict[str, str]:
    """As the AWS tools find it, too."""
    url = given or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if not url:
        return {}
    scheme, separator, host = url.rpartition("://")
    found = {"endpoint_override": host.rstrip("/"), "scheme": scheme if separator else "https"}
    # Whoever names an endpoint has no region to look up.
    if not (os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")):
        found["region"] = "us-east-1"
    return found
