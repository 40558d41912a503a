"""The data folder: one broker at a time, always the same one, and what its last stop means for what it holds."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path

from penstock.cluster.identity import RandomBytes, new_uuid, show_uuid
from penstock.storage.disk import Disk

FILE_NAME = "broker.json"
FORMAT = 1


class FolderError(Exception):
    """The folder can't be used; the message says what to do."""


def lock(data_dir: Path) -> int:
    """Two brokers on one folder would destroy it."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        fd = os.open(data_dir / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise FolderError(f"cannot use the data folder {data_dir}: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise FolderError(f"another broker uses {data_dir}. Stop it, or choose another folder with --data.") from None
    return fd


def this_boot() -> str:
    """Changes when the machine starts anew: until then, what was written and not synced is there still."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose folder it is. `boot` is that of the last start."""

    folder: str
    node_id: int
    cluster_id: str
    boot: str

    def encode(self) -> bytes:
        content = {"folder": self.folder, "node": self.node_id, "cluster": self.cluster_id, "boot": self.boot}
        return json.dumps({"format": FORMAT, **content}).encode()


def read(disk: Disk, data_dir: Path) -> Identity | None:
    """None for a folder that no broker has used yet."""
    stored = disk.read(data_dir / FILE_NAME)
    if stored is None:
        return None
    try:
        content = json.loads(stored)
        if content["format"] != FORMAT:
            raise FolderError(f"{data_dir} was written by a newer version of this broker")
        return Identity(content["folder"], content["node"], content["cluster"], content["boot"])
    except (KeyError, TypeError, ValueError):
        raise FolderError(f"{data_dir / FILE_NAME} is damaged: it says whose folder this is") from None


def new(random_bytes: RandomBytes, node_id: int) -> Identity:
    return Identity(show_uuid(new_uuid(random_bytes)), node_id, "", "")


def save(disk: Disk, data_dir: Path, identity: Identity) -> None:
    disk.replace(data_dir / FILE_NAME, identity.encode(), durable=True)


def check(data_dir: Path, known: Identity, node_id: int, cluster_id: str) -> None:
    if known.node_id != node_id:
        raise FolderError(
            f"{data_dir} belongs to broker {known.node_id}, not {node_id}. Start it with --node-id {known.node_id}, or "
            "choose another folder with --data."
        )
    if known.cluster_id and known.cluster_id != cluster_id:
        found = f"this is cluster {cluster_id}" if cluster_id else "this ZooKeeper holds none"
        raise FolderError(
            f"{data_dir} belongs to cluster {known.cluster_id}, but {found}. Choose another "
            "folder with --data, or the ZooKeeper (and its chroot) of that cluster with --zookeeper."
        )
