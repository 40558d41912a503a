"""Files that appear whole or not at all, on every file system.

A file is written under a name that nobody reads, made durable, and moved. An object store has no rename: there the
move is a copy within the store, which shows the new object only when it is complete. Writing straight to the final name
would not do, because Arrow completes an upload even when its writer fails half way.
"""

from __future__ import annotations

import uuid

from penstock.pipeline.archive import durably
from penstock.pipeline.archive.layout import OURS, Archive

LEFT_BEHIND_S = 3600.0  # a temporary file that is older belongs to nobody any more
COPIED_BYTES = 4 << 20  # at a time, where a store does not copy by itself


def temporary_path(archive: Archive, topic: str) -> str:
    folder = temporary_folder(archive, topic)
    make_folder(archive, folder)
    return f"{folder}/{uuid.uuid4().hex}"


def make_folder(archive: Archive, folder: str) -> None:
    """An object store has none; what stands for them there is in the way of some readers."""
    if archive.location.is_local:
        durably.make_folder(folder)
    elif archive.location.scheme != "s3":
        archive.filesystem.create_dir(folder, recursive=True)


def temporary_folder(archive: Archive, topic: str) -> str:
    return archive.path(OURS, "tmp", f"topic={topic}")


def publish(archive: Archive, temporary: str, folder: str, name: str) -> None:
    """Writing the same again replaces it: the same name has the same records."""
    make_folder(archive, folder)
    path = f"{folder}/{name}"
    if archive.location.is_local:
        durably.replace(temporary, path)
        return
    try:
        archive.filesystem.move(temporary, path)
    except OSError:
        if not exists(archive, path):
            raise
        archive.filesystem.delete_file(temporary)  # HDFS moves nothing over what is there


def publish_empty(archive: Archive, folder: str, name: str) -> None:
    make_folder(archive, folder)
    archive.filesystem.open_output_stream(f"{folder}/{name}").close()
    if archive.location.is_local:
        durably.sync(f"{folder}/{name}")
        durably.sync(folder)


def publish_copy(archive: Archive, topic: str, source: str, folder: str, name: str) -> None:
    """A second name for what is there under another one, as young as if it had just been written."""
    temporary = temporary_path(archive, topic)
    try:
        archive.filesystem.copy_file(source, temporary)
    except NotImplementedError:  # HDFS can't
        with (
            archive.filesystem.open_input_stream(source) as read,
            archive.filesystem.open_output_stream(temporary) as written,
        ):
            while part := read.read(COPIED_BYTES):
                written.write(part)
    publish(archive, temporary, folder, name)


def exists(archive: Archive, path: str) -> bool:
    from pyarrow.fs import FileType

    return bool(archive.filesystem.get_file_info([path])[0].type == FileType.File)


def discard(archive: Archive, path: str) -> None:
    try:
        archive.filesystem.delete_file(path)
    except FileNotFoundError:
        pass
    except OSError:
        if exists(archive, path):
            raise


def clear_temporary(archive: Archive, topic: str, now_s: float) -> int:
    """What killed jobs left behind; how many."""
    from pyarrow.fs import FileSelector, FileType

    selector = FileSelector(temporary_folder(archive, topic), allow_not_found=True)
    old = [
        each.path
        for each in archive.filesystem.get_file_info(selector)
        if each.type == FileType.File and (each.mtime_ns or 0) / 1e9 < now_s - LEFT_BEHIND_S
    ]
    for path in old:
        discard(archive, path)
    return len(old)
