"""A local folder's files that survive a power cut: what a call has made is there when it returns, whole."""

from __future__ import annotations

import os
import uuid


def sync(path: str) -> None:
    """A file's content, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: str) -> None:
    """A folder is a name in the one above it, so every one that is made is synced into that."""
    above = os.path.dirname(path)
    if os.path.isdir(path):
        return
    if above != path:
        make_folder(above)
    os.makedirs(path, exist_ok=True)
    sync(above)


def replace(temporary: str, path: str) -> None:
    """A file that is written becomes the one of this name."""
    sync(temporary)
    os.replace(temporary, path)
    sync(os.path.dirname(path))


def write(path: str, data: bytes) -> None:
    """The old content or the new, and nothing between."""
    temporary = f"{path}.{uuid.uuid4().hex}"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        replace(temporary, path)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
