"""A stand-in for HDFS: a folder that copies nothing by itself, and moves nothing over what is there.

That is what Arrow's file system for Hadoop does (`CopyFile` is not implemented, a rename fails where the target is),
and what differs from a local folder in the calls that an archive makes. It is no proof that a Hadoop cluster does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyarrow import fs


class HadoopLike(fs.FileSystemHandler):  # type: ignore[misc]
    def __init__(self, root: Path) -> None:
        self._inner = fs.SubTreeFileSystem(str(root), fs.LocalFileSystem())

    def get_type_name(self) -> str:
        return "hadoop-like"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> Any:
        return [self._renamed(found, path) for found, path in zip(self._inner.get_file_info(paths), paths)]

    def get_file_info_selector(self, selector: Any) -> Any:
        inner = fs.FileSelector(selector.base_dir, selector.allow_not_found, selector.recursive)
        return [self._renamed(each, "/" + each.path.lstrip("/")) for each in self._inner.get_file_info(inner)]

    def _renamed(self, found: Any, path: str) -> Any:
        return fs.FileInfo(path, found.type, size=found.size, mtime_ns=found.mtime_ns)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._inner.create_dir(path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        self._inner.delete_dir(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        self._inner.delete_dir_contents(path, missing_dir_ok=missing_dir_ok)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        self._inner.delete_file(path)

    def move(self, source: str, target: str) -> None:
        if self._inner.get_file_info(target).type != fs.FileType.NotFound:
            raise OSError(f"can't move {source} to {target}: it is there")
        self._inner.move(source, target)

    def copy_file(self, source: str, target: str) -> None:
        raise NotImplementedError("HadoopFileSystem::CopyFile is not supported yet")

    def open_input_stream(self, path: str) -> Any:
        return self._inner.open_input_stream(path)

    def open_input_file(self, path: str) -> Any:
        return self._inner.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        return self._inner.open_output_stream(path, metadata=metadata)

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError
