"""Subscriptions by regular expression, in the syntax of RE2, as Kafka's brokers take them (KIP-848).

A pattern comes from a client and runs on the loop, against every topic. RE2 has no pattern that takes longer than in
proportion to the name, and memory is bounded here; what is lost with it, back-references and looking around, Kafka does
not have either. The library is loaded when the first pattern comes.
"""

from __future__ import annotations

from typing import Any

from penstock.protocol.errors import ApiError, ErrorCode

LENGTH_MAX = 4096
MEMORY_MAX_BYTES = 256 << 10  # of a compiled pattern, with all that it remembers of names it has seen


class Pattern:
    """A pattern that must match the whole name of a topic."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str, compiled: Any) -> None:
        self.text = text
        self._compiled = compiled

    def matches(self, name: str) -> bool:
        return self._compiled.fullmatch(name) is not None


def compile_pattern(text: str) -> Pattern:
    if len(text) > LENGTH_MAX:
        raise _invalid(f"{text[:50]}…", f"longer than {LENGTH_MAX} characters")
    import re2

    options = re2.Options()
    options.max_mem = MEMORY_MAX_BYTES
    options.never_capture = True
    options.log_errors = False
    try:
        return Pattern(text, re2.compile(text, options))
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        raise _invalid(text, reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None


def _invalid(shown: str, reason: str) -> ApiError:
    message = f"SubscribedTopicRegex `{shown}` is not a valid regular expression: {reason}."
    return ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, message)
