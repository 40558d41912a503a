"""The group of an archive: its commits say how far a topic is covered, and where the files are.

Retention waits for what the group has committed, so a group is of one archive alone: of two that share it, the one that
is ahead would let retention delete what the other one has not got.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from penstock.pipeline.archive.location import Location, parse_location
from penstock.pipeline.brokers import Brokers, TopicPartition
from penstock.pipeline.group_offsets import committed
from penstock.pipeline.problem import OptionError, PipelineError


def metadata_of(location: Location) -> str:
    """What is committed beside an offset."""
    return json.dumps({"archive": location.name})


def location_in(metadata: str | None) -> str | None:
    """None where somebody else has committed."""
    try:
        found = json.loads(metadata or "").get("archive")
    except (ValueError, AttributeError):
        return None
    return found if isinstance(found, str) and found else None


def expect_own(brokers: Brokers, group: str, places: Collection[TopicPartition], location: Location) -> None:
    """Raises PipelineError where the group has committed for an archive in another place."""
    for place, each in sorted(committed(brokers, group, places).items()):
        other = location_in(each.metadata)
        if other is not None and not _is_same(other, location):
            raise PipelineError(
                f"group {group!r} is of another archive: it has committed {place} for {other}, not for "
                f"{location.name}. Retention would not wait for both. Name a group of its own with --group; or, if the "
                f"archive has moved, let it begin anew with 'penstock group delete {group}'."
            )


def _is_same(name: str, location: Location) -> bool:
    """Whatever the place was called: s3:// and s3a:// are the same."""
    try:
        other = parse_location(name)
    except OptionError:
        return False
    return (other.scheme, other.authority, other.root) == (location.scheme, location.authority, location.root)
