"""What goes wrong in a job, told in the words of whoever wrote it: the option, the topic, the partition, the offset."""

from __future__ import annotations

ALLOW_LOSS = 'failOnDataLoss="false"'  # as the source has it; commands put their own option in its place


class PipelineError(Exception):
    """Whatever ends a job. Its text says what to do about it, where that is known."""


class OptionError(PipelineError):
    """An option that does not exist, or whose value can't be used."""


class DataLost(PipelineError):
    """Records that the job was to read are no longer there."""


class HeldBack(PipelineError):
    """Whether a transaction is committed can't be told, while one that is open stands before it."""


class Expired(PipelineError):
    """A transaction was not ended in time, and its coordinator has aborted it."""


class Fenced(PipelineError):
    """Another run of the same query has taken over."""
