"""What went wrong, said so that a person knows what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

FAILURE = 1
USAGE = 2


class Problem(Exception):
    """Ends a command. The message says what is the matter, the hint what to do about it."""

    def __init__(
        self, message: str, hint: str | None = None, exit_code: int = FAILURE, kafka_error: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
        self.kafka_error = kafka_error  # the broker's error code, if it was the broker who refused

    def render(self) -> str:
        lines = [f"penstock: {self.message}"]
        if self.hint:
            lines += [f"  {line}" for line in self.hint.splitlines()]
        return "\n".join(lines)


def usage(message: str, hint: str | None = None) -> Problem:
    return Problem(message, hint, USAGE)


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """The near miss, if there is one: `Did you mean 'orders'?`"""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"Did you mean {matches[0]!r}?" if matches else None
