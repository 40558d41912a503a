"""What a job of the archive is told, as options of its source and its sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.pipeline.archive.layout import Archive
from penstock.pipeline.options import Options
from penstock.pipeline.problem import OptionError

RECORDS_PER_FILE = 1_000_000
COMPRESSIONS = ("zstd", "snappy", "lz4", "none")
DEFAULT_COMPRESSION = COMPRESSIONS[0]
GROUP_PREFIX = "penstock-archive-"
NAMES = frozenset(
    {
        "archive.location",
        "archive.s3endpoint",
        "archive.recordsperfile",
        "archive.compression",
        "archive.group",
        "archive.report",
    }
)


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    location: str
    s3_endpoint: str | None
    records_per_file: int
    compression: str
    group: str | None  # of all topics; else each has one of its own
    report: str | None  # a file on the driver's machine that gets a line for each batch

    def open(self) -> Archive:
        return Archive(self.location, s3_endpoint=self.s3_endpoint)

    def group_of(self, topic: str) -> str:
        return self.group or default_group(topic)

    def as_options(self) -> dict[str, str]:
        found = {
            "archive.location": self.location,
            "archive.s3Endpoint": self.s3_endpoint,
            "archive.recordsPerFile": str(self.records_per_file),
            "archive.compression": self.compression,
            "archive.group": self.group,
            "archive.report": self.report,
        }
        return {name: value for name, value in found.items() if value is not None}


def default_group(topic: str) -> str:
    return GROUP_PREFIX + topic


def archive_options(given: Mapping[str, str]) -> tuple[ArchiveOptions, dict[str, str]]:
    """Ours, and those that are left."""
    ours = {name: value for name, value in given.items() if name.lower() in NAMES}
    others = {name: value for name, value in given.items() if name.lower() not in NAMES}
    options = Options(ours, NAMES, "archive")
    compression = options.choice("archive.compression", COMPRESSIONS, DEFAULT_COMPRESSION)
    location = options.required("archive.location")
    if any(character.isspace() and character != " " for character in location):
        raise OptionError(f"option 'archive.location' is {location!r}, which is no location")
    found = ArchiveOptions(
        location=location,
        s3_endpoint=options.text("archive.s3Endpoint"),
        records_per_file=options.number("archive.recordsPerFile", 1) or RECORDS_PER_FILE,
        compression=compression,
        group=options.text("archive.group"),
        report=options.text("archive.report"),
    )
    return found, others
