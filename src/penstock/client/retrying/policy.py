"""How often a message is tried, and how long it waits in between. Pure.

A delay is a tier: all messages that wait equally long wait in one topic, in the order in which they failed, so that
who reads it need only look at its head. A policy therefore has few delays, and each is known beforehand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from penstock.client.errors import SettingsError

Duration = str | int | float | timedelta

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DURATIONS = "Say it as '500ms', '30s', '10m', '2h' or '1d', as seconds, or as a timedelta."
DELAY_MS_MAX = 365 * UNITS_MS["d"]
ATTEMPTS_MAX = 100
TIERS_MAX = 16


def milliseconds(duration: Duration, what: str) -> int:
    if isinstance(duration, timedelta):
        value = duration.total_seconds() * 1000
    elif isinstance(duration, int | float) and not isinstance(duration, bool):
        value = duration * 1000.0
    elif isinstance(duration, str) and (parts := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*", duration)):
        value = float(parts[1]) * UNITS_MS[parts[2]]
    else:
        raise SettingsError(f"{what} is {duration!r}, which is no duration.", DURATIONS)
    if not 1 <= value <= DELAY_MS_MAX:
        raise SettingsError(f"{what} is {duration!r}; it must be between a millisecond and a year.", DURATIONS)
    return round(value)


def spoken(delay_ms: int) -> str:
    """As in the name of a tier: in the largest unit that leaves no fraction."""
    unit = next(name for name in reversed(UNITS_MS) if delay_ms % UNITS_MS[name] == 0)
    return f"{delay_ms // UNITS_MS[unit]}{unit}"


@dataclass(frozen=True, slots=True)
class Backoff:
    """The delays before the second attempt, the third, and so on; the last one counts for all that follow."""

    delays_ms: tuple[int, ...]

    def delay_ms(self, attempt: int) -> int:
        return self.delays_ms[min(attempt, len(self.delays_ms)) - 1]


def fixed(delay: Duration) -> Backoff:
    """The same delay before every further attempt: `fixed("30s")`."""
    return Backoff((milliseconds(delay, "the delay"),))


def exponential(first: Duration = "1s", longest: Duration = "10m", factor: float = 2.0) -> Backoff:
    """`exponential("1s", "10m")` waits 1 s, 2 s, 4 s and so on, and never longer than 10 minutes."""
    first_ms, longest_ms = milliseconds(first, "the first delay"), milliseconds(longest, "the longest delay")
    if longest_ms < first_ms:
        raise SettingsError(f"the longest delay ({longest}) is shorter than the first ({first}).", "Swap them.")
    if not isinstance(factor, int | float) or not factor > 1:
        raise SettingsError(f"the factor is {factor!r}, and must be above 1.", "Use fixed(…) for equal delays.")
    delays = [first_ms]
    while delays[-1] < longest_ms and len(delays) < ATTEMPTS_MAX:
        delays.append(min(longest_ms, round(delays[-1] * factor)))
    return Backoff(tuple(delays))


def steps(*delays: Duration) -> Backoff:
    """Delays as they are named: `steps("10s", "1m", "1h")`; the last one is used for all that follow."""
    if not delays:
        raise SettingsError("steps() has no delay.", "Name at least one: steps('10s', '1m').")
    return Backoff(tuple(milliseconds(delay, f"delay {number}") for number, delay in enumerate(delays, 1)))


Errors = type[BaseException] | Sequence[type[BaseException]]


@dataclass(frozen=True)
class Retry:
    """What is done about a message that a handler could not handle.

    `attempts` counts all calls of the handler, the first one too. With `retry_on`, only these exceptions are tried
    again; those of `give_up_on` never are. What is not tried again goes to the dead letters at once.
    """

    attempts: int = 5
    backoff: Backoff = field(default_factory=exponential)
    retry_on: Errors = Exception
    give_up_on: Errors = ()

    def __post_init__(self) -> None:
        if isinstance(self.attempts, bool) or not isinstance(self.attempts, int):
            raise SettingsError(f"attempts is {self.attempts!r}, which is no whole number.", "Say how often to try.")
        if not 1 <= self.attempts <= ATTEMPTS_MAX:
            raise SettingsError(
                f"attempts is {self.attempts}, and must be 1 to {ATTEMPTS_MAX}.", "It counts the first call too."
            )
        if not isinstance(self.backoff, Backoff):
            raise SettingsError(
                f"backoff is {self.backoff!r}.", 'Use exponential("1s", "10m"), fixed("30s") or steps("10s", "1m").'
            )
        object.__setattr__(self, "retry_on", _types(self.retry_on, "retry_on"))
        object.__setattr__(self, "give_up_on", _types(self.give_up_on, "give_up_on"))
        if len(self.tiers_ms) > TIERS_MAX:
            raise SettingsError(
                f"attempts={self.attempts} with this backoff needs {len(self.tiers_ms)} retry topics, and at most "
                f"{TIERS_MAX} are made.",
                "Use fewer attempts, a larger factor, or a shorter longest delay.",
            )

    def delay_s(self, attempt: int) -> float:
        """How long a message waits after its `attempt`th call failed."""
        return self.delay_ms(attempt) / 1000

    def delay_ms(self, attempt: int) -> int:
        return self.backoff.delay_ms(max(1, attempt))

    @property
    def tiers_ms(self) -> tuple[int, ...]:
        """The distinct delays, in the order in which a message meets them."""
        return tuple(dict.fromkeys(self.delay_ms(attempt) for attempt in range(1, self.attempts)))

    def tries_again(self, error: BaseException, attempts: int) -> bool:
        """Whether a message that failed with this, its `attempts`th attempt, gets another."""
        if attempts >= self.attempts or isinstance(error, _types(self.give_up_on, "give_up_on")):
            return False
        return isinstance(error, _types(self.retry_on, "retry_on"))


def _types(errors: Errors, what: str) -> tuple[type[BaseException], ...]:
    if not isinstance(errors, type | Iterable):
        raise SettingsError(f"{what} is {errors!r}, which is no type of exception.", "Name classes, as in except.")
    found = (errors,) if isinstance(errors, type) else tuple(errors)
    for each in found:
        if not isinstance(each, type) or not issubclass(each, BaseException):
            raise SettingsError(f"{what} has {each!r}, which is no type of exception.", "Name classes, as in except.")
    return found


ONCE = Retry(attempts=1)
