"""Folders that a job will write to, looked at before Spark starts, which would tell of one in a page of Java."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.pipeline.problem import PipelineError

LOCAL = "file://"


def state_folder() -> Path:
    """Of this user on this machine, wherever a command is run: for what a job remembers and has no better place for."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state").absolute() / "penstock"


def expect_writable(path: str) -> None:
    """Makes the folder. What is not on this machine is left to whoever opens it."""
    if "://" in path and not path.startswith(LOCAL):
        return
    folder = Path(path.removeprefix(LOCAL))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PipelineError(f"folder {folder} can't be made: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PipelineError(f"folder {folder} can't be written to")
