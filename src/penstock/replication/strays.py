"""Folders of partitions that were set aside, because the cluster knows nothing of their topic or they are copies.

One of a topic that the cluster has again is taken back, and what may have become of it meanwhile is known then from the
folder alone: nobody could be told. So the start that finds that the power was lost puts the file `damaged` into each
that may have lost something with it. A topic stays noted as unsynced as long as a folder of it is aside.

    <topic id>-<partition>.stray            the partition's own
    <topic id>-<partition>.<number>.stray   another with the same id: a copy, or one that was in its place before
    unknown-<partition>.stray               a crash has torn even the id
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from penstock.replication.partition import TOPIC_ID_FILE
from penstock.replication.unsynced_topics import is_noted
from penstock.storage import recovery
from penstock.storage.disk import Disk

STRAY: Final = ".stray"
_TOPIC_ID = re.compile("[0-9a-f]{32}")
_OWN = re.compile(r"([0-9a-f]{32})-(\d+)\.stray")


def own_name(topic_id: str, index: int) -> str:
    return f"{topic_id}-{index}{STRAY}"


def owner_of(name: str) -> tuple[bytes, int] | None:
    """The partition that may have the folder back."""
    match = _OWN.fullmatch(name)
    return None if match is None else (bytes.fromhex(match[1]), int(match[2]))


def is_topic_id(text: str) -> bool:
    return _TOPIC_ID.fullmatch(text) is not None


def free_name(folder: str, topic_id: str, taken: Collection[str]) -> str:
    """By the topic's id, if the folder still knows it."""
    index = folder.rpartition("-")[2]
    is_known = is_topic_id(topic_id) and index.isdecimal()
    stem = f"{topic_id if is_known else 'unknown'}-{index if index.isdecimal() else 0}"
    return next(name for number in numbers() if (name := f"{stem}{number}{STRAY}") not in taken)


def numbers() -> Iterator[str]:
    """What tells apart folders that would have the same name."""
    yield ""
    yield from (f".{number}" for number in itertools.count(1))


def topic_id_of(disk: Disk, folder: Path) -> str | None:
    held = disk.read(folder / TOPIC_ID_FILE)
    return None if held is None else held.decode("ascii", "replace").strip()


def suspect(disk: Disk, data_dir: Path, unsynced: Collection[bytes]) -> None:
    """The power was lost. Durable on return."""
    for name in disk.names(data_dir):
        if not name.endswith(STRAY):
            continue
        topic_id = topic_id_of(disk, data_dir / name)
        if topic_id is not None and is_topic_id(topic_id) and is_noted(bytes.fromhex(topic_id), unsynced):
            disk.replace(data_dir / name / recovery.DAMAGED, b"", durable=True)


def sync(disk: Disk, folder: Path) -> None:
    """All that is in it: a stop is clean for what is aside as for everything else."""
    for name in disk.names(folder):
        disk.open(folder / name).sync()
    disk.sync_directory(folder)
