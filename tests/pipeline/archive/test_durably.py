"""What an archive in a folder has after a power cut."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.pipeline.archive import durably
from penstock.pipeline.archive.layout import Archive
from tests.pipeline.archive.rows import archive_range


def test_every_folder_that_is_made_is_synced_into_the_one_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    plain = durably.sync

    def sync(path: str) -> None:
        synced.append(path)
        plain(path)

    monkeypatch.setattr(durably, "sync", sync)
    root = tmp_path / "srv" / "archive"
    archive = Archive(str(root))
    archive_range(archive, "orders", 0, 10)
    (file,) = archive.files("orders")
    folder = Path(file.path).parent
    assert {str(each) for each in (tmp_path, tmp_path / "srv", root, folder.parent, folder)} <= set(synced)


def test_a_note_is_the_old_one_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive(str(tmp_path))
    old, new = b"o" * 16, b"n" * 16
    archive.set_topic_id("orders", old)

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space"):
            archive.set_topic_id("orders", new)
    assert archive.topic_id("orders") == old
    assert os.listdir(tmp_path / "_penstock" / "topic-id") == ["orders"]
    archive.set_topic_id("orders", new)
    assert archive.topic_id("orders") == new
    (tmp_path / "_penstock" / "topic-id" / "orders").write_bytes(b"n")
    assert archive.topic_id("orders") == b"", "which says nothing"
