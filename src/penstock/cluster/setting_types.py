"""What a setting is: a name, a type, a default, the values it admits, and one line that says what it does.

A value is text where a person writes it and typed where the broker reads it; `Setting.parse` and `Setting.text` are the
only ways between the two. What is wrong with a value is said in Kafka's words, because tools match on them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

Value = bool | int | float | str | tuple[str, ...] | None
Check = Callable[[str, Value], None]

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
GROUP_ID_MAX_BYTES = 2**15 - 1  # as much as a record of a group can hold

_INTEGER = re.compile(r"[+-]?[0-9]+")
_REPLICA = re.compile(r"([0-9]+:[0-9]+)?")


class SettingError(ValueError):
    """A setting that does not exist, or a value that it does not admit."""


class SettingType(IntEnum):
    """The ids are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


_BITS = {SettingType.SHORT: 16, SettingType.INT: 32, SettingType.LONG: 64}


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    type: SettingType
    default: Value
    documentation: str
    check: Check | None = None
    dynamic: bool = False  # of a broker's: may change while the broker runs
    internal: bool = False  # accepted, but not described to clients

    def parse(self, text: str) -> Value:
        value = self._typed(text)
        if self.check is not None:
            self.check(self.name, value)
        return value

    def _typed(self, text: str) -> Value:
        trimmed = text.strip()
        if self.type is SettingType.STRING:
            return trimmed
        if self.type is SettingType.LIST:
            return tuple(part.strip() for part in trimmed.split(",")) if trimmed else ()
        if self.type is SettingType.BOOLEAN:
            if trimmed.lower() not in ("true", "false"):
                raise invalid(self.name, text, "Expected value to be either true or false")
            return trimmed.lower() == "true"
        return self._number(text, trimmed)

    def _number(self, text: str, trimmed: str) -> int | float:
        try:
            if self.type is SettingType.DOUBLE:
                number = float(trimmed)
                if number == number:  # NaN is no setting
                    return number
            elif _INTEGER.fullmatch(trimmed) and len(trimmed) < 30:
                whole = int(trimmed)
                half = 1 << (_BITS[self.type] - 1)
                if -half <= whole < half:
                    return whole
        except ValueError:
            pass
        raise invalid(self.name, text, f"Not a number of type {self.type.name}")

    def text(self, value: Value) -> str | None:
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)


def invalid(name: str, value: object, reason: str) -> SettingError:
    shown = f"[{', '.join(value)}]" if isinstance(value, tuple) else value
    return SettingError(f"Invalid value {shown} for configuration {name}: {reason}")


def at_least(least: int) -> Check:
    return between(least, None)


def between(least: float, most: float | None) -> Check:
    def check(name: str, value: Value) -> None:
        assert isinstance(value, (int, float))
        if value < least:
            raise invalid(name, value, f"Value must be at least {least}")
        if most is not None and value > most:
            raise invalid(name, value, f"Value must be no more than {most}")

    return check


def one_of(*choices: str) -> Check:
    def check(name: str, value: Value) -> None:
        if value not in choices:
            raise invalid(name, value, f"String must be one of: {', '.join(choices)}")

    return check


def subset_of(*choices: str) -> Check:
    """A list of these, each at most once. It may be empty (KIP-1161)."""

    def check(name: str, value: Value) -> None:
        assert isinstance(value, tuple)
        for part in value:
            if part not in choices:
                raise invalid(name, part, f"String must be one of: {', '.join(choices)}")
        if len(set(value)) != len(value):
            raise SettingError(f"Configuration '{name}' values must not be duplicated.")

    return check


def assignors(name: str, value: Value) -> None:
    subset_of("uniform", "range")(name, value)
    if not value:
        raise invalid(name, value, "there must be one")


def with_classic(name: str, value: Value) -> None:
    subset_of("classic", "consumer")(name, value)
    assert isinstance(value, tuple)
    if "classic" not in value:
        raise SettingError("Disabling the 'classic' protocol is not supported.")


def gzip_level(name: str, value: Value) -> None:
    if not (isinstance(value, int) and (1 <= value <= 9 or value == -1)):
        raise invalid(name, value, "Value must be between 1 and 9 or equal to -1")


def group_id(name: str, value: Value) -> None:
    """The name of a group, or nothing."""
    assert isinstance(value, str)
    if len(value.encode()) > GROUP_ID_MAX_BYTES:
        raise invalid(name, f"{value[:20]}…", f"No group has a name of more than {GROUP_ID_MAX_BYTES} bytes")


def throttled_replicas(name: str, value: Value) -> None:
    assert isinstance(value, tuple)
    if value != ("*",) and not all(_REPLICA.fullmatch(part) for part in value):
        raise invalid(
            name,
            value,
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )


def only(default: Value, reason: str) -> Check:
    """For what Kafka has and this broker has not: the default is accepted, so that generic tools work."""

    def check(name: str, value: Value) -> None:
        if value != default:
            raise invalid(name, str(value).lower() if isinstance(value, bool) else value, reason)

    return check
